//! Tests of one flush and of two, step by step, and random runs with a model of a unit.

mod model;
mod witness;

use std::time::Duration;

use iscsi_pdu::scsi::Status;
use iscsi_session::TaskError;

use super::*;
use crate::identity::SharedReasons;
use crate::unit::{CommandEnd, CommandFacts};
use crate::{CommandNumber, LossCount};

const FIRST: PathId = Unit::FIRST_PATH;
const ONE: FlushOwner = FlushOwner(1);
const OTHER: FlushOwner = FlushOwner(2);
const PATIENCE: Duration = Duration::from_secs(300);
const CACHED: Terms = Terms { write_cache: Some(true), retry_timeout: PATIENCE };

const UNIT_ATTENTION: [u8; 4] = [0, 0x6, 0x29, 0];
const NOT_READY: [u8; 4] = [0, 0x2, 0x04, 0x0b];
const UNKNOWN_COMMAND: [u8; 4] = [0, 0x5, 0x20, 0];
const MEDIUM_ERROR: [u8; 4] = [0, 0x3, 0x0c, 0];

#[expect(clippy::disallowed_methods, reason = "some time to count from")]
fn start() -> Instant {
    Instant::now()
}

/// Returns sense data from four numbers: 1 if it is deferred, the key, and the additional sense code and
/// qualifier.
fn sense_data([deferred, key, asc, ascq]: [u8; 4]) -> [u8; 18] {
    [0x70 | deferred, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0]
}

/// Returns MODE SENSE (6) data with the caching page.
fn caching(is_on: bool) -> Vec<u8> {
    vec![7, 0, 0, 0, 8, 2, if is_on { 4 } else { 0 }, 0]
}

#[derive(Clone, Copy, Debug)]
enum Answer<'a> {
    Good(&'a [u8]),
    Check([u8; 4]),
    Status(Status),
    Silence,
}

const GOOD: Answer<'_> = Answer::Good(&[]);

struct World {
    flushes: Flushes,
    unit: Unit,
    now: Instant,
    flush: FlushId,
}

impl World {
    /// Creates a unit with a cache and one path, over which a write has ended, and starts a flush of it.
    fn new(terms: Terms) -> Self {
        let (mut flushes, mut unit) = (Flushes::default(), Unit::new());
        let flush = flushes.start(ONE, FIRST, terms, &mut unit);
        let mut world = Self { flushes, unit, now: start(), flush };
        world.write(FIRST);
        world
    }

    /// Creates a unit whose flush goes over a path that was added after the write.
    fn over_a_later_path() -> (Self, PathId) {
        let mut world = Self::new(CACHED);
        world.flushes.cancel(world.flush);
        let later = world.unit.add_path(SharedReasons::default());
        world.flush = world.start(ONE, later);
        (world, later)
    }

    /// Creates a unit with two paths that were added before the write. The flush, which went
    /// over a third path, has a status.
    fn with_two_witnesses() -> (Self, [PathId; 2]) {
        let (mut flushes, mut unit) = (Flushes::default(), Unit::new());
        let second = unit.add_path(SharedReasons::default());
        let flush = flushes.start(ONE, FIRST, CACHED, &mut unit);
        flushes.cancel(flush);
        let accepted = unit.begin_command(second);
        unit.durability.accept(second, accepted.epoch);
        unit.forget(second, accepted.number);
        let mut world = Self { flushes, unit, now: start(), flush };
        world.write(FIRST);
        let later = world.unit.add_path(SharedReasons::default());
        world.flush = world.start(ONE, later);
        let asked = world.asks(Command::SynchronizeCache);
        world.answer(asked, GOOD);
        (world, [FIRST, second])
    }

    fn start(&mut self, owner: FlushOwner, path: PathId) -> FlushId {
        self.flushes.start(owner, path, CACHED, &mut self.unit)
    }

    fn write(&mut self, path: PathId) {
        let begun = self.unit.begin_command(path);
        self.unit.durability.on_write(path, begun.epoch);
        self.unit.forget(path, begun.number);
    }

    fn poll(&mut self) -> Step {
        self.poll_other(self.flush)
    }

    fn poll_other(&mut self, flush: FlushId) -> Step {
        self.flushes.poll(flush, &mut self.unit, self.now)
    }

    fn wait(&mut self, time: Duration) -> Step {
        self.now += time;
        self.poll()
    }

