//! Tests a disk of three paths with a model of a unit, in every history with up to two faults and one change
//! by another host.

use iscsi_pdu::scsi::Status;
use iscsi_pdu::scsi::reservation::{PersistentReserveOut, ReservationKey};

use super::super::{Failure, Fencing, Goal, PathNexus, ReserveCommand, Step};
use super::model::{Answer, Unit, nexus, now};
use crate::PathId;

const KEY: ReservationKey = ReservationKey(0xa);
const OTHER: ReservationKey = ReservationKey(0xb);
/// Maximum number of commands after which a command without a status is executed, if its nexus does not log
/// in before.
const LATEST: usize = 6;

/// Enumerates runs depth first: each run repeats the choices of the previous one up to the last choice that has
/// an alternative.
#[derive(Debug, Default)]
struct Choices {
    taken: Vec<(usize, usize)>,
    at: usize,
}

impl Choices {
    fn choose(&mut self, of: usize) -> usize {
        if self.at == self.taken.len() {
            self.taken.push((0, of));
        }
        let (choice, expected) = self.taken[self.at];
        assert_eq!(expected, of, "a run that was repeated took another course");
        self.at += 1;
        choice
    }

    fn next_run(&mut self) -> bool {
        self.at = 0;
        while let Some((choice, of)) = self.taken.pop() {
            if choice + 1 < of {
                self.taken.push((choice + 1, of));
                return true;
            }
        }
        false
    }
}

/// A command without a status that the unit may still execute.
#[derive(Debug)]
struct Late {
    number: u16,
    command: ReserveCommand,
    at: usize,
}

impl Late {
    /// Returns whether the command may add a registration. A late REGISTER by the key changes nothing if the
    /// key is not registered any more.
    fn may_register(&self) -> bool {
        !matches!(
            self.command,
            ReserveCommand::Out(PersistentReserveOut::Register { key: KEY, .. })
        )
    }
}

struct World<'a> {
    choices: &'a mut Choices,
    unit: Unit,
    fencing: Fencing,
    late: Vec<Late>,
    faults: usize,
    changes: usize,
    questions: usize,
    next_path: u32,
    /// Whether the first path is registered. Changes by other hosts before that are no fence.
    is_registered: bool,
    /// Whether the second and the third nexus have the same ISID, at two target ports.
    is_isid_shared: bool,
    /// Events so far, which are printed if the test fails.
    history: Vec<(u16, Event)>,
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.history.iter().for_each(|(number, event)| println!("{number}: {event:?}"));
        }
    }
}

#[derive(Debug)]
#[expect(dead_code, reason = "printed where a test fails")]
enum Event {
    LoggedIn(PathId),
    Asked(ReserveCommand, Answer),
    Ended(Goal, Result<(), Failure>),
    CarriedOutLate(ReserveCommand),
    FencedOff,
    OtherChange,
}

/// Number of runs in which each event happened. An event that never happens is not tested.
#[derive(Debug, Default)]
struct Seen {
    runs: usize,
    fenced_while_joining: usize,
    joined_with_faults: usize,
    late_after_fence: usize,
    preempted: usize,
    unproven: usize,
}

