//! Which writes a volatile cache may still lose, and whether it has lost some (SBC-3 §4.15).
//!
//! Why it is so: `docs/design/flushes.md`.

mod epoch;
mod estimate;
mod flush;
pub mod flushing;
mod losses;
mod reports;
mod standing;

pub use epoch::Epoch;
pub use estimate::FlushEstimate;
pub use flush::Flush;
pub use losses::LossCount;
pub use standing::{FlushRank, WitnessRank};

use crate::by_path::ByPath;
use crate::ids::PathId;
use losses::Losses;
use reports::Reports;

/// Knows what the unit has acknowledged and may not have on its medium, and what a flush proves.
///
/// A unit keeps writes in a volatile cache until a flush (SYNCHRONIZE CACHE), and a reset empties that cache. The unit reports
/// each reset to every session at the session's next command (SAM-5 §5.14). So one session flushes for all, and one session
/// can vouch for the writes of all: it logged in before the oldest unflushed write began, and has received no report of a
/// reset since. If no session can, and the unit has a cache, the writes count as lost: to write again does no harm, to trust
/// what is unknown does.
///
/// - What a new session receives before its first accepted command is older than the session, so it is no loss.
/// - A unit reports once. A command that ends without a status, with TASK ABORTED, or without readable sense data may have
///   carried the report. Its session cannot vouch any more for what was written before, and another one has to: the witness.
/// - A deferred error (SPC-4 §4.5.5) is a loss, and so is a flush that fails on the medium: the unit need not try again what it
///   could not write. It reports a failed flush only to the session that has sent it, although SYNCHRONIZE CACHE is about what
///   all have written. Another disk with the same unit has to be informed ([`on_lost_writes`](Self::on_lost_writes)).
/// - A flush counts once all commands have ended that its session sent before it: a report may have come with any of them
///   ([`Unit::have_ended_before`](crate::Unit::have_ended_before)). A flush that is abandoned leaves its writes unflushed.
/// - Each handle of a disk reports each loss once, as Linux does for each open file (`errseq_t`).
///
/// What another initiator's failed flush costs is unknown. So is what a flush costs that fails on the medium and loses its
/// answer with its session: every session that is lost during a flush would be a loss. And no report tells what a cache has lost
/// that was switched on, and off again after a loss of power, between two commands.
#[derive(Clone, Debug)]
pub struct Durability {
    now: Epoch,
    oldest: OldestWrites,
    paths: ByPath<Reports>,
    losses: Losses,
    /// When the unit last reported that it could not write what it had acknowledged.
    last_failure: Epoch,
    has_cache: bool,
}

/// When the oldest of the writes began that no flush has proved to be on the medium.
#[derive(Clone, Copy, Debug, Default)]
struct OldestWrites {
    /// Of the writes that no flush has begun for.
    waiting: Option<Epoch>,
    /// Of the writes that the flush in progress is for.
    flushing: Option<Epoch>,
}

impl Durability {
    /// A unit with its first path, which receives every report from now on.
    pub(crate) fn new(first: PathId) -> Self {
        let mut paths = ByPath::default();
        paths.insert(first, Reports::of_the_first());
        Self {
            now: Epoch::default(),
            oldest: OldestWrites::default(),
            paths,
            losses: Losses::default(),
            last_failure: Epoch::default(),
            has_cache: false,
        }
    }

    /// A further session has logged in, and has sent no command yet.
    pub(crate) fn join(&mut self, path: PathId) {
        let joined = self.next_epoch();
        self.paths.insert(path, Reports::of_a_further(joined));
    }

    pub(crate) fn leave(&mut self, path: PathId) {
        self.paths.remove(path);
    }

    /// The moment at which a command begins.
    pub(crate) const fn now(&self) -> Epoch {
        self.now
    }

    fn next_epoch(&mut self) -> Epoch {
        self.now = self.now.next();
        self.now
    }

    /// A session has received the report of a reset.
    pub fn on_reset(&mut self, path: PathId) {
        let now = self.next_epoch();
        if let Some(reports) = self.paths.get_mut(path) {
            reports.on_reset(now);
        }
    }

    /// A command of a session has ended in a way that may have hidden the report of a reset. The unit does not repeat it.
    pub fn on_uncertain_end(&mut self, path: PathId) {
        let now = self.next_epoch();
        if let Some(reports) = self.paths.get_mut(path) {
            reports.on_uncertain_end(now);
        }
    }

    /// The unit has accepted a command in place of which it would have reported a reset.
    pub fn accept(&mut self, path: PathId, begun: Epoch) {
        if let Some(reports) = self.paths.get_mut(path) {
            reports.accept(begun);
        }
    }

    /// A write has ended with GOOD.
    pub fn on_write(&mut self, path: PathId, begun: Epoch) {
        self.accept(path, begun);
        self.oldest.add(begun);
    }

    /// Some of what was written is lost: the unit has reported a failed write-back, or a flush has failed on the medium,
    /// perhaps one of another disk. Any write that has begun by now may be among it, also one that the flush in progress is not
    /// for: the next flush reports that.
    pub fn on_lost_writes(&mut self) {
        self.losses.add();
        self.last_failure = self.next_epoch();
    }

    /// The unit keeps writes in a volatile cache, or does not report that it has none.
    pub const fn on_cache(&mut self) {
        self.has_cache = true;
    }

    /// Whether the unit was ever seen to have a volatile cache. It may have been switched on after the disk was opened.
    pub const fn has_cache(&self) -> bool {
        self.has_cache
    }

    /// The number of losses so far.
    pub const fn losses(&self) -> LossCount {
        self.losses.count()
    }

    /// The number of losses that some handle has reported: where a new handle begins.
    pub const fn reported_losses(&self) -> LossCount {
        self.losses.reported()
    }

    /// The moments that it keeps, in an order that does not depend on them: by path, then the others. What they are is of no
    /// meaning, only which is earlier.
    pub(crate) fn epochs(&self) -> impl Iterator<Item = Option<Epoch>> {
        let of_paths = self.paths.iter().flat_map(Reports::epochs).map(Some);
        let others = [self.last_failure, self.now].map(Some);
        of_paths.chain([self.oldest.waiting, self.oldest.flushing]).chain(others)
    }

    /// A handle reports all losses so far.
    pub fn report_losses(&mut self) -> LossCount {
        self.losses.report()
    }
}

impl OldestWrites {
    fn add(&mut self, begun: Epoch) {
        self.waiting = Some(self.waiting.map_or(begun, |oldest| oldest.min(begun)));
    }
}

#[cfg(test)]
mod tests;
