//! Runs a machine and a simulated target that the machine knows only by its responses, one step at a time.

#[path = "world/oracle.rs"]
pub mod oracle;
#[path = "world/outputs.rs"]
mod outputs;
#[path = "world/steps.rs"]
mod steps;
#[path = "world/target.rs"]
pub mod target;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iscsi_multipath::machine::{DiskId, Machine, PathFacts, RequestId};
use iscsi_multipath::paths::Credit;
use iscsi_multipath::paths::hedge::HedgePolicy;
use iscsi_multipath::reconnect::BackOff;
use iscsi_multipath::requests::{RequestLimits, RequestSpec, Route};
use iscsi_multipath::{KnownUnit, SharedReasons};
use iscsi_pdu::scsi::AccessState;

use oracle::Oracle;
use target::{Phase, Reply, Session, Target, Value};

/// Length of a block, in bytes.
const BLOCK: u64 = 4096;

/// A request that a caller may submit.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Wish {
    Write(Range<usize>),
    Read(Range<usize>),
    Flush,
}

/// Maximum number of each kind of event.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Budget {
    pub losses: u32,
    pub resets: u32,
    /// Timers that fire; each may cause a second copy.
    pub timers: u32,
    pub cancels: u32,
    /// Commands that the unit refuses, or whose status is lost.
    pub troubles: u32,
    pub exchanges: u32,
    /// Changes of the state of a port.
    pub access: u32,
    /// Paths that are closed.
    pub closes: u32,
    pub destages: u32,
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub disks: usize,
    pub paths_of_each: usize,
    pub blocks: usize,
    /// Whether the machine knows the identity of the unit, so that it queries the identity again after a
    /// reset.
    pub is_known: bool,
    /// Whether the search chooses a session for each request; otherwise the machine chooses.
    pub prefers: bool,
    /// Whether the search chooses how many commands stay unsent when a session is lost.
    pub has_unsent: bool,
    /// Whether a new session receives the unit attention that its login causes.
    pub attends_login: bool,
    /// Whether time passes.
    pub has_time: bool,
    /// Whether statuses arrive in any order, because a session has several connections.
    pub is_unordered: bool,
    /// Whether writes are submitted in the order of the list, so that only the flush may come between two of
    /// them.
    pub is_ordered: bool,
    pub budget: Budget,
    pub wishes: Vec<Wish>,
    pub credit: u32,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    Submit {
        wish: u8,
        disk: u8,
        prefer: u8,
    },
    Execute {
        session: u8,
        command: u8,
    },
    /// The unit refuses the command, or its status is lost.
    Trouble {
        session: u8,
        command: u8,
        kind: u8,
    },
    Abort {
        session: u8,
        command: u8,
    },
    Withdraw {
        session: u8,
        command: u8,
    },
    Deliver {
        session: u8,
        answer: u8,
    },
    Lose {
        session: u8,
        unsent: u8,
    },
    Login {
        session: u8,
    },
    Opened {
        session: u8,
    },
    Reset,
    Fire,
    Cancel {
        request: u8,
    },
    Exchange,
    Port {
        session: u8,
        state: u8,
    },
    /// The machine receives the access states of all ports.
    Ports,
    Close {
        session: u8,
    },
    Destage {
        block: u8,
    },
    DeferredError,
    Pass {
        exponent: u8,
    },
    /// Marks all requests as not submitted, so that each may be submitted again.
    Again,
    /// Ends all faults: no further fault occurs, each port serves the unit, and the known unit is there.
    Heal,
}

#[derive(Clone, Debug)]
struct Pending {
    request: RequestId,
    disk: DiskId,
    wish: Wish,
    value: Value,
}

/// Number of times that each event has happened. An event that never happens is not tested by this world.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub late_executions: u64,
    pub losses_reported: u64,
    pub hedges_won: u64,
    pub flushes: u64,
    pub witnesses: u64,
    pub in_doubt_waits: u64,
    pub requests: u64,
    pub failures: u64,
    pub unproven: u64,
}

impl Seen {
    pub fn add(&mut self, other: &Self) {
        self.late_executions += other.late_executions;
        self.losses_reported += other.losses_reported;
        self.hedges_won += other.hedges_won;
        self.flushes += other.flushes;
        self.witnesses += other.witnesses;
        self.in_doubt_waits += other.in_doubt_waits;
        self.requests += other.requests;
        self.failures += other.failures;
        self.unproven += other.unproven;
    }
}

#[derive(Clone, Debug)]
pub struct World {
    pub machine: Machine<&'static str>,
    pub target: Target,
    pub oracle: Oracle,
    pub settings: Arc<Settings>,
    pub left: Budget,
    pub seen: Seen,
    now: Instant,
    disks: Vec<DiskId>,
    /// For each request, whether it has been submitted.
    submitted: Vec<bool>,
    pending: Vec<Pending>,
    next_value: Value,
    /// For each session, the result of `Identity::shared_reasons` when its unit was last identified.
    asked_at: Vec<SharedReasons>,
    /// Paths that were closed.
    closed: Vec<iscsi_multipath::PathId>,
    /// Whether to print the outputs of the machine.
    pub is_verbose: bool,
}

