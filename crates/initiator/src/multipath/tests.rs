//! Paths over simulated links, in virtual time.

mod attempts;
mod shaping;
mod stalls;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use iscsi_multipath::Access;
use iscsi_pdu::scsi::{AccessState, Cdb, Sense};
use iscsi_session::{SessionError, TransportError};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::error::{Error, SessionFailure};
use crate::multipath::carrier::Carrier;
use crate::multipath::dispatch::Paths;
use crate::options::Options;
use crate::options::advanced::Advanced;
use crate::options::hedge::HedgeOptions;
use crate::state::budget::{Budget, Permit};
use crate::state::counters::{RequestStats, Snapshot};
use crate::unit::transfer::Transfer;
use iscsi_multipath::paths::Credit;

const LEN: usize = 256 << 10;

/// A link that serves its requests one after the other, and answers a latency later.
#[derive(Clone)]
struct Link(Arc<Inner>);

struct Inner {
    budget: Budget,
    rate: f64,
    latency: Duration,
    free_at: Mutex<Instant>,
    /// From then on it fails.
    dies: Option<Instant>,
    /// Requests that arrive in that time are answered only at its end.
    stalls: Option<(Instant, Instant)>,
    /// Whether what was under way when it dies had been sent.
    sends: bool,
    /// Until then its port is in standby.
    serves_from: Instant,
    carried: AtomicU64,
}

impl Link {
    fn new(budget: &Budget, megabytes: f64, millis: u64) -> Self {
        Self::with(budget, megabytes, millis, None, None)
    }

    fn with(
        budget: &Budget,
        megabytes: f64,
        millis: u64,
        dies: Option<Duration>,
        stalls: Option<(Duration, Duration)>,
    ) -> Self {
        let start = Instant::now();
        Self(Arc::new(Inner {
            budget: budget.clone(),
            rate: megabytes * 1e6,
            latency: Duration::from_millis(millis),
            free_at: Mutex::new(start),
            dies: dies.map(|dies| start + dies),
            stalls: stalls.map(|(from, to)| (start + from, start + to)),
            sends: true,
            serves_from: start,
            carried: AtomicU64::new(0),
        }))
    }

    /// The same, but it dies before it has sent what is under way.
    fn that_sends_nothing(mut self) -> Self {
        Arc::get_mut(&mut self.0).unwrap().sends = false;
        self
    }

    /// The same, but its port serves the unit only after so long.
    fn that_serves_after(mut self, time: Duration) -> Self {
        Arc::get_mut(&mut self.0).unwrap().serves_from = Instant::now() + time;
        self
    }

    fn carried(&self) -> u64 {
        self.0.carried.load(Ordering::Relaxed)
    }

    /// When a request that comes now is answered.
    fn answered_at(&self, len: usize) -> Instant {
        let mut free_at = self.0.free_at.lock().unwrap();
        let mut begins = free_at.max(Instant::now());
        if let Some((from, to)) = self.0.stalls
            && begins >= from
            && begins < to
        {
            begins = to;
        }
        *free_at = begins + Duration::from_secs_f64(len as f64 / self.0.rate);
        *free_at + self.0.latency
    }
}

fn lost() -> Error {
    Error::Session(Box::new(SessionFailure {
        portal: "192.0.2.1:3260".to_owned(),
        cause: SessionError::Transport(TransportError::Closed),
        may_have_executed: true,
    }))
}

fn check(key: u8, asc: u8, ascq: u8) -> Error {
    let bytes = [0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0];
    let sense = Box::new(Sense::decode(&bytes).unwrap());
    Error::CheckCondition { command: "READ (16)", sense }
}

impl Carrier for Link {
    type Answer = Arc<Permit>;

    fn keep_unsettled(&self) {}

    fn is_settled(&self) -> bool {
        true
    }

    fn count_retry(&self) {}

    fn retries(&self) -> u64 {
        0
    }