    /// Polls the next command of the flush, checks it, and sends it.
    fn asks(&mut self, command: Command) -> (Question, CommandNumber) {
        self.asks_other(self.flush, command)
    }

    fn asks_other(&mut self, flush: FlushId, command: Command) -> (Question, CommandNumber) {
        let step = self.poll_other(flush);
        let Step::Ask(question) = step else { panic!("{step:?}") };
        assert_eq!(question.command, command);
        (question, self.unit.begin_command(question.path).number)
    }

    fn answer(&mut self, (question, number): (Question, CommandNumber), answer: Answer<'_>) {
        self.answer_other(self.flush, (question, number), answer);
    }

    fn answer_other(
        &mut self,
        flush: FlushId,
        (question, number): (Question, CommandNumber),
        answer: Answer<'_>,
    ) {
        let synchronizes_cache = question.command == Command::SynchronizeCache;
        let facts = CommandFacts { number, synchronizes_cache, is_preempted: false };
        let data = if let Answer::Check(check) = answer { sense_data(check) } else { [0; 18] };
        let silence = TaskError::TimedOut;
        let end = match answer {
            Answer::Good(_) => CommandEnd::Status(Status::GOOD, &[]),
            Answer::Check(_) => CommandEnd::Status(Status::CHECK_CONDITION, &data),
            Answer::Status(status) => CommandEnd::Status(status, &[]),
            Answer::Silence => CommandEnd::Error(&silence),
        };
        let _ = self.unit.end_command(question.path, facts, end);
        let sense = iscsi_pdu::scsi::Sense::decode(&data);
        let end = match answer {
            Answer::Good(data) => End::Good(number, data),
            Answer::Check(_) => End::Check(sense.as_ref().unwrap()),
            Answer::Status(status) => End::Status(status),
            Answer::Silence => End::NoAnswer,
        };
        self.flushes.on_end(flush, question.number, end, &mut self.unit);
    }

    /// Lets the unit report a reset over a path, with the next command there.
    fn reset(&mut self, path: PathId) {
        let number = self.unit.begin_command(path).number;
        let facts = CommandFacts { number, synchronizes_cache: false, is_preempted: false };
        let sense = sense_data(UNIT_ATTENTION);
        let _ =
            self.unit.end_command(path, facts, CommandEnd::Status(Status::CHECK_CONDITION, &sense));
    }

    fn losses(&self) -> u64 {
        self.unit.durability.losses().0
    }

    /// Returns whether the next flush covers a write.
    fn is_unflushed(&mut self) -> bool {
        let flush = self.unit.durability.begin_flush(FIRST);
        let nowhere = PathId(99);
        let is_unflushed = !self.unit.durability.covers(&flush, nowhere);
        self.unit.durability.abandon_flush(flush);
        is_unflushed
    }
}

const DONE: Step = Step::Done(Ok(()));

fn failed(question: u32) -> Step {
    Step::Done(Err(Failure::Question(question)))
}

#[test]
fn a_flush_ends_when_all_has_been_heard_that_was_sent_before_it() {
    let mut world = World::new(CACHED);
    let [before, earlier] = [(); 2].map(|()| world.unit.begin_command(FIRST).number);
    let asked = world.asks(Command::SynchronizeCache);
    assert_eq!((asked.0.number, asked.0.path), (0, FIRST));
    assert_eq!(world.poll(), Step::Wait, "asked once");
    let later = world.unit.begin_command(FIRST).number;
    world.answer(asked, GOOD);
    assert_eq!(world.poll(), Step::AwaitCommands(FIRST, asked.1));
    world.unit.forget(FIRST, earlier);
    assert_eq!(world.wait(PATIENCE - Duration::from_secs(1)), Step::AwaitCommands(FIRST, asked.1));
    world.unit.forget(FIRST, before);
    assert_eq!(world.poll(), DONE);
    assert_eq!(world.losses(), 0);
    assert!(
        !world.is_unflushed()
            && !world.unit.have_ended_before(FIRST, world.unit.next_command(FIRST))
    );
    world.unit.forget(FIRST, later);
    assert_eq!(world.poll(), Step::Done(Err(Failure::GivenUp)), "it is forgotten");
}

