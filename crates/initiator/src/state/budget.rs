//! Limits what may be in flight at the same time: the budget.
//!
//! Design: `docs/design/limits.md`.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::Error;
use crate::options::Options;
use crate::state::waiters::{WaitGuard, Waiters};

/// Limits of requests in flight, and of the bytes of their buffers. Clones share the same budget.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    max_requests: usize,
    max_bytes: u64,
    /// Requests that wait, or have received room but were not polled since.
    waiters: Waiters,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Number of requests for which there is still room.
    requests: usize,
    bytes: u64,
    /// Requests that wait for bytes, the earliest first, including some that have given up. A request that
    /// needs fewer bytes does not overtake the first request.
    with_bytes: VecDeque<Waiting>,
    /// Requests that need no bytes, such as flushes. They only need a place among the requests in flight.
    without_bytes: VecDeque<Waiting>,
    /// Number of requests that had to wait; `waited` is the total time of their waits.
    waits: u64,
    waited: Duration,
}

/// A request that waits for room in the budget.
#[derive(Debug)]
struct Waiting {
    /// Number of requests that had to wait before this one.
    number: u64,
    bytes: u64,
    permit: oneshot::Sender<Permit>,
}

/// A share of the budget. The share is released when the session has finished with the request, which may be
/// after the caller has dropped its future.
#[derive(Debug)]
pub(crate) struct Permit {
    budget: Budget,
    bytes: u64,
}

/// The place of a request in one of the queues, while the request waits.
struct Place<'a> {
    budget: &'a Budget,
    granted: oneshot::Receiver<Permit>,
    begun: Instant,
    has_room: bool,
    _waiting: WaitGuard<'a>,
}

impl Budget {
    /// Returns the budget that the options set for one session, or for all sessions of a disk together.
    pub(crate) fn of(options: &Options) -> Self {
        Self::new(options.requests(), options.in_flight.bytes)
    }

    pub(crate) fn new(requests: usize, bytes: usize) -> Self {
        let max_bytes = (bytes as u64).max(1);
        let state = State {
            requests,
            bytes: max_bytes,
            with_bytes: VecDeque::new(),
            without_bytes: VecDeque::new(),
            waits: 0,
            waited: Duration::ZERO,
        };
        Self(Arc::new(Shared {
            max_requests: requests,
            max_bytes,
            waiters: Waiters::default(),
            state: Mutex::new(state),
        }))
    }

    /// Returns the maximum number of concurrent requests with buffers of `bytes`, at least one.
    pub(crate) fn max_of(&self, bytes: usize) -> usize {
        let by_bytes = self.0.max_bytes / (bytes as u64).max(1);
        usize::try_from(by_bytes).unwrap_or(usize::MAX).min(self.0.max_requests).max(1)
    }

    /// Returns how many bytes the buffers of further requests may have.
    pub(crate) fn bytes_left(&self) -> u64 {
        self.lock().bytes
    }

    /// Returns the bytes of the buffers of requests in flight.
    #[cfg(test)]
    pub(crate) fn bytes_in_use(&self) -> usize {
        usize::try_from(self.0.max_bytes - self.bytes_left()).unwrap()
    }

    /// Waits for room for one request with buffers of `bytes`. A request that exceeds the whole budget
    /// receives all of it.
    pub(crate) async fn reserve(&self, bytes: usize) -> Result<Permit, Error> {
        match self.try_reserve(bytes) {
            Some(permit) => Ok(permit),
            // Boxed, because most requests do not wait.
            None => Box::pin(self.wait_for_room(bytes)).await,
        }
    }

    async fn wait_for_room(&self, bytes: usize) -> Result<Permit, Error> {
        let mut place = self.queue_up(bytes);
        let permit = (&mut place.granted).await;
        place.has_room = permit.is_ok();
        // The sender stays in the queue until it has sent a permit, so this error does not occur.
        permit.map_err(|_| Error::closed())
    }

