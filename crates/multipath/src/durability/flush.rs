//! Begins and ends a flush, and decides whether writes were lost before it.

use super::Durability;
use super::reports::Epoch;
use crate::ids::PathId;

/// A flush in progress. It ends with [`end_flush`](Durability::end_flush),
/// [`fail_flush`](Durability::fail_flush) or [`abandon_flush`](Durability::abandon_flush).
#[derive(Clone, Debug)]
#[must_use = "a flush that does not end hides what it was for"]
pub struct Flush {
    path: PathId,
    begun: Epoch,
    /// When the oldest write began that this flush covers.
    oldest: Option<Epoch>,
}

impl Flush {
    /// Returns the epochs in this flush.
    pub(crate) fn epochs(&self) -> [Option<Epoch>; 2] {
        [Some(self.begun), self.oldest]
    }
}

impl Durability {
    /// Begins a flush over this path. It covers the writes that have ended. Only one flush of the unit is in
    /// progress at a time, over all of its disks, because until its status arrives it is unknown whether it
    /// fails.
    pub fn begin_flush(&mut self, path: PathId) -> Flush {
        self.oldest.flushing = self.oldest.waiting.take();
        Flush { path, begun: self.now, oldest: self.oldest.flushing }
    }

    /// Returns whether another session has to vouch for the writes: the unit has a cache, and the session of
    /// the flush joined after the oldest of them began, or may have missed a report.
    pub fn needs_witness(&self, flush: &Flush) -> bool {
        self.has_cache && !self.covers(flush, flush.path)
    }

    /// Returns whether a session knows of every reset since the oldest write of the flush began.
    pub fn covers(&self, flush: &Flush, path: PathId) -> bool {
        let knows_since = |oldest| self.paths.get(path).is_some_and(|it| it.knows_since(oldest));
        flush.oldest.is_none_or(knows_since)
    }

    /// Ends a flush that the unit has executed. The caller has received all reports to the session of the
    /// flush until then, and all reports to the `witness` since. If the unit has a cache, the writes count as
    /// lost unless one of the two sessions vouches for them. Without a cache, no session has to vouch.
    pub fn end_flush(&mut self, flush: Flush, witness: Option<PathId>) {
        self.accept(flush.path, flush.begun);
        let is_unknown = self.needs_witness(&flush);
        self.oldest.flushing = None;
        let Some(oldest) = flush.oldest else { return };
        let vouches = |path| self.paths.get(path).is_some_and(|it| it.vouches_for(oldest));
        let is_lost = is_unknown && !witness.is_some_and(vouches);
        let is_reset = self.last_reset(flush.path) > oldest;
        // The failed write-back was counted as a loss when the unit reported it. If an earlier flush has
        // reported that loss already, the loss counts once more for the writes of this flush, which the
        // earlier flush did not cover.
        let has_failed = self.last_failure > oldest && self.losses.are_reported();
        if is_lost || is_reset || has_failed {
            self.losses.add();
        }
    }

    /// Ends a flush that could not write to the medium. The loss is counted already. The writes of the flush
    /// do not count as unflushed any more, because no later flush can vouch for them.
    pub fn fail_flush(&mut self, flush: Flush) {
        drop(flush);
        self.oldest.flushing = None;
    }

    /// Ends a flush that has not ended with GOOD, or whose caller was cancelled. Its writes are unflushed
    /// again.
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
