//! What requests go through, on sessions with a unit that is not always there.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use iscsi_pdu::scsi::{AccessState, Status};
use iscsi_session::TaskError;
use iscsi_shaper::{Class, RateLimit};
use tokio::sync::watch;
use tokio::time::sleep;

use super::*;
use crate::shaper::Shaper;

/// A session with the unit, and how it behaves.
#[derive(Clone)]
struct Session(Arc<Behaviour>);

struct Behaviour {
    unit: Arc<Unit>,
    /// Until then its port is in transition.
    changes_until: Instant,
    dead: watch::Sender<bool>,
    /// The unit has not finished with what its caller gave up.
    is_unsettled: AtomicBool,
    retries: AtomicU64,
}

/// What all sessions have in common.
struct Unit {
    /// Requests for these blocks end the session.
    poison: Vec<u64>,
    /// How long a session lives, by its number.
    life: fn(u64) -> Option<Duration>,
    /// What the unit answers to every request, one after the other, and until when.
    refuses: Vec<(Instant, Error)>,
    /// How long a request takes, if it is the only one.
    time: Duration,
    free_at: Mutex<Instant>,
    opened: AtomicU64,
    /// How often each block was asked for.
    tries: Mutex<BTreeMap<u64, u32>>,
}

impl Unit {
    fn new(poison: &[u64]) -> Self {
        Self {
            poison: poison.to_vec(),
            life: |_| None,
            refuses: Vec::new(),
            time: Duration::from_millis(5),
            free_at: Mutex::new(Instant::now()),
            opened: AtomicU64::new(0),
            tries: Mutex::default(),
        }
    }

    fn most_tries(&self) -> u32 {
        self.tries.lock().unwrap().values().copied().max().unwrap_or_default()
    }

    fn tries_of(&self, block: u64) -> u32 {
        self.tries.lock().unwrap().get(&block).copied().unwrap_or_default()
    }
}

impl Session {
    fn with(unit: &Arc<Unit>, changes_until: Instant) -> Self {
        let number = unit.opened.fetch_add(1, Ordering::Relaxed);
        let (dead, _) = watch::channel(false);
        if let Some(life) = (unit.life)(number) {
            let dead = dead.clone();
            tokio::spawn(async move {
                sleep(life).await;
                dead.send_replace(true);
            });
        }
        let unit = Arc::clone(unit);
        let retries = AtomicU64::new(0);
        let is_unsettled = AtomicBool::new(false);
        Self(Arc::new(Behaviour { unit, changes_until, dead, is_unsettled, retries }))
    }

    fn open(unit: &Arc<Unit>) -> Self {
        Self::with(unit, Instant::now())
    }
}

impl Carrier for Session {
    type Answer = ();

    fn keep_unsettled(&self) {}

    fn is_settled(&self) -> bool {
        !self.0.is_unsettled.load(Ordering::Relaxed)
    }

    fn count_retry(&self) {
        self.0.retries.fetch_add(1, Ordering::Relaxed);
    }

    fn retries(&self) -> u64 {
        self.0.retries.load(Ordering::Relaxed)
    }

    async fn carry(&self, transfer: &mut Transfer) -> Result<(), Error> {
        let Behaviour { unit, changes_until, dead, .. } = &*self.0;
        let block = transfer.blocks().unwrap().start;
        *unit.tries.lock().unwrap().entry(block).or_default() += 1;
        let mut death = dead.subscribe();
        let answer = async {
            sleep(Duration::from_millis(20)).await;
            if Instant::now() < *changes_until {
                return Err(check(0x2, 0x04, 0x0a));
            }
            if let Some((_, error)) = unit.refuses.iter().find(|(until, _)| Instant::now() < *until)
            {
                return Err(error.clone());
            }
            if unit.poison.contains(&block) {
                dead.send_replace(true);
                std::future::pending::<()>().await;
            }
            let served = {
                let mut free_at = unit.free_at.lock().unwrap();
                *free_at = free_at.max(Instant::now()) + unit.time;
                *free_at
            };
            sleep_until(served).await;
            Ok(())
        };
        tokio::select! {
            biased;
            _ = death.wait_for(|is_dead| *is_dead) => Err(lost()),
            result = answer => result,
        }
    }
}