    fn queue_up(&self, bytes: usize) -> Place<'_> {
        let (permit, granted) = oneshot::channel();
        let _waiting = self.0.waiters.join();
        self.lock().queue_up(self.share(bytes), permit);
        let begun = Instant::now();
        let place = Place { budget: self, granted, begun, has_room: false, _waiting };
        // Capacity may have been released since `try_reserve` failed.
        self.serve();
        place
    }

    /// Gives room to waiting requests. Sends the permits without the lock, because a task that is woken may
    /// take the lock.
    fn serve(&self) {
        loop {
            let next = self.lock().next();
            let Some(Waiting { bytes, permit, .. }) = next else { return };
            // If the request has stopped waiting, the permit is dropped and returns its share.
            drop(permit.send(Permit { budget: self.clone(), bytes }));
        }
    }

    /// Returns whether requests wait for room.
    pub(crate) fn has_waiters(&self) -> bool {
        self.0.waiters.are_any()
    }

    /// Returns how many requests had to wait for room, and the total time of the waits that have ended.
    pub(crate) fn waits(&self) -> (u64, Duration) {
        let state = self.lock();
        (state.waits, state.waited)
    }

    /// Returns room for one request, if there is room and no earlier request waits for it.
    pub(crate) fn try_reserve(&self, bytes: usize) -> Option<Permit> {
        let bytes = self.share(bytes);
        let mut state = self.lock();
        // While there is room for a request, other requests can only be waiting for bytes.
        let is_free = (state.with_bytes.is_empty() || bytes == 0) && state.take(bytes);
        is_free.then(|| Permit { budget: self.clone(), bytes })
    }

    /// Returns the maximum number of requests in flight.
    pub(crate) fn max_requests(&self) -> u32 {
        u32::try_from(self.0.max_requests).unwrap_or(u32::MAX)
    }

    /// Returns the maximum bytes of all buffers, except for one request that exceeds the budget.
    pub(crate) fn max_bytes(&self) -> u64 {
        self.0.max_bytes
    }

    /// Returns the share of a request with buffers of `bytes`.
    fn share(&self, bytes: usize) -> u64 {
        (bytes as u64).min(self.0.max_bytes)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    const fn has_room(&self, bytes: u64) -> bool {
        self.requests > 0 && self.bytes >= bytes
    }

    /// Takes room for one request, if there is room. Returns whether there was.
    const fn take(&mut self, bytes: u64) -> bool {
        let has_room = self.has_room(bytes);
        if has_room {
            self.requests -= 1;
            self.bytes -= bytes;
        }
        has_room
    }

    const fn give_back(&mut self, bytes: u64) {
        self.requests += 1;
        self.bytes += bytes;
    }

    fn queue_up(&mut self, bytes: u64, permit: oneshot::Sender<Permit>) {
        let queue = if bytes == 0 { &mut self.without_bytes } else { &mut self.with_bytes };
        queue.push_back(Waiting { number: self.waits, bytes, permit });
        self.waits += 1;
    }

    /// Takes room for the next request, if there is room: for the earliest request; if there are too few
    /// bytes for it, for the earliest request that needs no bytes.
    fn next(&mut self) -> Option<Waiting> {
        for queue in [&mut self.with_bytes, &mut self.without_bytes] {
            while queue.front().is_some_and(Waiting::has_given_up) {
                queue.pop_front();
            }
        }
        let number = |first: Option<&Waiting>| {
            first.filter(|first| self.has_room(first.bytes)).map_or(u64::MAX, |first| first.number)
        };
        let (with, without) = (number(self.with_bytes.front()), number(self.without_bytes.front()));
        let queue = match with.cmp(&without) {
            Ordering::Less => &mut self.with_bytes,
            Ordering::Greater => &mut self.without_bytes,
            Ordering::Equal => return None,
        };
        let next = queue.pop_front()?;
        self.take(next.bytes);
        Some(next)
    }

    /// Removes requests that have given up, if they are more than half of a queue. `others` is the number of
    /// requests that still wait for room.
    fn tidy(&mut self, others: usize) {
        for queue in [&mut self.with_bytes, &mut self.without_bytes] {
            if queue.len() > 2 * others {
                queue.retain(|waiting| !waiting.has_given_up());
            }
        }
    }

    fn are_any_queued(&self) -> bool {
        !self.with_bytes.is_empty() || !self.without_bytes.is_empty()
    }
}

impl Waiting {
    fn has_given_up(&self) -> bool {
        self.permit.is_closed()
    }
}

