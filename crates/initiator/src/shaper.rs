//! Limits rates by classes of requests, on the runtime's clock.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use iscsi_shaper::{Class, ClassId, Grant, RateLimit, Statistics, Ticket, Tree, TreeError};
use tokio::sync::Notify;
use tokio::time::sleep_until;

use crate::scheduler::{Charge, Granting, Scheduler};
use crate::traffic_class::TrafficClass;

/// Time after which a waiting request checks its turn itself. The timekeeper normally does this for all
/// requests, but its future may not be polled for a long time.
const GRACE: Duration = Duration::from_millis(100);

/// Limits the rate of disks by classes that share a link: hierarchical token buckets. Clones are
/// the same shaper.
///
/// A disk gets its class by [`Options::with_class`](crate::Options::with_class). Classes may be added,
/// changed and removed while disks use them; each change applies immediately.
///
/// ```
/// use iscsi_initiator::shaping::{Class, RateLimit};
/// use iscsi_initiator::{Initiator, Options, Shaper};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let shaper = Shaper::new(Class::new("100mbit".parse()?))?;
/// let backup = Class::new("10mbit".parse()?).with_ceil("50mbit".parse()?);
/// let id = shaper.add(shaper.root(), backup)?;
/// let options = Options::default().with_class(Some(shaper.traffic_class(id)));
/// let initiator = Initiator::with_options("iqn.2026-01.org.example:host", options)?;
/// // At night there is more.
/// shaper.change(shaper.root(), Class::new(RateLimit::Unlimited))?;
/// shaper.change(id, backup.with_ceil(RateLimit::Unlimited))?;
/// # Ok(())
/// # }
/// ```
#[doc(alias("rate limit", "throttle", "bandwidth", "QoS"))]
#[derive(Clone, Debug)]
pub struct Shaper(Arc<Mutex<State>>);

/// A class of a tree, as a [`Scheduler`] for its requests.
#[derive(Debug)]
struct TreeClass {
    shaper: Shaper,
    id: ClassId,
}

#[derive(Debug)]
struct State {
    tree: Tree,
    waiters: BTreeMap<Ticket, Waiter>,
    /// The waiting request that polls the tree at `next`, for all waiting requests; `None` if no request waits.
    timekeeper: Option<Ticket>,
    /// When the tree may grant the next request; `None` if no request waits.
    next: Option<Instant>,
}

#[derive(Debug, Default)]
struct Waiter {
    /// Notified when the request was granted, or when the request is the timekeeper and `next` has changed.
    woken: Arc<Notify>,
    grant: Option<Grant>,
}

/// A request that waits in its class, until this value is dropped.
struct Waiting {
    shaper: Shaper,
    ticket: Ticket,
    woken: Arc<Notify>,
}

impl Shaper {
    /// Creates a shaper with this root class. Below the root is a default class, which borrows the rate that
    /// no other class uses.
    ///
    /// # Errors
    /// [`TreeError::Class`].
    pub fn new(root: Class) -> Result<Self, TreeError> {
        let tree = Tree::new(root, now())?;
        let state = State { tree, waiters: BTreeMap::new(), timekeeper: None, next: None };
        Ok(Self(Arc::new(Mutex::new(state))))
    }

    /// Returns the root class.
    #[must_use]
    pub fn root(&self) -> ClassId {
        self.lock().tree.root()
    }

    /// Returns the default class, for requests without another class.
    #[must_use]
    pub fn default_class(&self) -> ClassId {
        self.lock().tree.default_class()
    }

    /// Returns a handle to a class for [`Options::with_class`](crate::Options::with_class). Each handle is
    /// [paused](TrafficClass::pause) and [closed](TrafficClass::close) separately. If the class is
    /// removed, its requests continue in the default class.
    #[must_use]
    pub fn traffic_class(&self, id: ClassId) -> TrafficClass {
        TrafficClass::new(Arc::new(TreeClass { shaper: self.clone(), id }))
    }

    /// Adds a class below another.
    ///
    /// # Errors
    /// [`TreeError::Class`], [`TreeError::Unknown`], [`TreeError::Overcommitted`],
    /// [`TreeError::TooDeep`], and [`TreeError::HoldsRequests`] if requests wait in the parent, or the
    /// parent is the default class.
    pub fn add(&self, parent: ClassId, class: Class) -> Result<ClassId, TreeError> {
        self.change_tree(|tree, now| tree.add(parent, class, now))
    }

    /// Changes the settings of a class. The new settings apply immediately, also to waiting requests.
    ///
    /// # Errors
    /// [`TreeError::Class`], [`TreeError::Unknown`], and [`TreeError::Overcommitted`] if its rate is
    /// less than those of its children together, or too much for its parent.
    pub fn change(&self, id: ClassId, class: Class) -> Result<(), TreeError> {
        self.change_tree(|tree, now| tree.change(id, class, now))
    }

