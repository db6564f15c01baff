//! Supervises the paths of a disk: passes events and timers to the state machines that decide, and executes
//! what they return.
//!
//! ```text
//!   events, timers ──► PortGroups: state of each port       ──► queries to the unit
//!                      Topology:   open sessions            ──► sessions to open, to close
//!                      IdlePoll, ReviewPace                 ──► when to check again
//! ```

pub(crate) mod access;
pub(crate) mod closing;
pub(crate) mod event;
pub(crate) mod idle_poll;
pub(crate) mod leaving;
pub(crate) mod left_behind;
pub(crate) mod lost_sessions;
pub(crate) mod outage;
pub(crate) mod port_states;
pub(crate) mod portal_discovery;
pub(crate) mod reconnecting;
pub(crate) mod reinstatement;
pub(crate) mod reopen;
pub(crate) mod review;
pub(crate) mod reviewing;
pub(crate) mod session_changes;
pub(crate) mod shared_link;
pub(crate) mod slow_target;
pub(crate) mod witness;

use std::sync::Arc;
use std::time::Duration;

use iscsi_multipath::port_groups::PortGroups;
use iscsi_multipath::reconnect::BackOff;
use iscsi_multipath::topology::Topology;
use iscsi_multipath::{IdlePoll, PathId};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{Instrument, Span, error_span};

use crate::error::{Cause, Error, UnitCause};
use crate::events::disk_event::DiskEvent;
use crate::events::disk_events::{DiskEvents, EventLog};
use crate::multipath::disk_status::SessionsReason;
use crate::multipath::paths::path::Path;
use crate::multipath::paths::{Paths, WeakPaths, now};
use crate::multipath::report::Report;
use crate::multipath::supervisor::event::{Event, NotOpened};
use crate::multipath::supervisor::idle_poll::{is_quiet, next_commands, poll_changes};
use crate::multipath::supervisor::lost_sessions::LostSessions;
use crate::multipath::supervisor::reopen::{ExpectedUnitReceiver, Opener};
use crate::multipath::supervisor::review::Review;
use crate::options::sessions::Sessions;
use iscsi_multipath::CommandNumber;
use iscsi_multipath::paths::Credit;

/// Supervises the paths as long as there is a handle of the disk.
pub(crate) struct Supervisor {
    paths: WeakPaths,
    attention: Arc<Notify>,
    opener: Arc<Opener>,
    expected: ExpectedUnitReceiver,
    topology: Topology,
    port_groups: PortGroups,
    /// Subscription to the events of the disk. Only reports of changed access states matter here.
    disk_events: DiskEvents,
    losses: LostSessions,
    review: Review,
    polls: IdlePoll<CommandNumber>,
    tasks: Tasks,
    /// When to evaluate the topology again; `None` if only an event can change its result.
    again: Option<Instant>,
}

/// Background work that the supervisor has started.
struct Tasks {
    events: JoinSet<Event>,
    /// One task per open session, which resolves when the session ends, so that the loss of an idle session
    /// is noticed.
    ends: JoinSet<(PathId, Error)>,
    /// The idle poll, while it is in progress.
    poll: Option<AbortHandle>,
    /// Result of closing the disk.
    closed: watch::Sender<Option<Result<(), Error>>>,
}

/// Initial values of a supervisor.
#[derive(Debug)]
pub(crate) struct SupervisorConfig {
    pub(crate) opener: Arc<Opener>,
    pub(crate) expected: ExpectedUnitReceiver,
    pub(crate) sessions: Sessions,
    /// Reason for the number of sessions that are open or being opened at the start.
    pub(crate) reason: String,
    /// The sessions that are already being opened. `opening` has their tasks.
    pub(crate) topology: Topology,
    pub(crate) opening: JoinSet<Event>,
}

impl Supervisor {
    /// Creates the supervisor of these paths and of the sessions that are being opened.
    pub(crate) fn new(paths: &Paths, config: SupervisorConfig) -> Self {
        let SupervisorConfig { opener, expected, sessions, reason, topology, opening } = config;
        let tasks =
            Tasks { events: opening, ends: JoinSet::new(), poll: None, closed: paths.supervise() };
        let options = opener.node.options();
        let polls = IdlePoll::new(options.poll_interval(opener.url.parameters.poll), now());
        let (port_groups, disk_events) = port_groups(paths, options.advanced.retry_pauses.pauses());
        let mut supervisor = Self {
            paths: paths.downgrade(),
            attention: paths.attention(),
            opener,
            expected,
            topology,
            port_groups,
            disk_events,
            losses: LostSessions::new(),
            review: Review::new(sessions, reason),
            polls,
            tasks,
            again: None,
        };
        supervisor.use_all_ports(paths);
        for (id, path) in paths.open() {
            supervisor.watch(id, &path);
            supervisor.follow_path(paths, id, &path);
        }
        supervisor.report_count(paths);
        supervisor
    }

