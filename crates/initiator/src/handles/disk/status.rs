//! What a disk reports of itself.

use super::Disk;
use crate::events::disk_events::DiskEvents;
use crate::multipath::disk_status::DiskStatus;
use crate::multipath::path_status::PathStatus;

impl Disk {
    /// Subscribes to later events: changes of the unit, paths that go up or down, resets, losses, long waits, and what the
    /// target announces.
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
}
