//! A flush, and what it proves.

use super::Durability;
use super::epoch::Epoch;
use crate::ids::PathId;

/// A flush in progress. It ends in one of [`end_flush`](Durability::end_flush), [`fail_flush`](Durability::fail_flush) and
/// [`abandon_flush`](Durability::abandon_flush).
#[derive(Clone, Debug)]
#[must_use = "a flush that does not end hides what it was for"]
pub struct Flush {
    path: PathId,
    begun: Epoch,
    /// When the oldest write began that it is for.
    oldest: Option<Epoch>,
}

impl Flush {
    /// The moments that it keeps.
    pub(crate) fn epochs(&self) -> [Option<Epoch>; 2] {
        [Some(self.begun), self.oldest]
    }
}

impl Durability {
    /// Begins a flush, over this path, of the writes that have ended. One flush is in progress at a time, of all disks with
    /// the unit: until it is answered, it is not known whether it fails.
    pub fn begin_flush(&mut self, path: PathId) -> Flush {
        self.oldest.flushing = self.oldest.waiting.take();
        Flush { path, begun: self.now, oldest: self.oldest.flushing }
    }

    /// Whether another session has to vouch for what was written: the unit has a cache, and the session of the flush came
    /// later, or may have missed a report.
    pub fn needs_witness(&self, flush: &Flush) -> bool {
        self.has_cache && !self.covers(flush, flush.path)
    }

    /// Whether a session knows of every reset since the oldest write of the flush began.
    pub fn covers(&self, flush: &Flush, path: PathId) -> bool {
        let knows_since = |oldest| self.paths.get(path).is_some_and(|it| it.knows_since(oldest));
        flush.oldest.is_none_or(knows_since)
    }

    /// The unit has flushed. All that it has reported to the session of the flush before, and to the `witness` since, has
    /// arrived. What was written counts as lost unless one of the two vouches for it. Without a cache, nothing is lost
    /// if no session vouches.
    pub fn end_flush(&mut self, flush: Flush, witness: Option<PathId>) {
        self.accept(flush.path, flush.begun);
        let is_unknown = self.needs_witness(&flush);
        self.oldest.flushing = None;
        let Some(oldest) = flush.oldest else { return };
        let vouches = |path| self.paths.get(path).is_some_and(|it| it.vouches_for(oldest));
        let is_lost = is_unknown && !witness.is_some_and(vouches);
        let is_reset = self.last_reset(flush.path) > oldest;
        // A failure counted when it was reported. It counts once more if a flush has reported it that was not for these writes.
        let has_failed = self.last_failure > oldest && self.losses.are_reported();
        if is_lost || is_reset || has_failed {
            self.losses.add();
        }
    }

    /// The unit could not write to its medium, which counts as a loss already. No other flush can vouch for what this one was
    /// for.
    pub fn fail_flush(&mut self, flush: Flush) {
        drop(flush);
        self.oldest.flushing = None;
    }

    /// The flush has not ended with GOOD, or its caller waits no longer: its writes count as unflushed again.
    pub fn abandon_flush(&mut self, flush: Flush) {
        if let Some(oldest) = flush.oldest {
            self.oldest.add(oldest);
        }
        self.oldest.flushing = None;
    }

    fn last_reset(&self, path: PathId) -> Epoch {
        self.paths.get(path).map_or(Epoch::NEVER, super::reports::Reports::last_reset)
    }
}