    async fn carry(&self, transfer: &mut Transfer) -> Result<Arc<Permit>, Error> {
        if Instant::now() < self.0.serves_from {
            sleep(self.0.latency).await;
            return Err(check(2, 0x04, 0x0b));
        }
        let answered = self.answered_at(transfer.len());
        let dies = self.0.dies.filter(|dies| *dies <= answered);
        sleep_until(dies.unwrap_or(answered)).await;
        if dies.is_some() {
            return Err(if self.0.sends { lost() } else { lost().as_not_executed() });
        }
        self.0.carried.fetch_add(transfer.len() as u64, Ordering::Relaxed);
        Ok(transfer.permit().unwrap())
    }
}

const ROOM: Credit = Credit { bytes: 8 << 20, requests: 64 };

/// More than any test but those of patience needs.
const PATIENCE: Duration = Duration::from_secs(300);

fn alone<C: Carrier>(carrier: C, room: Credit) -> Paths<C> {
    within(&Budget::new(1024, 64 << 20), carrier, room)
}

fn within<C: Carrier>(budget: &Budget, carrier: C, room: Credit) -> Paths<C> {
    Paths::new(
        carrier,
        room,
        budget.clone(),
        Options::default().policy(Some(PATIENCE)),
        Arc::default(),
    )
}

fn paths(links: &[Link]) -> Paths<Link> {
    let paths = within(&links[0].0.budget, links[0].clone(), ROOM);
    for link in &links[1..] {
        paths.add(link.clone(), ROOM);
    }
    paths
}

/// Sends so many requests, so many at once; says how long it took, and how many failed.
async fn send(paths: &Paths<Link>, count: usize, depth: usize) -> (Duration, usize) {
    let start = Instant::now();
    let (mut requests, mut left, mut failed) = (JoinSet::new(), count, 0);
    loop {
        while left > 0 && requests.len() < depth {
            left -= 1;
            let paths = paths.clone();
            let transfer = Transfer::query(Cdb::read_16(0, 512), LEN);
            requests.spawn(async move { paths.execute(transfer).await.map(drop) });
        }
        match requests.join_next().await {
            Some(result) => failed += usize::from(result.unwrap().is_err()),
            None => return (start.elapsed(), failed),
        }
    }
}

/// What was counted on each path that is open, and on all that are gone.
fn counted<C: Carrier>(paths: &Paths<C>) -> (Vec<RequestStats>, RequestStats) {
    let (each, gone) = paths.lock().paths.snapshots();
    (each.into_iter().map(Snapshot::into_stats).collect(), gone.into_stats())
}

fn seconds_at_full_rate(megabytes: f64, count: usize) -> f64 {
    (count * LEN) as f64 / (megabytes * 1e6)
}

#[tokio::test(start_paused = true)]
async fn unequal_links_finish_within_five_percent_of_the_sum_of_their_rates() {
    let budget = Budget::new(1024, 64 << 20);
    let links = [(30.0, 10), (10.0, 100), (2.0, 50), (0.5, 20)]
        .map(|(megabytes, millis)| Link::new(&budget, megabytes, millis));
    let (time, failed) = send(&paths(&links), 4000, 200).await;
    let ideal = seconds_at_full_rate(42.5, 4000);
    assert_eq!(failed, 0);
    assert!(time.as_secs_f64() <= ideal * 1.05, "{time:?} instead of {ideal:.2} s");
    assert!(links.iter().all(|link| link.carried() > 0));
}

#[tokio::test(start_paused = true)]
async fn a_link_that_dies_costs_no_request() {
    let budget = Budget::new(1024, 64 << 20);
    let dying = Link::with(&budget, 20.0, 50, Some(Duration::from_secs(3)), None);
    let links = [Link::new(&budget, 10.0, 50), dying, Link::new(&budget, 10.0, 50)];
    let paths = paths(&links);
    let (_, failed) = send(&paths, 2000, 100).await;
    assert_eq!(failed, 0);
    assert_eq!(paths.open().len(), 2);
    let lost = paths.take_lost();
    assert_eq!(lost.len(), 1);
    assert!(links.iter().map(Link::carried).sum::<u64>() >= 2000 * LEN as u64);
}

