//! The supervisor of the paths of a disk: adds some, removes some, reopens lost ones.

use std::sync::Arc;
use std::time::Duration;

use iscsi_multipath::port_groups::PortGroups;
use iscsi_multipath::reconnect::BackOff;
use iscsi_tuner::{SessionCount, SessionsReading, Step};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{Instrument, Span, error_span};

use crate::driver::measure::reading::Reading;
use crate::driver::measure::tuner;
use crate::error::Error;
use crate::multipath::discovery_pace::DiscoveryPace;
use crate::multipath::dispatch::{Paths, WeakPaths, now};
use crate::multipath::event::Event;
use crate::multipath::idle_poll::{IdlePoll, hear_of_changes};
use crate::multipath::lane::{PathId, Room};
use crate::multipath::path::Path;
use crate::multipath::port_states::access_changed;
use crate::multipath::reinstatement::Lost;
use crate::multipath::reopen::{ExpectedUnitReceiver, Opener, may_pass};
use crate::multipath::report::Report;
use crate::multipath::review_pace::{self, ReviewPace};
use crate::multipath::shared_link::{SharedLink, Traffic};
use crate::multipath::spare_portals::SparePortals;
use crate::multipath::standby::Standby;
use crate::multipath::unused_portals::UnusedPortals;
use crate::options::sessions::Sessions;
use crate::state::unit_changes::{ChangeLog, UnitChanges};

/// Supervises the paths as long as there is a handle of the disk.
pub(crate) struct Supervisor {
    paths: WeakPaths<Path>,
    attention: Arc<Notify>,
    pub(super) opener: Arc<Opener>,
    pub(super) expected: ExpectedUnitReceiver,
    pub(super) sessions: Sessions,
    session_count: SessionCount,
    pub(super) report: Arc<Report>,
    /// What becomes of the sessions that are being opened, or closed.
    pub(super) events: JoinSet<Event>,
    /// One task per open session that resolves when it ends, so that the loss of an idle session is noticed.
    pub(super) ends: JoinSet<(PathId, Error)>,
    pub(super) opening: u32,
    pub(super) reopening: u32,
    /// Those that are lost, as long as there are tries to settle what they have left.
    pub(super) lost: Vec<Path>,
    /// Those that are not needed any more, until their logout has ended or is not due any more.
    pub(super) leaving: Vec<Path>,
    /// Those that are gone, and still registered because a reservation might have ended with that.
    pub(super) still_registered: Vec<Path>,
    /// Why what a lost session has left was not settled at the last try.
    pub(super) unsettled: Option<Error>,
    /// Those that left it, and when they are tried again.
    pub(super) given_up: Vec<Lost>,
    pub(super) settle_next: Instant,
    /// When it is looked whether anybody waits for that.
    pub(super) look_at_waiting: Instant,
    /// What came of closing.
    closed: watch::Sender<Option<Result<(), Error>>>,
    /// Why the latest session that is not there, and not on its way, is not.
    pub(super) refusal: Option<Error>,
    pub(super) standby: Standby,
    pub(super) unused: UnusedPortals,
    pub(super) access: PortGroups,
    changes: UnitChanges,
    pub(super) discovery: DiscoveryPace,
    pub(super) spares: SparePortals,
    pub(super) polls: IdlePoll,
    reviews: ReviewPace,
    begun: Instant,
    /// Bytes that had been moved at the last review, and when that was.
    moved: u64,
    reviewed: Instant,
    traffic: Traffic,
}

/// What a supervisor begins with.
#[derive(Debug)]
pub(crate) struct SupervisorConfig {
    pub(crate) opener: Arc<Opener>,
    pub(crate) expected: ExpectedUnitReceiver,
    pub(crate) sessions: Sessions,
    /// Why as many sessions are wanted at first as there are and are coming.
    pub(crate) reason: String,
    /// The sessions that are being opened already.
    pub(crate) opening: JoinSet<Event>,
}

