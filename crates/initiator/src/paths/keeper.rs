//! Who looks after the paths of a disk: adds some, lets some go, opens lost ones anew.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use iscsi_tuner::{FlowReading, Flows, Step};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until, timeout_at};

use super::opener::{Awaited, Opener, may_pass};
use super::path::Path;
use super::report::Report;
use super::together::{Together, Traffic};
use super::{Carrier, PathId, Paths, Room, WeakPaths};
use crate::error::Error;
use crate::reading::Reading;
use crate::spread::Sessions;

/// How often one looks how the paths do.
const LOOK: Duration = Duration::from_millis(250);
/// After so many looks at which nothing had moved, the next request is waited for.
const IDLE_LOOKS: u32 = 4;
/// How long what a lost session had sent may still arrive at the target.
const LINGER: Duration = Duration::from_secs(64);

/// Looks after the paths as long as there is a handle of the disk.
pub(crate) struct Keeper {
    paths: WeakPaths<Path>,
    attention: Arc<Notify>,
    opener: Arc<Opener>,
    wanted: Awaited,
    sessions: Sessions,
    flows: Flows,
    report: Arc<Report>,
    /// Sessions on their way.
    coming: JoinSet<Coming>,
    /// The ends of those that are there: one that nobody asks anything ends unnoticed otherwise.
    ends: JoinSet<(PathId, Error)>,
    opening: u32,
    reopening: u32,
    /// Why the latest session that is not there, and not on its way, is not.
    refusal: Option<Error>,
    looks: Interval,
    begun: Instant,
    /// Bytes that had been moved at the last look, and when that was.
    moved: u64,
    looked: Instant,
    /// Looks since then at which nothing more had been.
    idle_looks: u32,
    traffic: Traffic,
}

/// What a keeper begins with.
#[derive(Debug)]
pub(crate) struct Keep {
    pub(crate) opener: Arc<Opener>,
    pub(crate) wanted: Awaited,
    pub(crate) sessions: Sessions,
    /// Why as many sessions are wanted at first as there are and are coming.
    pub(crate) reason: String,
    pub(crate) coming: JoinSet<Coming>,
}

/// A path that was lost. The login that opens it anew makes the target drop what was left of it; and
/// after a [`LINGER`] no segment of the old connection is on its way any more.
#[derive(Debug)]
pub(crate) struct Lost {
    path: Path,
    at: Instant,
    /// What ended it.
    why: Error,
}

impl Lost {
    /// Counts until nothing of the old connection is on its way any more.
    async fn linger(self) -> Coming {
        sleep_until(self.at + LINGER).await;
        drop(self);
        Coming::Gone
    }
}

impl Drop for Lost {
    fn drop(&mut self) {
        self.path.settle();
    }
}

/// What became of a session that was to be opened.
#[derive(Debug)]
pub(crate) enum Coming {
    New(Result<Path, Error>),
    Again(Lost, Result<Path, Error>),
    /// One was let go in order, or is past.
    Gone,
}

impl Keeper {
    /// Takes over the paths, and the sessions that are on their way already.
    pub(crate) fn new(paths: &Paths<Path>, keep: Keep) -> Self {
        let Keep { opener, wanted, sessions, reason, coming } = keep;
        let report = Arc::clone(&opener.report);
        paths.keep();
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let opening = u32::try_from(coming.len()).unwrap_or_default();
        let mut keeper = Self {
            paths: paths.downgrade(),
            attention: paths.attention(),
            opener,
            wanted,
            sessions,
            flows: Flows::new(reason, sessions.most()),
            report,
            coming,
            ends: JoinSet::new(),
            opening,
            reopening: 0,
            refusal: None,
            looks,
            begun: Instant::now(),
            moved: 0,
            looked: Instant::now(),
            idle_looks: 0,
            traffic: Traffic::default(),
        };
        paths.open().iter().for_each(|(id, path)| keeper.watch(*id, path));
        keeper.tell(paths);
        keeper
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
            && let Ok(Some(coming)) = timeout_at(deadline, self.coming.join_next()).await
        {
            match coming {
                Ok(Coming::New(Err(error @ Error::DifferentUnits { .. }))) => return Err(error),
                Ok(coming) => self.came(paths, coming),
                Err(_) => {}
            }
        }
        self.tell(paths);
        Ok(())
    }

