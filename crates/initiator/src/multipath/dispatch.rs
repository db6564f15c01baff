//! Which request takes which path, and when.
//!
//! Invariant: a request that waits takes a path as soon as one has room for it, whatever it is that has
//! made the room: an answer, a path that joins, or one that is given more to hold.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

use tokio::sync::{Notify, watch};

use crate::error::Error;
use crate::multipath::carrier::Carrier;
use crate::multipath::flush_watch::FlushWatch;
use crate::multipath::path::Path;
use crate::multipath::path_set::{PathSet, Remains};
use crate::multipath::progress::{Meter, Progress};
use crate::multipath::queue::Queue;
use crate::multipath::report::Report;
use crate::options::policy::RequestPolicy;
use crate::scheduler::Charge;
use crate::state::budget::{Budget, Permit};
use crate::state::counters::Counters;
use crate::state::read_buffers::ReadBuffers;
use crate::state::waiters::Waiters;
use iscsi_multipath::PathId;
use iscsi_multipath::paths::selector::PathSelector;
use iscsi_multipath::paths::{Credit, PathPermit, Requirements};

/// The paths to one unit. Clones are the same paths.
pub(crate) struct Paths<C: Carrier = Path>(Arc<Shared<C>>);

/// The paths, as their supervisor knows them: they end with the last disk.
pub(crate) struct WeakPaths<C: Carrier = Path> {
    shared: Weak<Shared<C>>,
    remains: Arc<Mutex<Option<Remains<C>>>>,
}

/// What came of closing the paths, once they are closed.
type Closed = Option<Result<(), Error>>;

struct Shared<C: Carrier> {
    state: Mutex<State<C>>,
    /// What all paths may have under way together.
    budget: Budget,
    /// Buffers of reads, used again.
    read_buffers: Arc<ReadBuffers>,
    /// For the supervisor: a path was lost, all of it has ended, or there is work after a rest.
    attention: Arc<Notify>,
    /// A path that is closed has nothing under way any more, or is needed again.
    drained: Notify,
    /// Nothing goes any more.
    ended: Notify,
    /// What is done about requests that end badly or are late.
    policy: RequestPolicy,
    report: Arc<Report>,
    /// Requests as callers see them: one that is sent again or twice counts once.
    counters: Counters,
    /// Requests that were sent over a second path.
    duplicates: AtomicU64,
    /// A port was found in another state.
    access_news: Notify,
    /// Requests that wait in their class.
    in_class: Waiters,
    /// For the supervisor, once nobody else knows the paths any more.
    remains: Arc<Mutex<Option<Remains<C>>>>,
    /// From the supervisor.
    closed: OnceLock<watch::Receiver<Closed>>,
}

/// What the lock guards.
pub(super) struct State<C: Carrier> {
    pub(super) paths: PathSet<C>,
    pub(super) selector: PathSelector,
    pub(super) queue: Queue<Grant<C>>,
    pub(super) meter: Meter,
    /// Boxed, as it lies between what each request needs.
    pub(super) flushes: Box<FlushWatch>,
    /// How often a port was found in another state.
    pub(super) access_changes: u64,
    /// Why nothing goes any more. Boxed, as it lies between what each request needs.
    end: Option<Box<Error>>,
    /// The supervisor sleeps until there is work.
    is_unattended: bool,
}

/// A request's place on a path. Dropped, it lets the next one have it.
pub(super) struct Grant<C: Carrier> {
    pub(super) paths: Paths<C>,
    /// What goes over the path.
    pub(super) carrier: C,
    pub(super) permit: PathPermit,
    /// Bytes that the request moves.
    pub(super) len: u64,
    /// The place has not been given back.
    pub(super) is_held: bool,
    /// The request is counted as in flight on the path.
    pub(super) is_counted: bool,
    /// What the request has paid to its class, until it is sent.
    pub(super) charge: Option<Charge>,
    /// There was no other path when this one was granted.
    pub(super) is_only: bool,
    /// How often a port had been found in another state by then.
    pub(super) access_changes: u64,
}

