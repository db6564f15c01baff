//! Tests of the revalidation of one path and of two, step by step.

mod model;

use std::collections::VecDeque;
use std::time::Duration;

use iscsi_pdu::scsi::vpd::DeviceIdentification;
use iscsi_pdu::scsi::{ReadCapacity10, Sense, Status};

use super::*;
use crate::identity::{
    Capacity, KnownUnit, Model, Resized, UnitName, Unproven, Verdict, short_capacity,
};
use crate::reconnect::BackOff;

const PATH: PathId = Unit::FIRST_PATH;
const PATIENCE: Duration = Duration::from_secs(60);
const BLOCKS: u32 = 8;

#[expect(clippy::disallowed_methods, reason = "some time to count from")]
fn start() -> Instant {
    Instant::now()
}

fn capacity() -> Capacity {
    short_capacity(ReadCapacity10::decode(&short_answer(BLOCKS, 512)).unwrap()).unwrap()
}

fn short_answer(blocks: u32, block_size: u32) -> Vec<u8> {
    [(blocks - 1).to_be_bytes(), block_size.to_be_bytes()].concat()
}

fn long_answer(blocks: u32, block_size: u32) -> Vec<u8> {
    let mut data = [vec![0; 4], short_answer(blocks, block_size)].concat();
    data.resize(32, 0);
    data
}

fn inquiry(product: &str) -> Vec<u8> {
    let mut data = vec![0, 0, 6, 2, 31, 0, 0, 0];
    data.extend(format!("{:<8}{product:<16}{:<4}", "Vendor", "1").into_bytes());
    data
}

fn serial(number: &str) -> Vec<u8> {
    let len = u8::try_from(number.len()).unwrap();
    [&[0, 0x80, 0, len], number.as_bytes()].concat()
}

/// Returns VPD page 83 with a name of this type. `fill` designators make the page longer than the first
/// INQUIRY allows.
fn identification(kind: u8, byte: u8, fill: usize) -> Vec<u8> {
    let name = [&[1, kind, 0, 8, byte][..], &[0x11; 7]].concat();
    // A vendor specific designator of the target.
    let filler: Vec<u8> =
        (0..fill).flat_map(|_| [&[1, 0xa0, 0, 60][..], &[0; 60]].concat()).collect();
    let len = u16::try_from(name.len() + filler.len()).unwrap().to_be_bytes();
    [&[0, 0x83, len[0], len[1]][..], &filler, &name].concat()
}

fn designator(kind: u8, byte: u8) -> UnitName {
    let page = DeviceIdentification::decode(&identification(kind, byte, 0)).unwrap();
    UnitName::Designator(page.logical_unit_name().unwrap().clone(), Some("7".to_owned()))
}

fn sense([key, asc, ascq]: [u8; 3]) -> Sense {
    Sense::decode(&[0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0]).unwrap()
}

const UNKNOWN_COMMAND: Answer = Answer::Check([0x5, 0x20, 0]);
const INVALID_FIELD: Answer = Answer::Check([0x5, 0x24, 0]);
const BECOMING_READY: Answer = Answer::Check([0x2, 0x04, 0x01]);
const STANDBY: Answer = Answer::Check([0x2, 0x04, 0x0b]);
const NO_UNIT: Answer = Answer::Check([0x5, 0x25, 0]);

#[derive(Clone, Debug)]
enum Answer {
    Good(Vec<u8>),
    Check([u8; 3]),
    Status(Status),
    NoUnit,
    SessionLost,
    Silence,
}

/// The responses of a unit to each command.
#[derive(Clone, Debug)]
struct Target {
    inquiry: Answer,
    identification: Answer,
    serial: Answer,
    long: Answer,
    short: Answer,
    mode: Answer,
}

impl Target {
    fn new() -> Self {
        Self {
            inquiry: Answer::Good(inquiry("Disk")),
            identification: Answer::Good(identification(3, 0x61, 0)),
            serial: Answer::Good(serial("7")),
            long: Answer::Good(long_answer(BLOCKS, 512)),
            short: Answer::Good(short_answer(BLOCKS, 512)),
            // The caching page, without a cache.
            mode: Answer::Good(vec![7, 0, 0, 0, 8, 2, 0, 0]),
        }
    }