#[tokio::test(start_paused = true)]
async fn without_a_link_requests_fail_once_each() {
    let budget = Budget::new(1024, 64 << 20);
    let dies = Some(Duration::from_secs(1));
    let links =
        [Link::with(&budget, 10.0, 50, dies, None), Link::with(&budget, 10.0, 50, dies, None)];
    let paths = paths(&links);
    let (_, failed) = send(&paths, 500, 50).await;
    let carried: u64 = links.iter().map(Link::carried).sum();
    assert_eq!(carried + (failed * LEN) as u64, (500 * LEN) as u64);
    assert!(failed > 0 && carried > 0);
}

/// What a link has counted stays in the sum when it is lost, and what was in flight there then is
/// counted once more, as an error.
#[tokio::test(start_paused = true)]
async fn what_a_lost_link_has_counted_stays_in_the_sum() {
    let budget = Budget::new(1024, 64 << 20);
    let dying = Link::with(&budget, 10.0, 50, Some(Duration::from_secs(1)), None);
    let links = [Link::new(&budget, 10.0, 50), dying];
    let paths = paths(&links);
    assert_eq!(send(&paths, 500, 50).await.1, 0);
    let (each, lost) = counted(&paths);
    let there = &each[0];
    assert_eq!((each.len(), paths.lock().paths.losses()), (1, 1));
    for counted in [there, &lost] {
        assert_eq!((counted.requests_in_flight, counted.bytes_in_flight), (0, 0));
    }
    assert_eq!(lost.others.bytes, links[1].carried());
    assert_eq!(lost.others.requests + there.others.requests, 500 + paths.hedged());
    assert!(lost.errors() > 1, "{}", lost.errors());
    assert_eq!(there.errors(), 0);
}

/// What is given up is in flight no more, on a path that has it and on one that has gone.
#[tokio::test(start_paused = true)]
async fn what_is_given_up_is_counted_while_it_is_in_flight_and_no_longer() {
    let budget = Budget::new(1024, 64 << 20);
    let links = [Link::new(&budget, 10.0, 50), Link::new(&budget, 10.0, 50)];
    let paths = paths(&links);
    let mut requests: Vec<_> = (0..8)
        .map(|_| {
            let paths = paths.clone();
            let transfer = Transfer::query(Cdb::read_16(0, 512), LEN);
            tokio::spawn(async move { paths.execute(transfer).await.map(drop) })
        })
        .collect();
    sleep(Duration::from_millis(1)).await;
    let in_flight = || {
        let (each, gone) = counted(&paths);
        let all = each.iter().chain([&gone]);
        let sum = all.map(|of| (of.requests_in_flight, of.bytes_in_flight / LEN as u64));
        sum.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
    };
    assert_eq!(in_flight(), (8, 8));
    requests.drain(4..).for_each(|request| request.abort());
    tokio::task::yield_now().await;
    assert_eq!(in_flight(), (4, 4));
    let first = paths.open()[0].0;
    paths.lose(first, &lost());
    assert_eq!(in_flight(), (4, 4));
    requests.into_iter().for_each(|request| request.abort());
    tokio::task::yield_now().await;
    assert_eq!(in_flight(), (0, 0));
    let (each, gone) = counted(&paths);
    let ended = each.iter().chain([&gone]).map(|of| of.requests() + of.errors());
    assert_eq!(ended.sum::<u64>(), 0);
}

#[tokio::test(start_paused = true)]
async fn with_a_supervisor_requests_wait_for_the_next_link() {
    let budget = Budget::new(1024, 64 << 20);
    let dying = Link::with(&budget, 10.0, 50, Some(Duration::from_secs(1)), None);
    let paths = paths(&[dying]);
    paths.supervise();
    let later = async {
        paths.attention().notified().await;
        sleep(Duration::from_secs(5)).await;
        paths.add(Link::new(&budget, 10.0, 50), ROOM);
    };
    let ((time, failed), ()) = tokio::join!(send(&paths, 500, 50), later);
    assert_eq!(failed, 0);
    assert!(time > Duration::from_secs(6));
    paths.end(&lost());
    assert!(!matches!(paths.execute(Transfer::query(Cdb::test_unit_ready(), 0)).await,
        Err(error) if error.may_have_executed()));
}

