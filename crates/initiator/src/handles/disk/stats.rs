//! What a disk counts.

use super::Disk;
use crate::multipath::stats::DiskStats;
use crate::state::counters::{RequestKind, Running};

impl Disk {
    /// Returns the statistics since the disk was opened: requests as callers see them, and the
    /// commands of each session. No count decreases when a session is lost.
    ///
    /// A call that is split counts as the requests that it is split into. A call that is refused
    /// before anything is sent, for its range for example, does not count. Counting costs a request
    /// far less than a microsecond; a snapshot copies about 10 KiB for each session.
    #[doc(alias("metrics", "statistics"))]
    pub fn stats(&self) -> DiskStats {
        let (target, lun) = (self.unit.session().target(), self.unit.lun());
        let stats = self.paths.stats(self.report.reconnects());
        let target = target.map(ToString::to_string).unwrap_or_default();
        DiskStats { target, lun, capacity: self.capacity(), ..stats }
    }

    /// Counts a request that moves `bytes` bytes, until its end.
    pub(super) fn begin(&self, kind: RequestKind, bytes: usize) -> Running<'_> {
        self.paths.counters().begin(kind, bytes as u64)
    }
}
