//! One episode: a disk is opened, used, closed and opened again, while things go wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use iscsi_initiator::{Disk, Error, ErrorKind, Initiator, Options, Sessions};
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::{Cache, RamDisk};
use iscsi_testkit::target::Target;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::faults::{Faults, heal};
use crate::lun::Lun;
use crate::network::{SimulatedNetwork, address};
use crate::oracle::Oracle;
use crate::rng::Rng;
use crate::settings::{Class, Settings};
use crate::trace::Trace;
use crate::wire::Shape;
use crate::workload::{MAX_WAIT, Worker};
use crate::world::{Shared, World};

/// The number of the handle that reads all at the end; no worker has it.
const LAST_HANDLE: u32 = 63;
const TARGET: &str = "iqn.2026-01.org.example:disk";
const HOST: &str = "iqn.2026-01.org.example:host";
/// Longer than anything that is late may take to arrive.
const QUIET: Duration = Duration::from_secs(300);
/// A disk may be closed while things are still wrong, if its requests have ended after so long.
const IMPATIENCE: Duration = Duration::from_secs(30);
/// While things are wrong, a disk closes within its patience for lost sessions, which is 300 s, and the
/// time that a last try of each may take.
const MAX_CLOSING: Duration = Duration::from_secs(400);

/// What came of an episode.
#[derive(Clone, Debug)]
pub struct Report {
    /// What the episode was drawn from.
    pub seed: u64,
    /// What was wrong, if anything was.
    pub violation: Option<String>,
    /// A hash of all that happened.
    pub hash: u64,
    /// How long it took, in virtual time.
    pub elapsed: Duration,
    /// What happened, line by line, if that was asked for.
    pub trace: Vec<String>,
}

/// Runs the episode of a seed, in virtual time.
///
/// # Errors
/// When the system has no room for a runtime.
pub fn run(seed: u64, settings: &Settings) -> std::io::Result<Report> {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build()?;
    Ok(runtime.block_on(Box::pin(episode(seed, settings))))
}

async fn episode(seed: u64, settings: &Settings) -> Report {
    let begun = Instant::now();
    let mut rng = Rng::new(seed);
    let unit = Unit::drawn(&mut rng);
    let shared = Shared::new(unit.world(&mut rng, settings));
    let mover = tokio::spawn(Arc::clone(&shared).run());
    let faults = Faults::drawn(Arc::clone(&shared), settings, rng.fork());
    let phases = rng.index(1..4);
    let max_pause = 1 << rng.within(5..15);
    let mut episode = Episode { shared, rng, settings, unit, faults, max_pause, opened: 0 };
    for _ in 0..phases {
        if let Err(why) = Box::pin(episode.phase(settings.operations / phases)).await {
            episode.shared.lock().accuse(why);
        }
        if episode.shared.lock().violation.is_some() {
            break;
        }
    }
    mover.abort();
    let mut world = episode.shared.lock();
    Report {
        seed,
        violation: world.violation.take(),
        hash: world.trace.hash(),
        elapsed: begun.elapsed(),
        trace: world.trace.take_lines(),
    }
}

/// The unit of an episode, and the ways to it.
#[derive(Clone)]
struct Unit {
    disk: RamDisk,
    bytes: usize,
    portals: usize,
}

impl Unit {
    fn drawn(rng: &mut Rng) -> Self {
        let (size, blocks) = if rng.percent(50) { (512, 512) } else { (4096, 64) };
        let disk = RamDisk::new(size, blocks);
        let caches = [Cache::Volatile, Cache::Volatile, Cache::WriteThrough, Cache::NonVolatile];
        disk.set_cache(rng.pick(&caches).copied().unwrap_or_default());
        let bytes = usize::try_from(disk.capacity()).unwrap_or(0);
        Self { disk, bytes, portals: rng.index(1..4) }
    }