impl Drop for Place<'_> {
    /// Gives room to the other requests. The dropped request may have been the first in the queue, and may
    /// have needed more room than there was.
    fn drop(&mut self) {
        self.granted.close();
        {
            let others = self.budget.0.waiters.count() - 1;
            let mut state = self.budget.lock();
            state.tidy(others);
            if self.has_room {
                state.waited += self.begun.elapsed();
            }
        }
        self.budget.serve();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let is_waited_for = {
            let mut state = self.budget.lock();
            state.give_back(self.bytes);
            state.are_any_queued()
        };
        if is_waited_for {
            self.budget.serve();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::task::Poll;

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

    /// Polls the future once.
    async fn waits(
        reservation: &mut Pin<Box<impl Future<Output = Result<Permit, Error>>>>,
    ) -> bool {
        poll_fn(|context| Poll::Ready(reservation.as_mut().poll(context).is_pending())).await
    }

    #[tokio::test]
    async fn nobody_is_overtaken_and_who_gives_up_lets_the_next_one_have_the_room() {
        let budget = Budget::new(8, 100);
        let half = budget.reserve(50).await;
        let mut large = Box::pin(budget.reserve(80));
        let mut small = Box::pin(budget.reserve(10));
        assert!(waits(&mut large).await && waits(&mut small).await && budget.has_waiters());
        assert!(budget.try_reserve(1).is_none(), "others wait");
        drop(large);
        assert!(small.await.is_ok() && !budget.has_waiters());
        assert_eq!((budget.bytes_in_use(), budget.waits().0), (50, 2));
        drop(half);
        assert_eq!(budget.bytes_in_use(), 0);
    }

    #[tokio::test]
    async fn room_that_was_given_to_nobody_comes_back() {
        let budget = Budget::new(1, 100);
        let first = budget.reserve(1).await;
        let mut given_up = Box::pin(budget.reserve(1));
        let mut next = Box::pin(budget.reserve(1));
        assert!(waits(&mut given_up).await && waits(&mut next).await);
        // The first request has received room but was not polled since.
        drop(first);
        drop(given_up);
        assert!(next.await.is_ok());
        assert!(budget.try_reserve(100).is_some());
    }

    #[tokio::test]
    async fn what_needs_no_bytes_does_not_wait_for_those_that_do() {
        let budget = Budget::new(2, 100);
        let all = budget.reserve(100).await;
        let mut write = Box::pin(budget.reserve(1));
        assert!(waits(&mut write).await);
        let flush = budget.try_reserve(0);
        assert!(flush.is_some(), "there is room for a request");
        let mut next = Box::pin(budget.reserve(0));
        assert!(waits(&mut next).await, "there is none any more");
        drop(flush);
        assert!(next.await.is_ok());
        assert!(waits(&mut write).await);
        drop(all);
        assert!(write.await.is_ok());
    }

    /// If the budget has room for a request that needs bytes, a later request that needs no bytes does not
    /// overtake it.
    #[tokio::test]
    async fn what_needs_no_bytes_keeps_its_place_where_there_is_room_for_all() {
        let budget = Budget::new(1, 100);
        let first = budget.reserve(1).await;
        let mut write = Box::pin(budget.reserve(1));
        let mut flush = Box::pin(budget.reserve(0));
        let mut next = Box::pin(budget.reserve(1));
        assert!(waits(&mut write).await && waits(&mut flush).await && waits(&mut next).await);
        drop(first);
        assert!(waits(&mut flush).await && waits(&mut next).await);
        drop(write.await);
        assert!(waits(&mut next).await);
        drop(flush.await);
        assert!(next.await.is_ok());
    }

    /// A request that has received room in the budget counts as waiting until it is polled again.
    #[tokio::test]
    async fn who_has_room_and_has_not_gone_on_is_waited_for() {
        let budget = Budget::new(1, 100);
        let first = budget.reserve(1).await;
        let mut second = Box::pin(budget.reserve(1));
        assert!(waits(&mut second).await);
        drop(first);
        assert!(budget.has_waiters());
        assert!(second.await.is_ok());
        assert!(!budget.has_waiters());
    }

    #[tokio::test]
    async fn those_that_give_up_leave_nothing_behind() {
        let budget = Budget::new(1, 100);
        let _first = budget.reserve(1).await;
        let mut live = Box::pin(budget.reserve(1));
        assert!(waits(&mut live).await);
        for _ in 0..1000 {
            let mut given_up = Box::pin(budget.reserve(1));
            assert!(waits(&mut given_up).await);
        }
        assert!(budget.lock().with_bytes.len() <= 2 && budget.has_waiters());
    }
}
