//! A machine and a target that it knows nothing of, one step at a time.

#[path = "world/oracle.rs"]
pub mod oracle;
#[path = "world/target.rs"]
pub mod target;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iscsi_multipath::machine::{
    Command, DiskId, Done, Event, Failure, Machine, Output, PathFacts, Request, RequestId,
};
use iscsi_multipath::paths::Credit;
use iscsi_multipath::paths::hedge::HedgePolicy;
use iscsi_multipath::reconnect::BackOff;
use iscsi_multipath::requests::{RequestLimits, RequestSpec, Route};
use iscsi_multipath::{Access, CommandEnd, KnownUnit, SharedReasons, Verdict};
use iscsi_pdu::scsi::{AccessState, Status};
use iscsi_session::TaskError;

use oracle::Oracle;
use target::{Answer, Attention, Phase, Reply, Sent, Session, Target, Value, Work};

/// Bytes of a block.
const BLOCK: u64 = 4096;

/// What a caller wants.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Wish {
    Write(Range<usize>),
    Read(Range<usize>),
    Flush,
}

/// How many of each may happen.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Budget {
    pub losses: u32,
    pub resets: u32,
    /// Timers that fire: each may send a second copy.
    pub timers: u32,
    pub cancels: u32,
    /// Commands that the unit does not take, or does not answer.
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
    /// The unit is known, so that it is asked which one it is after a reset.
    pub is_known: bool,
    /// A session is chosen with each request; otherwise the machine chooses alone.
    pub prefers: bool,
    /// What is left unsent at a loss is chosen.
    pub has_unsent: bool,
    /// A new session receives a report of its login.
    pub attends_login: bool,
    /// Time passes.
    pub has_time: bool,
    /// Statuses come in any order: a session has several connections.
    pub is_unordered: bool,
    /// Writes are submitted in their order; only the flush may come between any two.
    pub is_ordered: bool,
    pub budget: Budget,
    pub wishes: Vec<Wish>,
    pub credit: u32,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    Submit { wish: u8, disk: u8, prefer: u8 },
    Execute { session: u8, command: u8 },
    /// The unit does not take the command, or its status is lost.
    Trouble { session: u8, command: u8, kind: u8 },
    Abort { session: u8, command: u8 },
    Withdraw { session: u8, command: u8 },
    Deliver { session: u8, answer: u8 },
    Lose { session: u8, unsent: u8 },
    Login { session: u8 },
    Opened { session: u8 },
    Reset,
    Fire,
    Cancel { request: u8 },
    Exchange,
    Port { session: u8, state: u8 },
    /// The machine learns the states of all ports.
    Ports,
    Close { session: u8 },
    Destage { block: u8 },
    DeferredError,
    Pass { exponent: u8 },
    /// All wishes may be submitted once more.
    Again,
    /// No further faults.
    Heal,
}

#[derive(Clone, Debug)]
struct Pending {
    request: RequestId,
    disk: DiskId,
    wish: Wish,
    value: Value,
}