    /// A target with its portals. All of them belong to one portal group.
    fn world(&self, rng: &mut Rng, settings: &Settings) -> World {
        let mut config = TargetConfig::new(TARGET, self.disk.clone());
        config.keys.initial_r2t = rng.percent(30);
        config.keys.immediate_data = rng.percent(70);
        config.keys.max_burst_length = 1 << rng.within(13..18);
        config.keys.first_burst_length =
            (1 << rng.within(12..17)).min(config.keys.max_burst_length);
        config.keys.max_recv_data_segment_length = Some(1 << rng.within(12..17));
        config.keys.default_time2wait = u32::try_from(rng.within(0..3)).unwrap_or(0);
        if let Some(unit) = config.units.get_mut(&0) {
            unit.behavior.task_aborted_status = rng.percent(50);
        }
        config.window = 1 << rng.within(0..7);
        let is_volatile = self.disk.cache() == Cache::Volatile;
        let oracle = Oracle::new(self.bytes, is_volatile, settings.has(Class::EachHandle));
        let shape = Shape::drawn(rng);
        let trace = Trace::new(settings.is_traced);
        let lun = Lun::new(config.units[&0].clone());
        let targets = vec![Target::new(config)];
        World::new(targets, self.portals, oracle, trace, rng.fork(), shape, lun)
    }
}

/// Waits until all workers have ended.
async fn all(workers: &mut JoinSet<()>) {
    while workers.join_next().await.is_some() {}
}

struct Episode<'a> {
    shared: Arc<Shared>,
    rng: Rng,
    settings: &'a Settings,
    unit: Unit,
    faults: Faults,
    /// Between two requests of a worker, milliseconds at most.
    max_pause: u64,
    /// How many disks were opened.
    opened: usize,
}

