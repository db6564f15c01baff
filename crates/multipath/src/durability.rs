//! Tracks writes that a volatile cache may still lose, and counts losses (SBC-3 §4.15).
//!
//! Design: `docs/design/flushes.md`.

mod estimate;
mod flush;
mod flush_rank;
pub mod flushing;
mod reports;

pub use estimate::FlushEstimate;
pub use flush::Flush;
pub use flush_rank::{FlushRank, WitnessRank};
pub use reports::Epoch;

use crate::by_path::ByPath;
use crate::ids::PathId;
use reports::Reports;

/// The writes that the unit has acknowledged and that may not be on its medium yet, and the losses of such
/// writes.
///
/// A unit keeps writes in a volatile cache until a flush (SYNCHRONIZE CACHE), and a reset empties that cache.
/// The unit reports each reset to every session, with the session's next command (SAM-5 §5.14). So one
/// session can flush the writes of all sessions, and one session can vouch for these writes: a session that
/// logged in before the oldest unflushed write began, and has received no report of a reset since. If there
/// is no such session, and the unit has a cache, the writes count as lost. The caller then writes them again,
/// which does no harm if they were not lost.
///
/// - A report that a new session receives before its first accepted command is about an event before the
///   session began, so it counts as no loss.
/// - A unit reports a reset once per session. A command that ends without a status, with TASK ABORTED, or
///   without readable sense data may have carried the report. Its session can then not vouch for earlier
///   writes any more, and another session must vouch for them: the witness.
/// - A deferred error (SPC-4 §4.5.5) is a loss, and so is a flush that fails on the medium: the unit need not
///   retry data that it could not write. It reports a failed flush only to the session that has sent the
///   flush, although SYNCHRONIZE CACHE covers the writes of all sessions. Other disks of the same unit must
///   be informed by the caller ([`on_lost_writes`](Self::on_lost_writes)).
/// - A flush ends only when all commands have ended that its session sent before it, because any of them may
///   have received a report ([`Unit::have_ended_before`](crate::Unit::have_ended_before)). An abandoned flush
///   leaves its writes unflushed.
/// - Each handle of a disk reports each loss once, as Linux does for each open file (`errseq_t`).
///
/// Some losses are not detected. The first is a failed flush of another initiator. The second is a flush that
/// fails on the medium and whose status is lost with its session: to count this loss, every session that is
/// lost during a flush would have to count as a loss. The third is a cache that was switched on, lost data at
/// a loss of power, and was switched off again between two commands: no report shows this.
#[derive(Clone, Debug)]
pub struct Durability {
    now: Epoch,
    oldest: OldestWrites,
    paths: ByPath<Reports>,
    losses: Losses,
    /// When the unit last reported that it could not write acknowledged data.
    last_failure: Epoch,
    has_cache: bool,
}

/// Start of the oldest write that may not be on the medium yet.
#[derive(Clone, Copy, Debug, Default)]
struct OldestWrites {
    /// The oldest write for which no flush has begun.
    waiting: Option<Epoch>,
    /// The oldest write that the flush in progress covers.
    flushing: Option<Epoch>,
}

/// A number of losses. Each handle keeps the number that it has reported.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct LossCount(pub u64);

#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    count: LossCount,
    /// The highest number of losses that any handle has reported.
    reported: LossCount,
}

impl Durability {
    /// Creates the state of a unit with its first path, which receives every report.
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

    /// Adds a further session, which has sent no command yet.
    pub(crate) fn join(&mut self, path: PathId) {
        let joined = self.next_epoch();
        self.paths.insert(path, Reports::of_a_further(joined));
    }

    pub(crate) fn leave(&mut self, path: PathId) {
        self.paths.remove(path);
    }

    /// Returns the present epoch: a command that is sent now begins at this epoch.
    pub(crate) const fn now(&self) -> Epoch {
        self.now
    }

    fn next_epoch(&mut self) -> Epoch {
        self.now = self.now.next();
        self.now
    }

    /// Records that a session has received the report of a reset.
    pub fn on_reset(&mut self, path: PathId) {
        let now = self.next_epoch();
        if let Some(reports) = self.paths.get_mut(path) {
            reports.on_reset(now);
        }
    }

    /// Records that a command of a session has ended in a way that may have hidden the report of a reset. The
    /// unit does not repeat a hidden report.
    pub fn on_uncertain_end(&mut self, path: PathId) {
        let now = self.next_epoch();
        if let Some(reports) = self.paths.get_mut(path) {
            reports.on_uncertain_end(now);
        }
    }

    /// Records that the unit has accepted a command, so that it had no reset to report to this session.
    pub fn accept(&mut self, path: PathId, begun: Epoch) {
        if let Some(reports) = self.paths.get_mut(path) {
            reports.accept(begun);
        }
    }

    /// Records that a write has ended with GOOD.
    pub fn on_write(&mut self, path: PathId, begun: Epoch) {
        self.accept(path, begun);
        self.oldest.add(begun);
    }

    /// Records a loss of writes: the unit has reported a failed write-back, or a flush has failed on the
    /// medium, perhaps a flush of another disk. The loss may include any write that has begun so far, also a
    /// write that the flush in progress does not cover; the next flush reports the loss again.
    pub fn on_lost_writes(&mut self) {
        self.losses.add();
        self.last_failure = self.next_epoch();
    }

    /// Records that the unit keeps writes in a volatile cache, or does not report that it has none.
    pub const fn on_cache(&mut self) {
        self.has_cache = true;
    }

    /// Returns whether the unit had a volatile cache at any time, or did not report that it has none.
    pub const fn has_cache(&self) -> bool {
        self.has_cache
    }

    /// Returns the number of losses so far.
    pub const fn losses(&self) -> LossCount {
        self.losses.count()
    }

    /// Returns the number of losses that some handle has reported. A new handle begins with this number.
    pub const fn reported_losses(&self) -> LossCount {
        self.losses.reported()
    }

    /// Returns the epochs in this state: first the epochs of each path, then the other epochs. Each epoch has
    /// a fixed position, so that a caller can replace the values by their order.
    pub(crate) fn epochs(&self) -> impl Iterator<Item = Option<Epoch>> {
        let of_paths = self.paths.iter().flat_map(Reports::epochs).map(Some);
        let others = [self.last_failure, self.now].map(Some);
        of_paths.chain([self.oldest.waiting, self.oldest.flushing]).chain(others)
    }

    /// Marks all losses so far as reported by a handle, and returns their number.
    pub fn report_losses(&mut self) -> LossCount {
        self.losses.report()
    }
}

impl OldestWrites {
    fn add(&mut self, begun: Epoch) {
        self.waiting = Some(self.waiting.map_or(begun, |oldest| oldest.min(begun)));
    }
}

impl Losses {
    const fn add(&mut self) {
        self.count.0 += 1;
    }

    const fn count(&self) -> LossCount {
        self.count
    }

    const fn reported(&self) -> LossCount {
        self.reported
    }

    /// Returns whether each loss so far was reported by some handle. If not, the next flush that ends reports one, and a
    /// further loss need not be counted.
    fn are_reported(&self) -> bool {
        self.reported == self.count
    }

    fn report(&mut self) -> LossCount {
        self.reported = self.count;
        self.count
    }
}

#[cfg(test)]
mod tests;
