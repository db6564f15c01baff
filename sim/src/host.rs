//! A host with an initiator: its process, the disks that the process has open, and the workers of each disk.

use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use iscsi_initiator::{Disk, Error, ErrorKind, Initiator, OnRetryTimeout, Options, Sessions};
use iscsi_tls::Rustls;
use iscsi_volume::{Chunk, Member, Volume};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::clock;
use crate::network::{SimulatedNetwork, portals_of};
use crate::opened::Opened;
use crate::rng::Rng;
use crate::settings::{Class, Settings};
use crate::topology::Topology;
use crate::units::CHUNK;
use crate::workload::{MAX_WAIT, Work, Worker};
use crate::world::Shared;

/// LUN of the unit that is opened.
const UNIT: u16 = 0;
/// Separates the random draws that decide whether disks outlast their retry timeout from others.
const OUTLASTING: u64 = 0x6f75_746c_6173_7473;
/// Number of the handle that reads everything at the end. No worker has it.
const LAST_HANDLE: u32 = 63;
/// Largest number of workers for all disks of a process. Handles of a disk from this number on are used by
/// streams.
const MAX_WORKERS: u32 = 8;

/// A host of an episode: it runs one process at a time.
pub(crate) struct Host {
    pub(crate) shared: Arc<Shared>,
    pub(crate) rng: Rng,
    pub(crate) topology: Arc<Topology>,
    /// The classes of faults of this episode.
    pub(crate) classes: Vec<Class>,
    pub(crate) is_strict: bool,
    /// The initiator's name.
    pub(crate) name: &'static str,
    /// The grains (64 bytes each) that the host may write: whole blocks.
    pub(crate) part: Range<usize>,
    pub(crate) left: Arc<AtomicUsize>,
    /// Longest pause of a worker between two requests, milliseconds.
    pub(crate) max_pause: u64,
    /// Whether its disks always fail requests after the retry timeout and go on, as the disks of a server do.
    pub(crate) outlasts: bool,
    process: Option<Process>,
}

/// A process of a host.
struct Process {
    number: u64,
    initiator: Initiator,
    /// Whether its sessions have several connections.
    has_connections: bool,
    /// Whether its disks fail requests, but do not end, if no session is back within the retry timeout.
    outlasts: bool,
    /// Retry timeout of its disks.
    patience: Duration,
    disks: Vec<Open>,
    /// Disks that were dropped, or whose logout failed.
    dropped: Vec<usize>,
}

/// An open disk, or a volume.
struct Open {
    disk: Opened,
    number: usize,
    /// Number of portals in its URL.
    portals: usize,
    handles: Arc<AtomicU32>,
    workers: JoinSet<()>,
}