impl Episode<'_> {
    /// From opening a disk to closing it; why it did not come to its end.
    async fn phase(&mut self, operations: usize) -> Result<(), String> {
        let disk = self.open().await?;
        self.opened += 1;
        let left = Arc::new(AtomicUsize::new(operations));
        let mut faults = JoinSet::new();
        let drops = self.faults.has(Class::Dropped);
        let count = self.rng.index(1..9);
        let mut workers = JoinSet::new();
        for handle in 0..u32::try_from(count).unwrap_or(1) {
            workers.spawn(Box::pin(self.worker(&disk, handle, &left, drops).run()));
        }
        faults.spawn(self.faults.again().run());
        self.wait(&left, &mut workers).await;
        drop(faults);
        if self.rng.percent(50) && timeout(IMPATIENCE, all(&mut workers)).await.is_ok() {
            return self.close(disk, MAX_CLOSING).await;
        }
        self.heal();
        let all_end = timeout(MAX_WAIT, all(&mut workers)).await;
        all_end.map_err(|_| format!("requests go on {MAX_WAIT:?} after the last fault"))?;
        self.shared.lock().oracle.made_handle(LAST_HANDLE);
        let mut last = self.worker(&disk, LAST_HANDLE, &left, false);
        self.finish(&mut last).await?;
        self.close(disk, MAX_WAIT).await
    }

    fn heal(&self) {
        heal(&mut self.shared.lock());
        self.shared.moved.notify_one();
    }

    /// Until there are enough requests, or nobody makes any more, or for long enough.
    async fn wait(&mut self, left: &AtomicUsize, workers: &mut JoinSet<()>) {
        let limit = self.rng.millis(10_000..600_000);
        let is_enough = || left.load(Ordering::Relaxed) == 0;
        let enough = async { while !is_enough() && workers.join_next().await.is_some() {} };
        let _ = timeout(limit, enough).await;
    }

    fn worker(&mut self, disk: &Disk, handle: u32, left: &Arc<AtomicUsize>, drops: bool) -> Worker {
        Worker {
            shared: Arc::clone(&self.shared),
            disk: Arc::new(disk.clone()),
            opened: self.opened,
            handle,
            rng: self.rng.fork(),
            left: Arc::clone(left),
            max_pause: self.max_pause,
            drops,
            is_strict: self.settings.classes.is_empty(),
        }
    }

    async fn open(&mut self) -> Result<Disk, String> {
        let mut options = Options::default()
            .with_use_environment(false)
            .with_max_transfer(1 << self.rng.index(13..17))
            .with_max_requests(self.rng.index(1..64))
            .with_max_bytes_in_flight(1 << self.rng.index(14..21))
            .with_connections(if self.rng.percent(25) { 2 } else { 1 });
        options = options.with_sessions(if self.rng.percent(20) {
            Sessions::default()
        } else {
            Sessions::Fixed(u32::try_from(self.rng.within(1..5)).unwrap_or(1))
        });
        let network = Arc::new(SimulatedNetwork(Arc::clone(&self.shared)));
        let initiator = Initiator::over(network, HOST, options).map_err(|why| why.to_string())?;
        let mut url = format!("iscsi://{}/{TARGET}/0", address(0));
        for portal in 1..self.unit.portals {
            let separator = if portal == 1 { '?' } else { '&' };
            url.push_str(&format!("{separator}portal={}", address(portal)));
        }
        let opening = timeout(MAX_WAIT, initiator.disk(url.as_str())).await;
        let opened = opening.map_err(|_| "the disk does not open, although nothing is wrong")?;
        opened
            .map_err(|error| format!("the disk does not open, although nothing is wrong: {error}"))
    }

    /// Where nothing goes wrong any more, a disk that is still there serves all that it is asked.
    async fn finish(&mut self, worker: &mut Worker) -> Result<(), String> {
        let slow = |_| format!("a request takes more than {MAX_WAIT:?}, although nothing is wrong");
        match timeout(MAX_WAIT, worker.read_all()).await.map_err(slow)? {
            Some(Err(error)) if worker.fails(&error) || is_of_no_use(&error) => return Ok(()),
            Some(Err(error)) => return Err(format!("nothing is wrong, but a read fails: {error}")),
            Some(Ok(())) | None => {}
        }
        for is_second in [false, true] {
            match timeout(MAX_WAIT, worker.flush()).await.map_err(slow)? {
                Some(Ok(())) => return Ok(()),
                Some(Err(error)) if is_of_no_use(&error) => return Ok(()),
                Some(Err(error)) if worker.fails(&error) || is_second => {
                    return Err(format!("nothing is wrong, but a flush fails: {error}"));
                }
                Some(Err(_)) => {}
                None if is_second => return Err("the second flush tells of lost writes".to_owned()),
                None => {}
            }
        }
        Ok(())
    }

    /// Closes a disk; nothing may change from then on.
    async fn close(&mut self, disk: Disk, limit: Duration) -> Result<(), String> {
        let logout = timeout(limit, disk.logout()).await;
        let logout = logout.map_err(|_| format!("a logout does not end within {limit:?}"))?;
        drop(disk);
        if let Err(error) = &logout {
            self.shared.lock().trace.note(&format!("logout: {error}"), &[]);
        }
        let before = self.unit.disk.read(0, usize::MAX);
        self.check(&before)?;
        self.heal();
        sleep(if self.rng.percent(50) { QUIET } else { Duration::ZERO }).await;
        let after = self.unit.disk.read(0, usize::MAX);
        let is_same = before.iter().zip(&after).all(|(before, after)| before == after);
        if self.settings.has(Class::AfterClose) && logout.is_ok() && !is_same {
            return Err("the unit has changed after the disk was closed".to_owned());
        }
        self.check(&after)
    }

    fn check(&self, image: &[u8]) -> Result<(), String> {
        let mut world = self.shared.lock();
        let now = world.oracle.now();
        let known = image.len().min(self.unit.bytes);
        let image = &image[..known];
        world.oracle.check(now, 0, image).map_err(|why| format!("the unit holds: {why}"))?;
        world.lun.check_strangers(&world.oracle)
    }
}

/// Whether an error says that the unit is not what it was any more.
fn is_of_no_use(error: &Error) -> bool {
    error.kind() == ErrorKind::UnitChanged
}