impl Supervisor {
    /// Takes over the paths, and the sessions that are on their way already.
    pub(crate) fn new(paths: &Paths<Path>, config: SupervisorConfig) -> Self {
        let SupervisorConfig { opener, expected, sessions, reason, opening: events } = config;
        let report = Arc::clone(&opener.report);
        let closed = paths.supervise();
        let polls = IdlePoll::new(opener.node.options().poll_interval(opener.url.parameters.poll));
        let (access, changes) =
            port_groups(paths, opener.node.options().retry.in_range().back_off());
        let opening = u32::try_from(events.len()).unwrap_or_default();
        let mut supervisor = Self {
            paths: paths.downgrade(),
            attention: paths.attention(),
            opener,
            expected,
            sessions,
            session_count: SessionCount::new(reason, sessions.max()),
            report,
            events,
            ends: JoinSet::new(),
            opening,
            reopening: 0,
            lost: Vec::new(),
            leaving: Vec::new(),
            still_registered: Vec::new(),
            unsettled: None,
            given_up: Vec::new(),
            settle_next: Instant::now(),
            look_at_waiting: Instant::now(),
            closed,
            refusal: None,
            standby: Standby::new(),
            unused: UnusedPortals::new(),
            access,
            changes,
            discovery: DiscoveryPace::default(),
            spares: SparePortals::default(),
            polls,
            reviews: ReviewPace::default(),
            begun: Instant::now(),
            moved: 0,
            reviewed: Instant::now(),
            traffic: Traffic::default(),
        };
        supervisor.use_all_ports(paths);
        for (id, path) in paths.open() {
            supervisor.watch(id, &path);
            supervisor.follow_path(paths, id, &path);
        }
        supervisor.tell(paths);
        supervisor
    }

    /// Waits so long for the sessions on their way: whoever names portals, or a number, wants them.
    ///
    /// # Errors
    /// When one leads to another unit.
    pub(crate) async fn settle(
        &mut self,
        paths: &Paths<Path>,
        limit: Duration,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + limit;
        while self.opening > 0
            && let Ok(Some(event)) = timeout_at(deadline, self.events.join_next()).await
        {
            match event {
                Ok(Event::New(Err(error @ Error::DifferentUnits { .. }))) => return Err(error),
                Ok(event) => self.handle(paths, event),
                Err(_) => {}
            }
        }
        self.tell(paths);
        Ok(())
    }

    /// Runs until the disk is gone, or logged out, and then ends its sessions.
    pub(crate) async fn run(mut self) {
        loop {
            let mut late = None;
            let wakes = self.access.poll_timeout(self.reviews.is_awake()).map(Instant::from_std);
            let looks = self.looks_at_waiting();
            let polls = self.polls.wakes();
            let review = self.reviews.next(self.are_steady());
            // Each is rare, so that none keeps the others waiting for long.
            tokio::select! {
                biased;
                () = sleep_until_some(review) => self.reviews.begin(),
                () = self.attention.notified() => self.reviews.wake(),
                () = access_changed(&mut self.changes) => self.access.call(),
                () = sleep_until_some(wakes) => {}
                () = sleep_until_some(polls) => {}
                () = sleep_until_some(looks) => {
                    if !self.is_waited_for() {
                        continue;
                    }
                }
                Some(end) = self.ends.join_next() => {
                    if let (Ok((id, error)), Some(paths)) = (end, self.paths.upgrade()) {
                        paths.lose(id, &error);
                    }
                }
                Some(event) = self.events.join_next() => {
                    match (event, self.paths.upgrade()) {
                        (Ok(event), Some(paths)) => self.handle(&paths, event),
                        (event, _) => late = event.ok(),
                    }
                }
            }
            let Some(paths) = self.paths.upgrade() else { return self.close_dropped(late).await };
            if paths.has_ended() {
                self.tell(&paths);
                let (closed, remains) = (self.closed.clone(), paths.remains());
                drop(paths);
                closed.send_replace(Some(self.close(remains, None).await));
                return self.settle_for_others().await;
            }
            if Instant::now() >= self.settle_next {
                self.settle_again();
            }
            self.reopen_lost(&paths);
            self.log_out_useless(&paths);
            self.let_go_of_witness(&paths);
            self.look_at_standby(&paths);
            self.look_at_unused(&paths);
            self.watch_access(&paths);
            self.follow_ranks(&paths);
            self.look_for_portals();
            self.poll(&paths);
            self.review(&paths).await;
            self.tell(&paths);
        }
    }

    /// Nobody waits for what comes of it.
    async fn close_dropped(mut self, late: Option<Event>) {
        let remains = loop {
            match self.paths.take_remains() {
                Some(remains) => break remains,
                None => self.attention.notified().await,
            }
        };
        let report = Arc::clone(&self.report);
        if let Err(error) = self.close(remains, late).await {
            report.log(|| tracing::warn!(%error, "a disk that was dropped did not end in order"));
        }
        self.settle_for_others().await;
    }