#[test]
fn a_reset_that_a_command_before_the_flush_reports_is_a_loss() {
    let mut world = World::new(CACHED);
    let number = world.unit.begin_command(FIRST).number;
    let asked = world.asks(Command::SynchronizeCache);
    world.answer(asked, GOOD);
    assert_eq!(world.poll(), Step::AwaitCommands(FIRST, asked.1));
    let facts = CommandFacts { number, synchronizes_cache: false, is_preempted: false };
    let sense = sense_data(UNIT_ATTENTION);
    let _ =
        world.unit.end_command(FIRST, facts, CommandEnd::Status(Status::CHECK_CONDITION, &sense));
    assert_eq!(world.poll(), DONE);
    assert_eq!(world.losses(), 1);
}

#[test]
fn commands_that_never_end_are_given_up_and_may_have_reported_a_reset() {
    let mut world = World::new(CACHED);
    let _silent = world.unit.begin_command(FIRST);
    let asked = world.asks(Command::SynchronizeCache);
    world.answer(asked, GOOD);
    assert_eq!(world.poll(), Step::AwaitCommands(FIRST, asked.1));
    assert_eq!(world.flushes.poll_timeout(world.flush), Some(world.now + PATIENCE));
    assert_eq!(world.wait(PATIENCE), Step::ChooseWitness);
    assert_eq!(world.poll(), Step::Wait, "asked once");
    world.flushes.on_witness(world.flush, None, &mut world.unit);
    assert_eq!(world.poll(), DONE);
    assert_eq!(world.losses(), 1);
    assert!(world.unit.is_idle(FIRST));
}

#[test]
fn a_flush_that_takes_long_asks_now_and_then_whether_the_unit_is_ready() {
    let minute = Duration::from_secs(60);
    let mut world = World::new(CACHED);
    let asked = world.asks(Command::SynchronizeCache);
    for number in 1..=10 {
        assert_eq!(world.flushes.poll_timeout(world.flush), Some(world.now + minute));
        assert_eq!(world.wait(minute - Duration::from_millis(1)), Step::Wait);
        world.now += Duration::from_millis(1);
        let ready = world.asks(Command::TestUnitReady);
        assert_eq!((ready.0.number, ready.0.path), (number, FIRST));
        world.answer(ready, GOOD);
    }
    world.now += minute;
    let late = world.asks(Command::TestUnitReady);
    assert_eq!(
        (world.flushes.poll_timeout(world.flush), world.wait(5 * minute)),
        (None, Step::Wait)
    );
    world.answer(asked, GOOD);
    assert_eq!(world.poll(), DONE);
    assert_eq!(world.losses(), 0, "to take long is no reason to vouch for nothing");
    world.answer(late, Answer::Check(UNIT_ATTENTION));
    assert_eq!(
        (world.losses(), world.is_unflushed()),
        (0, false),
        "the reset came after the flush"
    );
}

/// While SYNCHRONIZE CACHE is in flight, TEST UNIT READY reports a reset. SYNCHRONIZE CACHE then ends with
/// GOOD, because its caller has sent it again. The reset counts as a loss.
#[test]
fn a_reset_that_clears_a_flush_is_a_loss() {
    let mut world = World::new(CACHED);
    let asked = world.asks(Command::SynchronizeCache);
    world.now += Duration::from_secs(60);
    let ready = world.asks(Command::TestUnitReady);
    world.answer(ready, Answer::Check(UNIT_ATTENTION));
    world.answer(asked, GOOD);
    assert_eq!(world.poll(), DONE);
    assert_eq!(world.losses(), 1);
}

#[test]
fn an_answer_counts_once() {
    let mut world = World::new(CACHED);
    let earlier = world.unit.begin_command(FIRST).number;
    let asked = world.asks(Command::SynchronizeCache);
    world.answer(asked, GOOD);
    let number = asked.0.number;
    for end in [End::NoAnswer, End::Good(earlier, &[]), End::Status(Status::BUSY)] {
        world.flushes.on_end(world.flush, number, end, &mut world.unit);
        world.flushes.on_end(world.flush, 7, end, &mut world.unit);
    }
    world.flushes.on_witness(world.flush, None, &mut world.unit);
    assert_eq!(world.poll(), Step::AwaitCommands(FIRST, asked.1));
    world.unit.forget(FIRST, earlier);
    assert_eq!(world.poll(), DONE);
    world.flushes.on_end(world.flush, number, End::NoAnswer, &mut world.unit);
    assert!(!world.is_unflushed());
}