    /// Runs until the disk is gone, or logged out.
    pub(crate) async fn run(mut self) {
        loop {
            tokio::select! {
                _ = self.looks.tick(), if self.idle_looks < IDLE_LOOKS => {}
                () = self.attention.notified() => self.idle_looks = 0,
                Some(end) = self.ends.join_next() => {
                    if let (Ok((id, error)), Some(paths)) = (end, self.paths.upgrade()) {
                        paths.lose(id, &error);
                    }
                }
                Some(coming) = self.coming.join_next() => {
                    if let (Ok(coming), Some(paths)) = (coming, self.paths.upgrade()) {
                        self.came(&paths, coming);
                    }
                }
            }
            let Some(paths) = self.paths.upgrade() else { return };
            if paths.has_ended() {
                self.tell(&paths);
                return;
            }
            self.reopen_lost(&paths);
            self.log_out_useless(&paths);
            self.look(&paths).await;
            self.tell(&paths);
        }
    }

    fn came(&mut self, paths: &Paths<Path>, coming: Coming) {
        match coming {
            Coming::Gone => {}
            Coming::New(result) => {
                self.opening = self.opening.saturating_sub(1);
                match result {
                    Ok(path) => self.join(paths, path),
                    Err(error) => self.not_opened(paths, error),
                }
            }
            Coming::Again(lost, result) => {
                self.reopening = self.reopening.saturating_sub(1);
                match result {
                    Ok(path) => self.reopened(paths, lost, path),
                    Err(why) => self.not_reopened(paths, lost, why),
                }
            }
        }
    }

    /// A lost session is back. Where sessions have no TSIH, its login says nothing of what was left.
    fn reopened(&mut self, paths: &Paths<Path>, lost: Lost, path: Path) {
        self.report.with(|spread| spread.reopened += 1);
        self.join(paths, path);
        if !lost.path.unit.session().is_reinstated_by_login() {
            self.coming.spawn(lost.linger());
        }
    }

    /// A lost session does not come back. Whatever its login reached, if it came to one, need not be
    /// where the lost one was.
    fn not_reopened(&mut self, paths: &Paths<Path>, lost: Lost, why: Error) {
        self.report.note(format!("a lost session did not come back: {why}"));
        self.refusal = Some(why.clone());
        if paths.open().is_empty() && self.reopening == 0 {
            let (lost, why) = (Box::new(lost.why.clone()), Box::new(why));
            paths.end(&Error::NotReopened { lost, why });
        } else {
            self.coming.spawn(lost.linger());
        }
    }

    fn join(&mut self, paths: &Paths<Path>, path: Path) {
        let id = paths.add(path.clone(), self.room(&path));
        self.watch(id, &path);
    }

    /// A session that has been logged out is no path any more by then.
    fn watch(&mut self, id: PathId, path: &Path) {
        let session = path.unit.session().clone();
        self.ends.spawn(async move { (id, session.closed().await.err().unwrap_or(Error::Closed)) });
    }

    /// One that will never have company knows its own limits.
    fn room(&self, path: &Path) -> Room {
        if self.sessions.most() == 1 { Room::UNLIMITED } else { path.room() }
    }

    /// A session more is not to be had: what there is has to do.
    fn not_opened(&mut self, paths: &Paths<Path>, error: Error) {
        self.report.note(format!("a further session was not opened: {error}"));
        if !may_pass(&error) {
            let there = count(&paths.open()) + self.reopening + self.opening;
            self.flows.cap(there, format!("no further session is to be had: {error}"));
        }
        self.refusal = Some(error);
    }

    fn reopen_lost(&mut self, paths: &Paths<Path>) {
        for (path, why) in paths.take_lost() {
            self.report.note(format!("a session was lost: {why}"));
            let (opener, wanted) = (Arc::clone(&self.opener), self.wanted.clone());
            self.reopening += 1;
            let lost = Lost { path, at: Instant::now(), why };
            self.coming.spawn(async move {
                let (path, why) = (lost.path.clone(), lost.why.clone());
                let reopened = async move { opener.reopen(&path, &why, wanted).await };
                let reopened = async { outcome(reopened).await.unwrap_or(Err(Error::Closed)) };
                let settle = || lost.path.settle();
                let path = unless_by(lost.at + LINGER, settle, reopened).await;
                Coming::Again(lost, path)
            });
        }
    }

