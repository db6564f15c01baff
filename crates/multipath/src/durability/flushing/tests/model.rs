//! Models a unit with a volatile cache, and two disks of several sessions each, which flush at the same time.
//! Commands are executed and answered in any order that several connections allow. The test checks that a
//! flush without a reported loss has brought every write of its disk that had ended before it onto the
//! medium.

use std::collections::{BTreeMap, BTreeSet};

use iscsi_pdu::scsi::Sense;
use iscsi_session::{SessionError, Timer};
use proptest::prelude::*;

use super::*;
use crate::Epoch;

const DISKS: usize = 2;

#[derive(Clone, Copy, Debug)]
enum Event {
    Write(u8),
    /// The unit takes the oldest command of a session: it executes the command, or reports a reset instead.
    Execute(u8),
    /// The status of one of the commands of a session arrives, or is lost.
    Deliver(u8, u8, bool),
    Reset,
    /// The next flush that the unit executes fails on the medium.
    MediumFails,
    Join(u8, bool),
    /// A session is lost; the unit executes all commands that the session has sent, or none of them.
    Lose(u8, bool),
    /// A flush over a session starts.
    Start(u8),
    /// The caller of the oldest flush cancels it.
    Cancel,
    Minutes(u8),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Good,
    Attention,
    MediumError,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    number: CommandNumber,
    begun: Epoch,
    write: Option<u32>,
    question: Option<(FlushId, Question)>,
    outcome: Option<Outcome>,
}

#[derive(Debug)]
struct Session {
    disk: usize,
    path: PathId,
    /// Whether the unit has yet to report a reset to the session.
    has_report: bool,
    sent: Vec<Sent>,
}

#[derive(Debug, Default)]
struct Disk {
    unit: Unit,
    /// Writes that ended with GOOD, and must be on the medium after a flush.
    ended: BTreeSet<u32>,
    /// The number of losses that flushes have reported.
    reported: LossCount,
    lost_paths: Vec<PathId>,
}

#[derive(Debug)]
struct Running {
    disk: usize,
    must_be_there: BTreeSet<u32>,
    seen: LossCount,
}

#[derive(Debug, Default)]
struct Seen {
    flushes: usize,
    losses: usize,
    failures: usize,
    witnesses: usize,
    concurrent: usize,
}

struct Model {
    flushes: Flushes,
    disks: [Disk; DISKS],
    sessions: Vec<Session>,
    running: BTreeMap<FlushId, Running>,
    cache: BTreeSet<u32>,
    medium: BTreeSet<u32>,
    medium_fails: bool,
    next_write: u32,
    now: Instant,
    seen: Seen,
}

impl Model {
    fn new() -> Self {
        let session = |disk| Session { disk, path: FIRST, has_report: false, sent: Vec::new() };
        Self {
            flushes: Flushes::default(),
            disks: std::array::from_fn(|_| Disk::default()),
            sessions: (0..DISKS).map(session).collect(),
            running: BTreeMap::new(),
            cache: BTreeSet::new(),
            medium: BTreeSet::new(),
            medium_fails: false,
            next_write: 0,
            now: start(),
            seen: Seen::default(),
        }
    }

    fn place(&self, which: u8) -> usize {
        usize::from(which) % self.sessions.len()
    }