#[test]
fn a_flush_without_a_good_end_leaves_its_writes_unflushed() {
    let not_ready = [0, 0x2, 0x04, 0x01];
    let ends = [Answer::Silence, Answer::Status(Status::BUSY), Answer::Check(not_ready)];
    for answer in ends {
        let mut world = World::new(CACHED);
        let asked = world.asks(Command::SynchronizeCache);
        world.answer(asked, answer);
        assert_eq!(world.poll(), failed(0));
        assert!(world.is_unflushed() && world.losses() == 0, "{answer:?}");
    }
    let mut world = World::new(CACHED);
    let asked = world.asks(Command::SynchronizeCache);
    world.answer(asked, Answer::Check(MEDIUM_ERROR));
    assert_eq!(world.poll(), failed(0));
    assert!(!world.is_unflushed() && world.losses() == 1, "no later flush can vouch for them");
}

/// If the session of a flush is lost after SYNCHRONIZE CACHE has ended with GOOD, that session can still show
/// that there was no reset. It cannot if another command was in flight there: the lost response may have
/// reported a reset. Then a command over another session (the witness) has to show it.
#[test]
fn a_session_that_is_lost_after_the_answer_vouches_if_nothing_was_in_flight() {
    for has_command in [false, true] {
        let mut world = World::new(CACHED);
        let command = has_command.then(|| world.unit.begin_command(FIRST).number);
        let asked = world.asks(Command::SynchronizeCache);
        world.answer(asked, GOOD);
        assert!(world.flushes.needs_path(FIRST));
        if let Some(number) = command {
            assert_eq!(world.poll(), Step::AwaitCommands(FIRST, asked.1));
            let facts = CommandFacts { number, synchronizes_cache: false, is_preempted: false };
            let _ = world.unit.end_command(FIRST, facts, CommandEnd::Error(&TaskError::Aborted));
            assert_eq!(world.poll(), Step::ChooseWitness);
            world.flushes.on_witness(world.flush, None, &mut world.unit);
        }
        assert_eq!(world.poll(), DONE);
        assert_eq!(world.losses(), u64::from(has_command));
        assert!(!world.flushes.needs_path(FIRST));
    }
}

/// The unit does not support SYNCHRONIZE CACHE. Checks the result of the flush for what was known of the cache
/// before it (`Terms::write_cache`), and for each response to the MODE SENSE that follows.
#[test]
fn a_unit_that_does_not_know_the_command_must_have_no_cache() {
    let caches = [caching(false), caching(true), vec![3, 0, 0, 0], vec![0]];
    let [off, on, unknown, unreadable] = caches.each_ref().map(|data| Answer::Good(data));
    let refused = Answer::Check(UNKNOWN_COMMAND);
    let cases = [
        (Some(false), None, DONE),
        (Some(true), Some(off), DONE),
        (Some(true), Some(on), failed(0)),
        (Some(true), Some(unknown), failed(0)),
        (Some(true), Some(refused), failed(0)),
        (None, Some(off), DONE),
        (None, Some(on), failed(0)),
        (None, Some(unknown), DONE),
        (None, Some(unreadable), DONE),
        (None, Some(refused), DONE),
        (None, Some(Answer::Silence), failed(1)),
    ];
    for (write_cache, mode, expected) in cases {
        let mut world = World::new(Terms { write_cache, ..CACHED });
        let asked = world.asks(Command::SynchronizeCache);
        world.answer(asked, refused);
        if let Some(answer) = mode {
            let asked = world.asks(Command::ModeSense);
            assert_eq!(world.poll(), Step::Wait, "asked once");
            world.answer(asked, answer);
        }
        assert_eq!(world.poll(), expected, "{write_cache:?}, {mode:?}");
        assert_eq!(world.is_unflushed(), expected != DONE);
    }
    // The terms say that there is no cache, but it was switched on meanwhile: `on_cache` records the unit
    // attention MODE PARAMETERS CHANGED.
    let mut world = World::new(Terms { write_cache: Some(false), ..CACHED });
    world.unit.durability.on_cache();
    let asked = world.asks(Command::SynchronizeCache);
    world.answer(asked, Answer::Check([0, 0x5, 0x24, 0]));
    let asked = world.asks(Command::ModeSense);
    world.answer(asked, on);
    assert_eq!(world.poll(), failed(0));
}