    /// Removes a class. Requests that wait in the class continue in the default class.
    ///
    /// # Errors
    /// [`TreeError::Unknown`], [`TreeError::HasChildren`], [`TreeError::Permanent`].
    pub fn remove(&self, id: ClassId) -> Result<(), TreeError> {
        self.change_tree(|tree, now| tree.remove(id, now))
    }

    /// Returns the settings of a class; `None` if it was removed.
    #[must_use]
    pub fn class(&self, id: ClassId) -> Option<Class> {
        self.lock().tree.class(id)
    }

    /// Returns the statistics of a class and all classes below it; `None` if the class was removed.
    #[must_use]
    pub fn statistics(&self, id: ClassId) -> Option<Statistics> {
        self.lock().tree.statistics(id)
    }

    /// Returns the maximum rate of a class: the lowest ceil of the class and its ancestors.
    #[must_use]
    pub fn ceil(&self, id: ClassId) -> RateLimit {
        self.lock().tree.ceil(id)
    }

    fn change_tree<T>(&self, change: impl FnOnce(&mut Tree, Instant) -> T) -> T {
        let (mut state, now) = (self.lock(), now());
        let result = change(&mut state.tree, now);
        state.drive(now);
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Scheduler for TreeClass {
    fn grant(&self, bytes: u64) -> Granting<'_> {
        Box::pin(async move {
            let waiting = Waiting::new(&self.shaper, self.id, bytes);
            loop {
                let next = match waiting.poll_grant() {
                    Ok(grant) => return self.charge(grant),
                    Err(next) => next,
                };
                tokio::select! {
                    biased;
                    () = waiting.woken.notified() => {}
                    () = reached(next) => {}
                }
            }
        })
    }

    fn ceil(&self) -> RateLimit {
        self.shaper.ceil(self.id)
    }
}

impl TreeClass {
    fn charge(&self, grant: Grant) -> Charge {
        let shaper = self.shaper.clone();
        Charge::new(grant.bytes, move |moved| {
            if moved != grant.bytes {
                shaper.change_tree(|tree, now| tree.correct(&grant, moved, now));
            }
        })
    }
}

impl State {
    /// Grants the requests that may be sent, and schedules the next call.
    fn drive(&mut self, now: Instant) {
        while let Some(grant) = self.tree.poll_grant(now) {
            if let Some(waiter) = self.waiters.get_mut(&grant.ticket) {
                waiter.grant = Some(grant);
                waiter.woken.notify_one();
            }
        }
        let next = self.tree.poll_timeout();
        let is_new = std::mem::replace(&mut self.next, next) != next;
        let keeps = |ticket: &Ticket| self.waiters.get(ticket).is_some_and(Waiter::is_waiting);
        let keeper = self.timekeeper.filter(keeps);
        if keeper.is_none() || is_new {
            let first = || self.waiters.iter().find(|(_, waiter)| waiter.is_waiting());
            self.timekeeper = keeper.or_else(|| first().map(|(ticket, _)| *ticket));
            if let Some(waiter) = self.timekeeper.and_then(|keeper| self.waiters.get(&keeper)) {
                waiter.woken.notify_one();
            }
        }
    }
}

impl Waiter {
    const fn is_waiting(&self) -> bool {
        self.grant.is_none()
    }
}

impl Waiting {
    fn new(shaper: &Shaper, class: ClassId, bytes: u64) -> Self {
        let (mut state, waiter) = (shaper.lock(), Waiter::default());
        let woken = Arc::clone(&waiter.woken);
        let ticket = state.tree.request(class, bytes, now());
        state.waiters.insert(ticket, waiter);
        drop(state);
        Self { shaper: shaper.clone(), ticket, woken }
    }

    /// Returns the grant of the request. If there is none yet, returns when to call again.
    fn poll_grant(&self) -> Result<Grant, Option<Instant>> {
        let mut state = self.shaper.lock();
        state.drive(now());
        let grant = state.waiters.get_mut(&self.ticket).and_then(|waiter| waiter.grant.take());
        if let Some(grant) = grant {
            state.waiters.remove(&self.ticket);
            return Ok(grant);
        }
        let grace = if state.timekeeper == Some(self.ticket) { Duration::ZERO } else { GRACE };
        Err(state.next.and_then(|next| next.checked_add(grace)))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let (mut state, now) = (self.shaper.lock(), now());
        let Some(waiter) = state.waiters.remove(&self.ticket) else { return };
        match waiter.grant {
            Some(grant) => state.tree.correct(&grant, 0, now),
            None => drop(state.tree.cancel(self.ticket, now)),
        }
        state.drive(now);
    }
}

/// Waits until `time`; forever if `time` is `None`.
async fn reached(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time.into()).await,
        None => pending().await,
    }
}

