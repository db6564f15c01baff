//! Waits for the commands of one session with a unit to end.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::state::waiters::Waiters;

/// The order in which commands are sent, and the tasks that wait for some of them to end. Which ones have ended,
/// the [`Unit`](iscsi_multipath::Unit) knows.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    /// Held from the number to the sending: a command that cannot be sent ends immediately.
    order: Mutex<()>,
    ended: Notify,
    waiters: Waiters,
}

impl Outstanding {
    /// Held by a command until it has its number and is handed over; no other one is sent in between.
    pub(crate) fn order(&self) -> MutexGuard<'_, ()> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

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
