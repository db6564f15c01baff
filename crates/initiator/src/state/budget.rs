//! How much may be under way at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::error::Error;
use crate::options::Options;

/// The limits of a session: requests, and the bytes of their buffers.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    requests: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    max_requests: usize,
    max_bytes: u32,
    waits: Arc<WaitCounters>,
}

/// What is counted of the requests that had to wait for room.
#[derive(Debug, Default)]
struct WaitCounters {
    /// Those that wait now.
    waiting: AtomicU64,
    count: AtomicU64,
    nanoseconds: AtomicU64,
}

/// Counts a request that waits for room, until it is dropped.
struct WaitGuard<'a>(&'a WaitCounters);

impl<'a> WaitGuard<'a> {
    fn new(waits: &'a WaitCounters) -> Self {
        waits.waiting.fetch_add(1, Ordering::Relaxed);
        Self(waits)
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A share of the budget; it goes back when the session has finished with the request, which may
/// be later than when its caller has lost interest.
#[derive(Debug)]
pub(crate) struct Permit {
    _request: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

impl Budget {
    /// What a session, or the sessions of a disk together, may have under way by the options.
    pub(crate) fn of(options: &Options) -> Self {
        Self::new(options.requests(), options.max_bytes_in_flight)
    }

    pub(crate) fn new(requests: usize, bytes: usize) -> Self {
        let max_bytes = u32::try_from(bytes.max(1)).unwrap_or(u32::MAX);
        Self {
            requests: Arc::new(Semaphore::new(requests)),
            bytes: Arc::new(Semaphore::new(max_bytes as usize)),
            max_requests: requests,
            max_bytes,
            waits: Arc::default(),
        }
    }

    /// How many requests with buffers of `bytes` have room at once, at least one.
    pub(crate) fn max_of(&self, bytes: usize) -> usize {
        (self.max_bytes as usize / bytes.max(1)).min(self.max_requests).max(1)
    }

    /// Bytes that the buffers of further requests may have now.
    pub(crate) fn bytes_left(&self) -> u64 {
        self.bytes.available_permits() as u64
    }

    /// Bytes of the buffers of requests under way.
    #[cfg(test)]
    pub(crate) fn bytes_in_use(&self) -> usize {
        self.max_bytes as usize - self.bytes.available_permits()
    }

    /// Waits for room for one request with buffers of `bytes`. One that exceeds the whole budget
    /// gets all of it.
    pub(crate) async fn reserve(&self, bytes: usize) -> Result<Permit, Error> {
        if let Some(permit) = self.try_reserve(bytes) {
            return Ok(permit);
        }
        self.waits.count.fetch_add(1, Ordering::Relaxed);
        let begun = Instant::now();
        let permit = {
            let _waiting = WaitGuard::new(&self.waits);
            // Boxed, since most requests find some.
            Box::pin(self.wait_for_room(bytes)).await
        };
        let waited = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.waits.nanoseconds.fetch_add(waited, Ordering::Relaxed);
        permit
    }

    /// Whether requests wait for room now.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waits.waiting.load(Ordering::Relaxed) > 0
    }

    /// How many requests had to wait for room, and how long those that have it by now waited in all.
    pub(crate) fn waits(&self) -> (u64, Duration) {
        let time = Duration::from_nanos(self.waits.nanoseconds.load(Ordering::Relaxed));
        (self.waits.count.load(Ordering::Relaxed), time)
    }

    async fn wait_for_room(&self, bytes: usize) -> Result<Permit, Error> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.max_bytes);
        let request = Arc::clone(&self.requests).acquire_owned().await;
        let bytes = Arc::clone(&self.bytes).acquire_many_owned(bytes).await;
        match (request, bytes) {
            (Ok(request), Ok(bytes)) => Ok(Permit { _request: request, _bytes: bytes }),
            // The semaphores are never closed.
            (Err(_), _) | (_, Err(_)) => Err(Error::Closed),
        }
    }

    /// Room for one request, if there is some and nobody waits for it.
    pub(crate) fn try_reserve(&self, bytes: usize) -> Option<Permit> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.max_bytes);
        let request = Arc::clone(&self.requests).try_acquire_owned().ok()?;
        let bytes = Arc::clone(&self.bytes).try_acquire_many_owned(bytes).ok()?;
        Some(Permit { _request: request, _bytes: bytes })
    }

    /// How many requests there can be.
    pub(crate) fn max_requests(&self) -> u32 {
        u32::try_from(self.max_requests).unwrap_or(u32::MAX)
    }

    /// The bytes of all buffers there can be, but for one request that exceeds the budget.
    pub(crate) fn max_bytes(&self) -> u64 {
        self.max_bytes.into()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    #[tokio::test]
    async fn a_request_beyond_the_budget_gets_all_of_it() {
        let budget = Budget::new(4, 100);
        let all = budget.reserve(1 << 40).await;
        assert!(all.is_ok());
        let waiter = tokio::spawn({
            let budget = budget.clone();
            async move { budget.reserve(1).await.is_ok() }
        });
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        drop(all);
        assert!(waiter.await.is_ok_and(|granted| granted));
    }

    #[tokio::test(start_paused = true)]
    async fn only_who_finds_no_room_counts_as_waiting() {
        let budget = Budget::new(2, 100);
        let first = budget.reserve(60).await;
        drop(budget.reserve(40).await);
        assert_eq!(budget.waits(), (0, Duration::ZERO));
        let waiter = tokio::spawn({
            let budget = budget.clone();
            async move { budget.reserve(50).await.is_ok() }
        });
        sleep(Duration::from_millis(30)).await;
        drop(first);
        assert!(waiter.await.is_ok_and(|granted| granted));
        assert_eq!(budget.waits(), (1, Duration::from_millis(30)));
    }
}