    fn handle(&mut self, paths: &Paths<Path>, event: Event) {
        match event {
            Event::LoggedOut(..) => {}
            Event::Stayed(path) => {
                self.no_longer_leaves(&path);
            }
            Event::LetGo(path, result) => self.let_go_ended(path, result),
            Event::Settled(lost, result) => self.settlement_ended(lost, result),
            Event::New(result) => {
                self.opening = self.opening.saturating_sub(1);
                match result {
                    Ok(path) => self.join(paths, path),
                    Err(error) => self.not_opened(paths, error),
                }
            }
            Event::Again(lost, result) => {
                self.reopening = self.reopening.saturating_sub(1);
                match result {
                    Ok(path) => self.reopened(paths, lost, path),
                    Err(why) => self.not_reopened(paths, lost, why),
                }
            }
            Event::Looked(portal, result) => self.looked(paths, portal, result),
            Event::Spread(result) => self.spread_to(paths, result),
            Event::Better(result) => self.moved(paths, result),
            Event::Spare(portal, result) => self.spare_opened(paths, portal, result),
            Event::Access(id, answer) => self.heard_of_access(paths, id, answer),
            Event::Portals(found) => self.found_portals(paths, found),
            Event::Polled(answer) => {
                self.polls.ended(paths);
                if let Err(error) = answer {
                    tracing::debug!(%error, "the unit of an idle disk did not take a question");
                }
            }
        }
    }

    pub(super) fn join(&mut self, paths: &Paths<Path>, path: Path) {
        if let Some(bytes) = paths.limit_of_slow_target() {
            path.unit.session().hear_of_slow_target(bytes);
        }
        let id = paths.add(path.clone(), self.room(&path));
        self.watch(id, &path);
        self.follow_path(paths, id, &path);
    }

    /// Asks the unit of an idle disk whether it has something to report, where it is time.
    fn poll(&mut self, paths: &Paths<Path>) {
        if let Some(unit) = self.polls.due(paths) {
            let question = self.start(hear_of_changes(unit), Event::Polled);
            self.polls.begin(question);
        }
    }

    /// A disk limited to one session has no path limit; its session limits itself.
    fn room(&self, path: &Path) -> Room {
        if self.sessions.max() == 1 { Room::UNLIMITED } else { path.room() }
    }

    /// A session more is not to be had: what there is has to do.
    fn not_opened(&mut self, paths: &Paths<Path>, error: Error) {
        self.report.note(format!("a further session was not opened: {error}"));
        if !may_pass(&error) {
            let there = count(&paths.open()) + self.reopening + self.opening;
            self.session_count.cap(there, format!("no further session can be opened: {error}"));
        }
        self.refusal = Some(error);
    }

    /// Whether no session is lost, or on its way.
    pub(super) const fn are_steady(&self) -> bool {
        self.opening + self.reopening == 0 && self.lost.is_empty() && self.given_up.is_empty()
    }

    async fn review(&mut self, paths: &Paths<Path>) {
        let progress = paths.progress();
        self.open_one_for_flushes(paths, progress.moved != self.moved);
        if progress.moved == self.moved {
            if self.reviews.rested(paths.look_again()) {
                paths.leave_unattended();
            }
            return;
        }
        let now = Instant::now();
        let time = now - self.reviewed;
        let moved = progress.moved - self.moved;
        let is_rare = tuner::is_little(moved, time) && are_short(paths);
        self.reviews.moved(is_rare && count(&paths.open()) == 1);
        if is_rare && time < review_pace::RARE_INTERVAL {
            return;
        }
        // After hardly any time, hardly anything is known.
        let time = time.max(review_pace::INTERVAL);
        (self.moved, self.reviewed) = (progress.moved, now);
        let (mut readings, mut queues) = (Vec::new(), 0);
        let open = paths.in_use();
        self.traffic.keep(|id| open.iter().any(|(there, _)| *there == id));
        for (id, path) in open {
            paths.set_room(id, self.room(&path));
            if let Ok(reading) = path.unit.session().reading().await {
                let (cid, info) = (reading.cid(), reading.tcp_info());
                queues += usize::from(self.traffic.count(id, cid, info, time));
                readings.push(reading);
            }
        }
        self.traffic.fade();
        Self::spread_word(paths, &readings);
        let Sessions::Auto { .. } = self.sessions else { return };
        // While many are on their way, what is measured tells nothing; a straggler holds up nobody.
        let are_opening = 4 * self.opening > count(&paths.open());
        if are_opening || self.reopening > 0 || readings.is_empty() {
            return;
        }
        let shared_link = SharedLink::of(&readings);
        let mut reading = SessionsReading::default();
        reading.time = self.begun.elapsed();
        reading.bytes = progress.moved;
        reading.sessions = u32::try_from(readings.len()).unwrap_or(u32::MAX);
        reading.planned = shared_link.planned(readings.first(), &self.opener.node.options().tuning);
        reading.is_busy = progress.is_busy;
        reading.has_queue = 2 * queues >= readings.len();
        reading.loss = self.traffic.loss();
        reading.round_trip = shared_link.round_trip;
        match self.session_count.observe(&reading) {
            Step::Stay => {}
            // More sessions do not make its medium faster.
            Step::Add(_) if paths.limit_of_slow_target().is_some() => {}
            Step::Add(more) => self.open_more(more.min(self.missing(paths))),
            Step::Remove(fewer) => self.remove(paths, fewer),
        }
    }

