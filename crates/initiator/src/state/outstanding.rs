//! Waits until commands of one session to a unit have ended.

use tokio::sync::Notify;

use crate::state::waiters::Waiters;

/// The tasks that wait for commands to end. The [`Unit`](iscsi_multipath::Unit) knows which commands have
/// ended.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    ended: Notify,
    waiters: Waiters,
}

impl Outstanding {
    /// Wakes the waiting tasks, because some commands have ended. Must be called without the lock of the
    /// unit.
    pub(crate) fn notify(&self) {
        // Usually no task waits, and a notification takes a lock even then.
        if self.waiters.are_any() {
            self.ended.notify_waiters();
        }
    }

    /// Waits until `have_ended` returns true. It is called again each time that some commands have ended.
    pub(crate) async fn wait(&self, have_ended: impl Fn() -> bool) {
        let _waiting = self.waiters.join();
        loop {
            // Created before the check, so that a command that ends after the check is noticed.
            let ended = self.ended.notified();
            if have_ended() {
                return;
            }
            ended.await;
        }
    }
}