    async fn look(&mut self, paths: &Paths<Path>) {
        let progress = paths.progress();
        if progress.moved == self.moved {
            self.idle_looks += 1;
            if self.idle_looks == IDLE_LOOKS {
                paths.leave_unattended();
            }
            return;
        }
        let now = Instant::now();
        // After hardly any time, hardly anything is known.
        let time = (now - self.looked).max(LOOK);
        (self.moved, self.looked, self.idle_looks) = (progress.moved, now, 0);
        let (mut readings, mut queues) = (Vec::new(), 0);
        let open = paths.open();
        self.traffic.keep(|id| open.iter().any(|(there, _)| *there == id));
        for (id, path) in open {
            paths.set_room(id, self.room(&path));
            if let Ok(reading) = path.unit.session().reading().await {
                queues += usize::from(self.traffic.count(id, reading.tcp_info(), time));
                readings.push(reading);
            }
        }
        self.traffic.fade();
        Self::spread_word(paths, &readings);
        let Sessions::Auto { .. } = self.sessions else { return };
        // While many are on their way, what is measured tells nothing; a straggler holds up nobody.
        let are_coming = 4 * self.opening > count(&paths.open());
        if are_coming || self.reopening > 0 || readings.is_empty() {
            return;
        }
        let together = Together::of(&readings);
        let reading = FlowReading {
            time: self.begun.elapsed(),
            bytes: progress.moved,
            flows: u32::try_from(readings.len()).unwrap_or(u32::MAX),
            planned: together.planned(readings.first(), &self.opener.initiator.options().tuning),
            is_busy: progress.is_busy,
            has_queue: 2 * queues >= readings.len(),
            loss: self.traffic.loss(),
            round_trip: together.round_trip,
        };
        match self.flows.observe(&reading) {
            Step::Stay => {}
            Step::Add(more) => self.open_more(more),
            Step::LetGo(fewer) => self.let_go(paths, fewer),
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
            if session.plan().is_some_and(|plan| plan.congestion_control.value.is_none()) {
                session.hear_of_loss(loss);
            }
        }
    }

    fn open_more(&mut self, more: u32) {
        tracing::info!(more, reason = self.flows.reason(), "more sessions");
        for _ in 0..more {
            let (opener, wanted) = (Arc::clone(&self.opener), self.wanted.clone());
            self.opening += 1;
            let opened = async move { opener.open(wanted).await };
            self.coming
                .spawn(async { Coming::New(outcome(opened).await.unwrap_or(Err(Error::Closed))) });
        }
    }

    /// The youngest go: they are what was added last.
    fn let_go(&mut self, paths: &Paths<Path>, fewer: u32) {
        tracing::info!(fewer, reason = self.flows.reason(), "fewer sessions");
        let mut working = paths.working();
        working.sort_unstable();
        let kept = working.len().saturating_sub(fewer as usize).max(1);
        for id in working.into_iter().skip(kept) {
            paths.close(id);
            self.release(paths, id);
        }
    }

    fn log_out_useless(&mut self, paths: &Paths<Path>) {
        for (id, error) in paths.take_useless() {
            self.report.note(format!("a session was of no use: {error}"));
            self.release(paths, id);
            self.refusal = Some(error);
        }
    }

    /// Logs a session out that was closed, once nothing is under way on it.
    fn release(&mut self, paths: &Paths<Path>, id: PathId) {
        let paths = paths.clone();
        self.coming.spawn(async move {
            if let Some(path) = paths.let_go(id).await
                && let Err(error) = path.unit.session().logout().await
            {
                tracing::debug!(%error, "a session that was let go did not log out in order");
            }
            Coming::Gone
        });
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
        missing.insert(0, self.flows.reason().to_owned());
        missing.join("; ")
    }
}

/// Waits for something, and does something else when that takes until then.
async fn unless_by<T>(
    deadline: Instant,
    late: impl FnOnce(),
    something: impl Future<Output = T>,
) -> T {
    let mut something = pin!(something);
    if let Ok(result) = timeout_at(deadline, &mut something).await {
        return result;
    }
    late();
    something.await
}

/// How a task ends; `None` if it panics, which must not take along what waits for it.
async fn outcome<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> Option<T> {
    // The set ends its task when it is dropped.
    let mut tasks = JoinSet::new();
    tasks.spawn(task);
    tasks.join_next().await?.ok()
}

fn count(paths: &[(PathId, Path)]) -> u32 {
    u32::try_from(paths.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::sleep;

    use super::*;

    /// What a lost session was writing is free again after a while, also while the session is still
    /// being opened anew.
    #[tokio::test(start_paused = true)]
    async fn what_lingers_is_settled_before_patience_ends() {
        for (seconds, is_late) in [(63, false), (65, true), (300, true)] {
            let settled = Cell::new(None);
            let begun = Instant::now();
            let settle = || settled.set(Some(begun.elapsed()));
            unless_by(begun + LINGER, settle, sleep(Duration::from_secs(seconds))).await;
            assert_eq!(begun.elapsed().as_secs(), seconds);
            assert_eq!(settled.get().map(|at| at.as_secs()), is_late.then_some(LINGER.as_secs()));
        }
    }

    /// A task that panics still ends, and none outlives whoever waits for it.
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
