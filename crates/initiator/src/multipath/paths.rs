//! Holds the paths of a disk and its requests, under the lock of its unit.

pub(crate) mod flush_watch;
pub(crate) mod in_use;
pub(crate) mod path;
pub(crate) mod progress;
pub(crate) mod set;
pub(crate) mod status;

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Instant;

use iscsi_multipath::PathId;
use iscsi_multipath::paths::Credit;
use iscsi_multipath::requests::{RequestLimits, Requests};
use tokio::sync::{Notify, watch};

use crate::error::Error;
use crate::multipath::paths::flush_watch::FlushWatch;
use crate::multipath::paths::path::Path;
use crate::multipath::paths::progress::{Meter, Progress};
use crate::multipath::paths::set::{PathSet, Remains};
use crate::multipath::report::Report;
use crate::multipath::requests::inbox::Inboxes;
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

/// The paths to one unit. Clones share the same paths.
pub(crate) struct Paths(pub(super) Arc<Shared>);

/// Weak reference of the supervisor to the paths, so that the paths are dropped with the last handle of the
/// disk.
pub(crate) struct WeakPaths {
    shared: Weak<Shared>,
    remains: Arc<Mutex<Option<Remains>>>,
}

/// Result of closing the paths, once they are closed.
type Closed = Option<Result<(), Error>>;

/// State that all handles of the paths share.
pub(super) struct Shared {
    pub(super) state: Guarded<State>,
    /// Limit of what all paths may have in flight together.
    budget: Budget,
    /// Buffers of reads, for reuse.
    read_buffers: Arc<ReadBuffers>,
    /// Notifies the supervisor that a path was lost, that the disk has ended, or that there is work again
    /// after a pause.
    attention: Arc<Notify>,
    /// Notified when a closing path has nothing in flight, is lost, or is needed again.
    drained: Notify,
    /// Notified when the disk has ended.
    ended: Notify,
    /// Rules for requests that fail or are late.
    policy: RequestPolicy,
    report: Arc<Report>,
    /// Counts of requests as callers see them: a request counts once, even if it is sent again or over two
    /// paths.
    counters: Counters,
    /// Number of requests that wait for their traffic class.
    in_class: Waiters,
    /// Paths that the supervisor must close, set when all handles of the paths are dropped.
    remains: Arc<Mutex<Option<Remains>>>,
    /// Result of closing, which the supervisor sends.
    closed: OnceLock<watch::Receiver<Closed>>,
}

/// State of the disk under the lock of its unit.
pub(crate) struct State {
    pub(super) paths: PathSet,
    pub(super) requests: Requests<Error>,
    pub(super) inboxes: Inboxes,
    pub(super) meter: Meter,
    /// Number of requests of which a second copy was sent.
    pub(super) hedged: u64,
    /// Boxed to keep `State` small: the fields around this one are used by each request.
    pub(super) flushes: Box<FlushWatch>,
    /// Why the disk has ended; `None` before. Boxed to keep `State` small, because each request uses `State`.
    end: Option<Box<Error>>,
    /// Whether the supervisor sleeps until there is work.
    pub(super) is_unattended: bool,
}