    fn answer(&self, command: Command) -> Answer {
        let answer = match command {
            Command::Inquiry => &self.inquiry,
            Command::Page { code: 0x80, .. } => &self.serial,
            Command::Page { .. } => &self.identification,
            Command::ReadCapacity16 => &self.long,
            Command::ReadCapacity10 => &self.short,
            Command::ModeSense => &self.mode,
        };
        let mut answer = answer.clone();
        if let Answer::Good(data) = &mut answer {
            data.truncate(command.cdb_and_len().1);
        }
        answer
    }
}

struct World {
    revalidations: Revalidations,
    unit: Unit,
    now: Instant,
    terms: Terms,
    asked: Vec<Command>,
    in_flight: VecDeque<Question>,
}

impl World {
    fn new(name: UnitName) -> Self {
        let mut unit = Unit::new();
        let known = KnownUnit { is_removable: false, capacity: capacity().bytes() };
        unit.identity.on_known(known);
        unit.identity.add_reason(PATH);
        let pauses = BackOff::new(Duration::from_secs(1), Duration::from_secs(8));
        let terms = Terms { name, capacity: capacity(), retry_timeout: PATIENCE, pauses };
        let (revalidations, now) = (Revalidations::default(), start());
        Self { revalidations, unit, now, terms, asked: Vec::new(), in_flight: VecDeque::new() }
    }

    fn of_serial_number() -> Self {
        Self::new(UnitName::SerialNumber("7".to_owned()))
    }

    fn wait(&mut self) -> WaiterId {
        self.revalidations.wait(PATH, &self.terms, self.now).0
    }

    fn poll(&mut self) -> Step {
        let step = self.revalidations.poll(PATH, &mut self.unit, self.now);
        if let Step::Ask(question) = &step {
            self.asked.push(question.command);
            self.in_flight.push_back(*question);
        }
        step
    }

    /// Polls until there is no further command.
    fn ask(&mut self) -> Step {
        loop {
            let step = self.poll();
            if !matches!(step, Step::Ask(_)) {
                return step;
            }
        }
    }

    fn end(&mut self, question: Question, answer: &Answer) {
        let decoded = if let Answer::Check(of) = answer { Some(sense(*of)) } else { None };
        let end = match (answer, &decoded) {
            (Answer::Good(data), _) => End::Good(data),
            (Answer::Status(status), _) => End::Status(*status),
            (Answer::NoUnit, _) => End::NoUnit,
            (Answer::SessionLost, _) => End::SessionLost,
            (Answer::Check(_), Some(sense)) => End::Check(sense),
            (Answer::Check(_) | Answer::Silence, _) => End::NoAnswer,
        };
        self.revalidations.on_end(PATH, question.number, end);
    }

    /// Ends all commands with the responses of the target, until there is another step.
    fn run(&mut self, target: &Target) -> Step {
        loop {
            let step = self.ask();
            let Some(question) = self.in_flight.pop_front() else { return step };
            assert_eq!(step, Step::Wait);
            self.end(question, &target.answer(question.command));
        }
    }

    /// Returns the result for the only waiting caller, given the responses of the target.
    fn result(&mut self, target: &Target) -> Result<(), Failure> {
        let waiter = self.wait();
        let step = self.run(target);
        let Step::Answer(of, result) = step else { panic!("{step:?}") };
        assert_eq!((of, self.poll()), (waiter, Step::Idle));
        result
    }

    /// Returns whether the revalidation pauses for another try after the responses of the target.
    fn pauses(&mut self, target: &Target) -> bool {
        self.wait();
        self.run(target) == Step::Wait && self.revalidations.poll_timeout(PATH).is_some()
    }
}

fn page(code: u8, allocation_length: u16) -> Command {
    Command::Page { code, allocation_length }
}

#[test]
fn one_asks_for_all_that_wait() {
    let mut world = World::of_serial_number();
    let [one, two] = [(); 2].map(|()| world.wait());
    assert_eq!(world.ask(), Step::Wait);
    let four = [Command::Inquiry, page(0x80, 255), Command::ReadCapacity16];
    assert_eq!(world.asked, [&four[..], &[Command::ReadCapacity10, Command::ModeSense]].concat());
    let (three, is_first) = world.revalidations.wait(PATH, &world.terms, world.now);
    assert!(!is_first);
    world.revalidations.cancel(two);
    assert_eq!(world.run(&Target::new()), Step::Answer(one, Ok(())));
    assert_eq!(world.poll(), Step::Answer(three, Ok(())));
    assert_eq!(world.poll(), Step::Idle);
    assert!(!world.unit.identity.needs_revalidation(PATH));
    assert!(!world.unit.durability.has_cache());
    world.asked.clear();
    assert_eq!(world.result(&Target::new()), Ok(()));
    assert_eq!(world.asked, [], "there is no reason to ask");
}