/// Returns the time of the runtime's clock, which tests can set.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;

    const LEN: u64 = 100_000;

    /// Returns a shaper of 8 Mbit/s without a burst: a request of 100 kB takes 100 ms.
    fn shaper() -> (Shaper, TrafficClass) {
        let root = Class::new("8mbit".parse().unwrap()).with_burst(Some(0)).with_cburst(Some(0));
        let shaper = Shaper::new(root).unwrap();
        let class = shaper.traffic_class(shaper.default_class());
        (shaper, class)
    }

    async fn pass(class: TrafficClass) -> Duration {
        let begun = tokio::time::Instant::now();
        class.pass(LEN).await.unwrap().sent();
        begun.elapsed()
    }

    const fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[tokio::test(start_paused = true)]
    async fn requests_pass_at_the_rate_one_after_the_other() {
        let (shaper, class) = shaper();
        let mut requests = JoinSet::new();
        (0..5).for_each(|_| drop(requests.spawn(pass(class.clone()))));
        let mut times = requests.join_all().await;
        times.sort_unstable();
        assert_eq!(times, [0, 100, 200, 300, 400].map(millis));
        let statistics = shaper.statistics(shaper.default_class()).unwrap();
        assert_eq!((statistics.sent.requests, statistics.waited.requests), (5, 4));
        assert!(shaper.lock().waiters.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_felt_by_those_that_wait() {
        let (shaper, class) = shaper();
        pass(class.clone()).await;
        let waiting = tokio::spawn(pass(class.clone()));
        let other = tokio::spawn(pass(class));
        tokio::time::sleep(millis(10)).await;
        shaper.change(shaper.root(), Class::new(RateLimit::Unlimited)).unwrap();
        assert_eq!((waiting.await.unwrap(), other.await.unwrap()), (millis(10), millis(10)));
    }

    /// When a waiting request is dropped, its place in the queue is freed. If it was the timekeeper, another
    /// request takes over.
    #[tokio::test(start_paused = true)]
    async fn who_gives_up_leaves_his_place_and_the_clock_to_the_others() {
        let (shaper, class) = shaper();
        pass(class.clone()).await;
        let first = tokio::spawn(pass(class.clone()));
        tokio::task::yield_now().await;
        let second = tokio::spawn(pass(class.clone()));
        tokio::task::yield_now().await;
        first.abort();
        assert!(first.await.is_err());
        assert_eq!(second.await.unwrap(), millis(100));
        assert_eq!(shaper.statistics(shaper.default_class()).unwrap().sent.requests, 2);
    }

    /// The first future was polled once, and is the timekeeper, but is not polled again. The second one is
    /// granted anyway.
    #[tokio::test(start_paused = true)]
    async fn a_future_that_nobody_polls_holds_up_no_other() {
        let (_, class) = shaper();
        pass(class.clone()).await;
        let mut first = Box::pin(class.pass(LEN));
        assert!(is_pending(first.as_mut()).await);
        let second = tokio::spawn(pass(class.clone()));
        assert_eq!(second.await.unwrap(), millis(300), "100 of them are the grace");
        drop(first);
    }

    /// Polls a future once. Returns whether it is pending.
    async fn is_pending<F: Future>(mut future: std::pin::Pin<&mut F>) -> bool {
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(future.as_mut().poll(context).is_pending())
        })
        .await
    }

    /// The pause of a handle also applies to requests that already wait. Another handle of the class gets the
    /// whole rate.
    #[tokio::test(start_paused = true)]
    async fn a_handle_that_is_paused_leaves_the_class_to_others() {
        let (shaper, class) = shaper();
        let other = shaper.traffic_class(shaper.default_class());
        pass(class.clone()).await;
        let mut held = JoinSet::new();
        (0..5).for_each(|_| drop(held.spawn(pass(class.clone()))));
        tokio::time::sleep(millis(50)).await;
        class.pause();
        assert_eq!(pass(other.clone()).await, millis(50));
        assert_eq!(pass(other).await, millis(100));
        tokio::time::sleep(millis(800)).await;
        assert!(held.try_join_next().is_none());
        class.resume();
        let mut times = held.join_all().await;
        times.sort_unstable();
        assert_eq!(times, [1000, 1100, 1200, 1300, 1400].map(millis));
    }

    /// When a handle is closed, its waiting request ends without a charge, and the handle stays closed after a
    /// `resume`.
    #[tokio::test(start_paused = true)]
    async fn a_handle_that_is_closed_ends_what_waits_and_stays_so() {
        let (shaper, class) = shaper();
        let other = shaper.traffic_class(shaper.default_class());
        pass(class.clone()).await;
        let waiting = tokio::spawn({
            let class = class.clone();
            async move { class.pass(LEN).await.is_none() }
        });
        tokio::time::sleep(millis(10)).await;
        class.close();
        assert!(waiting.await.unwrap());
        class.resume();
        assert!(class.pass(LEN).await.is_none());
        assert_eq!(pass(other).await, millis(90));
        let statistics = shaper.statistics(shaper.default_class()).unwrap();
        assert_eq!((statistics.sent.requests, statistics.waiting), (2, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_sent_is_given_back_and_lets_the_next_one_pass() {
        let (_, class) = shaper();
        let charge = class.pass(1 << 30).await;
        let next = tokio::spawn(pass(class.clone()));
        tokio::time::sleep(millis(30)).await;
        drop(charge);
        assert_eq!(next.await.unwrap(), millis(30));
    }
}
