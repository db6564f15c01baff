//! Episodes of copies: the copy engine writes to a disk of the simulation while faults happen. It is paused,
//! stopped, killed, and run again from its checkpoint.
//!
//! ```text
//!  image, unit or stream ──► iscsi-copy ──► Watched: Disk ──► initiator, network, target ──► RAM disk
//!                                │                                                              │
//!                                └──► Kept: checkpoints ──► Judge: what remains after a power failure?
//! ```

mod content;
mod in_use;
mod judge;
mod kept;
mod passes;
pub(crate) mod repeated;
mod run;
mod source;
mod user;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use iscsi_copy::{CheckpointError, Identity, RangeSet};
use iscsi_initiator::Disk;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::scsi::Unit;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use self::content::fill;
use self::in_use::InUse;
use self::judge::Judge;
use self::kept::Kept;
use self::source::Image;
use crate::episode::{HOST, MAX_CLOSING, QUIET, Report, drawn_disk, world};
use crate::faults::{Faults, heal};
use crate::host::Host;
use crate::lun::{ChangeNotice, Lun};
use crate::rng::{Rng, mix};
use crate::settings::{Class, Settings};
use crate::topology::Topology;
use crate::world::Shared;

/// Percentage of episodes that are copies.
const SHARE: u64 = 10;
/// Further percentage of episodes that copy a source in use.
const SHARE_IN_USE: u64 = 2;
/// Number of runs of a copy that may fail. In the next run there are no faults.
const MAX_RUNS: usize = 8;
/// LUN of the source unit.
const SOURCE: u16 = 1;
/// Number of attempts to open a disk while faults happen.
const MAX_OPENINGS: usize = 8;

/// Returns whether the episode of this seed consists of copies.
pub(crate) fn is_copy(seed: u64) -> bool {
    mix(!seed) % 100 < SHARE + SHARE_IN_USE
}

/// Returns whether the sources of this seed are in use.
fn is_in_use(seed: u64) -> bool {
    (SHARE..SHARE + SHARE_IN_USE).contains(&(mix(!seed) % 100))
}

/// Runs an episode of copies, one after the other, until there were enough requests.
pub(crate) async fn episode(seed: u64, settings: &Settings) -> Report {
    let begun = Instant::now();
    let (mut copies, mover) = Copies::drawn(Rng::new(mix(seed)), settings);
    copies.is_in_use = is_in_use(seed);
    while copies.requests < settings.operations && copies.is_well() {
        match Box::pin(copies.copy()).await {
            Ok(true) => {}
            Ok(false) => break,
            Err(why) => copies.shared.lock().accuse(why),
        }
    }
    mover.abort();
    copies.report(seed, begun)
}

/// Draws the initial data of the destination, and how the destination stores zeros.
fn prepare(shared: &Shared, disk: &RamDisk, rng: &mut Rng) {
    let is_thin = rng.percent(70);
    let mut world = shared.lock();
    for target in &mut world.targets {
        for unit in target.config_mut().units.values_mut() {
            unit.thin = is_thin;
        }
    }
    let unit = world.targets[0].config_mut().units[&0].clone();
    world.lun = Lun::new(unit);
    drop(world);
    if rng.percent(50) {
        return;
    }
    let capacity = usize::try_from(disk.capacity()).unwrap_or(0);
    for _ in 0..rng.index(1..9) {
        let start = rng.index(0..capacity);
        let mut data = vec![0; rng.index(1..capacity).min(capacity - start)];
        fill(&mut data, rng);
        disk.write(start as u64, &data);
    }
}

struct Copies<'a> {
    shared: Arc<Shared>,
    rng: Rng,
    settings: &'a Settings,
    host: Host,
    faults: Faults,
    going_wrong: Option<JoinHandle<()>>,
    /// Whether power is lost at critical moments.
    is_crashing: Arc<AtomicBool>,
    /// Whether the sources are written to while they are copied.
    is_in_use: bool,
    /// The source unit, if it is open.
    unit: Option<Disk>,
    kept: Kept,
    /// Number of images so far.
    images: u64,
    /// Number of requests so far.
    requests: usize,
}

/// A copy, with all of its runs.
struct Job {
    image: Image,
    in_use: Option<InUse>,
    judge: Arc<Judge>,
    kind: Kind,
    identity: Identity,
    /// Whether the destination is known to be zero, since nothing has been written to it.
    is_blank: bool,
    /// Whether a unit that replaced the destination may have responded in a run before the initiator could
    /// notice the replacement.
    is_blind: bool,
}

/// Kind of the source.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Device,
    Unit,
    Stream,
    /// A device that is written to while it is copied.
    InUse,
}

/// How a run has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ended {
    /// Everything is copied.
    Well,
    /// A part is still to be copied.
    Badly,
    /// A part is still to be copied, and the disk cannot be used any more.
    Unusable,
    /// A part is still to be copied, and the process is to be killed.
    Killed,
}