/// Every request that the stalled link holds is carried by the other one in the end.
#[tokio::test(start_paused = true)]
async fn what_is_stuck_goes_over_another_link() {
    let budget = Budget::new(1024, 64 << 20);
    let stalls = Some((Duration::from_secs(2), Duration::from_secs(600)));
    let links = [Link::new(&budget, 10.0, 50), Link::with(&budget, 10.0, 50, None, stalls)];
    let (time, failed) = send(&paths(&links), 1000, 64).await;
    assert_eq!(failed, 0);
    let ideal = seconds_at_full_rate(10.0, 1000);
    assert!(time.as_secs_f64() <= ideal * 1.2, "{time:?}, alone {ideal:.2} s");
}

/// The same where the options say that nothing is ever late: it waits for its own link.
#[tokio::test(start_paused = true)]
async fn what_is_stuck_stays_where_the_options_say_so() {
    const EVER: Duration = Duration::MAX;
    let budget = Budget::new(1024, 64 << 20);
    let stalls = Some((Duration::from_secs(2), Duration::from_secs(600)));
    let links = [Link::new(&budget, 10.0, 50), Link::with(&budget, 10.0, 50, None, stalls)];
    let hedge = HedgeOptions::default();
    let hedge = hedge.with_min_late(EVER).with_min_stuck(EVER);
    let policy =
        Options::default().with_advanced(Advanced::default().with_hedge(hedge)).policy(None);
    let paths = Paths::new(links[0].clone(), ROOM, budget, policy, Arc::default());
    paths.add(links[1].clone(), ROOM);
    let begun = Instant::now();
    let (_, failed) = send(&paths, 1000, 64).await;
    assert_eq!(failed, 0);
    assert!(begun.elapsed() >= Duration::from_secs(590), "{:?}", begun.elapsed());
}