#[test]
fn a_reason_that_comes_while_the_unit_is_asked_has_it_asked_again() {
    let mut world = World::of_serial_number();
    let waiter = world.wait();
    assert_eq!(world.ask(), Step::Wait);
    world.unit.identity.add_reason(PATH);
    assert_eq!(world.run(&Target::new()), Step::Answer(waiter, Ok(())));
    assert_eq!(world.asked.len(), 10);
}

#[test]
fn questions_that_nothing_waits_for_are_dropped_and_their_ends_ignored() {
    let mut world = World::of_serial_number();
    let waiter = world.wait();
    assert_eq!(world.ask(), Step::Wait);
    world.revalidations.cancel(waiter);
    assert_eq!(world.poll(), Step::Idle);
    let late = std::mem::take(&mut world.in_flight);
    let waiter = world.wait();
    assert_eq!(world.ask(), Step::Wait);
    for question in late {
        world.end(question, &Answer::SessionLost);
    }
    assert_eq!(world.run(&Target::new()), Step::Answer(waiter, Ok(())));
    world.end(Question { number: 5, path: PATH, command: Command::Inquiry }, &Answer::NoUnit);
    assert_eq!(world.poll(), Step::Idle);
}

#[test]
fn another_name_is_a_verdict_for_good() {
    let other = Target { serial: Answer::Good(serial("8")), ..Target::new() };
    let mut world = World::of_serial_number();
    let verdict = Verdict::OtherUnit {
        expected: "serial number 7".to_owned(),
        found: "serial number 8".to_owned(),
    };
    assert_eq!(world.result(&other), Err(Failure::Verdict(verdict.clone())));
    world.asked.clear();
    assert_eq!(world.result(&Target::new()), Err(Failure::Verdict(verdict)));
    assert_eq!(world.asked, [], "it is not asked any more");
}

#[test]
fn blocks_of_another_size_are_a_verdict_for_good() {
    let mut world = World::of_serial_number();
    let other = Target { long: Answer::Good(long_answer(1, 4096)), ..Target::new() };
    let verdict = Verdict::OtherBlockSize { before: 512, now: 4096 };
    assert_eq!(world.result(&other), Err(Failure::Verdict(verdict)));
}

#[test]
fn a_unit_that_has_grown_is_the_known_one() {
    let mut world = World::of_serial_number();
    let waiter = world.wait();
    let grown = Target { long: Answer::Good(long_answer(16, 512)), ..Target::new() };
    let resized = Resized { before: 4096, now: 8192 };
    assert_eq!(world.run(&grown), Step::Resized(resized));
    assert_eq!(world.poll(), Step::Answer(waiter, Ok(())));
    assert_eq!(world.unit.identity.size(), 8192);
}

#[test]
fn a_unit_without_a_name_is_known_by_its_model() {
    let model = |product: &str| Model {
        vendor: "Vendor".to_owned(),
        product: product.to_owned(),
        revision: "1".to_owned(),
    };
    let mut world = World::new(UnitName::Model(model("Disk")));
    assert_eq!(world.result(&Target::new()), Ok(()));
    assert_eq!(world.asked.len(), 4);
    let mut world = World::new(UnitName::Model(model("Other")));
    assert!(matches!(world.result(&Target::new()), Err(Failure::Verdict(_))));
}

