//! The paths of a disk and its requests, under the lock of its unit.

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Instant;

use iscsi_multipath::PathId;
use iscsi_multipath::paths::Credit;
use iscsi_multipath::requests::{RequestLimits, Requests};
use tokio::sync::{Notify, watch};

use crate::error::Error;
use crate::multipath::flush_watch::FlushWatch;
use crate::multipath::inbox::Inboxes;
use crate::multipath::path::Path;
use crate::multipath::path_set::{PathSet, Remains};
use crate::multipath::progress::{Meter, Progress};
use crate::multipath::report::Report;
use crate::options::policy::RequestPolicy;
use crate::state::attempt::Requester;
use crate::state::budget::{Budget, Permit};
use crate::state::counters::Counters;
#[cfg(test)]
use crate::state::counters::Snapshot;
use crate::state::read_buffers::ReadBuffers;
use crate::state::unit_lock::{GuardBeside, Guarded};
use crate::state::waiters::Waiters;
use crate::unit::retry::{ABORTED_LIMIT, MAX_ATTENTIONS};

/// The paths to one unit. Clones are the same paths.
pub(crate) struct Paths(pub(super) Arc<Shared>);

/// The paths, as their supervisor knows them: they end with the last disk.
pub(crate) struct WeakPaths {
    shared: Weak<Shared>,
    remains: Arc<Mutex<Option<Remains>>>,
}

/// What came of closing the paths, once they are closed.
type Closed = Option<Result<(), Error>>;

/// What all handles of the paths share.
pub(super) struct Shared {
    pub(super) state: Guarded<State>,
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
    /// Requests that wait in their class.
    in_class: Waiters,
    /// For the supervisor, once nobody else knows the paths any more.
    remains: Arc<Mutex<Option<Remains>>>,
    /// From the supervisor.
    closed: OnceLock<watch::Receiver<Closed>>,
}

/// What is kept of the disk under the lock of its unit.
pub(super) struct State {
    pub(super) paths: PathSet,
    pub(super) requests: Requests<Error>,
    pub(super) inboxes: Inboxes,
    pub(super) meter: Meter,
    /// Requests of which a second copy was sent.
    pub(super) hedged: u64,
    /// Boxed, as it lies between what each request needs.
    pub(super) flushes: Box<FlushWatch>,
    /// Why nothing goes any more. Boxed, as it lies between what each request needs.
    end: Option<Box<Error>>,
    /// The supervisor sleeps until there is work.
    pub(super) is_unattended: bool,
}

/// What is kept of the disk, and what is known of its unit, until it is dropped.
pub(super) type StateGuard<'a> = GuardBeside<'a, State>;

impl Clone for Paths {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl fmt::Debug for Paths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paths")
            .field("open", &self.lock().paths.open().len())
            .finish_non_exhaustive()
    }
}

impl WeakPaths {
    pub(crate) fn upgrade(&self) -> Option<Paths> {
        self.shared.upgrade().map(Paths)
    }

