//! Episodes of block-serve: NBD clients write to a unit through its write-behind window and its cache. Servers
//! are killed and stopped, connections are lost, and all faults happen below.
//!
//! ```text
//!  Client ── pipe ──► block-serve: connection ──► write_behind ──► cache ──► Disk ── network, target ──► RAM disk
//!    │                                                                                                     │
//!    └──► oracle: what may a read return, and what has a flush promised? ◄─────────────────────────────────┘
//! ```

mod asked;
mod client;
mod link;
mod pipe;
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use iscsi_testkit::disk::RamDisk;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use self::client::{Client, Habits};
use self::server::{Current, Ended, Running};
use crate::episode::{HOST, MAX_CLOSING, QUIET, Report, drawn_disk, world};
use crate::faults::{Faults, heal};
use crate::host::Host;
use crate::oracle::GRAIN;
use crate::rng::{Rng, mix};
use crate::settings::{Class, Settings};
use crate::topology::Topology;
use crate::workload::MAX_WAIT;
use crate::world::Shared;

/// Percentage of seeds with a served unit.
const SHARE: u64 = 8;
/// Separates the random draws of served units from all others.
const STREAM: u64 = 0x7365_7276_6564;
/// Number of requests of all clients, as a multiple of `Settings::operations`.
const LENGTH: usize = 1;
/// Percentage of episodes with deaths in which servers are stopped or killed.
const KILLS_SHARE: u64 = 80;
/// Percentage of these stops that are clean shutdowns (SIGTERM). In the others, the server is killed.
const STOPS_SHARE: u64 = 40;
/// Longest life of a server that is stopped or killed, milliseconds.
const MAX_LIFE: u64 = 60_000;
/// Largest number of clients.
const MAX_CLIENTS: usize = 5;

/// Returns whether the episode of this seed has a served unit.
pub(crate) fn follow(seed: u64) -> bool {
    mix(seed ^ STREAM) % 100 < SHARE
}

/// Runs clients that use one server after the other, until they have made enough requests.
pub(crate) async fn episode(seed: u64, settings: &Settings) -> Report {
    let begun = Instant::now();
    // The size of an export is fixed, so faults that change or replace the unit are left out.
    let settings = settings.with_one_unit();
    let mut rng = Rng::new(mix(seed ^ STREAM));
    let (disk, topology) = (drawn_disk(&mut rng), Arc::new(Topology::drawn(&mut rng)));
    let shared = Shared::new(world(std::slice::from_ref(&disk), &topology, &mut rng, &settings));
    shared.lock().oracle.answer_early();
    let mover = tokio::spawn(Arc::clone(&shared).run());
    let mut served = Served::drawn(shared, disk, &topology, &settings, rng);
    if let Err(why) = Box::pin(served.run()).await {
        served.shared.lock().accuse(why);
    }
    mover.abort();
    served.report(seed, begun)
}

/// A host with a server, and its clients.
struct Served {
    shared: Arc<Shared>,
    rng: Rng,
    disk: RamDisk,
    host: Host,
    faults: Faults,
    habits: Habits,
    /// The current server. Clients connect to it.
    current: Current,
    operations: usize,
    /// Whether servers are killed and stopped.
    kills: bool,
    checks_after_close: bool,
}

impl Served {
    fn drawn(
        shared: Arc<Shared>,
        disk: RamDisk,
        topology: &Arc<Topology>,
        settings: &Settings,
        mut rng: Rng,
    ) -> Self {
        let faults = Faults::drawn(Arc::clone(&shared), settings, rng.fork());
        let mut host = Host::new(&shared, topology, settings, HOST, rng.fork());
        (host.classes, host.outlasts) = (faults.classes().to_vec(), true);
        let operations = LENGTH * settings.operations;
        let habits = Habits {
            shared: Arc::clone(&shared),
            left: Arc::new(AtomicUsize::new(operations)),
            all: usize::try_from(disk.capacity()).unwrap_or(0) / GRAIN,
            block: disk.block_size() as usize / GRAIN,
            max_pause: faults.pause_of_users(1 << rng.within(3..13)),
            cuts: settings.has(Class::Cut) && rng.percent(60),
            resends: rng.percent(70),
            replays: rng.percent(60),
            is_strict: settings.classes.is_empty(),
        };
        let kills = settings.has(Class::Death) && rng.percent(KILLS_SHARE);
        let checks_after_close = settings.has(Class::AfterClose);
        let current = Current::default();
        Self {
            shared,
            rng,
            disk,
            host,
            faults,
            habits,
            current,
            operations,
            kills,
            checks_after_close,
        }
    }

    /// Runs servers and clients from the first server to the last.
    async fn run(&mut self) -> Result<(), String> {
        let mut clients = JoinSet::new();
        for _ in 0..self.rng.index(1..MAX_CLIENTS + 1) {
            let current = self.current.clone();
            let client = Client::new(self.habits.clone(), current, self.rng.fork());
            clients.spawn(Box::pin(client.run()));
        }
        let mut running = Some(self.start().await?);
        let faults = tokio::spawn(self.faults.again().run());
        let limit = self.faults.phase(self.rng.millis(10_000..600_000));
        let going_wrong = async {
            while !clients.is_empty() {
                self.serve(&mut running, &mut clients).await?;
            }
            Ok::<_, String>(())
        };
        let ended = timeout(limit, Box::pin(going_wrong)).await;
        faults.abort();
        self.heal();
        ended.unwrap_or(Ok(()))?;
        if let Some(server) = running.as_mut().filter(|server| server.is_stopping()) {
            self.stop(server, MAX_WAIT).await;
            running = None;
        }
        let mut running = match running {
            Some(running) => running,
            None => self.start().await?,
        };
        let all_end = async { while clients.join_next().await.is_some() {} };
        let all_end = timeout(MAX_WAIT, all_end).await;
        all_end.map_err(|_| format!("requests go on {MAX_WAIT:?} after the last fault"))?;
        self.verify().await?;
        self.end(&mut running).await
    }