/// The locked state of the disk and of its unit.
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

    /// Takes the remaining paths, which the last handle of the paths sets when it is dropped. The handle also
    /// notifies the supervisor.
    pub(super) fn take_remains(&self) -> Option<Remains> {
        self.remains.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Paths {
    /// Creates the paths of a disk with a single path.
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

    /// Returns the object to which sessions report the ends of attempts.
    pub(super) fn requester(&self) -> Weak<dyn Requester> {
        let shared: Weak<Shared> = Arc::downgrade(&self.0);
        shared
    }

    /// Adds a path. Waiting requests can take it immediately.
    pub(crate) fn add(&self, carrier: Path, room: Credit) -> PathId {
        self.change(|guard| {
            let (state, unit) = guard.both();
            let id = state.paths.add(carrier, unit);
            state.requests.add_path(id, room, now());
            // `add_path` ends the refusal of requests, but after the end of the disk they must stay refused.
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

    /// Handles the passage of time: pauses end, and requests in flight may become late.
    pub(super) fn handle_timeout(&self) {
        self.change(|state| state.requests.handle_timeout(now()));
    }

    /// Returns whether anything is in flight on a path.
    #[cfg(test)]
    pub(crate) fn has_requests(&self, id: PathId) -> bool {
        self.lock().requests.paths().in_flight(id) > 0
    }

    /// Returns the counts of each open path, and those of all paths that are gone.
    #[cfg(test)]
    pub(crate) fn snapshots(&self) -> (Vec<Snapshot>, Snapshot) {
        self.lock().paths.snapshots()
    }

    /// Returns the open paths.
    pub(crate) fn open(&self) -> Vec<(PathId, Path)> {
        self.lock().paths.open().to_vec()
    }

    /// Marks the paths as supervised: when none is open, requests wait for a path that reconnects. The
    /// supervisor closes the paths after their end, and reports the result through the returned sender.
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

    /// Returns the best length of a write, in bytes: the longest that suits any path, limited by the rates of
    /// all paths.
    pub(crate) fn max_request_len(&self) -> u64 {
        let state = self.lock();
        let of_paths = state.paths.open().iter().map(|(_, path)| path.longest_write());
        let longest = of_paths.max().unwrap_or(u64::MAX);
        longest.min(state.requests.paths().max_request_len(now))
    }

    /// Returns the best length of a read, in bytes: the longest that suits any path.
    pub(crate) fn max_read_len(&self) -> u64 {
        let state = self.lock();
        let of_paths = state.paths.open().iter().map(|(_, path)| path.longest_read());
        of_paths.max().unwrap_or(u64::MAX)
    }

    /// Returns the limit of the outstanding write data of a connection at a slow target, in bytes; `None` for
    /// a fast target.
    pub(super) fn limit_of_slow_target(&self) -> Option<u64> {
        let open = self.open();
        open.iter().filter_map(|(_, path)| path.unit.session().limit_of_slow_target()).min()
    }

    /// Gives paths to waiting requests, if a path became available without an event. For example, no event
    /// reports that a path falls silent. Returns whether there are requests in flight or waiting.
    pub(super) fn serve_waiting(&self) -> bool {
        self.handle_timeout();
        let state = self.lock();
        state.requests.has_queue() || state.requests.paths().has_requests()
    }

    /// Returns how many commands were sent again, over all paths that exist or are gone.
    pub(crate) fn retries(&self) -> u64 {
        self.lock().paths.retries()
    }

    /// Returns whether the unit is known to have finished with every write that was sent over any path.
    pub(crate) fn is_settled(&self) -> bool {
        self.lock().paths.is_settled()
    }

    /// Takes the remaining paths after the end of the disk, so that the caller can close them.
    pub(super) fn remains(&self) -> Remains {
        self.lock().paths.remains()
    }

    /// Takes the paths that were set aside since the last call, each with the reason.
    pub(crate) fn take_useless(&self) -> Vec<(PathId, Error)> {
        self.lock().paths.take_useless()
    }

    /// Closes a path: it takes no new requests.
    pub(crate) fn close(&self, id: PathId) {
        self.change(|state| state.requests.close_path(id));
    }

    /// Removes a closed path once nothing is in flight on it, and returns it. Returns `None` if the path is
    /// needed again or was lost, or the disk has ended.
    pub(crate) async fn remove(&self, id: PathId) -> Option<Path> {
        loop {
            let drained = self.0.drained.notified();
            {
                let mut guard = self.lock();
                let (state, unit) = guard.both();
                // After the end of the disk, a request that its caller does not poll must not delay the
                // removal of its path.
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

    /// Takes the paths that were lost since the last call, each with the reason.
    pub(crate) fn take_lost(&self) -> Vec<(Path, Error)> {
        self.lock().paths.take_lost()
    }

    /// Returns the notification of lost paths, of the end of the disk, and of work after a pause.
    pub(crate) fn attention(&self) -> Arc<Notify> {
        Arc::clone(&self.0.attention)
    }

    /// Returns the counts of requests as callers see them.
    pub(crate) fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// Returns how many requests were sent over a second path.
    pub(crate) fn hedged(&self) -> u64 {
        self.lock().hedged
    }

    /// Returns the budget: the limit of what all paths may have in flight together.
    pub(crate) fn budget(&self) -> &Budget {
        &self.0.budget
    }

    /// Returns the pool of read buffers.
    pub(crate) fn read_buffers(&self) -> &Arc<ReadBuffers> {
        &self.0.read_buffers
    }

    /// Lets the supervisor sleep until the next request notifies its [`attention`](Self::attention). Frees
    /// the read buffers.
    pub(crate) fn leave_unattended(&self) {
        self.read_buffers().give_back();
        self.lock().is_unattended = true;
    }

    /// Returns whether the disk has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.lock().end.is_some()
    }

    /// Returns the bytes moved so far, and whether all paths were busy.
    pub(crate) fn progress(&self) -> Progress {
        self.change(|state| {
            let State { paths, requests, meter, .. } = &mut **state;
            let all_work = paths.open().iter().all(|(id, _)| requests.paths().in_flight(*id) > 0);
            meter.read(all_work || requests.has_backlog())
        })
    }

    /// Ends the disk: waiting requests fail, and later requests are refused.
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

    /// Waits until the disk has ended. Returns the reason.
    pub(crate) async fn ended(&self) -> Error {
        loop {
            let mut ended = pin!(self.0.ended.notified());
            // Register before the check, so that no end in between is missed.
            ended.as_mut().enable();
            if let Some(end) = self.lock().end.as_deref().cloned() {
                return end;
            }
            ended.await;
        }
    }

    /// Returns the counter of the requests that wait for their traffic class.
    pub(super) fn in_class(&self) -> &Waiters {
        &self.0.in_class
    }

    /// Returns the rules for requests that fail or are late.
    pub(crate) fn policy(&self) -> &RequestPolicy {
        &self.0.policy
    }

    pub(crate) fn report(&self) -> &Arc<Report> {
        &self.0.report
    }

    /// Waits for the share of a request of `bytes` bytes in the budget.
    pub(super) async fn reserve(&self, bytes: usize) -> Result<Permit, Error> {
        self.0.budget.reserve(bytes).await
    }

    /// Returns the share of a request of `bytes` bytes in the budget, if it is available immediately.
    pub(super) fn try_reserve(&self, bytes: usize) -> Option<Permit> {
        self.0.budget.try_reserve(bytes)
    }

    /// Removes a path that was lost.
    pub(crate) fn remove_lost(&self, id: PathId, error: &Error) {
        self.change(|state| self.remove_lost_path(state, id, error));
    }

    /// Removes a path that was lost. If it was the last path and none can reconnect, waiting and later
    /// requests fail.
    pub(super) fn remove_lost_path(&self, guard: &mut StateGuard<'_>, id: PathId, error: &Error) {
        let (state, unit) = guard.both();
        if state.end.is_some() {
            return;
        }
        if state.paths.remove_lost(id, error, unit) {
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

    /// Returns the notification that a closing path has nothing in flight, is lost, or is needed again.
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
    /// Notifies the supervisor, which may sleep, to close the remaining paths.
    fn drop(&mut self) {
        let remains = self.state.lock().paths.remains();
        *self.remains.lock().unwrap_or_else(PoisonError::into_inner) = Some(remains);
        self.attention.notify_one();
    }
}

/// Returns the limits of the requests of a disk.
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

/// Returns the time of the runtime's clock, which tests can set.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