    /// What is left to be closed, once nobody else knows the paths any more; the supervisor's attention
    /// is called for when it is there.
    pub(super) fn take_remains(&self) -> Option<Remains> {
        self.remains.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Paths {
    /// A single path.
    pub(crate) fn new(
        carrier: Path,
        room: Credit,
        budget: Budget,
        policy: RequestPolicy,
        report: Arc<Report>,
    ) -> Self {
        let state = State {
            paths: PathSet::default(),
            requests: Requests::new(limits(&budget, &policy)),
            inboxes: Inboxes::default(),
            meter: Meter::default(),
            hedged: 0,
            flushes: Box::default(),
            end: None,
            is_unattended: false,
        };
        let state = Guarded::new(carrier.unit.state().known(), state);
        let paths = Self(Arc::new(Shared {
            state,
            read_buffers: Arc::new(ReadBuffers::within(budget.clone())),
            budget,
            attention: Arc::default(),
            drained: Notify::new(),
            ended: Notify::new(),
            policy,
            report,
            counters: Counters::default(),
            in_class: Waiters::default(),
            remains: Arc::default(),
            closed: OnceLock::new(),
        }));
        paths.add(carrier, room);
        paths
    }

    pub(crate) fn downgrade(&self) -> WeakPaths {
        WeakPaths { shared: Arc::downgrade(&self.0), remains: Arc::clone(&self.0.remains) }
    }

    /// To whom sessions report the ends of attempts.
    pub(super) fn requester(&self) -> Weak<dyn Requester> {
        let shared: Weak<Shared> = Arc::downgrade(&self.0);
        shared
    }

    /// Adds a path; what waits may take it at once.
    pub(crate) fn add(&self, carrier: Path, room: Credit) -> PathId {
        self.change(|guard| {
            let (state, unit) = guard.both();
            let id = state.paths.add(carrier, unit);
            state.requests.add_path(id, room, now());
            if let Some(end) = state.end.as_deref() {
                state.requests.refuse(end);
            }
            state.flushes.path_was_added();
            id
        })
    }

    pub(crate) fn set_room(&self, id: PathId, room: Credit) {
        self.change(|state| state.requests.set_credit(id, room, now()));
    }

    /// Time has passed: pauses end, and requests in flight may be late.
    pub(super) fn handle_timeout(&self) {
        self.change(|state| state.requests.handle_timeout(now()));
    }

    /// Whether anything is in flight on a path.
    #[cfg(test)]
    pub(crate) fn has_requests(&self, id: PathId) -> bool {
        self.lock().requests.paths().in_flight(id) > 0
    }

    /// What was counted of each path that is open, and of all that are gone.
    #[cfg(test)]
    pub(crate) fn snapshots(&self) -> (Vec<Snapshot>, Snapshot) {
        self.lock().paths.snapshots()
    }

    /// The paths that are open.
    pub(crate) fn open(&self) -> Vec<(PathId, Path)> {
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

    /// How long a write had better be, bytes: where paths differ, as the best of them takes it.
    pub(crate) fn max_request_len(&self) -> u64 {
        let state = self.lock();
        let of_paths = state.paths.open().iter().map(|(_, path)| path.longest_write());
        let longest = of_paths.max().unwrap_or(u64::MAX);
        longest.min(state.requests.paths().max_request_len(now))
    }

    /// How long a read had better be, bytes: where paths differ, as the best of them brings it.
    pub(crate) fn max_read_len(&self) -> u64 {
        let state = self.lock();
        let of_paths = state.paths.open().iter().map(|(_, path)| path.longest_read());
        of_paths.max().unwrap_or(u64::MAX)
    }

    /// Limit of the outstanding write data of a connection at a slow target, bytes; `None` for a fast one.
    pub(super) fn limit_of_slow_target(&self) -> Option<u64> {
        let open = self.open();
        open.iter().filter_map(|(_, path)| path.unit.session().limit_of_slow_target()).min()
    }

    /// Gives paths to requests that wait, if time alone has made one free: a path falls silent without an event. Returns
    /// whether there are requests at all.
    pub(super) fn look_again(&self) -> bool {
        self.handle_timeout();
        let state = self.lock();
        state.requests.has_queue() || state.requests.paths().has_requests()
    }

    /// How many commands were sent again, over all paths that there are and were.
    pub(crate) fn retries(&self) -> u64 {
        self.lock().paths.retries()
    }

    /// Whether the unit has finished with every write that was sent over any path, as far as is known.
    pub(crate) fn is_settled(&self) -> bool {
        self.lock().paths.is_settled()
    }

    /// What is left to be closed after the end.
    pub(super) fn remains(&self) -> Remains {
        self.lock().paths.remains()
    }

    /// The paths that were set aside since the last call, each with the reason.
    pub(crate) fn take_useless(&self) -> Vec<(PathId, Error)> {
        self.lock().paths.take_useless()
    }

    /// The path takes nothing more.
    pub(crate) fn close(&self, id: PathId) {
        self.change(|state| state.requests.close_path(id));
    }

    /// Gives back the carrier of a path that was closed, once what is under way on it has ended;
    /// `None` if it is needed again, or was lost, or all has ended.
    pub(crate) async fn remove(&self, id: PathId) -> Option<Path> {
        loop {
            let drained = self.0.drained.notified();
            {
                let mut guard = self.lock();
                let (state, unit) = guard.both();
                // After the end, whoever leaves his request alone holds nobody up.
                if state.end.is_some() || !state.requests.paths().is_closing(id) {
                    return None;
                }
                if state.requests.paths().in_flight(id) == 0 {
                    state.requests.remove_path(id);
                    return state.paths.remove(id, unit);
                }
            }
            drained.await;
        }
    }

    /// The paths that were lost since the last call, each with the reason.
    pub(crate) fn take_lost(&self) -> Vec<(Path, Error)> {
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

    /// How many requests were sent over a second path.
    pub(crate) fn hedged(&self) -> u64 {
        self.lock().hedged
    }

    /// What all paths may have under way together.
    pub(crate) fn budget(&self) -> &Budget {
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
        self.change(|state| {
            let State { paths, requests, meter, .. } = &mut **state;
            let all_work = paths.open().iter().all(|(id, _)| requests.paths().in_flight(*id) > 0);
            meter.read(all_work || requests.has_backlog())
        })
    }

    /// Nothing goes any more; what waits fails.
    pub(crate) fn end(&self, why: &Error) {
        self.change(|guard| {
            let state = &mut **guard;
            let end = state.end.get_or_insert_with(|| Box::new(why.as_not_executed()));
            state.requests.refuse(end);
            state.paths.end();
        });
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
    pub(crate) fn policy(&self) -> &RequestPolicy {
        &self.0.policy
    }

    pub(crate) fn report(&self) -> &Arc<Report> {
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

    /// A path is lost.
    pub(crate) fn lose(&self, id: PathId, error: &Error) {
        self.change(|state| self.lose_path(state, id, error));
    }

    /// A path is lost. Where it was the last, and none may come, requests fail from now on.
    pub(super) fn lose_path(&self, guard: &mut StateGuard<'_>, id: PathId, error: &Error) {
        let (state, unit) = guard.both();
        if state.end.is_some() {
            return;
        }
        if state.paths.lose(id, error, unit) {
            self.0.report.log(|| tracing::debug!(path = id.0, %error, "a session is lost"));
            state.requests.remove_lost_path(id, now());
            self.0.drained.notify_waiters();
            self.0.attention.notify_one();
        }
        if state.paths.open().is_empty() && !state.paths.is_supervised() {
            self.0.report.log(|| tracing::debug!(%error, "no session is left"));
            let end = state.end.insert(Box::new(error.as_not_executed()));
            state.requests.refuse(end);
            self.0.ended.notify_waiters();
        }
    }

    /// Notified when a path that is closed has nothing in flight any more, or is needed again.
    pub(super) fn drained(&self) -> &Notify {
        &self.0.drained
    }

    #[inline]
    pub(super) fn lock(&self) -> StateGuard<'_> {
        self.0.state.lock()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Drop for Shared {
    /// The supervisor may sleep; it closes what is left.
    fn drop(&mut self) {
        let remains = self.state.lock().paths.remains();
        *self.remains.lock().unwrap_or_else(PoisonError::into_inner) = Some(remains);
        self.attention.notify_one();
    }
}

/// The limits of the requests of a disk.
fn limits(budget: &Budget, policy: &RequestPolicy) -> RequestLimits {
    RequestLimits {
        total: Credit { bytes: budget.max_bytes(), requests: budget.max_requests() },
        retry_timeout: policy.patience,
        aborted_timeout: policy.patience.min(ABORTED_LIMIT),
        pauses: policy.retry.pauses(),
        max_attentions: MAX_ATTENTIONS,
        hedge: policy.hedge.into(),
        is_shaped: policy.class.is_some(),
    }
}

/// The clock of the runtime, so that tests can turn it.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
