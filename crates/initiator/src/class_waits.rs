//! Measures the total time in which at least one request waited in a traffic class.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Total time in which at least one request waited.
#[derive(Debug, Default)]
pub(crate) struct ClassWaits(Mutex<Waits>);

#[derive(Debug, Default)]
struct Waits {
    waiting: usize,
    /// Start of the current wait; `None` if no request waits.
    since: Option<Instant>,
    /// Total time, without the current wait.
    total: Duration,
}

/// A request that waits, until this value is dropped.
#[derive(Debug)]
pub(crate) struct ClassWait<'a>(&'a ClassWaits);

impl ClassWaits {
    /// Adds a request that waits.
    pub(crate) fn join(&self) -> ClassWait<'_> {
        let mut waits = self.lock();
        waits.waiting += 1;
        waits.since.get_or_insert_with(Instant::now);
        drop(waits);
        ClassWait(self)
    }

    /// Returns the total time so far, with the current wait.
    pub(crate) fn total(&self) -> Duration {
        let waits = self.lock();
        waits.total + waits.since.map(|since| since.elapsed()).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Waits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ClassWait<'_> {
    fn drop(&mut self) {
        let mut waits = self.0.lock();
        waits.waiting -= 1;
        if waits.waiting == 0
            && let Some(since) = waits.since.take()
        {
            waits.total += since.elapsed();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_counts_once_however_many_wait() {
        let (waits, second) = (ClassWaits::default(), Duration::from_secs(1));
        advance(second).await;
        assert_eq!(waits.total(), Duration::ZERO);
        let first = waits.join();
        advance(second).await;
        let other = waits.join();
        assert_eq!(waits.total(), second);
        drop(first);
        advance(second).await;
        drop(other);
        assert_eq!(waits.total(), 2 * second);
        advance(second).await;
        assert_eq!(waits.total(), 2 * second);
    }
}