impl Host {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        topology: &Arc<Topology>,
        settings: &Settings,
        name: &'static str,
        rng: Rng,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            rng,
            topology: Arc::clone(topology),
            classes: Vec::new(),
            is_strict: settings.classes.is_empty(),
            name,
            part: 0..0,
            left: Arc::default(),
            max_pause: 1,
            outlasts: false,
            process: None,
        }
    }

    fn has(&self, class: Class) -> bool {
        self.classes.contains(&class)
    }

    /// Returns whether disks are opened while faults happen. Disks are not opened during faults that change or
    /// replace the unit, since another unit may be present then.
    fn reopens(&self) -> bool {
        !Class::CHANGES_OF_UNIT.iter().any(|class| self.has(*class))
    }

    /// Opens disks until the process has `disks` of them.
    ///
    /// # Errors
    /// The reason why a disk does not open.
    pub(crate) async fn open(&mut self, disks: usize) -> Result<(), String> {
        if self.process.is_none() {
            self.process = Some(self.start()?);
        }
        while self.process.as_ref().is_some_and(|process| process.disks.len() < disks) {
            self.open_one().await?;
        }
        Ok(())
    }

    fn start(&mut self) -> Result<Process, String> {
        let [order, requests, bytes] = [13..17, 1..64, 14..21].map(|range| self.rng.index(range));
        let connections = if self.rng.percent(40) { 2 } else { 1 };
        let mut options = Options::default()
            .with_use_environment(false)
            .with_max_transfer(1 << order)
            .with_max_requests(requests)
            .with_max_bytes_in_flight(1 << bytes)
            .with_connections(connections);
        options = options.with_sessions(if self.rng.percent(20) {
            Sessions::default()
        } else {
            Sessions::Fixed(u32::try_from(self.rng.within(1..5)).unwrap_or(1))
        });
        let mut beside = self.rng.beside(OUTLASTING);
        if self.classes.contains(&Class::Partition) && self.classes.len() == 1 && beside.percent(50)
        {
            // With a single session, a cut portal may take the only session of the disk. So the episode shows
            // whether the disk reconnects over another portal.
            options = options.with_sessions(Sessions::Fixed(1));
        }
        // One unit of a volume may be away for longer than the retry timeout, while the others serve. So disks
        // of a volume outlast the timeout more often.
        let share = if self.topology.is_of_volume() { 60 } else { 15 };
        let outlasts = beside.percent(share) || self.outlasts;
        if outlasts {
            options = options
                .with_retry_timeout(beside.millis(500..60_000))
                .with_on_retry_timeout(OnRetryTimeout::FailRequests);
        }
        let patience = options.retry_timeout();
        let process = self.shared.lock().start_process();
        let network = Arc::new(SimulatedNetwork { shared: Arc::clone(&self.shared), process });
        let options = options.with_network(network).with_tls(Arc::new(Rustls::default()));
        let initiator = Initiator::with_options(self.name, options);
        let initiator = initiator.map_err(|why| why.to_string())?;
        let (has_connections, disks, dropped) = (connections > 1, Vec::new(), Vec::new());
        let number = process;
        Ok(Process { number, initiator, has_connections, outlasts, patience, disks, dropped })
    }

    /// Returns the targets of the next disk or volume: one target, or the targets of all members.
    fn targets(&mut self) -> Vec<usize> {
        let targets = 0..self.topology.targets();
        if self.topology.is_of_volume() { targets.collect() } else { vec![self.rng.index(targets)] }
    }

    async fn open_one(&mut self) -> Result<(), String> {
        let targets = self.targets();
        let urls = targets.iter().map(|target| self.topology.url(*target, UNIT, &mut self.rng));
        let urls: Vec<String> = urls.collect();
        let Some(process) = &mut self.process else { return Ok(()) };
        let at_opening = self.shared.lock().losses.opening();
        let mut disks = Vec::new();
        for url in &urls {
            let opening = timeout(MAX_WAIT, process.initiator.disk(url.as_str())).await;
            let opened = opening.map_err(|_| "the disk does not open".to_owned())?;
            disks.push(opened.map_err(|error| format!("the disk does not open: {error}"))?);
        }
        let disk = opened(disks, self.topology.is_of_volume())?;
        let number = {
            let mut world = self.shared.lock();
            let number = world.open_disk(process.number, at_opening);
            let what = if targets.len() > 1 { "opened a volume" } else { "opened" };
            world.trace.record(what, &[process.number, number as u64, targets[0] as u64]);
            number
        };
        let handles = Arc::new(AtomicU32::new(MAX_WORKERS));
        let portals = urls.iter().map(|url| portals_of(url)).min().unwrap_or(0);
        process.disks.push(Open { disk, number, portals, handles, workers: JoinSet::new() });
        Ok(())
    }

    /// Returns a handle of the first open disk, and whether its sessions have several connections.
    pub(crate) fn disk(&self) -> Option<(Disk, bool)> {
        let process = self.process.as_ref()?;
        match &process.disks.first()?.disk {
            Opened::Disk(disk) => Some((disk.clone(), process.has_connections)),
            Opened::Volume(_) => None,
        }
    }

    /// Returns the number of the first open disk.
    pub(crate) fn number_of_disk(&self) -> Option<usize> {
        self.process.as_ref()?.disks.first().map(|open| open.number)
    }

    /// Notes that the caller has closed the disks. `is_well` says whether it has logged them out.
    pub(crate) fn closed_by_others(&mut self, is_well: bool) {
        let Some(process) = &mut self.process else { return };
        let mut world = self.shared.lock();
        for open in process.disks.drain(..) {
            world.close_disk(open.number);
            if !is_well {
                process.dropped.push(open.number);
            }
        }
    }

    /// Opens the unit at another LUN of one of the targets, in the running process.
    ///
    /// # Errors
    /// The reason why it does not open.
    pub(crate) async fn open_other(&mut self, lun: u16) -> Result<Disk, String> {
        let target = self.rng.index(0..self.topology.targets());
        let url = self.topology.url(target, lun, &mut self.rng);
        let process = self.process.as_ref().ok_or("there is no process")?;
        let opening = timeout(MAX_WAIT, process.initiator.disk(url.as_str())).await;
        let opened = opening.map_err(|_| "the other unit does not open".to_owned())?;
        opened.map_err(|error| format!("the other unit does not open: {error}"))
    }

    fn worker(&mut self, which: usize, handle: u32) -> Option<Worker> {
        let process = self.process.as_ref()?;
        let open = process.disks.get(which)?;
        let work = Work {
            shared: Arc::clone(&self.shared),
            opened: open.number,
            portals: open.portals,
            handles: Arc::clone(&open.handles),
            part: self.part.clone(),
            left: Arc::clone(&self.left),
            max_pause: self.max_pause,
            drops: self.has(Class::Dropped),
            resets: self.has(Class::Reset),
            has_connections: process.has_connections,
            outlasts: process.outlasts,
            patience: process.patience,
            is_strict: self.is_strict,
        };
        let (disk, rng) = (Arc::new(open.disk.clone()), self.rng.fork());
        Some(Worker { work, disk, handle, rng, last: 0..0 })
    }

    /// Starts workers for each open disk that has none.
    fn spawn_workers(&mut self) {
        let Some(disks) = self.process.as_ref().map(|process| process.disks.len()) else { return };
        let max = u64::from(MAX_WORKERS) / disks.max(1) as u64;
        for which in 0..disks {
            let count = u32::try_from(self.rng.within(1..max + 1)).unwrap_or(1);
            for handle in 0..count {
                let worker = self.worker(which, handle);
                let open = self.process.as_mut().and_then(|process| process.disks.get_mut(which));
                let (Some(worker), Some(open)) = (worker, open) else { return };
                if handle == 0 && !open.workers.is_empty() {
                    break;
                }
                open.workers.spawn(Box::pin(worker.run()));
            }
        }
    }

    /// Uses the disks while faults happen, until there were enough requests. Meanwhile the process may die, and
    /// a new one is started.
    pub(crate) async fn run(&mut self) {
        loop {
            self.spawn_workers();
            let is_fatal = self.reopens() && self.has(Class::Death) && self.rng.percent(30);
            let is_careless = self.reopens() && self.has(Class::Dropped) && self.rng.percent(30);
            let life = self.rng.any_scale(120_000);
            if !is_fatal && !is_careless {
                return self.enough().await;
            }
            if timeout(life, self.enough()).await.is_ok() {
                return;
            }
            let disks = self.process.as_ref().map_or(0, |process| process.disks.len());
            if is_fatal {
                self.shared.lock().counts.fault(Class::Death);
                self.die();
            } else {
                self.drop_disk();
            }
            let max_pause = if self.rng.percent(20) { 600_000 } else { 1000 };
            sleep(self.rng.any_scale(max_pause)).await;
            while let Err(why) = self.open(disks).await {
                self.shared.lock().trace.record(&why, &[]);
                sleep(Duration::from_secs(5)).await;
            }
        }
    }

    /// Waits until there were enough requests, or until all workers have ended.
    async fn enough(&mut self) {
        let left = Arc::clone(&self.left);
        let is_enough = || left.load(Ordering::Relaxed) == 0;
        for open in self.process.iter_mut().flat_map(|process| &mut process.disks) {
            while !is_enough() && open.workers.join_next().await.is_some() {}
        }
    }

    /// Waits until all requests have ended.
    pub(crate) async fn idle(&mut self) {
        for open in self.process.iter_mut().flat_map(|process| &mut process.disks) {
            while open.workers.join_next().await.is_some() {}
        }
    }

    /// Kills the process, whatever it is doing.
    pub(crate) fn die(&mut self) {
        let Some(process) = self.process.take() else { return };
        let disks = process.disks.iter().map(|open| (open.number, open.disk.is_settled()));
        let dropped = process.dropped.iter().map(|number| (*number, false));
        let disks: Vec<_> = disks.chain(dropped).collect();
        let mut world = self.shared.lock();
        disks.iter().for_each(|(number, _)| world.close_disk(*number));
        world.end_process(process.number, &disks);
        drop(world);
        self.shared.moved.notify_one();
    }

    /// Drops a disk with all requests of its workers.
    fn drop_disk(&mut self) {
        let Some(process) = &mut self.process else { return };
        if process.disks.is_empty() {
            return;
        }
        let which = self.rng.index(0..process.disks.len());
        let open = process.disks.swap_remove(which);
        let number = open.number;
        process.dropped.push(number);
        drop(open);
        let mut world = self.shared.lock();
        world.trace.record("a disk is dropped", &[number as u64]);
        world.oracle.abandoned(number);
        world.close_disk(number);
    }

    /// Checks that the open disks serve all requests after the last fault. Opens one if there is none.
    pub(crate) async fn serve(&mut self) -> Result<(), String> {
        if self.process.as_ref().is_none_or(|process| process.disks.is_empty()) {
            self.open(1).await.map_err(|why| format!("{why}, although nothing is wrong"))?;
        }
        for which in 0..self.process.as_ref().map_or(0, |process| process.disks.len()) {
            let Some(mut last) = self.worker(which, LAST_HANDLE) else { return Ok(()) };
            last.work.drops = false;
            self.shared.lock().oracle.made_handle(last.work.opened, LAST_HANDLE);
            Box::pin(serves(&mut last, &self.classes)).await?;
        }
        Ok(())
    }

    /// Closes all disks. Returns whether all logouts have succeeded, so that nothing may change the host's
    /// part of the unit afterwards.
    pub(crate) async fn close(&mut self, limit: Duration) -> Result<bool, String> {
        let Some(process) = &mut self.process else { return Ok(false) };
        let mut is_well = process.dropped.is_empty();
        while let Some(open) = process.disks.pop() {
            self.shared.lock().close_disk(open.number);
            let logout = within(limit, open.disk.logout()).await;
            let logout = logout.ok_or_else(|| format!("a logout does not end within {limit:?}"))?;
            if let Err(error) = logout {
                self.shared.lock().trace.record(&format!("logout: {error}"), &[]);
                process.dropped.push(open.number);
                is_well = false;
            }
        }
        Ok(is_well)
    }
}