/// The links draw on one budget, whatever is asked for.
#[tokio::test(start_paused = true)]
async fn memory_stays_within_the_bound() {
    let budget = Budget::new(1024, 16 * LEN);
    let links = [(); 4].map(|()| Link::new(&budget, 10.0, 50));
    let paths = paths(&links);
    let watch = async {
        let mut most = 0;
        for _ in 0..200 {
            sleep(Duration::from_millis(10)).await;
            most = most.max(links[0].0.budget.bytes_in_use());
        }
        most
    };
    let ((_, failed), most) = tokio::join!(send(&paths, 400, 400), watch);
    assert_eq!(failed, 0);
    assert!((8 * LEN..=16 * LEN).contains(&most), "{most}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_gives_its_place_back() {
    let budget = Budget::new(1024, 64 << 20);
    let links = [Link::new(&budget, 0.1, 50)];
    let room = Credit { bytes: 1, requests: 1 };
    let paths = alone(links[0].clone(), room);
    for _ in 0..10 {
        let sent = send(&paths, 3, 3);
        assert!(tokio::time::timeout(Duration::from_millis(10), sent).await.is_err());
    }
    let (_, failed) = send(&paths, 3, 3).await;
    assert_eq!(failed, 0);
}

#[tokio::test(start_paused = true)]
async fn a_path_that_is_removed_finishes_what_it_has() {
    let budget = Budget::new(1024, 64 << 20);
    let links = [Link::new(&budget, 10.0, 50), Link::new(&budget, 10.0, 50)];
    let paths = paths(&links);
    let release = async {
        sleep(Duration::from_secs(1)).await;
        let (id, _) = paths.open()[1].clone();
        paths.close(id);
        assert!(paths.remove(id).await.is_some());
        links[1].carried()
    };
    let ((_, failed), carried) = tokio::join!(send(&paths, 1000, 64), release);
    assert_eq!(failed, 0);
    assert!(carried > 0 && links[1].carried() == carried);
    assert_eq!(links.iter().map(Link::carried).sum::<u64>(), 1000 * LEN as u64);
}

#[tokio::test(start_paused = true)]
async fn the_first_request_after_a_rest_calls_for_attention() {
    let budget = Budget::new(1024, 64 << 20);
    let paths = paths(&[Link::new(&budget, 10.0, 50)]);
    let attention = paths.attention();
    let is_called = || tokio::time::timeout(Duration::from_secs(1), attention.notified());
    send(&paths, 3, 1).await;
    assert!(is_called().await.is_err());
    paths.leave_unattended();
    assert!(is_called().await.is_err());
    send(&paths, 3, 1).await;
    assert!(is_called().await.is_ok());
    assert!(is_called().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn one_that_is_being_let_go_stays_when_the_last_other_is_lost() {
    let budget = Budget::new(1024, 64 << 20);
    let dies = Some(Duration::from_millis(30));
    let links = [Link::with(&budget, 10.0, 10, dies, None), Link::new(&budget, 10.0, 10)];
    let paths = paths(&links);
    paths.supervise();
    let (_, young) = (paths.open()[0].0, paths.open()[1].0);
    // It has something to do, so it is not gone at once.
    let busy = paths.clone();
    let first = tokio::spawn(async move { send(&busy, 8, 8).await.1 });
    sleep(Duration::from_millis(1)).await;
    paths.close(young);
    let going = paths.clone();
    let gone = tokio::spawn(async move { going.remove(young).await.is_some() });
    assert_eq!(first.await.unwrap(), 0);
    assert_eq!(send(&paths, 100, 8).await.1, 0);
    assert!(!gone.await.unwrap());
    assert_eq!(paths.working(), [young]);
}

/// A caller may keep a request that he does not ask for any more.
#[tokio::test(start_paused = true)]
async fn the_end_waits_for_no_request_of_one_that_is_being_let_go() {
    let budget = Budget::new(1024, 64 << 20);
    let links = [Link::new(&budget, 10.0, 10), Link::new(&budget, 10.0, 10)];
    let paths = paths(&links);
    let execute = || Box::pin(paths.execute(Transfer::query(Cdb::read_16(0, 512), LEN)));
    let mut requests = [execute(), execute()];
    for request in &mut requests {
        let poll =
            |context: &mut Context<'_>| Poll::Ready(request.as_mut().poll(context).is_ready());
        assert!(!poll_fn(poll).await);
    }
    let young = paths.open()[1].0;
    assert!(paths.lock().requests.paths().in_flight(young) > 0);
    paths.close(young);
    let mut gone = pin!(paths.remove(young));
    assert!(tokio::time::timeout(Duration::from_secs(1), gone.as_mut()).await.is_err());
    paths.end(&Error::Closed);
    let gone = tokio::time::timeout(Duration::from_secs(1), gone).await;
    assert!(gone.is_ok_and(|path| path.is_none()), "it waits for requests that no caller polls");
    drop(requests);
}

#[tokio::test(start_paused = true)]
async fn requests_go_to_the_best_ports_and_to_no_path_that_is_let_go() {
    let budget = Budget::new(1024, 64 << 20);
    let links = [(); 4].map(|()| Link::new(&budget, 10.0, 10));
    let paths = paths(&links);
    let ids: Vec<_> = paths.open().into_iter().map(|(id, _)| id).collect();
    let spare = Access { state: AccessState::ActiveNonOptimized, preferred: false };
    paths.set_access([(ids[3], spare)]);
    let in_use = || paths.in_use().into_iter().map(|(id, _)| id).collect::<Vec<_>>();
    assert_eq!(in_use(), ids[..3]);
    paths.close(ids[2]);
    assert_eq!(in_use(), ids[..2]);
}

#[tokio::test(start_paused = true)]
async fn whoever_looks_after_the_paths_is_told_of_their_end() {
    let budget = Budget::new(1024, 64 << 20);
    let paths = paths(&[Link::new(&budget, 10.0, 10)]);
    let attention = paths.attention();
    drop(paths);
    attention.notified().await;
}
