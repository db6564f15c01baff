//! Waits for the commands of one session with a unit to end.

use tokio::sync::Notify;

use crate::state::waiters::Waiters;

/// The tasks that wait for some commands to end. Which ones have ended, the [`Unit`](iscsi_multipath::Unit) knows.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    ended: Notify,
    waiters: Waiters,
}

impl Outstanding {
    /// Some commands have ended. To be called without the lock of the unit.
    pub(crate) fn notify(&self) {
        // Mostly no task waits, and to notify takes a lock even then.
        if self.waiters.are_any() {
            self.ended.notify_waiters();
        }
    }

    /// Waits until `have_ended` holds; asks it whenever some commands have ended.
    pub(crate) async fn wait(&self, have_ended: impl Fn() -> bool) {
        let _waiting = self.waiters.join();
        loop {
            // A command that ends from here on is noticed.
            let ended = self.ended.notified();
            if have_ended() {
                return;
            }
            ended.await;
        }
    }
}
