//! Tests of the requests of a disk over its sessions: what is counted and reported, and what the paths do
//! without a supervisor.

use std::pin::{Pin, pin};

use iscsi_shaper::{Class, RateLimit};
use iscsi_testkit::fault::Fault;
use iscsi_testkit::scsi::{Access, Sense};
use tokio::task::JoinSet;
use tokio::time::error::Elapsed;
use tokio::time::{sleep, timeout};

use super::*;
use crate::error::{Cause, Error, SessionCause};
use crate::multipath::paths::Paths;
use crate::multipath::paths::path::Path;
use crate::multipath::requests::confirmation::confirm;
use crate::multipath::requests::execute::execute;
use crate::options::policy::RequestPolicy;
use crate::state::budget::Budget;
use crate::state::counters::{RequestStats, Snapshot};
use crate::state::range_locks::RangeLocks;
use crate::unit::transfer::Transfer;
use crate::{Shaper, TrafficClass};
use iscsi_multipath::paths::Credit;
use iscsi_pdu::scsi::{Cdb, Lun};

const BLOCKS: u32 = 128;
const LEN: usize = BLOCKS as usize * 512;
/// Limit of what may be in flight on a path.
const ROOM: Credit = Credit { bytes: 8 << 20, requests: 64 };
/// Longer than any test takes.
const PATIENCE: Duration = Duration::from_secs(300);
/// Longer than everything in flight takes.
const LONG: Duration = Duration::from_secs(10);

/// Portals of one unit, and the paths over them, without a supervisor.
struct Rig {
    network: Simulated,
    paths: Paths,
}

impl Rig {
    async fn new(count: u8, faults: impl IntoIterator<Item = Fault>) -> Self {
        let policy = Options::default().policy(Some(PATIENCE));
        Self::with(count, faults, policy, Budget::new(1024, 64 << 20)).await
    }

    async fn with(
        count: u8,
        faults: impl IntoIterator<Item = Fault>,
        policy: RequestPolicy,
        budget: Budget,
    ) -> Self {
        let mut config = TargetConfig::new(TARGET, RamDisk::new(512, 8192));
        config.faults.extend(faults);
        let target = Arc::new(Mutex::new(Target::new(config)));
        let mut properties = Properties::default();
        properties.latency = ROUND_TRIP / 2;
        let network = Simulated::new((0..count).map(|_| Arc::clone(&target)), properties);
        let name = IscsiName::parse("iqn.2026-01.org.example:host").unwrap();
        let options = Options { use_environment: false, ..Options::default() };
        let node = Node::over(Arc::new(network.clone()), name, options).unwrap();
        let mut paths: Vec<Path> = Vec::new();
        for portal in 1..=count {
            let url = Url::parse(&format!("iscsi://192.0.2.{portal}/{TARGET}/0")).unwrap();
            let session = node.connect(&url).await.unwrap();
            let unit = match paths.first() {
                None => session.logical_unit(Lun::ZERO),
                Some(first) => {
                    let known = first.unit.state();
                    let asked_at = known.lock().identity.shared_reasons();
                    session.adopt_unit(Lun::ZERO, known.further_path(asked_at))
                }
            };
            paths.push(Path::new(unit, portal.into()));
        }
        let mut paths = paths.into_iter();
        let first = paths.next().unwrap();
        let all = Paths::new(first, ROOM, budget, policy, Arc::default());
        paths.for_each(|path| _ = all.add(path, ROOM));
        Self { network, paths: all }
    }

