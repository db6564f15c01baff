//! The lock that a driver is behind: whoever has it runs the session for so long.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use iscsi_session::Stats;

use super::Driver;
use super::queue::Queue;
use crate::driver::request::RequestId;

/// A driver, until its session has ended, and what is left to it by those who have not got it.
pub(super) struct DriverLock {
    /// Or what the session had counted when it was over.
    driver: Mutex<Result<Driver, Stats>>,
    pub(super) queue: Queue,
    ids: AtomicU64,
}

impl DriverLock {
    pub(super) fn new(driver: Driver) -> Self {
        let driver = Mutex::new(Ok(driver));
        Self { driver, queue: Queue::default(), ids: AtomicU64::new(0) }
    }

    /// A name for a request that is handed to the driver.
    pub(super) fn next_id(&self) -> RequestId {
        RequestId(self.ids.fetch_add(1, Ordering::Relaxed))
    }

    /// Acts on the driver; `None` when it is gone.
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut Driver) -> R) -> Option<R> {
        // One that a panic has left behind is not gone on with.
        self.driver.lock().ok()?.as_mut().ok().map(act)
    }

    /// The driver, or what is left of it; `None` while somebody else has it. After a panic nobody gets it: the event loop is
    /// woken by what is left to it, and ends.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, Result<Driver, Stats>>> {
        self.driver.try_lock().ok()
    }

    /// What the session has counted.
    pub(super) fn stats(&self) -> Stats {
        stats_of(&self.driver.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The session goes no further, whether or not it has ended.
    pub(super) fn close(&self) {
        let mut guard = self.driver.lock().unwrap_or_else(PoisonError::into_inner);
        let stats = stats_of(&guard);
        let mut driver = std::mem::replace(&mut *guard, Err(stats));
        drop(guard);
        let messages = self.queue.close();
        if let Ok(driver) = &mut driver {
            driver.abandon();
        }
        // What they held is given back without the lock.
        drop((driver, messages));
    }
}

fn stats_of(driver: &Result<Driver, Stats>) -> Stats {
    driver.as_ref().map_or_else(|stats| *stats, |driver| driver.session.stats())
}
