//! What a disk counts.

use super::Disk;
use crate::multipath::stats::DiskStats;
use crate::state::counters::{RequestKind, Running};

impl Disk {
    /// What was counted since the disk was opened: of requests as callers see them, and of each
    /// session. Nothing that was counted gets less, also when sessions are lost.
    ///
    /// A call that is split counts as the requests that it is split into. One that is refused before
    /// anything is sent, for its range say, does not count. To count costs a request well below a
    /// microsecond; a snapshot copies some ten KiB for each session.
    pub fn stats(&self) -> DiskStats {
        let (target, lun) = (self.unit.session().target(), self.unit.lun());
        let stats = self.paths.stats(self.report.get().reopened);
        let target = target.map(ToString::to_string).unwrap_or_default();
        DiskStats { target, lun, capacity: self.capacity(), ..stats }
    }

    /// Counts a request that moves so many bytes, until its end.
    pub(super) fn begin(&self, kind: RequestKind, bytes: usize) -> Running<'_> {
        self.paths.counters().begin(kind, bytes as u64)
    }
}