    fn send(&mut self, at: usize, write: Option<u32>, question: Option<(FlushId, Question)>) {
        let session = &mut self.sessions[at];
        let begun = self.disks[session.disk].unit.begin_command(session.path);
        let (number, begun) = (begun.number, begun.epoch);
        session.sent.push(Sent { number, begun, write, question, outcome: None });
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Write(which) => {
                self.send(self.place(which), Some(self.next_write), None);
                self.next_write += 1;
            }
            Event::Execute(which) => self.execute(self.place(which)),
            Event::Deliver(which, of, has_status) => {
                let at = self.place(which);
                let sent = &mut self.sessions[at].sent;
                let executed: Vec<_> =
                    (0..sent.len()).filter(|of| sent[*of].outcome.is_some()).collect();
                if !executed.is_empty() {
                    let sent = sent.remove(executed[usize::from(of) % executed.len()]);
                    self.deliver(at, sent, has_status);
                }
            }
            Event::Reset => self.reset(),
            Event::MediumFails => self.medium_fails = true,
            Event::Join(disk, has_report) => {
                let disk = usize::from(disk) % DISKS;
                let path = self.disks[disk].unit.add_path(SharedReasons::default());
                self.sessions.push(Session { disk, path, has_report, sent: Vec::new() });
            }
            Event::Lose(which, executes) => self.lose_session(self.place(which), executes),
            Event::Start(which) => self.start(self.place(which)),
            Event::Cancel => {
                if let Some(flush) = self.running.keys().next() {
                    self.flushes.cancel(*flush);
                }
            }
            Event::Minutes(minutes) => self.now += Duration::from_secs(60) * u32::from(minutes),
        }
        self.poll_all();
    }

    fn reset(&mut self) {
        self.cache.clear();
        self.sessions.iter_mut().for_each(|session| session.has_report = true);
    }

    fn execute(&mut self, at: usize) {
        let session = &mut self.sessions[at];
        let Some(sent) = session.sent.iter_mut().find(|sent| sent.outcome.is_none()) else {
            return;
        };
        let flushes = |(_, question): (_, Question)| question.command == Command::SynchronizeCache;
        sent.outcome = Some(if std::mem::take(&mut session.has_report) {
            Outcome::Attention
        } else if sent.question.is_some_and(flushes) {
            if std::mem::take(&mut self.medium_fails) {
                self.cache.clear();
                Outcome::MediumError
            } else {
                self.medium.append(&mut self.cache);
                Outcome::Good
            }
        } else {
            self.cache.extend(sent.write);
            Outcome::Good
        });
    }

    fn deliver(&mut self, at: usize, sent: Sent, has_status: bool) {
        let (disk, path) = (self.sessions[at].disk, self.sessions[at].path);
        // The status of a flush that failed on the medium is never lost here, because `Durability` cannot
        // detect that loss.
        let has_status = has_status || sent.outcome == Some(Outcome::MediumError);
        let outcome = sent.outcome.filter(|_| has_status);
        let sense = match outcome {
            Some(Outcome::Attention) => Some(sense_data(UNIT_ATTENTION)),
            Some(Outcome::MediumError) => Some(sense_data(MEDIUM_ERROR)),
            Some(Outcome::Good) | None => None,
        };
        let end = match &sense {
            Some(sense) => CommandEnd::Status(Status::CHECK_CONDITION, sense),
            None if has_status => CommandEnd::Status(Status::GOOD, &[]),
            None => CommandEnd::Error(&TaskError::TimedOut),
        };
        self.end(disk, path, &sent, end);
        let unit = &mut self.disks[disk].unit;
        if outcome == Some(Outcome::Good) {
            match sent.write {
                Some(write) => {
                    unit.durability.on_write(path, sent.begun);
                    self.disks[disk].ended.insert(write);
                }
                None => unit.durability.accept(path, sent.begun),
            }
        }
        let Some((flush, question)) = sent.question else { return };
        let sense = sense.and_then(|sense| Sense::decode(&sense).ok());
        let end = match (outcome, &sense) {
            (Some(Outcome::Good), _) => End::Good(sent.number, &[]),
            // The command is sent again.
            (Some(Outcome::Attention), _) => return self.send(at, None, sent.question),
            (Some(Outcome::MediumError), Some(sense)) => End::Check(sense),
            (Some(Outcome::MediumError) | None, _) => End::NoAnswer,
        };
        self.flushes.on_end(flush, question.number, end, &mut self.disks[disk].unit);
    }

    fn end(&mut self, disk: usize, path: PathId, sent: &Sent, end: CommandEnd<'_>) {
        let flushes = |(_, question): (_, Question)| question.command == Command::SynchronizeCache;
        let synchronizes_cache = sent.question.is_some_and(flushes);
        let facts = CommandFacts { number: sent.number, synchronizes_cache, is_preempted: false };
        let effects = self.disks[disk].unit.end_command(path, facts, end);
        if effects.has_failed_flush {
            let others = self.disks.iter_mut().enumerate().filter(|(other, _)| *other != disk);
            others.for_each(|(_, other)| other.unit.durability.on_lost_writes());
        }
    }

    fn lose_session(&mut self, at: usize, executes: bool) {
        let disk = self.sessions[at].disk;
        let is_the_last = self.sessions.iter().filter(|it| it.disk == disk).count() == 1;
        let has_failed = |sent: &Sent| sent.outcome == Some(Outcome::MediumError);
        if is_the_last || self.sessions[at].sent.iter().any(has_failed) {
            return;
        }
        let medium_fails = std::mem::take(&mut self.medium_fails);
        while executes && self.sessions[at].sent.iter().any(|sent| sent.outcome.is_none()) {
            self.execute(at);
        }
        self.medium_fails = medium_fails;
        let session = self.sessions.remove(at);
        let cause = SessionError::TimedOut(Timer::Login);
        let lost = TaskError::Session { cause, sent: true };
        for sent in session.sent {
            self.end(disk, session.path, &sent, CommandEnd::Error(&lost));
            if let Some((flush, question)) = sent.question {
                let unit = &mut self.disks[disk].unit;
                self.flushes.on_end(flush, question.number, End::NoAnswer, unit);
            }
        }
        self.disks[disk].lost_paths.push(session.path);
    }

    fn start(&mut self, at: usize) {
        let Session { disk, path, .. } = self.sessions[at];
        let Disk { unit, ended, reported, .. } = &mut self.disks[disk];
        let running = Running { disk, must_be_there: ended.clone(), seen: *reported };
        let flush = self.flushes.start(FlushOwner(disk as u64), path, CACHED, unit);
        self.seen.concurrent += usize::from(!self.running.is_empty());
        self.running.insert(flush, running);
    }

    /// Polls all flushes until none has a further step.
    fn poll_all(&mut self) {
        let mut is_settled = false;
        while !std::mem::replace(&mut is_settled, true) {
            let all: Vec<_> = self.running.iter().map(|(id, it)| (*id, it.disk)).collect();
            for (flush, disk) in all {
                let step = self.flushes.poll(flush, &mut self.disks[disk].unit, self.now);
                is_settled &= matches!(step, Step::Wait | Step::AwaitCommands(..));
                self.carry_out(flush, disk, step);
            }
        }
        for disk in &mut self.disks {
            disk.lost_paths.retain(|path| {
                let is_needed = self.flushes.needs_path(*path);
                if !is_needed {
                    disk.unit.remove_path(*path);
                }
                is_needed
            });
        }
    }

    fn carry_out(&mut self, flush: FlushId, disk: usize, step: Step) {
        let find = |path| move |it: &Session| it.disk == disk && it.path == path;
        match step {
            Step::Wait | Step::AwaitCommands(..) => {}
            Step::Ask(question) => match self.sessions.iter().position(find(question.path)) {
                Some(at) => self.send(at, None, Some((flush, question))),
                None => {
                    let unit = &mut self.disks[disk].unit;
                    self.flushes.on_end(flush, question.number, End::NoAnswer, unit);
                }
            },
            Step::ChooseWitness => {
                let unit = &mut self.disks[disk].unit;
                let paths = self.sessions.iter().filter(|it| it.disk == disk).map(|it| it.path);
                let witness = paths.min_by_key(|path| unit.durability.witness_rank(*path));
                self.flushes.on_witness(flush, witness, unit);
                self.seen.witnesses += 1;
            }
            Step::Done(result) => {
                let Some(running) = self.running.remove(&flush) else { return };
                self.judge(&running, result);
            }
        }
    }

    fn judge(&mut self, running: &Running, result: Result<(), Failure>) {
        if result.is_err() {
            self.seen.failures += 1;
            return;
        }
        self.seen.flushes += 1;
        let disk = &mut self.disks[running.disk];
        disk.reported = disk.unit.durability.report_losses();
        if disk.reported > running.seen {
            self.seen.losses += 1;
            disk.ended = &disk.ended & &self.cache;
        } else {
            let lost: Vec<_> = running.must_be_there.difference(&self.medium).collect();
            assert!(lost.is_empty(), "lost without a report: {lost:?}");
            disk.ended = &disk.ended - &self.medium;
        }
    }

    /// Executes and answers all commands in flight.
    fn run_out(&mut self) {
        for _ in 0..1000 {
            let Some(at) = self.sessions.iter().position(|it| !it.sent.is_empty()) else { break };
            let at = u8::try_from(at).unwrap();
            self.take(Event::Execute(at));
            self.take(Event::Deliver(at, 0, true));
        }
        assert!(self.running.is_empty(), "a flush never ends: {:?}", self.running);
    }
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let session = 0..6_u8;
    let deliver = (session.clone(), 0..3_u8, prop::bool::weighted(0.95));
    prop::collection::vec(
        prop_oneof![
            6 => session.clone().prop_map(Event::Write),
            16 => session.clone().prop_map(Event::Execute),
            16 => deliver.prop_map(|(at, of, it)| Event::Deliver(at, of, it)),
            1 => Just(Event::Reset),
            1 => Just(Event::MediumFails),
            1 => (0..2_u8, any::<bool>()).prop_map(|(disk, it)| Event::Join(disk, it)),
            1 => (session.clone(), any::<bool>()).prop_map(|(at, it)| Event::Lose(at, it)),
            4 => session.prop_map(Event::Start),
            1 => Just(Event::Cancel),
            1 => (1..6_u8).prop_map(Event::Minutes),
        ],
        0..120,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_flush_that_reports_no_loss_has_brought_all_onto_the_medium(events in events()) {
        let mut model = Model::new();
        events.into_iter().for_each(|event| model.take(event));
        model.run_out();
    }
}

/// Without a reset, a lost status or a failure, no flush may report a loss, however many flushes run at the same
/// time.
#[test]
fn flushes_cry_no_loss_where_nothing_has_happened() {
    let mut model = Model::new();
    for round in 0..200_u8 {
        model.take(Event::Write(round));
        model.take(Event::Execute(round));
        model.take(Event::Deliver(round, 0, true));
        match round % 10 {
            0 if round < 80 => {
                model.take(Event::Join(round / 10, false));
                model.take(Event::Start(u8::try_from(model.sessions.len() - 1).unwrap()));
            }
            2 | 4 | 6 => model.take(Event::Start(round.wrapping_mul(3))),
            8 => model.take(Event::Minutes(1)),
            _ => {}
        }
        model.take(Event::Execute(round.wrapping_mul(7)));
        model.take(Event::Deliver(round.wrapping_mul(7), 1, true));
    }
    model.run_out();
    let Seen { flushes, losses, failures, witnesses, concurrent } = model.seen;
    assert_eq!((flushes, losses, failures), (68, 0, 0));
    assert!(witnesses > 2 && concurrent > 20, "{witnesses}, {concurrent}");
}