    /// Reads [`LEN`] bytes at the offset `at` times [`LEN`].
    fn read(&self, at: u64) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let paths = self.paths.clone();
        // The address wraps so that it lies within the unit.
        let lba = at % 32 * u64::from(BLOCKS);
        let transfer = Transfer::query(Cdb::read_16(lba, BLOCKS), LEN);
        async move { execute(&paths, transfer).await.map(drop) }
    }

    fn spawn(&self, count: u64) -> JoinSet<Result<(), Error>> {
        let mut requests = JoinSet::new();
        (0..count).for_each(|at| _ = requests.spawn(self.read(at)));
        requests
    }

    /// Returns the counts of each open path, and those of all closed paths together.
    fn counted(&self) -> (Vec<RequestStats>, RequestStats) {
        let (each, gone) = self.paths.snapshots();
        (each.into_iter().map(Snapshot::into_stats).collect(), gone.into_stats())
    }

    /// Returns the number of requests in flight on all paths, and of their bytes.
    fn in_flight(&self) -> (u64, u64) {
        let (each, gone) = self.counted();
        let all = each.iter().chain([&gone]);
        all.fold((0, 0), |sum, of| (sum.0 + of.requests_in_flight, sum.1 + of.bytes_in_flight))
    }
}

fn is_ready<F: Future>(future: Pin<&mut F>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// A cancelled request counts as in flight until its command has ended, whether its path is open or gone. It
/// counts neither as completed nor as an error.
#[tokio::test(start_paused = true)]
async fn a_request_counts_while_its_command_is_in_flight_and_no_longer() {
    let rig = Rig::new(2, []).await;
    let (mut kept, mut cancelled) = (rig.spawn(4), rig.spawn(4));
    sleep(Duration::from_millis(1)).await;
    assert_eq!(rig.in_flight(), (8, 8 * LEN as u64));
    cancelled.shutdown().await;
    assert_eq!(rig.in_flight(), (8, 8 * LEN as u64));
    let first = rig.paths.open()[0].0;
    rig.paths.remove_lost(first, &Error::closed());
    assert_eq!(rig.in_flight(), (8, 8 * LEN as u64));
    while let Some(ended) = kept.join_next().await {
        ended.unwrap().unwrap();
    }
    sleep(LONG).await;
    assert_eq!(rig.in_flight(), (0, 0));
    let (each, gone) = rig.counted();
    let ended = each.iter().chain([&gone]).map(|of| of.requests() + of.errors());
    assert_eq!(ended.sum::<u64>(), 4);
}

/// Each attempt of a request to a busy unit counts as an error. While the request pauses, it keeps its share of
/// the budget, and is not in flight.
#[tokio::test(start_paused = true)]
async fn a_request_to_a_busy_unit_counts_as_an_error_of_each_attempt() {
    let busy = Fault::busy(.., 12).on_access(Access::Read);
    let rig = Rig::new(1, [busy]).await;
    let reading = tokio::spawn(rig.read(0));
    let mut pauses = 0;
    while !reading.is_finished() {
        sleep(Duration::from_millis(10)).await;
        pauses += u32::from(rig.in_flight() == (0, 0) && !reading.is_finished());
    }
    reading.await.unwrap().unwrap();
    let (each, _) = rig.counted();
    assert_eq!((each[0].requests(), each[0].errors(), rig.in_flight()), (1, 12, (0, 0)));
    assert_eq!(rig.paths.retries(), 12);
    assert!(pauses > 100, "{pauses} times 10 ms");
}

/// A unit attention is not an error of the path that reports it.
#[tokio::test(start_paused = true)]
async fn a_retry_after_a_unit_attention_counts_as_no_error() {
    // MODE PARAMETERS CHANGED (SPC).
    let attention = Fault::sense(.., Sense::new(0x06, 0x2a, 0x01)).on_access(Access::Read);
    let rig = Rig::new(1, [attention.times(3)]).await;
    rig.read(0).await.unwrap();
    let (each, _) = rig.counted();
    assert_eq!((each[0].requests(), each[0].errors(), rig.paths.retries()), (1, 0, 3));
}

/// A retry counts even if the path that refused the command was removed before the retry.
#[tokio::test(start_paused = true)]
async fn a_retry_counts_when_its_path_is_gone() {
    let busy = Fault::busy(.., 8).on_access(Access::Read);
    let rig = Rig::new(2, [busy]).await;
    let reading = tokio::spawn(rig.read(0));
    while rig.paths.retries() < 4 {
        sleep(Duration::from_millis(10)).await;
    }
    let busy = rig.paths.open()[0].0;
    rig.paths.remove_lost(busy, &Error::closed());
    reading.await.unwrap().unwrap();
    assert_eq!(rig.paths.retries(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_pauses_ends_with_the_paths() {
    let rig = Rig::new(1, [Fault::busy(.., u32::MAX).on_access(Access::Read)]).await;
    let reading = tokio::spawn(rig.read(0));
    sleep(LONG).await;
    assert_eq!(rig.paths.report().get().waits.len(), 1);
    rig.paths.end(&Error::closed());
    assert!(matches!(
        reading.await.unwrap().as_ref().map_err(Error::cause),
        Err(Cause::Session(SessionCause::Closed))
    ));
    assert!(rig.paths.report().get().waits.is_empty());
    let late = rig.read(0).await;
    assert!(late.is_err_and(|error| !error.may_have_executed()));
}

/// The paths share one budget, so the memory of all requests stays within it.
#[tokio::test(start_paused = true)]
async fn memory_stays_within_the_budget() {
    let policy = Options::default().policy(Some(PATIENCE));
    let rig = Rig::with(4, [], policy, Budget::new(1024, 16 * LEN)).await;
    let mut requests = rig.spawn(100);
    let mut most = 0;
    while !requests.is_empty() {
        most = most.max(rig.paths.budget().bytes_in_use());
        if let Ok(Some(ended)) = timeout(Duration::from_millis(10), requests.join_next()).await {
            ended.unwrap().unwrap();
        }
    }
    assert!((8 * LEN..=16 * LEN).contains(&most), "{most}");
}

#[tokio::test(start_paused = true)]
async fn the_first_request_after_a_rest_calls_for_attention() {
    let rig = Rig::new(1, []).await;
    let attention = rig.paths.attention();
    let is_called = || timeout(Duration::from_secs(1), attention.notified());
    rig.read(0).await.unwrap();
    assert!(is_called().await.is_err());
    rig.paths.leave_unattended();
    assert!(is_called().await.is_err());
    rig.read(0).await.unwrap();
    assert!(is_called().await.is_ok());
    assert!(is_called().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn the_supervisor_is_woken_when_the_last_handle_is_dropped() {
    let Rig { paths, .. } = Rig::new(1, []).await;
    let attention = paths.attention();
    drop(paths);
    attention.notified().await;
}

#[tokio::test(start_paused = true)]
async fn a_closed_path_is_removed_once_it_has_ended_its_requests() {
    let rig = Rig::new(2, []).await;
    let mut requests = rig.spawn(8);
    sleep(Duration::from_millis(1)).await;
    let closed = rig.paths.open()[1].0;
    rig.paths.close(closed);
    let begun = Instant::now();
    assert!(rig.paths.remove(closed).await.is_some());
    assert!(begun.elapsed() >= ROUND_TRIP / 2);
    while let Some(ended) = requests.join_next().await {
        ended.unwrap().unwrap();
    }
}

/// A caller may keep a request without polling it: the closed path can be removed when the command has ended.
#[tokio::test(start_paused = true)]
async fn a_closed_path_waits_for_no_caller() {
    let rig = Rig::new(2, []).await;
    let mut requests = [Box::pin(rig.read(0)), Box::pin(rig.read(1))];
    assert!(requests.iter_mut().all(|request| !is_ready(request.as_mut())));
    let young = rig.paths.open()[1].0;
    rig.paths.close(young);
    assert!(timeout(LONG, rig.paths.remove(young)).await.is_ok_and(|path| path.is_some()));
    for request in requests {
        request.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_for_no_request() {
    let rig = Rig::new(2, []).await;
    let mut requests = [Box::pin(rig.read(0)), Box::pin(rig.read(1))];
    assert!(requests.iter_mut().all(|request| !is_ready(request.as_mut())));
    rig.network.portals.iter().for_each(Portal::hold);
    let young = rig.paths.open()[1].0;
    rig.paths.close(young);
    let mut gone = pin!(rig.paths.remove(young));
    assert!(timeout(ROUND_TRIP, gone.as_mut()).await.is_err());
    rig.paths.end(&Error::closed());
    assert!(timeout(ROUND_TRIP, gone).await.is_ok_and(|path| path.is_none()));
}

/// A path on which a write was cancelled stays until the target has responded to the abort, even if the path is
/// closed.
#[tokio::test(start_paused = true)]
async fn a_closed_path_stays_until_the_unit_has_finished_with_what_was_cancelled_there() {
    let rig = Rig::new(2, []).await;
    let (closed, path) = rig.paths.open()[0].clone();
    path.unit.session().keep_unsettled();
    rig.network.portals[0].hold();
    let (ranges, mut writes) = (RangeLocks::default(), JoinSet::new());
    for at in 0..4_u64 {
        let (paths, lba) = (rig.paths.clone(), at * u64::from(BLOCKS));
        let profile = path.unit.profile().await.unwrap();
        let data = Bytes::from(vec![1; LEN]).into();
        let range = Arc::new(ranges.try_take(&(at..at + 1)).unwrap());
        let transfer = Transfer::write(&profile.capacity, lba, data).unwrap().within(&range);
        writes.spawn(async move { execute(&paths, transfer).await.map(drop) });
    }
    sleep(Duration::from_millis(1)).await;
    assert!(!rig.paths.is_settled());
    writes.shutdown().await;
    rig.paths.close(closed);
    let mut gone = pin!(rig.paths.remove(closed));
    assert!(timeout(ROUND_TRIP, gone.as_mut()).await.is_err());
    assert!(!rig.paths.is_settled());
    rig.network.portals[0].release();
    assert!(timeout(LONG, gone).await.is_ok_and(|path| path.is_some()));
    assert!(rig.paths.is_settled());
}

/// A request that waits for a path does not count as in flight on it. The unit's identity is checked again when
/// there is a path.
#[tokio::test(start_paused = true)]
async fn who_waits_for_a_path_takes_no_place_on_it() {
    let rig = Rig::new(2, []).await;
    let [(lost, _), (late, _)] = [0, 1].map(|at| rig.paths.open()[at].clone());
    rig.paths.close(late);
    let second = rig.paths.remove(late).await.unwrap();
    // Without a supervisor the requests would not wait for another path.
    let _supervisor = rig.paths.supervise();
    rig.network.portals[0].hold();
    let paths = rig.paths.clone();
    let confirming = tokio::spawn(async move { confirm(&paths).await });
    sleep(ROUND_TRIP).await;
    rig.network.portals[0].cut();
    rig.paths.remove_lost(lost, &Error::closed());
    sleep(LONG).await;
    assert!(!confirming.is_finished());
    let second = rig.paths.add(second, ROOM);
    confirming.await.unwrap().unwrap();
    assert!(!rig.paths.has_requests(second));
    assert_eq!(rig.in_flight(), (0, 0));
}

/// A late request is also sent over a path that joins after the request was sent, although its caller had set
/// no timer for a second copy.
#[tokio::test(start_paused = true)]
async fn a_request_that_was_sent_while_there_was_one_path_is_hedged() {
    let rig = Rig::new(2, []).await;
    let late = rig.paths.open()[1].0;
    rig.paths.close(late);
    let second = rig.paths.remove(late).await.unwrap();
    rig.network.portals[0].hold();
    let reading = tokio::spawn(rig.read(0));
    sleep(LONG).await;
    assert!(!reading.is_finished());
    _ = rig.paths.add(second, ROOM);
    reading.await.unwrap().unwrap();
    assert_eq!((rig.paths.hedged(), rig.paths.open().len()), (1, 2));
}

/// Creates a traffic class without a limit.
fn class() -> (Shaper, TrafficClass) {
    let shaper = Shaper::new(Class::new(RateLimit::Unlimited)).unwrap();
    let class = shaper.traffic_class(shaper.default_class());
    (shaper, class)
}

/// Opens two paths whose requests wait for a traffic class.
async fn shaped(class: &TrafficClass) -> Rig {
    let policy = Options::default().with_class(Some(class.clone())).policy(Some(PATIENCE));
    Rig::with(2, [], policy, Budget::new(1024, 64 << 20)).await
}

#[tokio::test(start_paused = true)]
async fn a_second_copy_pays_its_class_as_well() {
    let (shaper, class) = class();
    let rig = shaped(&class).await;
    rig.network.portals.iter().for_each(Portal::hold);
    let reading = tokio::spawn(rig.read(0));
    sleep(Duration::from_millis(1)).await;
    let (first, _) =
        rig.paths.open().into_iter().find(|(id, _)| rig.paths.has_requests(*id)).unwrap();
    let other = rig.paths.open().iter().position(|(id, _)| *id != first).unwrap();
    rig.network.portals[other].release();
    reading.await.unwrap().unwrap();
    let sent = shaper.statistics(shaper.default_class()).unwrap().sent;
    assert_eq!((rig.paths.hedged(), sent.requests), (1, 2));
    // Both copies count in full: it is not known yet how many bytes the first copy will move.
    assert_eq!(sent.bytes, 2 * LEN as u64);
}

/// Each attempt takes its bytes from the traffic class. The first attempt receives no response, so its bytes
/// are returned to the class.
#[tokio::test(start_paused = true)]
async fn each_attempt_pays_and_a_read_that_fails_has_moved_nothing() {
    let (shaper, class) = class();
    let rig = shaped(&class).await;
    let reading = tokio::spawn(rig.read(0));
    sleep(Duration::from_millis(1)).await;
    let at = rig.paths.open().iter().position(|(id, _)| rig.paths.has_requests(*id)).unwrap();
    rig.network.portals[at].cut();
    reading.await.unwrap().unwrap();
    let sent = shaper.statistics(shaper.default_class()).unwrap().sent;
    assert_eq!((rig.paths.hedged(), sent.requests, sent.bytes), (0, 2, LEN as u64));
}

/// Requests that wait for memory do not make the paths count as busy, if the requests that hold the memory wait
/// for their traffic class.
#[tokio::test(start_paused = true)]
async fn paths_are_not_busy_with_what_a_class_holds_back() {
    let shaper = Shaper::new(Class::new("1kbit".parse().unwrap())).unwrap();
    let class = shaper.traffic_class(shaper.default_class());
    let policy = Options::default().with_class(Some(class)).policy(Some(PATIENCE));
    let rig = Rig::with(1, [], policy, Budget::new(2, 64 << 20)).await;
    let requests = rig.spawn(8);
    sleep(Duration::from_secs(1)).await;
    _ = rig.paths.progress();
    sleep(Duration::from_secs(1)).await;
    assert!(rig.paths.budget().has_waiters());
    assert!(!rig.paths.progress().is_busy);
    drop(requests);
}

/// Reads every 100 ms, over a path whose host acknowledges nothing from the beginning, and over another one. Returns
/// when the session of the first path ends, within `limit`.
async fn silent_session_ends(rig: &Rig, limit: Duration) -> Result<Error, Elapsed> {
    let session = rig.paths.open()[0].1.unit.session().clone();
    rig.network.portals[0].swallow();
    let mut reads = JoinSet::new();
    let asking = async {
        for at in 0.. {
            reads.spawn(rig.read(at));
            sleep(Duration::from_millis(100)).await;
        }
    };
    let ended = async {
        tokio::select! {
            ended = session.closed() => ended.expect_err("no logout was requested"),
            () = asking => unreachable!(),
        }
    };
    timeout(limit, ended).await
}

/// While another portal answers, nothing is gained by waiting for a host that acknowledges nothing: a flush that is in
/// flight there can go over the other path only once the session has ended.
#[tokio::test(start_paused = true)]
async fn a_session_whose_host_acknowledges_nothing_ends_while_another_portal_answers() {
    let rig = Rig::new(2, []).await;
    let error = silent_session_ends(&rig, LONG).await.unwrap();
    assert!(error.to_string().contains("acknowledges nothing"), "{error}");
}

/// Without an answer over another portal, the link of this host may be the cause, and may work again soon.
#[tokio::test(start_paused = true)]
async fn a_session_whose_host_acknowledges_nothing_stays_if_no_other_portal_answers() {
    let rig = Rig::new(2, []).await;
    rig.network.portals[1].swallow();
    assert!(silent_session_ends(&rig, LONG).await.is_err());
}