#[test]
fn one_flush_of_an_owner_is_in_progress_at_a_time() {
    let mut world = World::new(CACHED);
    let [second, third] = [(); 2].map(|()| world.start(ONE, FIRST));
    let asked = world.asks(Command::SynchronizeCache);
    assert_eq!([second, third].map(|it| world.poll_other(it)), [Step::Wait; 2]);
    let earlier = world.unit.begin_command(FIRST).number;
    // The write ends while the first flush is in progress, so the second flush covers it.
    world.write(FIRST);
    world.answer(asked, GOOD);
    assert_eq!(world.poll_other(third), Step::Wait);
    assert_eq!(world.poll(), DONE);
    assert_eq!(world.poll_other(third), Step::Wait, "the second one comes first");
    let asked = world.asks_other(second, Command::SynchronizeCache);
    world.reset(FIRST);
    world.answer_other(second, asked, GOOD);
    assert_eq!(world.poll_other(second), Step::AwaitCommands(FIRST, asked.1));
    assert_eq!(world.poll_other(third), Step::Wait);
    world.unit.forget(FIRST, earlier);
    assert_eq!(world.poll_other(second), DONE);
    assert_eq!(world.losses(), 1);
    world.asks_other(third, Command::SynchronizeCache);
}

#[test]
fn a_flush_without_its_turn_is_given_up_with_its_caller_and_one_that_has_it_runs_on() {
    let mut world = World::new(CACHED);
    let [second, third] = [(); 2].map(|()| world.start(ONE, FIRST));
    let asked = world.asks(Command::SynchronizeCache);
    world.flushes.cancel(second);
    world.flushes.cancel(world.flush);
    assert_eq!(world.poll_other(second), Step::Done(Err(Failure::GivenUp)));
    assert_eq!((world.poll(), world.poll_other(third)), (Step::Wait, Step::Wait));
    world.answer(asked, GOOD);
    assert_eq!(world.poll(), DONE);
    world.asks_other(third, Command::SynchronizeCache);
}

#[test]
fn a_flush_that_cannot_go_on_passes_its_turn_and_leaves_its_writes_unflushed() {
    let mut world = World::new(CACHED);
    let second = world.start(ONE, FIRST);
    let (_, number) = world.asks(Command::SynchronizeCache);
    world.flushes.abandon(world.flush, &mut world.unit);
    assert!(world.is_unflushed());
    world.unit.forget(FIRST, number);
    let asked = world.asks_other(second, Command::SynchronizeCache);
    world.answer_other(second, asked, GOOD);
    assert_eq!(world.poll_other(second), DONE);
    assert!(!world.is_unflushed());
}

/// Disks with a separate `Durability` for the same unit wait for each other until the unit has answered a
/// flush.
#[test]
fn the_turn_passes_to_another_disk_when_the_unit_has_answered() {
    let (mut flushes, now) = (Flushes::default(), start());
    let [mut one, mut other] = [(); 2].map(|()| Unit::new());
    let [first, second] = [(); 2].map(|()| flushes.start(ONE, FIRST, CACHED, &mut one));
    let third = flushes.start(OTHER, FIRST, CACHED, &mut other);
    let silent = one.begin_command(FIRST).number;
    let Step::Ask(asked) = flushes.poll(first, &mut one, now) else { panic!("nothing asked") };
    let number = one.begin_command(FIRST).number;
    assert_eq!(flushes.poll(third, &mut other, now), Step::Wait);
    one.forget(FIRST, number);
    flushes.on_end(first, asked.number, End::Good(number, &[]), &mut one);
    assert_eq!(flushes.poll(first, &mut one, now), Step::AwaitCommands(FIRST, number));
    assert_eq!(flushes.poll(second, &mut one, now), Step::Wait, "its disk hears what was before");
    assert!(matches!(flushes.poll(third, &mut other, now), Step::Ask(_)));
    one.forget(FIRST, silent);
    assert_eq!(flushes.poll(first, &mut one, now), DONE);
    assert_eq!(flushes.poll(second, &mut one, now), Step::Wait, "the other disk has the turn");
    let number = other.begin_command(FIRST).number;
    flushes.on_end(third, 0, End::Good(number, &[]), &mut other);
    assert!(matches!(flushes.poll(second, &mut one, now), Step::Ask(_)));
    assert_eq!(other.durability.losses(), LossCount(0));
}
