//! How many wait for something.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Those who wait, counted.
#[derive(Debug, Default)]
pub(crate) struct Waiters(AtomicUsize);

/// One who waits, until it is dropped.
#[derive(Debug)]
pub(crate) struct WaitGuard<'a>(&'a Waiters);

impl Waiters {
    /// One more waits.
    pub(crate) fn join(&self) -> WaitGuard<'_> {
        self.0.fetch_add(1, Ordering::SeqCst);
        WaitGuard(self)
    }

    /// How many wait.
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Whether anybody waits.
    pub(crate) fn are_any(&self) -> bool {
        self.count() > 0
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}