/// What has happened at all, so that a world that is too tame is found out.
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
    /// Which wishes were submitted.
    submitted: Vec<bool>,
    pending: Vec<Pending>,
    next_value: Value,
    /// The reasons that there had been when a session was asked which unit it leads to, by session.
    asked_at: Vec<SharedReasons>,
    /// Paths that were closed.
    closed: Vec<iscsi_multipath::PathId>,
    /// Prints what the machine does.
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
                let path = machine.path_opened(*disk, facts(settings, SharedReasons::default()), start);
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

    /// Forgets which wishes were submitted, so that they may be submitted again.
    pub fn submit_again(&mut self) {
        self.submitted.fill(false);
    }

    pub fn describe(&self) -> String {
        format!("{:?}\n{:#?}\n{:#?}", self.pending, self.target.sessions, self.machine)
    }

    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// What may happen now. The order is fixed.
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

    /// Whether nothing is left that has to happen.
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
            let answers = it.answers.len().min(if self.settings.is_unordered { usize::MAX } else { 1 });
            all.extend((0..answers as u8).map(|answer| Action::Deliver { session, answer }));
        }
    }

    fn actions_of_callers(&self, all: &mut Vec<Action>) {
        let mut tried: Vec<(&Wish, u8)> = Vec::new();
        for (wish, kind) in self.settings.wishes.iter().enumerate() {
            for disk in 0..self.disks.len() as u8 {
                // Of equal wishes, the first is submitted first.
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
            // What a flush costs that fails on the medium, and loses its answer with its session, is unknown.
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
            // Only where another one is left.
            let paths = self.settings.paths_of_each;
            let first = at / paths * paths;
            let own = &self.target.sessions[first..first + paths];
            let has_other = own.iter().any(|other| {
                other.path != it.path && other.phase == Phase::Live && !self.closed.contains(&other.path)
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

    /// Takes one step.
    ///
    /// # Errors
    /// The promise that is broken by it.
    pub fn take(&mut self, action: Action) -> Step {
        let before = self.machine.sizes();
        let mut now = self.now;
        match action {
            Action::Submit { wish, disk, prefer } => self.submit(wish, disk, prefer),
            Action::Execute { session, command } => self.execute(session.into(), command.into())?,
            Action::Trouble { session, command, kind } => {
                self.trouble(session.into(), command.into(), kind)?;
            }
            Action::Abort { session, command } => {
                self.oracle.faults += 1;
                self.reply(session.into(), command.into(), Reply::Aborted);
            }
            Action::Withdraw { session, command } => {
                self.reply(session.into(), command.into(), Reply::Withdrawn);
            }
            Action::Deliver { session, answer } => self.deliver(session.into(), answer.into())?,
            Action::Lose { session, unsent } => self.lose(session.into(), unsent.into()),
            Action::Login { session } => self.login(session.into()),
            Action::Opened { session } => self.opened(session.into()),
            Action::Reset => {
                self.left.resets -= 1;
                self.oracle.faults += 1;
                self.target.reset();
            }
            Action::Fire => {
                self.left.timers = self.left.timers.saturating_sub(1);
                now = self.machine.poll_timeout().unwrap_or(now).max(now);
                self.time_passes(now);
                if self.settings.has_time {
                    self.now = now;
                }
            }
            Action::Cancel { request } => self.cancel(request.into()),
            Action::Exchange => {
                self.left.exchanges = self.left.exchanges.saturating_sub(1);
                self.target.is_exchanged = !self.target.is_exchanged;
                self.oracle.faults += 1;
                self.target.attend(Attention::Exchanged);
            }
            Action::Port { session, state } => {
                self.left.access -= 1;
                self.target.sessions[usize::from(session)].access = STATES[usize::from(state)];
            }
            Action::Ports => self.report_ports(),
            Action::Close { session } => {
                self.left.closes -= 1;
                let path = self.target.sessions[usize::from(session)].path;
                self.closed.push(path);
                self.machine.close_path(path, now);
            }
            Action::Destage { block } => {
                self.left.destages -= 1;
                let block = usize::from(block);
                self.target.units[0].destage(block..block + 1);
            }
            Action::DeferredError => {
                self.left.destages -= 1;
                self.oracle.faults += 1;
                self.target.defer_error();
            }
            Action::Again => self.submit_again(),
            Action::Heal => self.heal(),
            Action::Pass { exponent } => {
                self.now += Duration::from_millis(1 << exponent);
                now = self.now;
                if self.machine.poll_timeout().is_some_and(|at| at <= now) {
                    self.time_passes(now);
                }
            }
        }
        self.drain(before, now)
    }

    fn time_passes(&mut self, now: Instant) {
        // A flush that has waited for long enough gives up what was sent before.
        let hears = self.machine.hears();
        self.oracle.faults += u32::from(hears);
        self.machine.handle_timeout(now);
    }

    fn submit(&mut self, wish: u8, disk: u8, prefer: u8) {
        let kind = self.settings.wishes[usize::from(wish)].clone();
        let disk_at = usize::from(disk);
        let disk = self.disks[disk_at];
        self.submitted[usize::from(wish)] = true;
        self.seen.requests += 1;
        if self.settings.prefers {
            let paths = self.settings.paths_of_each;
            let own = &self.target.sessions[disk_at * paths..(disk_at + 1) * paths];
            let access = |(at, it): (usize, &Session)| {
                let preferred = at == usize::from(prefer);
                (it.path, Access { state: AccessState::ActiveOptimized, preferred })
            };
            let all: Vec<_> = own.iter().enumerate().map(access).collect();
            self.machine.set_access(&all, self.now);
        }
        let bytes = |range: &Range<usize>| range.start as u64 * BLOCK..range.end as u64 * BLOCK;
        let mut value = self.next_value;
        let request = match &kind {
            Wish::Write(range) => {
                // In a small world a write has the number of its wish, whenever it is submitted.
                value = if self.settings.has_time { value } else { Value::from(wish) + 1 };
                self.next_value += 1;
                self.oracle.write_submitted(value, range.clone());
                let bytes = bytes(range);
                Request::Write(bytes.clone(), spec(bytes.end - bytes.start, true))
            }
            Wish::Read(range) => Request::Read(spec(range.len() as u64 * BLOCK, false)),
            Wish::Flush => {
                value = if self.settings.has_time { value } else { Value::from(wish) + 1 };
                self.next_value += 1;
                self.oracle.flush_submitted(value, disk);
                Request::Flush
            }
        };
        let request = self.machine.submit(disk, request, self.now);
        self.pending.push(Pending { request, disk, wish: kind, value });
    }

    fn execute(&mut self, session: usize, command: usize) -> Step {
        let is_lost = self.target.sessions[session].phase == Phase::Lost;
        let is_exchanged = self.target.is_exchanged;
        let (answer, is_answered) = self.target.execute(session, command);
        if is_answered || answer.reply != Reply::Good {
            // A session that is lost answers nothing.
            if !is_lost {
                self.target.sessions[session].answers.push_back(answer.clone());
            }
        }
        if answer.reply == Reply::Good
            && !is_exchanged
            && let Work::Write(range, value) = answer.work
        {
            self.seen.late_executions += u64::from(is_lost);
            self.oracle.executed(value, range)?;
        }
        Ok(())
    }

    /// Takes a command out, with this end.
    fn reply(&mut self, session: usize, command: usize, reply: Reply) {
        let it = &mut self.target.sessions[session];
        let Sent { attempt, work, .. } = it.commands.remove(command);
        it.answers.push_back(Answer { attempt, reply, work, data: Vec::new() });
    }

    fn trouble(&mut self, session: usize, command: usize, kind: u8) -> Step {
        self.left.troubles -= 1;
        let is_flush = self.target.sessions[session].commands[command].work == Work::Flush;
        let is_attended = !self.target.sessions[session].attentions.is_empty();
        self.oracle.faults += u32::from(kind >= 3);
        let reply = match kind {
            // A unit attention goes before BUSY where one waits, or not.
            0 => Reply::Busy,
            1 if !is_attended => Reply::BecomingReady,
            2 if !is_attended => Reply::AbortedCommand,
            3 => Reply::TaskAborted,
            4 => Reply::TimedOut,
            5 if is_flush && !is_attended => {
                let unit = &mut self.target.units[usize::from(self.target.is_exchanged)];
                unit.cache.fill(None);
                Reply::MediumError
            }
            // What takes that long has hidden no report that the unit is another one.
            6 if self.target.sessions[session].attentions.contains(&Attention::Exchanged) => {
                return self.execute(session, command);
            }
            6 | 7 => {
                // It is executed, and its status is lost; or it reports something, and that is lost.
                let before = self.target.sessions[session].answers.len();
                self.execute(session, command)?;
                let answers = &mut self.target.sessions[session].answers;
                if answers.len() > before
                    && let Some(answer) = answers.back_mut()
                {
                    answer.reply = if kind == 6 { Reply::TimedOut } else { Reply::TaskAborted };
                }
                return Ok(());
            }
            _ => return self.execute(session, command),
        };
        self.reply(session, command, reply);
        Ok(())
    }

    fn deliver(&mut self, session: usize, at: usize) -> Step {
        let Some(answer) = self.target.sessions[session].answers.remove(at) else {
            return Ok(());
        };
        let (attempt, now) = (answer.attempt, self.now);
        // Each session that hears of it takes it for news.
        let is_loss = answer.reply == Reply::Attention(Attention::DeferredError);
        self.oracle.faults += u32::from(is_loss);
        if let Reply::Unit(is_known) = answer.reply {
            let other = || {
                let [expected, found] = ["one", "other"].map(str::to_owned);
                (Verdict::OtherUnit { expected, found }, "another unit")
            };
            let verdict = if is_known { Ok(()) } else { Err(other()) };
            self.machine.identified(attempt, verdict, now);
            if !is_known {
                self.machine.close_path(self.target.sessions[session].path, now);
            }
            return Ok(());
        }
        let sense = |key: u8, asc: u8, ascq: u8, response: u8| {
            [response, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0]
        };
        let check = Status::CHECK_CONDITION;
        let (status, sense) = match answer.reply {
            Reply::Good | Reply::Unit(_) => (Status::GOOD, None),
            Reply::Attention(Attention::Reset) => (check, Some(sense(6, 0x29, 0, 0x70))),
            Reply::Attention(Attention::Exchanged) => (check, Some(sense(6, 0x3f, 0x0e, 0x70))),
            Reply::Attention(Attention::DeferredError) => (check, Some(sense(3, 0x0c, 0, 0x71))),
            Reply::Busy => (Status::BUSY, None),
            Reply::BecomingReady => (check, Some(sense(2, 4, 1, 0x70))),
            Reply::Port(AccessState::Transitioning) => (check, Some(sense(2, 4, 0x0a, 0x70))),
            Reply::Port(_) => (check, Some(sense(2, 4, 0x0b, 0x70))),
            Reply::AbortedCommand => (check, Some(sense(0x0b, 0, 0, 0x70))),
            Reply::MediumError => (check, Some(sense(3, 0x0c, 0, 0x70))),
            Reply::TaskAborted => (Status::TASK_ABORTED, None),
            Reply::Aborted | Reply::TimedOut | Reply::Withdrawn => {
                let why = match answer.reply {
                    Reply::Aborted => TaskError::Aborted,
                    Reply::TimedOut => TaskError::TimedOut,
                    _ => TaskError::Withdrawn,
                };
                self.machine.completed(attempt, CommandEnd::Error(&why), || "no status", now);
                // An end that comes twice changes nothing.
                self.machine.completed(attempt, CommandEnd::Error(&why), || "no status", now);
                return Ok(());
            }
        };
        let sense = sense.as_ref().map_or(&[][..], |sense| &sense[..]);
        let end = CommandEnd::Status(status, sense);
        self.machine.completed(attempt, end, || "a status", now);
        self.machine.completed(attempt, end, || "a status", now);
        Ok(())
    }

    fn lose(&mut self, session: usize, unsent: usize) {
        self.left.losses -= 1;
        self.oracle.faults += 1;
        let it = &mut self.target.sessions[session];
        let late: Vec<_> = it.answers.drain(..).collect();
        let unsent = it.commands.split_off(it.commands.len() - unsent);
        let unsent: Vec<_> = unsent.iter().map(|sent| sent.attempt).collect();
        it.phase = Phase::Lost;
        it.attentions.clear();
        let path = it.path;
        self.machine.path_lost(path, &"lost", &unsent, self.now);
        self.machine.path_lost(path, &"lost", &[], self.now);
        // Ends that come after the loss change nothing.
        for answer in late {
            let end = CommandEnd::Status(Status::GOOD, &[]);
            self.machine.completed(answer.attempt, end, || "late", self.now);
        }
    }

    fn login(&mut self, session: usize) {
        self.asked_at[session] = self.machine.unit().identity.shared_reasons();
        let it = &mut self.target.sessions[session];
        it.phase = Phase::LoggedIn;
        it.commands.clear();
        it.answers.clear();
        it.access = AccessState::ActiveOptimized;
        it.attentions.clear();
        if self.settings.attends_login {
            it.attentions.push(Attention::Reset);
            // It may come while a write is in flight, and then looks like one that has lost it.
            self.oracle.faults += 1;
        }
    }

    fn opened(&mut self, session: usize) {
        let facts = facts(&self.settings, self.asked_at[session]);
        let disk = self.disk_of(session);
        let it = &mut self.target.sessions[session];
        self.machine.settled(it.path, self.now);
        if let Some(path) = self.machine.path_opened(disk, facts, self.now) {
            it.path = path;
            it.phase = Phase::Live;
        }
    }

    fn cancel(&mut self, at: usize) {
        self.left.cancels -= 1;
        let pending = self.pending.remove(at);
        self.machine.cancel(pending.request, self.now);
        match pending.wish {
            Wish::Write(_) => {
                // Its copies are aborted, and their ends may hide a report.
                self.oracle.faults += 1;
                self.oracle.write_ended(pending.value);
            }
            Wish::Flush => self.oracle.flush_ended(pending.value),
            Wish::Read(_) => self.oracle.faults += 1,
        }
    }

    fn report_ports(&mut self) {
        self.left.access -= 1;
        let live = self.target.sessions.iter().filter(|it| it.phase == Phase::Live);
        let all: Vec<_> = live.map(|it| (it.path, Access::of_state(it.access))).collect();
        self.machine.set_access(&all, self.now);
    }

    /// Carries out what the machine wants done.
    fn drain(&mut self, before: (usize, usize), now: Instant) -> Step {
        let mut count = 0;
        while let Some(output) = self.machine.poll_output() {
            count += 1;
            if self.is_verbose {
                println!("    {output:?}");
                if matches!(output, Output::Send { command: Command::Flush, .. }) {
                    println!("        {:?}", self.machine.unit().durability);
                }
            }
            self.carry_out(output)?;
        }
        self.oracle.flush_begun(self.machine.flushes_begun());
        let after = self.machine.sizes();
        let (requests, attempts) = (before.0.max(after.0), before.1.max(after.1));
        if count > 4 * (requests + attempts) + 8 * self.target.sessions.len() + 8 {
            return Err(format!("{count} outputs for {requests} requests and {attempts} attempts"));
        }
        match self.machine.poll_timeout() {
            Some(at) if at <= now => Err("a timer that is due stays".to_owned()),
            _ => Ok(()),
        }
    }

    fn carry_out(&mut self, output: Output<&'static str>) -> Step {
        match output {
            Output::Send { attempt, path, command } => {
                let (work, is_hedge) = self.work_of(command)?;
                let Some(at) = self.session_of(path) else {
                    return Err(format!("{command:?} is sent over path {path}, which is lost"));
                };
                let may_be_withdrawn = false;
                let sent = Sent { attempt, work, is_hedge, is_aborted: false, may_be_withdrawn };
                self.check_order(&sent)?;
                self.target.sessions[at].commands.push(sent);
            }
            Output::Abort(attempt) => {
                let mut live =
                    self.target.sessions.iter_mut().filter(|it| it.phase == Phase::Live);
                let found = live.find_map(|it| {
                    let is_answered = it.answers.iter().any(|answer| answer.attempt == attempt);
                    let sent = it.commands.iter_mut().find(|sent| sent.attempt == attempt);
                    sent.map(|sent| sent.is_aborted = true).or_else(|| is_answered.then_some(()))
                });
                if found.is_none() {
                    return Err(format!("{attempt:?} is aborted, which no session has"));
                }
            }
            Output::Withdraw(path) => {
                if let Some(at) = self.session_of(path) {
                    let commands = self.target.sessions[at].commands.iter_mut();
                    let others = commands.filter(|sent| sent.work != Work::Identify);
                    others.for_each(|sent| sent.may_be_withdrawn = true);
                }
            }
            Output::Completed { request, result } => return self.completed(request, &result),
            Output::LogOut(path) => {
                let Some(at) = self.session_of(path) else {
                    return Err(format!("path {path} is logged out, which is lost"));
                };
                let it = &mut self.target.sessions[at];
                if !it.commands.is_empty() || !it.answers.is_empty() {
                    return Err("a session is logged out with commands in flight".to_owned());
                }
                it.phase = Phase::Gone;
            }
            Output::Reserve { request, .. } => self.machine.reserved(request, true, self.now),
            Output::Charge { request, .. } => self.machine.charged(request, self.now),
            Output::Event(Event::PathSetAside(..) | Event::Attention(..))
            | Output::Unreserve(_)
            | Output::Event(_) => {}
        }
        Ok(())
    }

    /// No further faults: ports serve, the known unit is there.
    pub fn heal(&mut self) {
        self.left = Budget { timers: u32::MAX, ..Budget::default() };
        self.target.sessions.iter_mut().for_each(|it| it.access = AccessState::ActiveOptimized);
        if self.target.is_exchanged {
            self.target.is_exchanged = false;
            self.target.attend(Attention::Exchanged);
        }
        self.left.access = 1;
        self.report_ports();
    }

    fn session_of(&self, path: iscsi_multipath::PathId) -> Option<usize> {
        let is_it = |it: &Session| it.path == path && it.phase == Phase::Live;
        self.target.sessions.iter().position(is_it)
    }

    fn work_of(&mut self, command: Command) -> Result<(Work, bool), String> {
        Ok(match command {
            Command::Request { request, is_hedge, .. } => {
                let found = self.pending.iter().find(|it| it.request == request);
                let Some(pending) = found else {
                    return Err(format!("a command is sent for {request:?}, which has ended"));
                };
                let work = match &pending.wish {
                    Wish::Write(range) => Work::Write(range.clone(), pending.value),
                    Wish::Read(range) => Work::Read(range.clone()),
                    Wish::Flush => return Err("a flush has attempts of its own".to_owned()),
                };
                (work, is_hedge)
            }
            Command::Flush => (Work::Flush, false),
            Command::Ready => {
                self.seen.witnesses += 1;
                (Work::Ready, false)
            }
            Command::Identify => (Work::Identify, false),
            Command::ModeSense => return Err("the unit knows the flush".to_owned()),
        })
    }

    /// No copy of another write that touches the same blocks may still be executed.
    fn check_order(&self, new: &Sent) -> Step {
        let Work::Write(range, value) = &new.work else { return Ok(()) };
        for sent in self.target.sessions.iter().flat_map(|it| &it.commands) {
            if let Work::Write(other, other_value) = &sent.work
                && other_value != value
                && other.start < range.end
                && range.start < other.end
            {
                return Err(format!(
                    "write {value} is sent while a copy of write {other_value} may still be executed"
                ));
            }
        }
        Ok(())
    }

    fn completed(&mut self, request: RequestId, result: &Result<Done, Failure<&'static str>>) -> Step {
        let Some(at) = self.pending.iter().position(|it| it.request == request) else {
            return Err(format!("{request:?} is answered twice, or was cancelled"));
        };
        let Pending { wish, value, disk, .. } = self.pending.remove(at);
        debug_assert!(self.disks.contains(&disk));
        if let Ok(Done::By(attempt)) = result
            && self.target.foreign.contains(attempt)
        {
            return Err(format!("{wish:?} is answered by another unit"));
        }
        match (&wish, result) {
            (Wish::Write(_), Ok(Done::By(attempt))) => {
                let is_executed = self.target.executed.get(value as usize) == Some(&true);
                if !is_executed {
                    return Err(format!("write {value} is answered, and the unit has never executed it"));
                }
                let sessions = self.target.sessions.iter();
                let copies = sessions.flat_map(|it| &it.commands).filter(|it| it.attempt != *attempt);
                let is_copied = |it: &Sent| matches!(&it.work, Work::Write(_, of) if *of == value) && !it.is_hedge;
                self.seen.hedges_won += u64::from(copies.into_iter().any(is_copied));
                self.oracle.write_answered(value);
            }
            (Wish::Read(_), Ok(Done::By(_))) => {}
            (Wish::Flush, Ok(Done::Flushed)) => {
                self.seen.flushes += 1;
                self.oracle.flushed(value, &self.target.units[0].medium)?;
            }
            (Wish::Flush, Ok(Done::LostWrites)) => {
                self.seen.losses_reported += 1;
                self.oracle.lost(value)?;
            }
            (_, Ok(done)) => return Err(format!("{wish:?} ends in {done:?}")),
            (Wish::Write(_), Err(why)) => {
                self.seen.failures += 1;
                self.seen.in_doubt_waits += u64::from(*why == Failure::InDoubt);
                self.oracle.write_ended(value);
            }
            (Wish::Read(_), Err(_)) => self.seen.failures += 1,
            (Wish::Flush, Err(_)) => {
                self.seen.failures += 1;
                self.oracle.flush_ended(value);
            }
        }
        Ok(())
    }

    /// Checks a world in which nothing is left to happen.
    ///
    /// # Errors
    /// What is stuck.
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
    RequestSpec { len, writes, is_plain: true, can_shorten: false, can_double: true, route: Route::Credit }
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