pub type Step = Result<(), String>;

const STATES: [AccessState; 4] = [
    AccessState::ActiveOptimized,
    AccessState::ActiveNonOptimized,
    AccessState::Standby,
    AccessState::Transitioning,
];

pub const TROUBLES: u8 = 8;

impl World {
    pub fn new(settings: &Arc<Settings>, start: Instant) -> Self {
        let mut machine = Machine::new();
        machine.unit_mut().durability.on_cache();
        if settings.is_known {
            let capacity = settings.blocks as u64 * BLOCK;
            let known = KnownUnit { is_removable: false, capacity };
            machine.unit_mut().identity.on_known(known);
        }
        let disks: Vec<_> = (0..settings.disks).map(|_| machine.attach(limits())).collect();
        let mut oracle = Oracle::new(settings.blocks);
        let mut target = Target::new(settings.blocks);
        for disk in &disks {
            oracle.attach(*disk);
            machine.set_follows_access(*disk, settings.budget.access > 0);
            for _ in 0..settings.paths_of_each {
                let path =
                    machine.path_opened(*disk, facts(settings, SharedReasons::default()), start);
                target.sessions.push(Session {
                    path: path.expect("a disk"),
                    phase: Phase::Live,
                    attentions: Vec::new(),
                    commands: Vec::new(),
                    answers: std::collections::VecDeque::new(),
                    access: AccessState::ActiveOptimized,
                });
            }
        }
        let asked_at = vec![SharedReasons::default(); target.sessions.len()];
        let submitted = vec![false; settings.wishes.len()];
        Self {
            machine,
            target,
            oracle,
            left: settings.budget,
            settings: Arc::clone(settings),
            seen: Seen::default(),
            now: start,
            disks,
            submitted,
            pending: Vec::new(),
            next_value: 1,
            asked_at,
            closed: Vec::new(),
            is_verbose: false,
        }
    }

    fn disk_of(&self, session: usize) -> DiskId {
        self.disks[session / self.settings.paths_of_each]
    }

    pub fn all_submitted(&self) -> bool {
        self.submitted.iter().all(|it| *it)
    }

    /// Allows all requests to be submitted again.
    pub fn submit_again(&mut self) {
        self.submitted.fill(false);
    }

    pub fn describe(&self) -> String {
        format!("{:?}\n{:#?}\n{:#?}", self.pending, self.target.sessions, self.machine)
    }

    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// Returns the possible actions, in a fixed order.
    pub fn actions(&self) -> Vec<Action> {
        let mut all = Vec::new();
        self.actions_of_target(&mut all);
        let makes_progress = !all.is_empty();
        self.actions_of_callers(&mut all);
        self.faults(&mut all);
        let is_armed = self.machine.poll_timeout().is_some();
        let is_stuck = !makes_progress && self.all_submitted();
        if is_armed && (self.left.timers > 0 || is_stuck) {
            all.push(Action::Fire);
        }
        all
    }

    /// Returns whether nothing is left to do: the target has executed and answered everything, all requests
    /// were submitted, and no timer is set.
    pub fn is_quiet(&self) -> bool {
        let mut all = Vec::new();
        self.actions_of_target(&mut all);
        let is_over = all.is_empty() && self.all_submitted() && !self.target.is_exchanged;
        is_over && self.machine.poll_timeout().is_none()
    }

    fn actions_of_target(&self, all: &mut Vec<Action>) {
        for (at, it) in self.target.sessions.iter().enumerate() {
            let session = at as u8;
            if it.phase == Phase::LoggedIn {
                all.push(Action::Opened { session });
            }
            let can_login = matches!(it.phase, Phase::Lost | Phase::Gone);
            if can_login && !self.target.is_exchanged {
                all.push(Action::Login { session });
            }
            for (command, sent) in it.commands.iter().enumerate() {
                let command = command as u8;
                all.push(Action::Execute { session, command });
                if sent.is_aborted && it.phase == Phase::Live {
                    all.push(Action::Abort { session, command });
                }
                if sent.may_be_withdrawn && it.phase == Phase::Live {
                    all.push(Action::Withdraw { session, command });
                }
            }
            let answers =
                it.answers.len().min(if self.settings.is_unordered { usize::MAX } else { 1 });
            all.extend((0..answers as u8).map(|answer| Action::Deliver { session, answer }));
        }
    }

