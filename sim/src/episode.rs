//! One episode: disks are opened, used, closed and opened again, while faults happen.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use iscsi_testkit::disk::{Cache, RamDisk};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::counts::Counts;
use crate::faults::{Faults, heal};
use crate::host::Host;
use crate::losses::GRACE;
use crate::oracle::{GRAIN, Oracle};
use crate::rng::{Rng, mix};
use crate::settings::{Class, Settings};
use crate::topology::Topology;
use crate::trace::Trace;
use crate::units::CHUNK;
use crate::wire::Shape;
use crate::workload::MAX_WAIT;
use crate::world::{Shared, World};

pub(crate) const HOST: &str = "iqn.2026-01.org.example:host";
const OTHER_HOST: &str = "iqn.2026-01.org.example:other-host";
/// Longer than any late data takes to arrive.
pub(crate) const QUIET: Duration = Duration::from_secs(300);
/// How long an episode waits for its requests while faults may still have effects. After that it closes the
/// disks, even with requests in flight.
const IMPATIENCE: Duration = Duration::from_secs(30);
/// Time limit for closing a disk while faults still have effects: 400 s for the retry timeout (300 s) and a
/// last attempt to reconnect, 600 s for a flush without a response, and 255 s for a port that changes its
/// state (the most that a unit reports).
pub(crate) const MAX_CLOSING: Duration = Duration::from_secs(400 + 600 + 255);

/// Result of an episode.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The first violation, if there was one.
    pub violation: Option<String>,
    /// A hash of everything that happened.
    pub hash: u64,
    /// Number of requests.
    pub requests: usize,
    /// Numbers of requests that succeeded and of faults. An episode of copies counts only faults.
    pub counts: Counts,
    /// Duration, in virtual time.
    pub elapsed: Duration,
    /// The trace, line by line, if the settings ask for it.
    pub trace: Vec<String>,
}

impl Report {
    /// Returns the report of an episode that did not complete.
    pub(crate) fn empty(seed: u64) -> Self {
        let elapsed = Duration::ZERO;
        let (counts, trace) = (Counts::default(), Vec::new());
        Self { seed, violation: None, hash: 0, requests: 0, counts, elapsed, trace }
    }

    /// Adds the report of a second part of the episode.
    pub(crate) fn and(mut self, second: Self) -> Self {
        self.violation = self.violation.or(second.violation);
        self.hash = mix(self.hash ^ second.hash.rotate_left(1));
        self.requests += second.requests;
        self.counts.add(&second.counts);
        self.elapsed += second.elapsed;
        self.trace.extend(second.trace);
        self
    }
}

/// Runs an episode of requests of many kinds.
pub(crate) async fn episode(seed: u64, settings: &Settings) -> Report {
    let mut rng = Rng::new(seed);
    let (disk, topology) = (drawn_disk(&mut rng), Topology::drawn(&mut rng));
    Box::pin(episode_with(seed, settings, rng, vec![disk], topology)).await
}

/// Runs an episode of requests of many kinds, over these units and this topology.
pub(crate) async fn episode_with(
    seed: u64,
    settings: &Settings,
    mut rng: Rng,
    disks: Vec<RamDisk>,
    topology: Topology,
) -> Report {
    let begun = Instant::now();
    let topology = Arc::new(topology);
    let shared = Shared::new(world(&disks, &topology, &mut rng, settings));
    let mover = tokio::spawn(Arc::clone(&shared).run());
    let faults = Faults::drawn(Arc::clone(&shared), settings, rng.fork());
    let phases = rng.index(1..4);
    let max_pause = faults.pause_of_users(1 << rng.within(5..15));
    let mut host = |name| {
        let mut host = Host::new(&shared, &topology, settings, name, rng.fork());
        (host.classes, host.max_pause) = (faults.classes().to_vec(), max_pause);
        host
    };
    let hosts = [host(HOST), host(OTHER_HOST)];
    let bytes = shared.lock().units.image().len();
    let block_size = disks[0].block_size() as usize;
    let hosts = hosts.into();
    let mut episode =
        Episode { shared, rng, settings, block_size, bytes, faults, hosts, requests: 0 };
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
        requests: episode.requests,
        counts: world.counts.clone(),
        elapsed: begun.elapsed(),
        trace: world.trace.take_lines(),
    }
}

/// Draws the unit of an episode.
pub(crate) fn drawn_disk(rng: &mut Rng) -> RamDisk {
    let (size, blocks) = if rng.percent(50) { (512, 512) } else { (4096, 64) };
    let disk = RamDisk::new(size, blocks);
    let caches = [Cache::Volatile, Cache::Volatile, Cache::WriteThrough, Cache::NonVolatile];
    disk.set_cache(rng.pick(&caches).copied().unwrap_or_default());
    disk
}

/// Makes a world with the targets and portals of one unit, or of the units of a volume.
pub(crate) fn world(
    disks: &[RamDisk],
    topology: &Topology,
    rng: &mut Rng,
    settings: &Settings,
) -> World {
    let targets = topology.serve(disks, rng);
    let is_volatile = disks.iter().any(|disk| disk.cache() == Cache::Volatile);
    let units = topology.units(disks, CHUNK);
    let oracle = Oracle::new(units.image().len(), is_volatile, settings.has(Class::EachHandle));
    let shape = Shape::drawn(rng);
    let trace = Trace::new(settings.is_traced);
    let chance = rng.fork();
    let mut world = World::new(targets, topology.portals(), oracle, trace, chance, shape, units);
    world.tunnels = topology.tunnels().cloned();
    world
}

