//! Reports the state, the events and the statistics of a disk.

use super::Disk;
use crate::events::disk_events::DiskEvents;
use crate::multipath::disk_status::DiskStatus;
use crate::multipath::paths::status::PathStatus;
use crate::multipath::stats::DiskStats;
use crate::state::counters::{RequestKind, Running};

impl Disk {
    /// Subscribes to later events: changes of the unit, paths that go up or down, resets, losses, long waits, and
    /// announcements of the target.
    ///
    /// A disk that was opened over an existing session reports the events of its unit, and its waits.
    ///
    /// ```no_run
    /// use iscsi_initiator::DiskEvent;
    ///
    /// # async fn watch(disk: &iscsi_initiator::Disk) {
    /// let mut events = disk.events();
    /// while let Some(event) = events.next().await {
    ///     match event {
    ///         DiskEvent::CapacityChanged { now, .. } => println!("{now} bytes"),
    ///         event => println!("{event}"),
    ///     }
    /// }
    /// # }
    /// ```
    #[doc(alias("changes", "notices"))]
    pub fn events(&self) -> DiskEvents {
        self.unit.state().known().events.subscribe()
    }

    /// Returns the paths to the unit, each with its state: the sessions, and the lost sessions that are being
    /// reconnected.
    #[doc(alias("multipath", "MPIO"))]
    pub fn paths(&self) -> Vec<PathStatus> {
        let mut paths = self.paths.statuses();
        paths.extend(self.report.reconnecting());
        paths
    }

    /// Returns how many sessions the disk has, why, and what it waits for.
    #[doc(alias("sessions", "multipath"))]
    pub fn status(&self) -> DiskStatus {
        self.report.get()
    }

    /// Returns the statistics since the disk was opened: requests as callers see them, and the
    /// commands of each session. No count decreases when a session is lost.
    ///
    /// A call that is split counts as several requests, one for each part. A call that fails before anything is
    /// sent, for example because of its range, does not count. Counting costs a request far less than a
    /// microsecond; a snapshot copies about 10 KiB for each session.
    #[doc(alias("metrics", "statistics"))]
    pub fn stats(&self) -> DiskStats {
        let (target, lun) = (self.unit.session().target(), self.unit.lun());
        let stats = DiskStats::of(&self.paths, self.report.reconnects());
        let target = target.map(ToString::to_string).unwrap_or_default();
        DiskStats { target, lun, capacity: self.capacity(), ..stats }
    }

    /// Counts a request of `bytes` bytes as running until the returned value ends.
    pub(super) fn begin(&self, kind: RequestKind, bytes: usize) -> Running<'_> {
        self.paths.counters().begin(kind, bytes as u64)
    }
}