    /// What one session has learnt of losses holds for all: one of them alone would take longer to
    /// tell them from a queue that overflows.
    fn spread_word(paths: &Paths<Path>, readings: &[Reading]) {
        let acts = |reading: &Reading| reading.plan().congestion_control.value.is_some();
        let loss = readings
            .iter()
            .filter(|reading| acts(reading))
            .filter_map(|reading| reading.measurement().loss);
        let loss = loss.fold(0.0, f64::max);
        if loss <= 0.0 {
            return;
        }
        for (_, path) in paths.open() {
            let session = path.unit.session();
            if session.of_plan(|plan| plan.congestion_control.value.is_none()).unwrap_or_default() {
                session.hear_of_loss(loss);
            }
        }
    }

    pub(super) fn open_more(&mut self, more: u32) {
        if more == 0 {
            return;
        }
        tracing::info!(more, reason = self.session_count.reason(), "more sessions");
        for _ in 0..more {
            let (opener, expected) = (Arc::clone(&self.opener), self.expected.clone());
            self.opening += 1;
            self.start(async move { opener.open(expected).await }, Event::New);
        }
    }

    /// Starts something that ends as an event, also where it panics, unless it is aborted.
    pub(super) fn start<T: Send + 'static>(
        &mut self,
        task: impl Future<Output = Result<T, Error>> + Send + 'static,
        event: impl FnOnce(Result<T, Error>) -> Event + Send + 'static,
    ) -> AbortHandle {
        let task = Box::pin(task);
        let ended = async { event(outcome(task).await.unwrap_or(Err(Error::Closed))) };
        self.events.spawn(ended.in_current_span())
    }

    fn remove(&mut self, paths: &Paths<Path>, fewer: u32) {
        tracing::info!(fewer, reason = self.session_count.reason(), "fewer sessions");
        for id in paths.surplus(fewer) {
            paths.close(id);
            self.release(paths, id);
        }
    }

    fn log_out_useless(&mut self, paths: &Paths<Path>) {
        for (id, error) in paths.take_useless() {
            self.report.note(format!("a session was of no use: {error}"));
            if let Some((_, path)) = paths.open().into_iter().find(|(there, _)| *there == id) {
                self.standby.add(path.portal);
                self.retire(paths, id, &path);
            }
            self.refusal = Some(error);
        }
    }

    /// How many more sessions the disk may have than are there or on their way.
    pub(super) fn missing(&self, paths: &Paths<Path>) -> u32 {
        let coming = self.opening + self.reopening + self.spares.opening + self.spares.moving;
        self.sessions.max().saturating_sub(count(&paths.open()) + coming)
    }

    /// Logs a session out that was closed, once nothing is in flight on it.
    pub(super) fn release(&mut self, paths: &Paths<Path>, id: PathId) {
        let Some((_, path)) = paths.open().into_iter().find(|(there, _)| *there == id) else {
            return;
        };
        let (paths, closed) = (paths.clone(), path.clone());
        self.leave(path, async move {
            match paths.remove(id).await {
                Some(path) => let_go(path).await,
                None => Event::Stayed(closed),
            }
        });
    }

    /// Logs a session out that carries nothing.
    pub(super) fn dismiss(&mut self, path: Path) {
        self.leave(path.clone(), let_go(path));
    }

    /// A session is not needed any more, and leaves in this way, unless it stays.
    pub(super) fn leave(
        &mut self,
        path: Path,
        leaving: impl Future<Output = Event> + Send + 'static,
    ) {
        self.leaving.push(path);
        self.events.spawn(leaving.in_current_span());
    }

    /// A session that was to leave has left, or does not. Says whether it was to.
    pub(super) fn no_longer_leaves(&mut self, path: &Path) -> bool {
        let key = path.unit.session().key();
        let mut leaving = self.leaving.iter();
        // One only: it may be about to leave once more.
        let at = leaving.position(|leaving| leaving.unit.session().key() == key);
        at.map(|at| self.leaving.swap_remove(at)).is_some()
    }

    /// A session that was not needed has ended. What it has left if it was lost is to be settled.
    pub(super) fn let_go_ended(&mut self, path: Path, result: Result<(), Error>) {
        let was_to_leave = self.no_longer_leaves(&path);
        if was_to_leave && path.unit.is_registered() && path.unit.session().is_settled() {
            self.still_registered.push(path.clone());
        }
        let Err(error) = result else { return };
        let span = span_of(&path);
        tracing::debug!(parent: span, %error, "a session that was let go did not log out in order");
        // Otherwise the end of the disk has logged it out, and settles that.
        if was_to_leave && !path.unit.session().is_settled() {
            self.lost.push(path.clone());
            self.settle_otherwise(Lost::new(path, error));
        }
    }

    fn tell(&self, paths: &Paths<Path>) {
        let sessions = count(&paths.open());
        self.report.with(|spread| {
            spread.sessions = sessions;
            spread.peak = spread.peak.max(sessions);
            spread.reason = self.reason(sessions);
        });
    }

    /// Why there are so many sessions; where they are not all there, what has become of the others.
    fn reason(&self, sessions: u32) -> String {
        let (opening, reopening) = (self.opening, self.reopening);
        let mut missing = Vec::new();
        if opening > 0 {
            missing.push(format!("{opening} not open yet"));
        }
        if reopening > 0 {
            missing.push(format!("{reopening} lost and not back yet"));
        }
        if let Sessions::Fixed(asked) = self.sessions
            && sessions < asked
        {
            let gone = asked.saturating_sub(sessions + opening + reopening);
            match &self.refusal {
                _ if gone == 0 => {}
                Some(error) => missing.push(format!("{gone} not to be had ({error})")),
                None => missing.push(format!("{gone} lost")),
            }
            return format!("{asked} asked for; {}", missing.join(", "));
        }
        missing.insert(0, self.session_count.reason().to_owned());
        missing.join("; ")
    }
}