impl<'a> Copies<'a> {
    /// Makes a world for copies, and the task that advances its time.
    fn drawn(mut rng: Rng, settings: &'a Settings) -> (Self, JoinHandle<()>) {
        let (disk, topology) = (drawn_disk(&mut rng), Arc::new(Topology::drawn(&mut rng)));
        let shared = Shared::new(world(std::slice::from_ref(&disk), &topology, &mut rng, settings));
        prepare(&shared, &disk, &mut rng);
        let mover = tokio::spawn(Arc::clone(&shared).run());
        let faults = Faults::drawn(Arc::clone(&shared), settings, rng.fork());
        let mut host = Host::new(&shared, &topology, settings, HOST, rng.fork());
        host.classes = faults.classes().to_vec();
        let copies = Self {
            shared,
            rng,
            settings,
            host,
            faults,
            going_wrong: None,
            is_crashing: Arc::default(),
            is_in_use: false,
            unit: None,
            kept: Kept::default(),
            images: 0,
            requests: 0,
        };
        (copies, mover)
    }

    /// Returns the report of the episode.
    fn report(mut self, seed: u64, begun: Instant) -> Report {
        self.stop_going_wrong();
        let mut world = self.shared.lock();
        Report {
            seed,
            violation: world.violation.take(),
            hash: world.trace.hash(),
            requests: self.requests,
            counts: world.counts.clone(),
            elapsed: begun.elapsed(),
            trace: world.trace.take_lines(),
        }
    }

    fn is_well(&self) -> bool {
        self.shared.lock().violation.is_none()
    }

    /// Copies one source, in as many runs as it takes. Returns whether another copy may follow.
    async fn copy(&mut self) -> Result<bool, String> {
        self.open(0).await?;
        let mut job = self.job();
        for number in 0.. {
            if number > 0 && job.in_use.is_some() && self.host.disk().is_none() {
                // The previous process has died, and its requests in flight carry older data. End the faults,
                // so that those requests end.
                self.mend();
                sleep(QUIET).await;
                if self.shared.lock().has_orphans() {
                    return Ok(false);
                }
            }
            let is_last = number >= MAX_RUNS;
            if is_last {
                self.mend();
                self.leave(true).await?;
            } else if self.going_wrong.is_none() {
                self.go_wrong();
            }
            let done = self.done(&job).await?;
            let ended = Box::pin(self.run(&mut job, done, is_last)).await?;
            if !self.is_well() {
                return Ok(false);
            }
            job.is_blank = false;
            match ended {
                Ended::Well => break,
                Ended::Badly => {}
                Ended::Unusable => self.leave(false).await?,
                Ended::Killed => {
                    self.kept.crash(&mut self.rng);
                    self.die();
                }
            }
            if ended == Ended::Badly && self.rng.percent(40) {
                self.leave(false).await?;
            }
            if self.settings.has(Class::Exchange) && self.rng.percent(10) {
                self.resume_with_another_unit(&job).await?;
            }
        }
        self.check_destination(&job).await
    }

    /// Draws a source to be copied to the disk in its current state.
    fn job(&mut self) -> Job {
        let kinds = [Kind::Device, Kind::Device, Kind::Unit, Kind::Stream];
        let kinds = if self.is_in_use { &[Kind::InUse][..] } else { &kinds };
        let kind = self.rng.pick(kinds).copied().unwrap_or(Kind::Device);
        self.images += 1;
        let mut world = self.shared.lock();
        world.lun.forget_resizes();
        let capacity = usize::try_from(world.lun.disk().capacity()).unwrap_or(0);
        let mut len = if self.rng.percent(30) { capacity } else { self.rng.index(1..capacity) };
        if kind == Kind::Unit {
            len = len.next_multiple_of(512);
        }
        world.trace.record(&format!("an image, as {kind:?}"), &[self.images, len as u64]);
        let mut image = Image::drawn(len, &mut self.rng);
        let in_use = (kind == Kind::InUse).then(|| {
            image.holes = RangeSet::new();
            InUse::new(&image.bytes, self.rng.fork())
        });
        if kind == Kind::Unit {
            let unit = Unit::new(image.disk()).with_identity("source", 0x3000_0000_0000_0000);
            for target in &mut world.targets {
                target.config_mut().units.insert(SOURCE, unit.clone());
            }
        }
        let judge = Arc::new(Judge::new(image.bytes.clone(), in_use.clone(), &world));
        let is_blank = judge.was_blank();
        let identity = Identity::new(&format!("image {}", self.images), len as u64);
        Job { image, in_use, judge, kind, identity, is_blank, is_blind: false }
    }

    /// Opens everything that the next run needs. Returns the ranges that earlier runs have copied, according
    /// to their checkpoint.
    async fn done(&mut self, job: &Job) -> Result<RangeSet, String> {
        for tries in 0.. {
            self.open(tries).await?;
            if job.kind != Kind::Unit || self.unit.is_some() {
                break;
            }
            match self.host.open_other(SOURCE).await {
                Ok(unit) => self.unit = Some(unit),
                Err(why) => self.has_not_opened(tries, why).await?,
            }
        }
        let destination = self.destination()?;
        match self.kept.load(&job.identity, &destination) {
            Ok(done) => Ok(done.unwrap_or_default()),
            Err(error) => {
                self.shared.lock().trace.record(&format!("no checkpoint: {error}"), &[]);
                let is_of_others = matches!(error, CheckpointError::OtherDestination { .. });
                if is_of_others {
                    return Err(format!("the checkpoint is of the same unit, but: {error}"));
                }
                self.kept.remove();
                Ok(RangeSet::new())
            }
        }
    }

