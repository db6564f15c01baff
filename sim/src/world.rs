//! Everything outside the initiator: the targets, the wires that lead to them, and the state that all tasks share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iscsi_testkit::target::Target;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::busy::{Silence, SlowStore};
use crate::clock;
use crate::counts::Counts;
use crate::losses::{AtOpening, Losses};
use crate::lun::Lun;
use crate::oracle::{GRAIN, Oracle};
use crate::rng::Rng;
use crate::settings::Class;
use crate::trace::Trace;
use crate::tunnel::Tunnels;
use crate::units::Units;
use crate::wire::{Shape, Wire};

/// Longest delay of bytes that arrive late, milliseconds.
pub(crate) const MAX_LATE: u64 = 1 << 18;

/// Separates the random draw of the sessions' first numbers from all others.
const NUMBERS: u64 = 0x006e_756d_6265_7273;

/// Result of a connection attempt to a portal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Reachability {
    Open,
    Refuses,
    /// No response arrives.
    Dark,
}

#[derive(Debug)]
pub(crate) struct Portal {
    /// Index of the portal's group, which is a target of its own.
    pub(crate) target: usize,
    pub(crate) reachability: Reachability,
}

/// The world of one episode: everything outside the initiator.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) targets: Vec<Target>,
    pub(crate) portals: Vec<Portal>,
    pub(crate) wires: BTreeMap<u64, Wire>,
    pub(crate) shape: Shape,
    /// The TLS tunnels before the targets.
    pub(crate) tunnels: Option<Tunnels>,
    /// Random draws of links and targets.
    pub(crate) chance: Rng,
    /// The random bytes of the initiator.
    pub(crate) entropy: Rng,
    /// Random draws of the numbers that sessions of the initiator begin to count from.
    pub(crate) numbers: Rng,
    pub(crate) trace: Trace,
    pub(crate) oracle: Oracle,
    /// The first violation.
    pub(crate) violation: Option<String>,
    /// Longest delay after which bytes of a closed connection may arrive, milliseconds. With 0 they are lost.
    pub(crate) max_late: u64,
    /// The unit at the LUN; for a volume, its first unit.
    pub(crate) lun: Lun,
    /// The units whose data the oracle knows.
    pub(crate) units: Units,
    /// Decides which parts of their caches drives write back without a request, and when; `None` if they do not.
    pub(crate) torn: Option<Rng>,
    /// Events that may make an initiator count writes as lost.
    pub(crate) losses: Losses,
    /// Numbers of requests and faults.
    pub(crate) counts: Counts,
    /// When faults last began.
    pub(crate) wrong_since: Option<Instant>,
    /// The class of the troubles (faults with a beginning and an end) in this episode, if they are of one
    /// class and the only faults besides torn caches.
    pub(crate) alone: Option<Class>,
    /// The busy targets.
    pub(crate) silences: BTreeMap<usize, Silence>,
    /// The slow store, if flushes take time.
    pub(crate) slow_store: Option<SlowStore>,
    /// Whether a trouble (a fault with a beginning and an end) is in progress.
    pub(crate) has_trouble: bool,
    /// The portal that is cut off, if one is.
    pub(crate) cut_off: Option<usize>,
    /// Processes whose flush has failed in this turn, so that the cache was lost.
    pub(crate) losing: BTreeSet<u64>,
    accepted: u64,
    /// Number of processes that were started.
    started: u64,
    opened: usize,
    /// The open disks, each with its process.
    pub(crate) open: BTreeMap<usize, u64>,
    /// The processes that have ended.
    ended: BTreeSet<u64>,
    /// Whether requests of a process that has died may still be in flight.
    has_orphans: bool,
}

/// The world, and a signal for the task that advances it.
#[derive(Debug)]
pub(crate) struct Shared {
    world: Mutex<World>,
    /// Notified when there is something new to carry.
    pub(crate) moved: Notify,
}

impl Shared {
    pub(crate) fn new(world: World) -> Arc<Self> {
        Arc::new(Self { world: Mutex::new(world), moved: Notify::new() })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries bytes and advances the targets' clocks, forever.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            let next = self.lock().turn();
            let arrival = async {
                match next {
                    Some(next) => sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.moved.notified() => {}
                () = arrival => {}
            }
        }
    }
}

impl World {
    pub(crate) fn new(
        mut targets: Vec<Target>,
        portals: &[usize],
        oracle: Oracle,
        trace: Trace,
        mut chance: Rng,
        shape: Shape,
        units: Units,
    ) -> Self {
        let lun = Lun::new(targets[0].config_mut().units[&0].clone());
        let portal = |target: &usize| Portal { target: *target, reachability: Reachability::Open };
        let portals = portals.iter().map(portal).collect();
        Self {
            targets,
            portals,
            wires: BTreeMap::new(),
            shape,
            tunnels: None,
            numbers: chance.beside(NUMBERS),
            entropy: chance.fork(),
            chance,
            trace,
            oracle,
            violation: None,
            max_late: 0,
            lun,
            units,
            torn: None,
            losses: Losses::default(),
            counts: Counts::default(),
            wrong_since: None,
            alone: None,
            silences: BTreeMap::new(),
            slow_store: None,
            has_trouble: false,
            cut_off: None,
            losing: BTreeSet::new(),
            accepted: 0,
            started: 0,
            opened: 0,
            open: BTreeMap::new(),
            ended: BTreeSet::new(),
            has_orphans: false,
        }
    }