impl<C: Carrier> Clone for Paths<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C: Carrier> fmt::Debug for Paths<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paths")
            .field("open", &self.lock().paths.open().len())
            .finish_non_exhaustive()
    }
}

impl<C: Carrier> WeakPaths<C> {
    pub(crate) fn upgrade(&self) -> Option<Paths<C>> {
        self.shared.upgrade().map(Paths)
    }

    /// What is left to be closed, once nobody else knows the paths any more; the supervisor's attention
    /// is called for when it is there.
    pub(super) fn take_remains(&self) -> Option<Remains<C>> {
        self.remains.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<C: Carrier> Paths<C> {
    /// A single path.
    pub(crate) fn new(
        carrier: C,
        room: Credit,
        budget: Budget,
        policy: RequestPolicy,
        report: Arc<Report>,
    ) -> Self {
        let total = Credit { bytes: budget.max_bytes(), requests: budget.max_requests() };
        let paths = Self(Arc::new(Shared {
            state: Mutex::new(State {
                paths: PathSet::default(),
                selector: PathSelector::new(total, policy.hedge.into()),
                queue: Queue::default(),
                meter: Meter::default(),
                flushes: Box::default(),
                access_changes: 0,
                end: None,
                is_unattended: false,
            }),
            read_buffers: Arc::new(ReadBuffers::within(budget.clone())),
            budget,
            attention: Arc::default(),
            drained: Notify::new(),
            ended: Notify::new(),
            policy,
            report,
            counters: Counters::default(),
            duplicates: AtomicU64::new(0),
            access_news: Notify::new(),
            in_class: Waiters::default(),
            remains: Arc::default(),
            closed: OnceLock::new(),
        }));
        paths.add(carrier, room);
        paths
    }

    pub(crate) fn downgrade(&self) -> WeakPaths<C> {
        WeakPaths { shared: Arc::downgrade(&self.0), remains: Arc::clone(&self.0.remains) }
    }

    /// Adds a path; what waits may take it at once.
    pub(crate) fn add(&self, carrier: C, room: Credit) -> PathId {
        let mut state = self.lock();
        let id = state.paths.add(carrier);
        state.selector.add(id, room);
        self.dispatch(&mut state, now());
        state.flushes.path_was_added();
        id
    }

    pub(crate) fn set_room(&self, id: PathId, room: Credit) {
        let mut state = self.lock();
        state.selector.set_credit(id, room);
        self.dispatch(&mut state, now());
    }

    /// The paths that take requests, the oldest first.
    #[cfg(test)]
    pub(crate) fn working(&self) -> Vec<PathId> {
        let state = self.lock();
        let ids = state.paths.open().iter().map(|(id, _)| *id);
        ids.filter(|id| !state.selector.is_closing(*id)).collect()
    }

    /// The paths that are open.
    pub(crate) fn open(&self) -> Vec<(PathId, C)> {
        self.lock().paths.open().to_vec()
    }

    /// Somebody reopens lost paths from now on: without any, requests wait for the next. He closes them
    /// after the end, and tells what came of it.
    pub(crate) fn supervise(&self) -> watch::Sender<Closed> {
        let (tell, closed) = watch::channel(None);
        self.0.closed.get_or_init(|| closed);
        self.read_buffers().keep();
        self.lock().paths.supervise();
        tell
    }

    /// Waits until the supervisor has closed the paths, after their end; `None` if there is no supervisor.
    pub(crate) async fn closed(&self) -> Option<Result<(), Error>> {
        let mut closed = self.0.closed.get()?.clone();
        closed.wait_for(Option::is_some).await.ok()?.clone()
    }

    /// Whether the unit has finished with every write that was sent over any path, as far as is known.
    pub(crate) fn is_settled(&self) -> bool {
        self.lock().paths.is_settled()
    }

    /// What is left to be closed after the end.
    pub(super) fn remains(&self) -> Remains<C> {
        self.lock().paths.remains()
    }

    /// The paths that were set aside since the last call, each with the reason.
    pub(crate) fn take_useless(&self) -> Vec<(PathId, Error)> {
        self.lock().paths.take_useless()
    }

    /// The path takes nothing more.
    pub(crate) fn close(&self, id: PathId) {
        self.lock().selector.close(id);
    }

    /// Gives back the carrier of a path that was closed, once what is under way on it has ended;
    /// `None` if it is needed again, or was lost, or all has ended.
    pub(crate) async fn remove(&self, id: PathId) -> Option<C> {
        loop {
            let drained = self.0.drained.notified();
            {
                let mut state = self.lock();
                // After the end, whoever leaves his request alone holds nobody up.
                if state.end.is_some() || !state.selector.is_closing(id) {
                    return None;
                }
                if state.selector.in_flight(id) == 0 {
                    state.selector.remove(id);
                    return state.paths.remove(id);
                }
            }
            drained.await;
        }
    }

    /// The paths that were lost since the last call, each with the reason.
    pub(crate) fn take_lost(&self) -> Vec<(C, Error)> {
        self.lock().paths.take_lost()
    }

    /// Tells when a path is lost, when all of it has ended, and when there is work after a rest.
    pub(crate) fn attention(&self) -> Arc<Notify> {
        Arc::clone(&self.0.attention)
    }

    /// What is counted of requests as callers see them.
    pub(crate) fn counters(&self) -> &Counters {
        &self.0.counters
    }

    pub(super) fn count_duplicate(&self) {
        self.0.duplicates.fetch_add(1, Ordering::Relaxed);
    }

    /// How many requests were sent over a second path.
    pub(super) fn duplicates(&self) -> u64 {
        self.0.duplicates.load(Ordering::Relaxed)
    }

    /// What all paths may have under way together.
    pub(super) fn budget(&self) -> &Budget {
        &self.0.budget
    }

    /// Where the buffers of reads come from, and come back to.
    pub(crate) fn read_buffers(&self) -> &Arc<ReadBuffers> {
        &self.0.read_buffers
    }

    /// The supervisor sleeps until the next request calls for its [`attention`](Self::attention). Nothing is kept
    /// ready meanwhile.
    pub(crate) fn leave_unattended(&self) {
        self.read_buffers().give_back();
        self.lock().is_unattended = true;
    }

    /// Whether nothing goes any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.lock().end.is_some()
    }

    /// What was moved so far.
    pub(crate) fn progress(&self) -> Progress {
        let mut state = self.lock();
        let has_backlog = self.has_backlog(&state);
        let State { paths, selector, meter, .. } = &mut *state;
        let all_work = paths.open().iter().all(|(id, _)| selector.in_flight(*id) > 0);
        meter.read(all_work || has_backlog)
    }

    /// Nothing goes any more; what waits fails.
    pub(crate) fn end(&self, why: &Error) {
        let mut state = self.lock();
        state.end.get_or_insert_with(|| Box::new(why.as_not_executed()));
        state.queue.clear();
        state.paths.end();
        self.0.ended.notify_waiters();
        self.0.drained.notify_waiters();
        self.0.attention.notify_one();
    }

    /// Waits until nothing goes any more; says why.
    pub(crate) async fn ended(&self) -> Error {
        loop {
            let mut ended = pin!(self.0.ended.notified());
            // Listening begins before the look, or an end in between would go unnoticed.
            ended.as_mut().enable();
            if let Some(end) = self.lock().end.as_deref().cloned() {
                return end;
            }
            ended.await;
        }
    }

    /// How many requests wait in their class.
    pub(super) fn in_class(&self) -> &Waiters {
        &self.0.in_class
    }

    /// How long what may pass is put up with.
    pub(super) fn policy(&self) -> &RequestPolicy {
        &self.0.policy
    }

    pub(super) fn report(&self) -> &Arc<Report> {
        &self.0.report
    }

    /// Waits for the share of a request of so many bytes in what may be under way.
    pub(super) async fn reserve(&self, bytes: usize) -> Result<Permit, Error> {
        self.0.budget.reserve(bytes).await
    }

    /// The same, if it is to be had at once.
    pub(super) fn try_reserve(&self, bytes: usize) -> Option<Permit> {
        self.0.budget.try_reserve(bytes)
    }

    /// A path with room, as of `now`, if there is one and nobody waits.
    pub(super) fn try_grant(&self, len: usize, now: Instant) -> Result<Option<Grant<C>>, Error> {
        let mut state = self.lock_open()?;
        if !state.queue.is_empty() {
            return Ok(None);
        }
        state.selector.unreserve();
        Ok(self.grant_now(&mut state, len as u64, Requirements::default(), now))
    }

    /// Waits for a path with room.
    pub(super) async fn grant(
        &self,
        len: usize,
        requirements: Requirements,
    ) -> Result<Grant<C>, Error> {
        let granted = {
            let mut state = self.lock_open()?;
            let granted = state.queue.push_back(len as u64, requirements);
            self.dispatch(&mut state, now());
            granted
        };
        granted.await.map_err(|_| self.reason_of_end())
    }

    /// Gives the place on a path back for one on any path; who has waited before is the first.
    pub(super) async fn grant_again(
        &self,
        grant: Grant<C>,
        len: usize,
        requirements: Requirements,
    ) -> Result<Grant<C>, Error> {
        let granted = {
            let mut state = self.lock_open()?;
            let id = grant.id();
            grant.give_up(&mut state);
            let granted = state.queue.push_front(len as u64, requirements);
            self.released(&mut state, id, now());
            granted
        };
        granted.await.map_err(|_| self.reason_of_end())
    }

    /// The path for a request that is late on `avoid`, if another one has nothing to do and no
    /// request waits.
    pub(super) fn grant_idle(&self, avoid: PathId, len: usize) -> Option<Grant<C>> {
        let (mut state, now) = (self.lock(), now());
        if self.has_backlog(&state) {
            return None;
        }
        let idle = state.selector.idle(avoid, now)?;
        let requirements = Requirements { avoid: Some(avoid), is_alone: false };
        self.take(&mut state, idle, len as u64, requirements, now)
    }

    fn grant_now(
        &self,
        state: &mut State<C>,
        len: u64,
        requirements: Requirements,
        now: Instant,
    ) -> Option<Grant<C>> {
        let id = state.selector.pick(len, requirements, now)?;
        self.take(state, id, len, requirements, now)
    }

    fn take(
        &self,
        state: &mut State<C>,
        id: PathId,
        len: u64,
        requirements: Requirements,
        now: Instant,
    ) -> Option<Grant<C>> {
        let carrier = state.paths.get(id)?.clone();
        let is_crowded = self.has_backlog(state);
        let permit = state.selector.take(id, len, requirements, is_crowded, now)?;
        if std::mem::take(&mut state.is_unattended) {
            self.read_buffers().keep();
            self.0.attention.notify_one();
        }
        state.paths.counted(id).begin(len);
        Some(Grant {
            paths: self.clone(),
            carrier,
            permit,
            len,
            is_held: true,
            is_counted: true,
            charge: None,
            is_only: state.paths.open().len() < 2,
            access_changes: state.access_changes,
        })
    }

    /// Gives paths to those that wait, in their order. One that only must not use the path which is
    /// free, or must be alone on one, does not hold up the others.
    pub(super) fn dispatch(&self, state: &mut State<C>, now: Instant) {
        state.selector.unreserve();
        let mut at = 0;
        while let Some(waiting) = state.queue.take(at) {
            if waiting.is_abandoned() {
                continue;
            }
            let Requirements { avoid, is_alone } = waiting.requirements;
            let Some(grant) = self.grant_now(state, waiting.len, waiting.requirements, now) else {
                state.queue.put_back(at, waiting);
                if is_alone {
                    state.selector.reserve(now);
                } else if avoid.is_none() {
                    return;
                }
                at += 1;
                continue;
            };
            if let Err(grant) = waiting.grant(grant) {
                // Its drop would want the lock.
                grant.give_up(state);
            }
        }
    }

    /// A path is gone. Says whether there is another, or one may come.
    pub(crate) fn lose(&self, id: PathId, error: &Error) -> bool {
        let mut state = self.lock();
        if state.end.is_some() {
            return false;
        }
        let is_plain = !state.selector.is_alone(id);
        if state.paths.lose(id, is_plain, error) {
            self.0.report.log(|| tracing::debug!(path = id.0, %error, "a session is lost"));
            state.selector.remove(id);
            // One that was to be removed has to do until there is another.
            state.selector.reopen_if_none_is_left();
            self.0.drained.notify_waiters();
            self.0.attention.notify_one();
        }
        if state.paths.open().is_empty() && !state.paths.is_supervised() {
            self.0.report.log(|| tracing::debug!(%error, "no session is left"));
            state.end = Some(Box::new(error.as_not_executed()));
            state.queue.clear();
            self.0.ended.notify_waiters();
            return false;
        }
        self.dispatch(&mut state, now());
        true
    }

    /// Tells that a port was found in another state. Whoever waits for one finds out by that whether to try again.
    pub(super) fn access_news(&self) -> &Notify {
        &self.0.access_news
    }

    fn reason_of_end(&self) -> Error {
        let state = self.lock();
        let end = state.end.as_deref().or_else(|| state.paths.last_refusal());
        end.cloned().unwrap_or_else(Error::closed)
    }

    /// Whether requests wait, for a path or for their share of the budget. They do not wait for the paths
    /// as long as those that have their share wait in their class.
    pub(super) fn has_backlog(&self, state: &State<C>) -> bool {
        !state.queue.is_empty() || self.0.budget.has_waiters() && !self.in_class().are_any()
    }

    /// A request has left a path.
    pub(super) fn released(&self, state: &mut State<C>, id: PathId, now: Instant) {
        self.dispatch(state, now);
        if state.selector.is_closing(id) && state.selector.in_flight(id) == 0 {
            self.0.drained.notify_waiters();
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, unless nothing goes any more, or for the time being.
    fn lock_open(&self) -> Result<MutexGuard<'_, State<C>>, Error> {
        let state = self.lock();
        let refusal = state.end.as_deref().or_else(|| state.paths.refusal()).cloned();
        refusal.map_or(Ok(state), Err)
    }
}

impl<C: Carrier> Grant<C> {
    /// Which path it is.
    pub(super) const fn id(&self) -> PathId {
        self.permit.path()
    }

    /// When it was granted, or the request was ready to go just before.
    pub(super) const fn begun(&self) -> Instant {
        self.permit.taken_at()
    }

    /// Gives the place back; dropping the grant does the same, and lets the next one have it.
    pub(super) fn give_up(mut self, state: &mut State<C>) {
        if std::mem::take(&mut self.is_held) {
            self.leave(state);
        }
    }

    fn leave(&self, state: &mut State<C>) {
        state.selector.release(&self.permit);
        if self.is_counted {
            state.paths.counted(self.id()).give_up(self.len);
        }
    }
}

impl<C: Carrier> Drop for Grant<C> {
    fn drop(&mut self) {
        if self.is_held {
            let mut state = self.paths.lock();
            self.leave(&mut state);
            self.paths.released(&mut state, self.id(), now());
        }
    }
}

impl<C: Carrier> Drop for Shared<C> {
    /// The supervisor may sleep; it closes what is left.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let remains = state.paths.remains();
        *self.remains.lock().unwrap_or_else(PoisonError::into_inner) = Some(remains);
        self.attention.notify_one();
    }
}

/// The clock of the runtime, so that tests can turn it.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