impl Drop for Supervisor {
    /// No path that is lost comes back any more, also where the runtime is gone before the disk.
    fn drop(&mut self) {
        if let Some(paths) = self.paths.upgrade() {
            paths.end(&Error::Closed);
        }
    }
}

/// The port groups of a unit that says whether it has any, and its reports of changes. Requests count on the states from now on.
fn port_groups(paths: &Paths<Path>, back_off: BackOff) -> (PortGroups, UnitChanges) {
    let open = paths.open();
    let state = open.first().map(|(_, path)| path.unit.state());
    let profile = state.and_then(|state| state.profile.get());
    let is_claimed =
        profile.is_some_and(|profile| profile.target_port_group_support.is_supported());
    paths.follow_access(is_claimed);
    let changes =
        state.map_or_else(|| ChangeLog::default().follow(), |state| state.across.changes.follow());
    (PortGroups::new(is_claimed, back_off, now()), changes)
}

async fn sleep_until_some(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Logs a session out that is not needed.
pub(super) async fn let_go(path: Path) -> Event {
    path.unit.unregister_unless_holder().await;
    let result = path.unit.session().logout().await;
    Event::LetGo(path, result)
}

/// How a task ends; `None` if it panics, which must not take along what waits for it.
pub(super) async fn outcome<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    // The set ends its task when it is dropped.
    let mut tasks = JoinSet::new();
    tasks.spawn(task.in_current_span());
    tasks.join_next().await?.ok()
}

/// Within the disk's span: which of its sessions it is.
pub(super) fn span_of(path: &Path) -> Span {
    error_span!("path", isid = %path.unit.session().isid())
}

/// Whether round trips cost nothing over any of them.
fn are_short(paths: &Paths<Path>) -> bool {
    let is_short = |path: &Path| path.unit.session().of_plan(|plan| plan.link.is_local());
    paths.open().iter().all(|(_, path)| is_short(path) == Some(true))
}

pub(super) fn count(paths: &[(PathId, Path)]) -> u32 {
    u32::try_from(paths.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A task that panics still ends, and none outlives the task that waits for it.
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