/// The serial number page is read only if the designators of page 83 cannot be compared. If there is no
/// comparable name at all, the revalidation is repeated.
#[test]
fn the_best_names_that_both_sides_have_are_compared() {
    const PAGE_83: [Command; 1] = [Command::Page { code: 0x83, allocation_length: 255 }];
    let both = [PAGE_83[0], page(0x80, 255)];
    let named = |answer| Target { identification: answer, ..Target::new() };
    let same = named(Answer::Good(identification(3, 0x61, 0)));
    let other = named(Answer::Good(identification(3, 0x62, 0)));
    let other_type = named(Answer::Good(identification(2, 0x61, 0)));
    let refused = named(UNKNOWN_COMMAND);
    let unreadable = named(Answer::Good(vec![0, 0x80, 0, 0]));
    let no_serial = Target { serial: INVALID_FIELD, ..refused.clone() };
    let empty = Target { serial: Answer::Good(serial("")), ..refused.clone() };
    for (target, pages, expected) in [
        (same, &PAGE_83[..], Some(true)),
        (other, &PAGE_83, Some(false)),
        (other_type, &both, Some(true)),
        (refused, &both, Some(true)),
        (unreadable, &both, Some(true)),
        (no_serial, &both, None),
        (empty, &both, None),
    ] {
        let mut world = World::new(designator(3, 0x61));
        match expected {
            Some(true) => assert_eq!(world.result(&target), Ok(())),
            Some(false) => assert!(matches!(world.result(&target), Err(Failure::Verdict(_)))),
            None => assert!(world.pauses(&target)),
        }
        world.asked.retain(|command| matches!(command, Command::Page { .. }));
        assert_eq!(world.asked, pages);
    }
}

#[test]
fn a_long_page_is_asked_for_again_if_its_beginning_does_not_say_the_best_name() {
    let long = identification(3, 0x61, 5);
    let len = u16::try_from(long.len()).unwrap();
    let whole = [page(0x83, 255), page(0x83, len)];
    let mut world = World::new(designator(3, 0x61));
    let target = Target { identification: Answer::Good(long), ..Target::new() };
    assert_eq!(world.result(&target), Ok(()));
    world.asked.retain(|command| matches!(command, Command::Page { .. }));
    assert_eq!(world.asked, whole);
    // The rest of the page is refused, so only its beginning is used.
    for refusal in [INVALID_FIELD, Answer::Status(Status::BUSY)] {
        let mut world = World::new(designator(3, 0x61));
        world.wait();
        while world.ask() == Step::Wait {
            let Some(question) = world.in_flight.pop_front() else { panic!("it does not end") };
            let is_rest = question.command == whole[1];
            let answer = if is_rest { refusal.clone() } else { target.answer(question.command) };
            world.end(question, &answer);
        }
        assert!(world.asked.contains(&page(0x80, 255)), "the serial number decides");
        assert!(!world.unit.identity.needs_revalidation(PATH));
    }
}

#[test]
fn the_long_capacity_counts_and_otherwise_the_short_one() {
    let most = Answer::Good(vec![0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0]);
    for (long, short, expected) in [
        (UNKNOWN_COMMAND, None, Some(4096)),
        (Answer::Status(Status::BUSY), None, Some(4096)),
        (Answer::Good(vec![0; 3]), None, Some(4096)),
        (Answer::Good(long_answer(16, 512)), Some(UNKNOWN_COMMAND), Some(8192)),
        (UNKNOWN_COMMAND, Some(most), None),
        (UNKNOWN_COMMAND, Some(UNKNOWN_COMMAND), None),
        (Answer::Silence, None, None),
    ] {
        let mut world = World::of_serial_number();
        let mut target = Target { long, ..Target::new() };
        target.short = short.unwrap_or(target.short);
        match expected {
            Some(size) => {
                world.wait();
                world.run(&target);
                assert_eq!(world.unit.identity.size(), size);
            }
            None => assert!(world.pauses(&target), "{target:?}"),
        }
    }
}

#[test]
fn a_unit_that_does_not_deny_a_cache_has_one() {
    for (mode, has_cache) in [
        (Answer::Good(vec![7, 0, 0, 0, 8, 2, 0, 0]), false),
        (Answer::Good(vec![7, 0, 0, 0, 8, 2, 4, 0]), true),
        (Answer::Good(vec![3, 0, 0, 0]), true),
        (Answer::Good(vec![]), true),
        (UNKNOWN_COMMAND, true),
    ] {
        let mut world = World::of_serial_number();
        assert_eq!(world.result(&Target { mode, ..Target::new() }), Ok(()));
        assert_eq!(world.unit.durability.has_cache(), has_cache);
    }
}

