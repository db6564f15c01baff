//! The lock that a driver is behind: whoever has it runs the session for so long.

use std::sync::{Mutex, PoisonError, TryLockError};

use super::Driver;

/// A driver, until its session has ended.
pub(super) struct DriverLock(Mutex<Option<Box<Driver>>>);

impl DriverLock {
    pub(super) fn new(driver: Driver) -> Self {
        Self(Mutex::new(Some(Box::new(driver))))
    }

    /// Acts on the driver; `None` when it is gone.
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut Driver) -> R) -> Option<R> {
        // One that a panic has left behind is not gone on with.
        self.0.lock().ok()?.as_deref_mut().map(act)
    }

    /// Has the driver take something, unless somebody else has the driver: then that comes back. `None` when it is gone.
    pub(super) fn try_pass<T, R>(
        &self,
        item: T,
        take: impl FnOnce(&mut Driver, T) -> R,
    ) -> Result<Option<R>, T> {
        match self.0.try_lock() {
            Ok(mut guard) => Ok(guard.as_deref_mut().map(|driver| take(driver, item))),
            Err(TryLockError::WouldBlock) => Err(item),
            Err(TryLockError::Poisoned(_)) => Ok(None),
        }
    }

    /// The session goes no further.
    pub(super) fn close(&self) {
        let driver = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        // What it held is given back without the lock.
        drop(driver);
    }
}