    fn actions_of_callers(&self, all: &mut Vec<Action>) {
        let mut tried: Vec<(&Wish, u8)> = Vec::new();
        for (wish, kind) in self.settings.wishes.iter().enumerate() {
            for disk in 0..self.disks.len() as u8 {
                // Equal requests are interchangeable, so only the first of them is submitted next.
                if self.submitted[wish] || tried.contains(&(kind, disk)) {
                    continue;
                }
                let is_later = |(other, _): &(&Wish, u8)| **other != Wish::Flush;
                if self.settings.is_ordered && *kind != Wish::Flush && tried.iter().any(is_later) {
                    continue;
                }
                tried.push((kind, disk));
                let wish = wish as u8;
                let prefer = if self.settings.prefers { self.settings.paths_of_each } else { 1 };
                for prefer in 0..prefer as u8 {
                    all.push(Action::Submit { wish, disk, prefer });
                }
            }
        }
        if self.left.cancels > 0 {
            let pending = 0..self.pending.len() as u8;
            all.extend(pending.map(|request| Action::Cancel { request }));
        }
    }

    fn faults(&self, all: &mut Vec<Action>) {
        for (at, it) in self.target.sessions.iter().enumerate() {
            let session = at as u8;
            if it.phase != Phase::Live {
                continue;
            }
            // No session is lost while the report of a medium error is on its way over it: the machine could
            // not detect the lost writes.
            let has_failed = it.answers.iter().any(|answer| answer.reply == Reply::MediumError);
            if self.left.losses > 0 && !has_failed {
                let most = if self.settings.has_unsent { it.commands.len() as u8 } else { 0 };
                all.extend((0..=most).map(|unsent| Action::Lose { session, unsent }));
            }
            if self.left.troubles > 0 {
                for command in 0..it.commands.len() as u8 {
                    let kinds = 0..TROUBLES;
                    all.extend(kinds.map(|kind| Action::Trouble { session, command, kind }));
                }
            }
            if self.left.access > 0 {
                let states = 0..STATES.len() as u8;
                all.extend(states.map(|state| Action::Port { session, state }));
            }
            // A path is closed only if the disk has another live path.
            let paths = self.settings.paths_of_each;
            let first = at / paths * paths;
            let own = &self.target.sessions[first..first + paths];
            let has_other = own.iter().any(|other| {
                other.path != it.path
                    && other.phase == Phase::Live
                    && !self.closed.contains(&other.path)
            });
            if self.left.closes > 0 && has_other {
                all.push(Action::Close { session });
            }
        }
        if self.left.access > 0 {
            all.push(Action::Ports);
        }
        if self.left.resets > 0 {
            all.push(Action::Reset);
        }
        if self.left.exchanges > 0 || self.target.is_exchanged {
            all.push(Action::Exchange);
        }
        if self.left.destages > 0 {
            let blocks = 0..self.settings.blocks as u8;
            all.extend(blocks.map(|block| Action::Destage { block }));
            let is_there = self.target.units[0].cache.iter().any(Option::is_some);
            if is_there && !self.target.is_exchanged {
                all.push(Action::DeferredError);
            }
        }
    }

    /// Checks a world in which nothing more can happen.
    ///
    /// # Errors
    /// A text that lists the requests that are stuck.
    pub fn check_end(&self) -> Step {
        if !self.machine.is_idle() || !self.pending.is_empty() {
            let (requests, attempts) = self.machine.sizes();
            return Err(format!(
                "nothing is left to happen, and {requests} requests and {attempts} attempts have not ended: {:?}",
                self.pending
            ));
        }
        Ok(())
    }

    pub fn fingerprint(&self) -> u64 {
        let mut state = DefaultHasher::new();
        self.machine.fingerprint(self.now, &mut state);
        self.target.fingerprint(|attempt| self.machine.age(attempt), &mut state);
        self.oracle.fingerprint(&mut state);
        (self.left, &self.submitted).hash(&mut state);
        let mut pending: Vec<_> = self.pending.iter().map(|it| (it.value, it.disk)).collect();
        pending.sort_unstable();
        pending.hash(&mut state);
        state.finish()
    }
}

fn facts(settings: &Settings, asked_at: SharedReasons) -> PathFacts {
    let credit = Credit { bytes: 8 << 20, requests: settings.credit };
    PathFacts { credit, asked_at, reported: None }
}

fn spec(len: u64, writes: bool) -> RequestSpec {
    RequestSpec {
        len,
        writes,
        is_plain: true,
        can_shorten: false,
        can_double: true,
        route: Route::Credit,
    }
}

fn limits() -> RequestLimits {
    RequestLimits {
        total: Credit { bytes: 64 << 20, requests: 256 },
        retry_timeout: Duration::from_secs(60),
        aborted_timeout: Duration::from_secs(5),
        pauses: BackOff::new(Duration::from_millis(10), Duration::from_secs(1)),
        max_attentions: 8,
        hedge: HedgePolicy::default(),
        is_shaped: false,
    }
}
