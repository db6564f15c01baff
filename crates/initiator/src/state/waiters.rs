//! Counts tasks that wait for something.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of tasks that wait.
#[derive(Debug, Default)]
pub(crate) struct Waiters(AtomicUsize);

/// One task that waits, until this value is dropped.
#[derive(Debug)]
pub(crate) struct WaitGuard<'a>(&'a Waiters);

impl Waiters {
    /// Adds a task that waits.
    pub(crate) fn join(&self) -> WaitGuard<'_> {
        self.0.fetch_add(1, Ordering::SeqCst);
        WaitGuard(self)
    }

    /// Returns how many tasks wait.
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Returns whether any task waits.
    pub(crate) fn are_any(&self) -> bool {
        self.count() > 0
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}
