//! Locks a driver: the task that holds the lock runs the session meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use iscsi_session::Stats;

use super::Driver;
use super::queue::Queue;
use crate::driver::request::RequestId;

/// A driver under a lock, and the queue of messages that callers leave while another task holds the lock.
pub(super) struct DriverLock {
    /// The driver; after it was closed, the final counters of its session.
    driver: Mutex<Result<Driver, Stats>>,
    pub(super) queue: Queue,
    ids: AtomicU64,
}

impl DriverLock {
    pub(super) fn new(driver: Driver) -> Self {
        let driver = Mutex::new(Ok(driver));
        Self { driver, queue: Queue::default(), ids: AtomicU64::new(0) }
    }

    /// Returns an identifier for a request that is handed to the driver.
    pub(super) fn next_id(&self) -> RequestId {
        RequestId(self.ids.fetch_add(1, Ordering::Relaxed))
    }

    /// Calls `act` with the driver, and returns the result; `None` when the driver is gone.
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut Driver) -> R) -> Option<R> {
        // A panic poisons the lock, and the driver is not used again.
        self.driver.lock().ok()?.as_mut().ok().map(act)
    }

    /// Returns the driver, or the final counters; `None` while another task holds the lock, and after a panic.
    /// With `None` the caller leaves a message, which wakes the event loop; after a panic the loop then ends.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, Result<Driver, Stats>>> {
        self.driver.try_lock().ok()
    }

    /// Returns the counters of the session.
    pub(super) fn stats(&self) -> Stats {
        stats_of(&self.driver.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Closes the driver, whether or not its session has ended.
    pub(super) fn close(&self) {
        let mut guard = self.driver.lock().unwrap_or_else(PoisonError::into_inner);
        let stats = stats_of(&guard);
        let mut driver = std::mem::replace(&mut *guard, Err(stats));
        drop(guard);
        let messages = self.queue.close();
        if let Ok(driver) = &mut driver {
            driver.abandon();
        }
        // The lock is released first: dropping requests releases permits and ranges, which may need the lock.
        drop((driver, messages));
    }
}

fn stats_of(driver: &Result<Driver, Stats>) -> Stats {
    driver.as_ref().map_or_else(|stats| *stats, |driver| driver.session.stats())
}