    /// Serves clients until all have ended, or until the server is stopped or killed.
    async fn serve(
        &mut self,
        running: &mut Option<Running>,
        clients: &mut JoinSet<()>,
    ) -> Result<(), String> {
        let server = match running {
            Some(server) => server,
            None => running.insert(self.restart().await?),
        };
        let life = self.rng.any_scale(MAX_LIFE);
        let all_gone = async { while clients.join_next().await.is_some() {} };
        if !self.kills {
            all_gone.await;
            return Ok(());
        }
        if timeout(life, all_gone).await.is_ok() {
            return Ok(());
        }
        if self.rng.percent(STOPS_SHARE) {
            self.stop(server, MAX_CLOSING).await;
        } else {
            self.kill(server);
        }
        *running = None;
        let max_pause = if self.rng.percent(20) { 300_000 } else { 1000 };
        sleep(self.rng.any_scale(max_pause)).await;
        Ok(())
    }

    async fn start(&mut self) -> Result<Running, String> {
        self.host.open(1).await?;
        let (disk, number) = self.host.disk().zip(self.host.number_of_disk()).ok_or("no disk")?;
        let running = Running::start(&self.shared, disk.0, number, &mut self.rng);
        self.current.set(Some(Arc::clone(&running.standing)));
        Ok(running)
    }

    /// Starts a server while faults may happen.
    async fn restart(&mut self) -> Result<Running, String> {
        loop {
            match self.start().await {
                Ok(running) => return Ok(running),
                Err(why) => self.shared.lock().trace.record(&why, &[]),
            }
            sleep(Duration::from_secs(5)).await;
        }
    }

    /// Stops a server. Kills it if it does not shut down cleanly.
    async fn stop(&mut self, server: &mut Running, limit: Duration) -> Ended {
        let ended = server.stop(limit).await;
        if ended != Ended::Well {
            self.host.closed_by_others(false);
            self.kill(server);
            return ended;
        }
        self.shared.lock().counts.served("a server is stopped");
        self.host.closed_by_others(true);
        self.host.die();
        self.current.set(None);
        ended
    }

    fn kill(&mut self, server: &Running) {
        {
            let mut world = self.shared.lock();
            world.counts.fault(Class::Death);
            world.counts.served("a server is killed");
        }
        server.kill();
        self.host.die();
        self.current.set(None);
    }

    fn heal(&self) {
        heal(&mut self.shared.lock());
        self.shared.moved.notify_one();
    }

    /// Checks with one more client that the unit has the right data.
    async fn verify(&mut self) -> Result<(), String> {
        let last = Client::new(self.habits.clone(), self.current.clone(), self.rng.fork());
        let verified = timeout(MAX_WAIT, Box::pin(last.verify())).await;
        verified.map_err(|_| {
            format!("a server does not serve within {MAX_WAIT:?}, though nothing is wrong")
        })
    }

    /// Stops the last server. All writes that it has acknowledged are on the medium, and stay there.
    async fn end(&mut self, server: &mut Running) -> Result<(), String> {
        let ended = self.stop(server, MAX_WAIT).await;
        if ended == Ended::Late {
            return Err("nothing is wrong, but a server does not end".to_owned());
        }
        // The server may report a loss because the client that should receive the report has lost its
        // connection.
        let is_over = ended == Ended::Well && !self.shared.lock().has_orphans();
        let before = self.disk.read(0, usize::MAX);
        self.check(&before)?;
        sleep(if self.rng.percent(50) { QUIET } else { Duration::ZERO }).await;
        let after = self.disk.read(0, usize::MAX);
        if self.checks_after_close && is_over && before != after {
            return Err("the unit has changed after its server had ended".to_owned());
        }
        self.check(&after)?;
        {
            let mut world = self.shared.lock();
            if world.has_orphans() {
                return Ok(());
            }
            world.trace.record("power loss", &[]);
            world.lose_power(0);
        }
        let durable = self.disk.read(0, usize::MAX);
        self.check(&durable).map_err(|why| format!("after a loss of power: {why}"))
    }

    fn check(&self, image: &[u8]) -> Result<(), String> {
        let mut world = self.shared.lock();
        let now = world.oracle.now();
        world.oracle.check(now, 0, image).map_err(|why| format!("the unit holds: {why}"))?;
        match world.broken_rule() {
            Some(rule) => Err(format!("the initiator has broken a rule: {rule}")),
            None => Ok(()),
        }
    }

    fn report(self, seed: u64, begun: Instant) -> Report {
        let mut world = self.shared.lock();
        Report {
            seed,
            violation: world.violation.take(),
            hash: world.trace.hash(),
            requests: self.operations - self.habits.left.load(Ordering::Relaxed),
            counts: world.counts.clone(),
            elapsed: begun.elapsed(),
            trace: world.trace.take_lines(),
        }
    }
}