/// Waits until all requests have ended.
async fn idle(hosts: &mut [Host]) {
    for host in hosts {
        host.idle().await;
    }
}

struct Episode<'a> {
    shared: Arc<Shared>,
    rng: Rng,
    settings: &'a Settings,
    block_size: usize,
    /// Size of the unit or the volume, before any change of its capacity.
    bytes: usize,
    faults: Faults,
    /// The first host takes part in every phase.
    hosts: Vec<Host>,
    /// Number of requests so far.
    requests: usize,
}

impl Episode<'_> {
    /// Runs a phase, from opening disks to closing them. An error is a violation.
    async fn phase(&mut self, operations: usize) -> Result<(), String> {
        let left = Arc::new(AtomicUsize::new(operations));
        let mut hosts = self.begin(&left).await?;
        let faults = tokio::spawn(self.faults.again().run());
        self.run(&mut hosts).await;
        faults.abort();
        let is_impatient = self.rng.percent(50);
        let is_idle = is_impatient && timeout(IMPATIENCE, idle(&mut hosts)).await.is_ok();
        // No request may begin from here on: its retry timeout would begin only then, and end late.
        self.requests += operations - left.swap(0, Ordering::Relaxed);
        if is_idle {
            return self.end(hosts, MAX_CLOSING).await;
        }
        self.heal();
        let all_end = timeout(MAX_WAIT, idle(&mut hosts)).await;
        all_end.map_err(|_| format!("requests go on {MAX_WAIT:?} after the last fault"))?;
        for host in &mut hosts {
            host.serve().await?;
        }
        self.end(hosts, MAX_WAIT).await
    }

    /// Opens the disks of a phase, without faults.
    async fn begin(&mut self, left: &Arc<AtomicUsize>) -> Result<Vec<Host>, String> {
        let mut hosts = std::mem::take(&mut self.hosts);
        let block = self.block_size / GRAIN;
        let blocks = self.shared.lock().units.image().len() / self.block_size;
        let has_other = self.rng.percent(30);
        let split = if has_other { self.rng.index(blocks / 4..blocks) } else { blocks };
        self.hosts = hosts.split_off(if has_other { 2 } else { 1 });
        for (host, part) in hosts.iter_mut().zip([0..split * block, split * block..blocks * block])
        {
            (host.part, host.left) = (part, Arc::clone(left));
            let disks = if self.rng.percent(30) { self.rng.index(2..4) } else { 1 };
            host.open(disks).await.map_err(|why| format!("{why}, although nothing is wrong"))?;
        }
        Ok(hosts)
    }

    fn heal(&self) {
        heal(&mut self.shared.lock());
        self.shared.moved.notify_one();
    }

    /// Runs the hosts until they have made enough requests, until no worker is left, or until the time limit.
    async fn run(&mut self, hosts: &mut Vec<Host>) {
        let limit = self.faults.phase(self.rng.millis(10_000..600_000));
        let mut running = JoinSet::new();
        for (number, mut host) in std::mem::take(hosts).into_iter().enumerate() {
            running.spawn(async move {
                let _ = timeout(limit, Box::pin(host.run())).await;
                (number, host)
            });
        }
        let mut ended = running.join_all().await;
        ended.sort_by_key(|(number, _)| *number);
        hosts.extend(ended.into_iter().map(|(_, host)| host));
    }

    /// Closes the disks. Nothing may change on the unit after that. Some processes go on to the next phase.
    async fn end(&mut self, mut hosts: Vec<Host>, limit: Duration) -> Result<(), String> {
        // Closing a disk counts as a reason for a loss. So first wait until each suspected loss has a reason
        // or is a violation.
        if self.shared.lock().losses.is_any_suspected() {
            sleep(GRACE).await;
        }
        let mut is_over = true;
        for (number, host) in hosts.iter_mut().enumerate() {
            let dies = number > 0 && self.faults.has(Class::Death) && self.rng.percent(50);
            let is_well = !dies && host.close(limit).await?;
            if !is_well || number > 0 || self.rng.percent(50) {
                host.die();
            }
            is_over &= is_well;
        }
        hosts.append(&mut self.hosts);
        self.hosts = hosts;
        is_over &= !self.shared.lock().has_orphans();
        let before = self.image();
        self.check(&before)?;
        self.heal();
        sleep(if self.rng.percent(50) { QUIET } else { Duration::ZERO }).await;
        let after = self.image();
        let is_same = before.iter().zip(&after).all(|(before, after)| before == after);
        if self.settings.has(Class::AfterClose) && is_over && !is_same {
            return Err("the unit has changed after all disks were closed".to_owned());
        }
        self.check(&after)?;
        self.lose_power()
    }

    /// Loses power if no write is in flight. Everything that a flush has covered must still be there.
    fn lose_power(&self) -> Result<(), String> {
        let mut world = self.shared.lock();
        if world.has_orphans() {
            return Ok(());
        }
        world.trace.record("power loss", &[]);
        world.lose_all_power();
        drop(world);
        self.check(&self.image()).map_err(|why| format!("after a loss of power: {why}"))
    }

    fn image(&self) -> Vec<u8> {
        self.shared.lock().units.image()
    }

    fn check(&self, image: &[u8]) -> Result<(), String> {
        let mut world = self.shared.lock();
        let now = world.oracle.now();
        let image = &image[..image.len().min(self.bytes)];
        world.oracle.check(now, 0, image).map_err(|why| format!("the unit holds: {why}"))?;
        world.lun.check_strangers(&world.oracle)?;
        match world.broken_rule() {
            Some(rule) => Err(format!("the initiator has broken a rule: {rule}")),
            None => Ok(()),
        }
    }
}