#[test]
fn what_cannot_pass_is_returned_immediately() {
    let mut gone = inquiry("Disk");
    gone[0] = 0x7f;
    let mut tape = inquiry("Tape");
    tape[0] = 1;
    let target = Target::new();
    let question = |number| Failure::Question(number);
    for (target, expected) in [
        (Target { inquiry: Answer::Good(gone), ..target.clone() }, Failure::NoUnit),
        (Target { inquiry: Answer::SessionLost, ..target.clone() }, question(0)),
        (Target { inquiry: STANDBY, ..target.clone() }, question(0)),
        (Target { serial: NO_UNIT, ..target.clone() }, question(1)),
        (Target { serial: Answer::NoUnit, ..target.clone() }, question(1)),
        (Target { long: UNKNOWN_COMMAND, short: STANDBY, ..target.clone() }, question(3)),
        (Target { mode: Answer::SessionLost, ..target.clone() }, question(4)),
    ] {
        let mut world = World::of_serial_number();
        assert_eq!(world.result(&target), Err(expected));
        assert!(world.unit.identity.needs_revalidation(PATH), "the next caller has it asked again");
    }
    let mut world = World::of_serial_number();
    let no_disk = Target { inquiry: Answer::Good(tape), ..target };
    assert!(matches!(world.result(&no_disk), Err(Failure::NotADisk(_))));
}

#[test]
fn what_may_pass_is_asked_again_until_each_has_waited_long_enough() {
    let target = Target::new();
    for (target, failure) in [
        (Target { inquiry: BECOMING_READY, ..target.clone() }, None),
        (Target { inquiry: Answer::Silence, ..target.clone() }, None),
        (Target { serial: Answer::Silence, ..target.clone() }, None),
        (Target { serial: INVALID_FIELD, ..target }, Some(Failure::Unproven(Unproven::NoSuchName))),
    ] {
        let mut world = World::of_serial_number();
        let begun = world.now;
        let early = world.wait();
        let mut late = None;
        let mut steps = Vec::new();
        while steps.len() < 2 {
            let step = world.run(&target);
            if step != Step::Wait {
                steps.push((step, world.now - begun));
                continue;
            }
            world.now = world.revalidations.poll_timeout(PATH).unwrap();
            if world.now > begun + PATIENCE / 2 && late.is_none() {
                late = Some((world.wait(), world.now));
            }
        }
        let (late, since) = late.unwrap();
        for ((step, at), (waiter, since)) in steps.into_iter().zip([(early, begun), (late, since)])
        {
            let Step::Answer(of, Err(why)) = step else { panic!("{step:?}") };
            assert_eq!(of, waiter);
            let waited = at - (since - begun);
            assert!(waited <= PATIENCE && waited > PATIENCE - Duration::from_secs(8), "{waited:?}");
            assert!(failure.as_ref().is_none_or(|failure| *failure == why));
        }
        assert_eq!(world.poll(), Step::Idle);
    }
}

/// While the unit is becoming ready, it is queried again, after pauses that grow from 1 to 8 seconds. When it
/// responds again, it is identified.
#[test]
fn a_unit_that_comes_back_in_time_is_recognized() {
    let mut world = World::of_serial_number();
    let begun = world.now;
    let waiter = world.wait();
    let away = Target { inquiry: BECOMING_READY, ..Target::new() };
    for seconds in [1, 3, 7, 15, 23] {
        assert_eq!(world.run(&away), Step::Wait);
        let next = world.revalidations.poll_timeout(PATH).unwrap();
        assert_eq!(next - begun, Duration::from_secs(seconds));
        world.now = next;
    }
    assert_eq!(world.run(&Target::new()), Step::Answer(waiter, Ok(())));
}

#[test]
fn each_path_is_asked_by_itself_and_one_that_is_lost_is_removed() {
    let mut world = World::of_serial_number();
    let asked_at = world.unit.identity.shared_reasons();
    let second = world.unit.add_path(asked_at);
    world.unit.identity.add_reason(second);
    let waiter = world.wait();
    let (other, is_first) = world.revalidations.wait(second, &world.terms, world.now);
    assert!(is_first && world.ask() == Step::Wait);
    let step = world.revalidations.poll(second, &mut world.unit, world.now);
    assert!(matches!(step, Step::Ask(Question { number: 5, path, .. }) if path == second));
    assert_eq!(world.revalidations.remove(second), [other]);
    assert_eq!(world.revalidations.poll(second, &mut world.unit, world.now), Step::Idle);
    assert_eq!(world.run(&Target::new()), Step::Answer(waiter, Ok(())));
}