/// Waits for at most `limit`, not counting the time for which all processes were stopped meanwhile.
async fn within<T>(mut limit: Duration, awaited: impl Future<Output = T>) -> Option<T> {
    let (mut awaited, mut before) = (pin!(awaited), clock::stopped());
    while !limit.is_zero() {
        if let Ok(done) = timeout(limit, awaited.as_mut()).await {
            return Some(done);
        }
        let stopped = clock::stopped();
        limit = stopped - std::mem::replace(&mut before, stopped);
    }
    None
}

/// Returns the only disk, or a volume of several disks.
fn opened(disks: Vec<Disk>, is_volume: bool) -> Result<Opened, String> {
    if !is_volume {
        return disks
            .into_iter()
            .next()
            .map(Opened::Disk)
            .ok_or_else(|| "there is no disk".to_owned());
    }
    let members =
        (0..).zip(disks).map(|(number, disk)| Member::new(format!("member {number}"), disk));
    let chunk = Chunk::new(CHUNK as u64).map_err(|error| error.to_string())?;
    let volume = Volume::new(chunk, members.collect()).map_err(|error| error.to_string())?;
    Ok(Opened::Volume(Box::new(volume)))
}

/// Reads everything. A disk that outlasts its retry timeout fails reads until a session is back. If the unit
/// has shrunk unnoticed, the disk finds that out by this read.
async fn first_read(worker: &mut Worker) -> Option<Result<(), Error>> {
    loop {
        let capacity = worker.disk.capacity();
        match worker.read_all().await {
            Some(Err(error))
                if error.reconnect_error().is_some()
                    && worker.work.outlasts
                    && !is_of_no_use(&error) =>
            {
                sleep(Duration::from_secs(1)).await;
            }
            Some(Err(_)) if worker.disk.capacity() < capacity => {}
            ended => return ended,
        }
    }
}