impl World<'_> {
    fn nexus(&self, number: u16) -> PathNexus {
        if number == 3 && self.is_isid_shared {
            PathNexus { portal_group: Some(2), ..nexus(2) }
        } else {
            nexus(number)
        }
    }

    fn log_in(&mut self, number: u16) -> PathId {
        // The login ends the commands that the last session of the nexus had sent: each was executed before, or
        // will never be executed.
        for at in (0..self.late.len()).rev() {
            if self.late[at].number == number {
                let late = self.late.swap_remove(at);
                if self.choices.choose(2) == 1 {
                    self.history.push((number, Event::CarriedOutLate(late.command)));
                    self.unit.execute(self.nexus(number), late.command);
                }
            }
        }
        let path = PathId(self.next_path);
        self.next_path += 1;
        self.fencing.attach(path, self.nexus(number));
        self.history.push((number, Event::LoggedIn(path)));
        path
    }

    /// Lets another host change registrations, and executes late commands, before the next command of the
    /// disk.
    fn happens(&mut self) {
        self.questions += 1;
        for at in (0..self.late.len()).rev() {
            if self.late[at].at == self.questions {
                let late = self.late.swap_remove(at);
                self.unit.execute(self.nexus(late.number), late.command);
                self.history.push((late.number, Event::CarriedOutLate(late.command)));
            }
        }
        if self.changes > 0 && self.is_registered {
            let event = match self.choices.choose(3) {
                0 => return,
                1 => {
                    self.unit.fence(KEY);
                    Event::FencedOff
                }
                _ => {
                    self.unit.generation += 1;
                    Event::OtherChange
                }
            };
            self.history.push((0, event));
            self.changes -= 1;
        }
    }

    fn ask(&mut self, number: u16, command: ReserveCommand) -> Answer {
        self.happens();
        if self.faults == 0 {
            return self.unit.execute(self.nexus(number), command);
        }
        let is_change = matches!(command, ReserveCommand::Out(_));
        let choice = self.choices.choose(if is_change { 7 + LATEST } else { 5 });
        self.faults -= usize::from(choice != 0);
        match choice {
            0 => self.unit.execute(self.nexus(number), command),
            1 => Answer::illegal_request(),
            2 => Answer::Silence,
            3 => Answer::not_ready(),
            4 if is_change => Answer::Status(Status::BUSY),
            4 => Answer::Good(vec![0; 3]),
            5 => {
                self.unit.execute(self.nexus(number), command);
                Answer::Silence
            }
            6 => {
                let answer = self.unit.execute(self.nexus(number), command);
                if matches!(answer, Answer::Good(_)) { Answer::not_ready() } else { answer }
            }
            late => {
                self.late.push(Late { number, command, at: self.questions + late - 6 });
                Answer::Silence
            }
        }
    }

    fn run(&mut self, number: u16, path: PathId, goal: Goal) -> Result<(), Failure> {
        let procedure = self.fencing.start(path, goal);
        for _ in 0..64 {
            match self.fencing.poll(procedure, now()) {
                Step::Ask(question) => {
                    assert_eq!(question.path, path);
                    let answer = self.ask(number, question.command);
                    self.fencing.on_end(procedure, answer.end());
                    self.history.push((number, Event::Asked(question.command, answer)));
                }
                Step::Done(result) => {
                    self.history.push((number, Event::Ended(goal, result.clone())));
                    return result;
                }
                Step::Wait => panic!("nothing else runs"),
            }
        }
        panic!("{goal:?} does not end");
    }

    /// Registers the first path, or joins another path to the registered disk, as `goal` says. Compares the
    /// result with the registrations of the unit.
    fn join(&mut self, number: u16, path: PathId, goal: Goal, seen: &mut Seen) -> bool {
        let (was_fenced, faults) = (self.unit.is_fenced, self.faults);
        let result = self.run(number, path, goal);
        let registered = self.unit.find(self.nexus(number)).copied();
        match result {
            Ok(()) => {
                let is_late = registered.is_some_and(|it| it.is_after_fence);
                assert!(goal == Goal::Register || !is_late, "registered after the fence");
                assert!(registered.is_some() || self.unit.is_fenced, "not registered");
                assert!(goal == Goal::Register || !was_fenced, "joined a disk that is fenced off");
                assert!(self.fencing.is_registered(path) && self.fencing.is_nexus_registered(path));
                seen.joined_with_faults += usize::from(self.faults < faults);
            }
            Err(Failure::Preempted) => {
                assert!(self.unit.is_fenced, "no host has fenced the disk off");
                assert!(self.fencing.is_preempted());
                seen.preempted += 1;
            }
            Err(Failure::Unproven) => seen.unproven += 1,
            Err(_) => assert!(faults > 0, "{result:?} without a fault"),
        }
        seen.fenced_while_joining += usize::from(!was_fenced && self.unit.is_fenced);
        result.is_ok()
    }

    fn live(&mut self, seen: &mut Seen) {
        let first = self.log_in(1);
        if !self.join(1, first, Goal::Register, seen) {
            return;
        }
        self.is_registered = true;
        let mut paths = vec![(1, first)];
        for number in [2, 3, 2, 1] {
            if paths.iter().any(|(it, _)| *it == number) && number == 2 {
                continue;
            }
            let path = self.log_in(number);
            if self.join(number, path, Goal::Join, seen) {
                paths.retain(|(it, path)| {
                    if *it == number {
                        self.fencing.detach(*path);
                    }
                    *it != number
                });
                paths.push((number, path));
            } else {
                self.fencing.detach(path);
            }
        }
        if let Some((number, path)) = paths.last().copied() {
            match self.run(number, path, Goal::Prove) {
                Err(Failure::Preempted) => assert!(self.unit.is_fenced),
                Ok(()) => {
                    assert!(self.unit.find(self.nexus(number)).is_none_or(|it| !it.is_after_fence));
                }
                Err(_) => {}
            }
        }
        for (number, path) in paths {
            let goal = if number == 1 { Goal::End } else { Goal::EndUnlessReserved };
            let result = self.run(number, path, goal);
            let is_there = self.unit.find(self.nexus(number)).is_some();
            let ended = result.is_ok() && !self.fencing.is_registered(path);
            assert!(!ended || !is_there, "the end of a registration that stays");
        }
        seen.late_after_fence +=
            usize::from(self.unit.registered.iter().any(|it| it.is_after_fence));
        if !self.fencing.may_be_left() && !self.unit.is_fenced {
            let is_left = self.unit.registered.iter().any(|it| it.key == KEY);
            let may_register = self.late.iter().any(Late::may_register);
            assert!(!is_left && !may_register, "left behind");
        }
    }
}

/// PRS-11, PRS-12, PRS-16: the unit may return any result, and execute commands late or without a status,
/// while another host changes registrations. No path joins a disk that is fenced off, no disk counts as
/// fenced off that is not, and no registration is left without a report.
#[test]
fn prs_12_every_history_of_two_faults_and_one_change_by_another_host_keeps_the_fence() {
    for is_isid_shared in [false, true] {
        let seen = every_history(is_isid_shared);
        assert!(seen.runs > 10_000, "{seen:?}");
        assert!(seen.fenced_while_joining > 0 && seen.joined_with_faults > 0, "{seen:?}");
        assert!(seen.late_after_fence > 0 && seen.preempted > 0, "{seen:?}");
        assert_eq!(seen.unproven > 0, is_isid_shared, "{seen:?}");
    }
}

fn every_history(is_isid_shared: bool) -> Seen {
    let mut choices = Choices::default();
    let mut seen = Seen::default();
    loop {
        let mut unit = Unit::default();
        unit.execute(
            nexus(9),
            ReserveCommand::Out(PersistentReserveOut::Register {
                key: ReservationKey::NONE,
                new_key: OTHER,
                persist_through_power_loss: false,
                all_target_ports: false,
            }),
        );
        let mut world = World {
            choices: &mut choices,
            unit,
            fencing: Fencing::new(KEY),
            late: Vec::new(),
            faults: 2,
            changes: 1,
            questions: 0,
            next_path: 0,
            is_registered: false,
            is_isid_shared,
            history: Vec::new(),
        };
        world.live(&mut seen);
        drop(world);
        seen.runs += 1;
        if !choices.next_run() {
            return seen;
        }
    }
}