    /// Returns the number of a new process.
    pub(crate) const fn start_process(&mut self) -> u64 {
        self.started += 1;
        self.started
    }

    /// Registers a disk that a process has opened, and returns its number.
    pub(crate) fn open_disk(&mut self, process: u64, at_opening: AtOpening) -> usize {
        self.opened += 1;
        self.open.insert(self.opened, process);
        self.losses.opened(self.opened, at_opening);
        self.opened
    }

    /// Notes that a disk has no handle left.
    pub(crate) fn close_disk(&mut self, number: usize) {
        self.open.remove(&number);
    }

    pub(crate) fn has_ended(&self, process: u64) -> bool {
        self.ended.contains(&process)
    }

    /// Returns whether requests of a process that has died may still be in flight.
    pub(crate) const fn has_orphans(&self) -> bool {
        self.has_orphans
    }

    /// Ends a process: nothing that it does afterwards can be observed. The system closes its connections;
    /// the data that the process had sent arrives, arrives late, or is lost. For each of its disks that was
    /// not logged out, the oracle is informed whether the target had completed all acknowledged requests.
    pub(crate) fn end_process(&mut self, process: u64, disks: &[(usize, bool)]) {
        self.trace.record("process ends", &[process]);
        self.ended.insert(process);
        let own = self.wires.iter().filter(|(_, wire)| wire.process == process && !wire.is_closed);
        for number in own.map(|(number, _)| *number).collect::<Vec<_>>() {
            let late = self.chance.any_scale(self.max_late.max(1));
            if let Some(wire) = self.wires.get_mut(&number) {
                // A process that ends with unread data makes the system reset the connection.
                wire.is_abortive |= !wire.inbox.is_empty();
                wire.to_target.stall_at_least(clock::now() + late);
            }
            self.close(number);
        }
        if !disks.is_empty() {
            let block = self.lun.disk().block_size() as usize / GRAIN;
            self.oracle.orphaned(disks, block);
            self.has_orphans = true;
        }
    }

    /// Informs the oracle when no request of any dead process is left.
    pub(crate) fn observe_orphans(&mut self) {
        let is_orphan = |wire: &Wire| self.ended.contains(&wire.process);
        if self.has_orphans
            && !self.wires.values().any(is_orphan)
            && !self.targets.iter().any(Target::has_orphans)
        {
            self.trace.record("nothing is left of any process", &[]);
            self.has_orphans = false;
            self.oracle.no_orphans();
        }
    }

    /// Reports a violation. Only the first violation is kept.
    pub(crate) fn accuse(&mut self, why: String) {
        self.trace.record(&why, &[]);
        self.violation.get_or_insert(why);
    }

    /// Returns the first violation of the standard by an initiator that the targets have seen. If bytes of
    /// lost connections arrive late, their order may look like a violation, so nothing is reported.
    pub(crate) fn broken_rule(&self) -> Option<String> {
        if self.max_late > 0 {
            return None;
        }
        let mut violations = self.targets.iter().flat_map(Target::violations);
        violations.next().map(ToString::to_string)
    }

    pub(crate) fn reachability(&self, portal: usize) -> Reachability {
        self.portals.get(portal).map_or(Reachability::Dark, |portal| portal.reachability)
    }

    /// Accepts a connection to a portal, and returns its number.
    pub(crate) fn accept(&mut self, process: u64, portal: usize) -> u64 {
        self.accepted += 1;
        let target = self.portals[portal].target;
        let connection = self.targets[target].accept();
        self.trace.record("accept", &[portal as u64, self.accepted]);
        let tunnel = self.tunnels.as_ref().map(Tunnels::accept);
        self.wires.insert(self.accepted, Wire::new(process, portal, connection, tunnel));
        self.accepted
    }

    pub(crate) fn wire(&mut self, number: u64) -> Option<&mut Wire> {
        self.wires.get_mut(&number)
    }

    /// Closes the initiator's side of a connection. The data that it has sent arrives first, unless it is lost.
    pub(crate) fn close(&mut self, number: u64) {
        let max_late = self.max_late;
        let Some(wire) = self.wires.get(&number) else { return };
        let has_ended = self.ended.contains(&wire.process);
        if wire.is_closed {
            return;
        }
        let is_lost = wire.is_abortive && !has_ended;
        if let Some(why) = is_lost.then(|| self.lost_for_silence(number)).flatten() {
            self.accuse(why);
        }
        let Some(wire) = self.wires.get_mut(&number) else { return };
        wire.is_closed = true;
        self.losses.reason();
        wire.to_target.end();
        if wire.is_abortive {
            wire.to_target.drop_unsent(clock::now());
            if max_late == 0 || self.chance.percent(50) {
                wire.to_target.drop_all();
            }
        }
        self.trace.record("close", &[number, u64::from(wire.is_abortive)]);
    }

    /// Loses a connection. The initiator sees the reset immediately. The data that it had sent is lost or
    /// arrives late, and the target sees the close after that.
    pub(crate) fn cut(&mut self, number: u64) {
        let Some(wire) = self.wires.get_mut(&number) else { return };
        self.losses.reason();
        wire.is_reset = true;
        wire.inbox.clear();
        wire.to_target.end();
        let late = self.chance.any_scale(self.max_late.max(1));
        if self.max_late == 0 || self.chance.percent(50) {
            wire.to_target.drop_all();
        }
        wire.to_target.stall(clock::now() + late);
        wire.wake();
        self.trace.record("cut", &[number]);
    }
}