    /// Waits up to `limit` for the sessions that are being opened. A caller that names portals, or a number
    /// of sessions, expects them to be open.
    ///
    /// # Errors
    /// A session leads to another unit.
    pub(crate) async fn wait_for_opening(
        &mut self,
        paths: &Paths,
        limit: Duration,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + limit;
        while self.topology.opening() > 0
            && let Ok(Some(event)) = timeout_at(deadline, self.tasks.events.join_next()).await
        {
            match event {
                Ok(Event::Opened(_, Err(NotOpened { why, .. })))
                    if matches!(why.cause(), Cause::Unit(UnitCause::DifferentUnits { .. })) =>
                {
                    return Err(why);
                }
                Ok(event) => self.handle(paths, event),
                Err(_) => {}
            }
        }
        self.report_count(paths);
        Ok(())
    }

    /// Runs until the disk is dropped or logged out, and then ends its sessions.
    pub(crate) async fn run(mut self) {
        loop {
            let mut late = None;
            let review = self.review.pace.poll_timeout(self.are_steady(), now());
            let wakes = self.wakes();
            // Each of these events is rare, so a biased order delays none of them for long.
            tokio::select! {
                biased;
                () = sleep_until_some(review.map(Instant::from_std)) => self.review.pace.begin(now()),
                () = self.attention.notified() => self.review.pace.wake(),
                () = access_changed(&mut self.disk_events) => self.port_groups.call(),
                () = sleep_until_some(wakes) => {}
                Some(end) = self.tasks.ends.join_next() => {
                    if let (Ok((id, error)), Some(paths)) = (end, self.paths.upgrade()) {
                        paths.remove_lost(id, &error);
                    }
                }
                Some(event) = self.tasks.events.join_next() => {
                    match (event, self.paths.upgrade()) {
                        (Ok(event), Some(paths)) => self.handle(&paths, event),
                        (event, _) => late = event.ok(),
                    }
                }
            }
            let Some(paths) = self.paths.upgrade() else { return self.close_dropped(late).await };
            if paths.has_ended() {
                self.report_count(&paths);
                let (closed, remains) = (self.tasks.closed.clone(), paths.remains());
                drop(paths);
                closed.send_replace(Some(self.close(remains, None).await));
                return self.settle_for_others().await;
            }
            self.settle_if_due();
            self.take_lost(&paths);
            self.let_go_of_witness(&paths);
            self.watch_access(&paths);
            let count = self.review(&paths).await;
            self.follow_topology(&paths, count);
            self.discover_portals();
            self.poll(&paths);
            self.report_count(&paths);
        }
    }

    /// Returns the next time at which something is due without an event, except for reviews.
    fn wakes(&self) -> Option<Instant> {
        let is_awake = self.review.pace.is_awake();
        let groups = self.port_groups.poll_timeout(is_awake).map(Instant::from_std);
        let polls = self.polls.poll_timeout().map(Instant::from_std);
        // A disk without requests does not need better sessions, so the topology is not evaluated again.
        let again = self.again.filter(|_| is_awake);
        [groups, polls, again, self.losses.poll_timeout()].into_iter().flatten().min()
    }

    /// Closes the sessions of a disk that was dropped. No caller waits for the result, so an error is logged.
    async fn close_dropped(mut self, late: Option<Event>) {
        let remains = loop {
            match self.paths.take_remains() {
                Some(remains) => break remains,
                None => self.attention.notified().await,
            }
        };
        let report = Arc::clone(&self.opener.report);
        if let Err(error) = self.close(remains, late).await {
            report.log(|| tracing::warn!(%error, "a disk that was dropped did not end in order"));
        }
        self.settle_for_others().await;
    }

    fn handle(&mut self, paths: &Paths, event: Event) {
        match event {
            Event::LoggedOut(..) => {}
            Event::Stayed(path) => {
                self.no_longer_leaves(&path);
            }
            Event::LetGo(path, result) => self.let_go_ended(path, result),
            Event::Settled(lost, result) => self.settlement_ended(lost, result),
            Event::Opened(open, Ok(path)) => self.opened(paths, &open, path),
            Event::Opened(open, Err(not_opened)) => self.not_opened(paths, &open, not_opened),
            Event::Access(id, answer) => self.access_answered(paths, id, answer),
            Event::Portals(found) => self.found_portals(paths, found),
            Event::Polled(answer) => {
                self.tasks.poll = None;
                self.polls.end(next_commands(paths), now());
                if let Err(error) = answer {
                    tracing::debug!(%error, "the unit of an idle disk did not take a question");
                }
            }
        }
    }

    fn join(&mut self, paths: &Paths, path: Path) {
        if let Some(bytes) = paths.limit_of_slow_target() {
            path.unit.session().on_slow_target(bytes);
        }
        let id = paths.add(path.clone(), self.room(&path));
        self.watch(id, &path);
        self.follow_path(paths, id, &path);
        let (portal, key) = path.place();
        self.report().publish(&DiskEvent::PathUp { portal, key });
    }