/// Checks that an open disk serves all requests. The disk may report one loss once; after failed write-backs,
/// each session may report one.
async fn serves(worker: &mut Worker, classes: &[Class]) -> Result<(), String> {
    let slow = |_| format!("a request takes more than {MAX_WAIT:?}, although nothing is wrong");
    match timeout(MAX_WAIT, first_read(worker)).await.map_err(slow)? {
        Some(Err(error)) if worker.fails(&error) || is_of_no_use(&error) => return Ok(()),
        Some(Err(error)) => return Err(format!("nothing is wrong, but a read fails: {error}")),
        Some(Ok(())) | None => {}
    }
    let has_deferred = classes.contains(&Class::Deferred);
    let mut tellings = if has_deferred { worker.disk.sessions().len().max(1) } else { 1 };
    loop {
        match timeout(MAX_WAIT, worker.flush()).await.map_err(slow)? {
            Some(Ok(())) => return Ok(()),
            Some(Err(error)) if is_of_no_use(&error) => return Ok(()),
            Some(Err(error)) if worker.fails(&error) || tellings == 0 => {
                return Err(format!("nothing is wrong, but a flush fails: {error}"));
            }
            None if tellings == 0 => return Err("a flush tells of lost writes again".to_owned()),
            Some(Err(_)) | None => tellings -= 1,
        }
    }
}

/// Returns whether an error says that the unit is not the one that was opened.
fn is_of_no_use(error: &Error) -> bool {
    error.kind() == ErrorKind::UnitChanged
}