fn busy() -> Error {
    Error::Status { command: "READ (16)", status: Status::BUSY }
}

fn request(block: u64) -> Transfer {
    Transfer::query(Cdb::read_16(block, 1), 512).of_blocks(block, 1)
}

/// Opens lost sessions anew, two seconds later.
fn keep(paths: &Paths<Session>, unit: &Arc<Unit>) {
    paths.supervise();
    let (weak, unit, attention) = (paths.downgrade(), Arc::clone(unit), paths.attention());
    tokio::spawn(async move {
        loop {
            attention.notified().await;
            let Some(paths) = weak.upgrade() else { return };
            let lost = paths.take_lost().len();
            sleep(Duration::from_secs(u64::from(lost > 0) * 2)).await;
            (0..lost).for_each(|_| _ = paths.add(Session::open(&unit), ROOM));
        }
    });
}

/// Asks for so many blocks, so many at once, over so many sessions, which come back when they are
/// lost. Gives the errors.
async fn ask(unit: &Arc<Unit>, sessions: usize, blocks: u64, depth: usize) -> Vec<Error> {
    let paths = alone(Session::open(unit), ROOM);
    (1..sessions).for_each(|_| _ = paths.add(Session::open(unit), ROOM));
    keep(&paths, unit);
    let (mut requests, mut errors) = (JoinSet::new(), Vec::new());
    let mut next = 0..blocks;
    loop {
        while requests.len() < depth
            && let Some(block) = next.next()
        {
            let paths = paths.clone();
            requests.spawn(async move { paths.execute(request(block)).await });
        }
        match requests.join_next().await {
            Some(result) => errors.extend(result.unwrap().err()),
            None => return errors,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_ends_every_session_is_sent_a_few_times() {
    let unit = Arc::new(Unit::new(&[7]));
    let paths = alone(Session::open(&unit), ROOM);
    keep(&paths, &unit);
    let error = paths.execute(request(7)).await.unwrap_err();
    assert!(error.may_have_executed(), "{error}");
    let message = error.to_string();
    for part in ["READ (16) of blocks 7 to 7 ended", "the target closed the connection"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(unit.most_tries() <= 8, "{}", unit.most_tries());
    let notes = paths.report().get().notes;
    assert!(notes.iter().any(|note| note.contains("of blocks 7 to 7 was alone")), "{notes:?}");
    assert!(paths.execute(request(8)).await.is_ok());
}

/// Whatever shares a session with it is carried out.
#[tokio::test(start_paused = true)]
async fn the_guilty_are_found_among_many() {
    for (sessions, poison) in [(1, &[70][..]), (4, &[70]), (1, &[70, 71, 90]), (4, &[70, 71, 72])] {
        let unit = Arc::new(Unit::new(poison));
        let errors = ask(&unit, sessions, 400, 64).await;
        let mut guilty = Vec::new();
        for error in errors {
            let Error::EndsSessions { blocks: Some(blocks), .. } = error else { panic!("{error}") };
            guilty.push(blocks.start);
        }
        guilty.sort_unstable();
        assert_eq!(guilty, poison);
        assert!(unit.most_tries() <= 24, "{}", unit.most_tries());
    }
}

/// On a line that drops every few seconds, hundreds of losses make nobody guilty.
#[tokio::test(start_paused = true)]
async fn a_line_that_drops_again_and_again_costs_no_request() {
    // Between half a second and three and a half.
    let life = |number: u64| Some(Duration::from_millis(500 + number * 7919 % 3000));
    for (sessions, requests) in [(1, 15_000), (3, 6_000)] {
        let unit = Unit { life, time: Duration::from_millis(30), ..Unit::new(&[]) };
        let unit = Arc::new(unit);
        let errors = ask(&unit, sessions, requests, 64).await;
        assert!(errors.is_empty(), "{}", errors[0]);
        let opened = unit.opened.load(Ordering::Relaxed);
        assert!(opened > 200, "{opened}");
    }
}

fn refusing(seconds: u64, error: Error) -> Arc<Unit> {
    let until = Instant::now() + Duration::from_secs(seconds);
    Arc::new(Unit { refuses: vec![(until, error)], ..Unit::new(&[]) })
}

/// QRK-40: a unit that is busy for long is asked again after pauses, and not all the time.
#[tokio::test(start_paused = true)]
async fn what_passes_within_minutes_is_waited_for() {
    let timed_out = || Error::Task { request: "READ (16)", cause: TaskError::TimedOut };
    let aborted = || Error::Status { command: "READ (16)", status: Status::TASK_ABORTED };
    let full = || Error::Status { command: "READ (16)", status: Status::TASK_SET_FULL };
    let ends = [busy(), full(), aborted(), timed_out(), check(2, 4, 1), check(2, 4, 0x0a)];
    for error in ends {
        let unit = refusing(240, error.clone());
        assert_eq!(ask(&unit, 2, 100, 10).await.len(), 0, "{error}");
        // Ten at a time, about once a second each.
        let tries: u32 = unit.tries.lock().unwrap().values().sum();
        assert!((2000..4000).contains(&tries), "{tries} tries of {error}");
    }
}

/// What is sent again counts, also where the path that did not take it is gone by then.
#[tokio::test(start_paused = true)]
async fn what_is_sent_again_counts_when_its_path_is_gone() {
    let unit = refusing(10, busy());
    let paths = alone(Session::open(&unit), ROOM);
    keep(&paths, &unit);
    paths.supervise();
    let asked = tokio::spawn({
        let paths = paths.clone();
        async move { paths.execute(request(1)).await }
    });
    // In a pause, so that the loss itself costs no try.
    sleep(Duration::from_millis(5500)).await;
    let tries = unit.tries_of(1);
    paths.lose(paths.open()[0].0, &lost());
    asked.await.unwrap().unwrap();
    assert!(tries > 1 && unit.tries_of(1) > tries);
    assert_eq!(paths.retries(), u64::from(unit.tries_of(1) - 1));
}

#[tokio::test(start_paused = true)]
async fn patience_ends_and_people_are_told_before() {
    let unit = refusing(3600, busy());
    let paths = alone(Session::open(&unit), ROOM);
    let begun = Instant::now();
    let told = async {
        sleep(Duration::from_secs(5)).await;
        let early = paths.report().get();
        sleep(Duration::from_secs(10)).await;
        (early, paths.report().get())
    };
    let (result, (early, late)) = tokio::join!(paths.execute(request(0)), told);
    assert!(matches!(result, Err(Error::Status { status: Status::BUSY, .. })), "{result:?}");
    assert!(begun.elapsed() <= PATIENCE && begun.elapsed() >= PATIENCE.mul_f64(0.99));
    assert!(early.notes.is_empty() && early.waits[0].reason == "the unit answers BUSY", "{early}");
    assert!(
        late.notes[0].contains("BUSY") && late.waits[0].limit == Some(Duration::from_secs(300)),
        "{late}"
    );
    assert!(paths.report().get().waits.is_empty());
    // What may be the command's own fault is not put up with for so long.
    let unit = refusing(3600, check(0xb, 0x47, 3));
    let paths = alone(Session::open(&unit), ROOM);
    let begun = Instant::now();
    assert!(paths.execute(request(0)).await.is_err());
    assert!(begun.elapsed() < Duration::from_secs(6));
}

/// Each reason for a pause has its own limit, and the time that a lost session's unit took is no news of
/// the next.
#[tokio::test(start_paused = true)]
async fn patience_begins_anew_with_another_reason_and_another_session() {
    let begun = Instant::now();
    let at = |seconds| begun + Duration::from_secs(seconds);
    let aborted = || check(0xb, 0x47, 3);
    let unit = Unit { refuses: vec![(at(6), busy()), (at(9), aborted())], ..Unit::new(&[]) };
    assert_eq!(ask(&Arc::new(unit), 1, 1, 1).await.len(), 0);
    let life = |number| (number == 0).then_some(Duration::from_secs(200));
    let unit = refusing(400, busy());
    let refuses = unit.refuses.clone();
    let unit = Unit { life, refuses, ..Unit::new(&[]) };
    assert_eq!(ask(&Arc::new(unit), 1, 1, 1).await.len(), 0);
    // But in turns they do not last longer than patience.
    let begun = Instant::now();
    let refuses = (0..3600).map(|second| {
        let error = if second % 2 == 0 { busy() } else { aborted() };
        (begun + Duration::from_secs(second), error)
    });
    let unit = Unit { refuses: refuses.collect(), ..Unit::new(&[]) };
    assert_eq!(ask(&Arc::new(unit), 1, 1, 1).await.len(), 1);
    assert!(begun.elapsed() <= PATIENCE);
}

/// What waits in its class, or for whoever has paused that, does not wait for the unit.
#[tokio::test(start_paused = true)]
async fn patience_with_the_unit_does_not_count_the_time_in_the_class() {
    let paused = PATIENCE + Duration::from_secs(1);
    for error in [busy(), check(0xb, 0x47, 3)] {
        // It is asked once before, and once after.
        let unit = refusing(paused.as_secs() + 1, error);
        let shaper = Shaper::new(Class::new(RateLimit::Unlimited)).unwrap();
        let class = shaper.traffic_class(shaper.default_class());
        let policy = Options::default().with_class(Some(class.clone())).policy(Some(PATIENCE));
        let budget = Budget::new(1024, 64 << 20);
        let paths = Paths::new(Session::open(&unit), ROOM, budget, policy, Arc::default());
        let operator = async {
            sleep(Duration::from_millis(21)).await;
            class.pause();
            assert_eq!(unit.tries_of(0), 1);
            sleep(paused).await;
            assert_eq!(unit.tries_of(0), 1);
            class.resume();
        };
        let (result, ()) = tokio::join!(paths.execute(request(0)), operator);
        assert!(result.is_ok(), "{}", result.unwrap_err());
        assert!(unit.tries_of(0) >= 3, "{}", unit.tries_of(0));
    }
}

/// It keeps its place meanwhile, and is not in flight.
#[tokio::test(start_paused = true)]
async fn what_waits_for_a_unit_that_is_busy_counts_as_an_error_of_each_try() {
    let unit = refusing(60, busy());
    let paths = alone(Session::open(&unit), ROOM);
    let waiting = tokio::spawn({
        let paths = paths.clone();
        async move { paths.execute(request(0)).await.is_ok() }
    });
    sleep(Duration::from_secs(30)).await;
    let so_far = || counted(&paths).0.remove(0);
    assert_eq!((so_far().requests_in_flight, so_far().bytes_in_flight), (0, 0));
    let tries = so_far().errors();
    assert!(tries > 1 && so_far().requests() == 0);
    assert!(waiting.await.unwrap());
    assert_eq!(so_far().requests(), 1);
    assert_eq!((so_far().requests_in_flight, so_far().bytes_in_flight), (0, 0));
}

/// Whoever waits for a unit that is busy tries again as soon as a port is found in another state.
#[tokio::test(start_paused = true)]
async fn news_of_a_port_ends_a_pause() {
    const STEP: Duration = Duration::from_millis(1);
    let unit = refusing(3600, busy());
    let paths = alone(Session::open(&unit), ROOM);
    let asking = tokio::spawn({
        let paths = paths.clone();
        async move { paths.execute(request(0)).await }
    });
    sleep(Duration::from_secs(10)).await;
    for state in [AccessState::Standby, AccessState::ActiveOptimized] {
        // It has just been refused, and pauses for long.
        let before = unit.tries_of(0);
        while unit.tries_of(0) == before {
            sleep(STEP).await;
        }
        sleep(Duration::from_millis(50)).await;
        let refused = unit.tries_of(0);
        paths.set_access([(paths.working()[0], Access { state, preferred: false })]);
        sleep(STEP).await;
        assert_eq!(unit.tries_of(0), refused + 1, "{state}");
        // Its pauses are short at first.
        sleep(Duration::from_secs(10)).await;
    }
    asking.abort();
}

/// What may have been executed once is not said to be undone because the unit is busy since.
#[tokio::test(start_paused = true)]
async fn a_try_in_doubt_is_not_hidden_by_a_unit_that_is_busy_since() {
    let life = |number| (number == 0).then_some(Duration::from_millis(10));
    let refuses = refusing(3600, busy()).refuses.clone();
    let unit = Unit { life, refuses, ..Unit::new(&[]) };
    let errors = ask(&Arc::new(unit), 1, 1, 1).await;
    assert!(matches!(errors[..], [Error::Session(_)]) && errors[0].may_have_executed());
}

/// Of many that were under way with the guilty one nobody is named.
#[tokio::test(start_paused = true)]
async fn the_innocent_are_not_named() {
    let unit = Arc::new(Unit::new(&[7]));
    let paths = alone(Session::open(&unit), ROOM);
    keep(&paths, &unit);
    let mut requests = JoinSet::new();
    for block in 0..32 {
        let paths = paths.clone();
        requests.spawn(async move { paths.execute(request(block)).await.is_err() });
    }
    let mut waits = Vec::new();
    while let Some(is_err) = requests.join_next().await {
        if !is_err.unwrap() {
            waits = paths.report().get().waits;
        }
    }
    let notes = paths.report().get().notes;
    assert!(notes.iter().all(|note| note.contains("of blocks 7 to 7")), "{notes:?}");
    assert!(!notes.is_empty() && waits.len() <= 2, "{notes:?} {waits:?}");
}

/// What one port does not take goes over another, and that port is asked again now and then.
#[tokio::test(start_paused = true)]
async fn another_path_carries_what_one_does_not_take() {
    let unit = Arc::new(Unit::new(&[]));
    let begun = Instant::now();
    let changing = Session::with(&unit, begun + Duration::from_secs(200));
    let paths = alone(changing.clone(), ROOM);
    paths.add(Session::open(&unit), ROOM);
    let mut requests = JoinSet::new();
    for block in 0..2000 {
        let paths = paths.clone();
        requests.spawn(async move { paths.execute(request(block)).await.is_ok() });
    }
    assert!(requests.join_all().await.into_iter().all(|is_ok| is_ok));
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?} for ten seconds' work");
    let tries: u32 = unit.tries.lock().unwrap().values().sum();
    assert!(tries < 2000 + 64 * 24, "{tries}");
}

/// Whoever ends the paths does not wait for those who wait.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_ends_with_the_paths() {
    let unit = refusing(3600, busy());
    let paths = alone(Session::open(&unit), ROOM);
    let waiting = tokio::spawn({
        let paths = paths.clone();
        async move { paths.execute(request(0)).await }
    });
    sleep(Duration::from_secs(100)).await;
    assert_eq!(paths.report().get().waits.len(), 1);
    let before = unit.tries_of(0);
    paths.end(&Error::Closed);
    assert!(matches!(waiting.await.unwrap(), Err(Error::Closed)));
    assert_eq!(unit.tries_of(0), before);
    assert!(paths.report().get().waits.is_empty());
}

/// Whoever waits for a path that was closed is told when a request that has kept its place there goes
/// elsewhere.
#[tokio::test(start_paused = true)]
async fn a_closed_path_drains_when_its_last_request_goes_elsewhere() {
    let mut unit = Unit::new(&[]);
    unit.refuses = vec![(Instant::now() + Duration::from_millis(25), busy())];
    let unit = Arc::new(unit);
    let paths = alone(Session::open(&unit), ROOM);
    let asked = tokio::spawn({
        let paths = paths.clone();
        async move { paths.execute(request(0)).await }
    });
    sleep(Duration::from_millis(22)).await;
    let closed = paths.working()[0];
    paths.add(Session::open(&unit), ROOM);
    paths.close(closed);
    let removed = tokio::time::timeout(PATIENCE, paths.remove(closed)).await;
    assert!(removed.unwrap().is_some());
    asked.await.unwrap().unwrap();
}

/// Its caller has given a write up, which gives its place back; the target has not answered the abort.
#[tokio::test(start_paused = true)]
async fn a_closed_path_counts_until_the_unit_has_finished_with_what_was_given_up_there() {
    let unit = Arc::new(Unit::new(&[]));
    let session = Session::open(&unit);
    let paths = alone(session.clone(), ROOM);
    let written = tokio::spawn({
        let paths = paths.clone();
        async move { paths.execute(request(0)).await }
    });
    sleep(Duration::from_millis(10)).await;
    session.0.is_unsettled.store(true, Ordering::Relaxed);
    written.abort();
    assert!(written.await.unwrap_err().is_cancelled());
    let closed = paths.working()[0];
    paths.add(Session::open(&unit), ROOM);
    paths.close(closed);
    assert!(paths.remove(closed).await.is_some());
    assert!(!paths.is_settled());
    session.0.is_unsettled.store(false, Ordering::Relaxed);
    assert!(paths.is_settled());
}