    /// Polls the unit of an idle disk for changes, if that is due.
    fn poll(&mut self, paths: &Paths) {
        let is_due = self.polls.poll_timeout().is_some_and(|at| at <= now());
        if !is_due || !self.polls.check_due(next_commands(paths), is_quiet(paths), now()) {
            return;
        }
        if let Some((_, path)) = paths.in_use().into_iter().next() {
            self.polls.begin();
            self.tasks.poll = Some(self.start(poll_changes(path.unit.clone()), Event::Polled));
        }
    }

    /// Returns the credit of a path. The credit is unlimited for a disk limited to one session, because that
    /// session limits its commands itself.
    fn room(&self, path: &Path) -> Credit {
        if self.review.sessions.max() == 1 { Credit::UNLIMITED } else { path.room() }
    }

    /// Returns whether no session is lost or being opened.
    fn are_steady(&self) -> bool {
        self.topology.opening() + self.topology.reconnecting() == 0 && self.losses.are_none()
    }

    fn report(&self) -> &Report {
        &self.opener.report
    }

    /// Starts a task whose result becomes an event, even if the task panics, unless it is aborted.
    fn start<T: Send + 'static>(
        &mut self,
        task: impl Future<Output = Result<T, Error>> + Send + 'static,
        event: impl FnOnce(Result<T, Error>) -> Event + Send + 'static,
    ) -> AbortHandle {
        let task = Box::pin(task);
        let ended = async { event(outcome(task).await.unwrap_or(Err(Error::closed()))) };
        self.tasks.events.spawn(ended.in_current_span())
    }

    fn report_count(&self, paths: &Paths) {
        let sessions = count(&paths.open());
        let (opening, reconnecting) = (self.topology.opening(), self.topology.reconnecting());
        let coming = sessions + opening + reconnecting;
        self.report().with(|status| {
            status.sessions = sessions;
            status.peak = status.peak.max(sessions);
            (status.opening, status.reconnecting) = (opening, reconnecting);
            (status.wanted, status.reason) = match self.review.sessions {
                Sessions::Fixed(asked) => (asked, SessionsReason::Fixed),
                Sessions::Auto { .. } => {
                    (coming, SessionsReason::Tuned(self.review.count.reason().to_owned()))
                }
            };
            status.refusal.clone_from(&self.review.refusal);
        });
    }
}

impl Drop for Supervisor {
    /// Ends the paths: lost paths will not reconnect. This also runs if the runtime is shut down before the
    /// disk is dropped.
    fn drop(&mut self) {
        if let Some(paths) = self.paths.upgrade() {
            paths.end(&Error::closed());
        }
    }
}

/// Returns the port groups of the unit, and a subscription to its reports of changes. If the unit claims to
/// report the states, requests follow them after this call.
fn port_groups(paths: &Paths, back_off: BackOff) -> (PortGroups, DiskEvents) {
    let open = paths.open();
    let state = open.first().map(|(_, path)| path.unit.state());
    let profile = state.and_then(|state| state.profile.get());
    let is_claimed =
        profile.is_some_and(|profile| profile.target_port_group_support.is_supported());
    paths.lock().requests.set_follows_access(is_claimed);
    let events = state
        .map_or_else(|| EventLog::default().subscribe(), |state| state.known().events.subscribe());
    (PortGroups::new(is_claimed, back_off, now()), events)
}

/// Waits until the unit reports that access states have changed.
async fn access_changed(events: &mut DiskEvents) {
    while let Some(event) = events.next().await {
        // A missed event may have been a report of changed access states.
        if matches!(event, DiskEvent::AccessStatesChanged | DiskEvent::Missed { .. }) {
            return;
        }
    }
    std::future::pending().await
}

async fn sleep_until_some(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Runs a task and returns its result; `None` if the task panics. So a panic does not spread to the caller.
async fn outcome<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> Option<T> {
    // Dropping the set aborts the task.
    let mut tasks = JoinSet::new();
    tasks.spawn(task.in_current_span());
    tasks.join_next().await?.ok()
}

/// Returns a span, within the disk's span, that names the session.
fn span_of(path: &Path) -> Span {
    error_span!("path", isid = %path.unit.session().isid())
}

fn count(paths: &[(PathId, Path)]) -> u32 {
    u32::try_from(paths.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A task that panics still ends with an event, and no task outlives the task that waits for it.
    #[tokio::test]
    async fn a_task_that_panics_has_no_outcome() {
        assert_eq!(outcome(async { 7 }).await, Some(7));
        assert_eq!(outcome(async { assert_eq!(1, 2) }).await, None);
        let (alive, ended) = tokio::sync::oneshot::channel::<()>();
        let endless = outcome(async move {
            std::future::pending::<()>().await;
            drop(alive);
        });
        assert!(timeout_at(Instant::now(), endless).await.is_err());
        assert!(ended.await.is_err());
    }
}