    /// Returns the identity of the open disk.
    fn destination(&self) -> Result<Identity, String> {
        let (disk, _) = self.host.disk().ok_or("no disk is open")?;
        let named = Identity::of_device(&disk).map_err(|error| error.to_string())?;
        named.ok_or_else(|| "the unit has no name".to_owned())
    }

    /// Opens the disk if it is not open. If another unit may be present, mends the faults first.
    async fn open(&mut self, mut tries: usize) -> Result<(), String> {
        if self.host.disk().is_some() {
            return Ok(());
        }
        let changes = Class::CHANGES_OF_UNIT;
        if changes.into_iter().any(|class| self.faults.has(class)) {
            self.mend();
        }
        while let Err(why) = self.host.open(1).await {
            self.has_not_opened(tries, why).await?;
            tries += 1;
        }
        Ok(())
    }

    /// Notes that a disk has not opened. That is a violation if there are no faults.
    async fn has_not_opened(&mut self, tries: usize, why: String) -> Result<(), String> {
        if self.going_wrong.is_none() {
            return Err(format!("{why}, although nothing is wrong"));
        }
        self.shared.lock().trace.record(&why, &[]);
        if tries >= MAX_OPENINGS {
            self.mend();
        }
        sleep(Duration::from_secs(5)).await;
        Ok(())
    }

    fn go_wrong(&mut self) {
        self.go_wrong_after(Duration::ZERO);
    }

    /// Starts the faults after a pause.
    fn go_wrong_after(&mut self, pause: Duration) {
        let faults = self.faults.again();
        self.going_wrong = Some(tokio::spawn(async move {
            if !pause.is_zero() {
                sleep(pause).await;
            }
            faults.run().await;
        }));
        self.is_crashing.store(self.faults.has(Class::Crash), Ordering::Relaxed);
    }

    fn stop_going_wrong(&mut self) {
        self.is_crashing.store(false, Ordering::Relaxed);
        if let Some(going_wrong) = self.going_wrong.take() {
            going_wrong.abort();
        }
    }

    /// Ends all faults.
    fn mend(&mut self) {
        self.stop_going_wrong();
        heal(&mut self.shared.lock());
        self.shared.moved.notify_one();
    }

    /// Closes all disks. Kills the process if `dies` is true or a logout fails, and otherwise in half of the
    /// cases.
    async fn leave(&mut self, dies: bool) -> Result<(), String> {
        if let Some(unit) = self.unit.take() {
            // Nothing was written to the source unit, so a logout that fails does no harm.
            _ = timeout(MAX_CLOSING, unit.logout()).await;
        }
        let is_well = self.host.close(MAX_CLOSING).await?;
        if dies || !is_well || self.rng.percent(50) {
            self.die();
        }
        Ok(())
    }

    /// Kills the process.
    fn die(&mut self) {
        self.unit = None;
        self.host.die();
    }

    /// Resumes with another unit in place of the destination: the copy must refuse the checkpoint.
    async fn resume_with_another_unit(&mut self, job: &Job) -> Result<(), String> {
        self.mend();
        self.leave(true).await?;
        {
            let mut world = self.shared.lock();
            let world = &mut *world;
            let block_size = world.lun.disk().block_size();
            world.trace.record("another unit", &[]);
            world.lun.exchange(&mut world.targets, block_size, true, ChangeNotice::Restart);
        }
        let opened = self.host.open(1).await;
        opened.map_err(|why| format!("{why}, although nothing is wrong"))?;
        let loaded = self.kept.load(&job.identity, &self.destination()?);
        if let Ok(Some(done)) = &loaded {
            return Err(format!("another unit is there, and {} bytes are done", done.bytes()));
        }
        self.leave(true).await?;
        self.mend();
        Ok(())
    }

    /// Checks the destination after a copy that succeeded: late data and a loss of power must not change it.
    /// Returns whether no request of the copy is in flight, so that another copy may follow.
    async fn check_destination(&mut self, job: &Job) -> Result<bool, String> {
        if self.rng.percent(50) {
            self.mend();
        }
        self.leave(false).await?;
        self.mend();
        if self.rng.percent(50) || self.shared.lock().has_orphans() {
            sleep(QUIET).await;
        }
        let mut world = self.shared.lock();
        let world = &mut *world;
        if self.rng.percent(50) {
            world.trace.record("power loss", &[]);
            world.lose_all_power();
        }
        job.judge.image(world)?;
        if !job.is_blind {
            let claims = job.judge.claims(world, &job.judge.all());
            claims.map_err(|why| format!("after a copy: {why}"))?;
        }
        match world.broken_rule() {
            Some(rule) => Err(format!("the initiator has broken a rule: {rule}")),
            None => Ok(!world.has_orphans()),
        }
    }
}
