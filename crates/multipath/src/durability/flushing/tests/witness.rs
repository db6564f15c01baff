//! Tests of witnesses: sessions that show, in place of the session that has flushed, that no reset has emptied
//! the cache before the flush.

use super::*;

#[test]
fn a_witness_vouches_once_it_has_received_all_reports() {
    for answer in [GOOD, Answer::Check(NOT_READY)] {
        let (mut world, later) = World::over_a_later_path();
        let asked = world.asks(Command::SynchronizeCache);
        assert_eq!(asked.0.path, later);
        world.answer(asked, GOOD);
        assert_eq!(world.poll(), Step::ChooseWitness);
        world.flushes.on_witness(world.flush, Some(FIRST), &mut world.unit);
        assert!(world.flushes.needs_path(FIRST) && world.flushes.needs_path(later));
        let earlier = world.unit.begin_command(FIRST).number;
        let ready = world.asks(Command::TestUnitReady);
        assert_eq!((ready.0.path, world.poll()), (FIRST, Step::Wait));
        world.answer(ready, answer);
        let heard = world.unit.next_command(FIRST);
        assert_eq!(world.poll(), Step::AwaitCommands(FIRST, heard));
        assert!(world.flushes.needs_path(FIRST));
        world.unit.forget(FIRST, earlier);
        assert_eq!(world.poll(), DONE);
        assert_eq!(world.losses(), 0, "{answer:?}");
    }
}

#[test]
fn a_witness_that_is_lost_or_silent_or_was_reset_vouches_for_nothing_and_another_one_is_chosen() {
    let deferred = [1, NOT_READY[1], NOT_READY[2], NOT_READY[3]];
    let answers = [Answer::Silence, Answer::Status(Status::TASK_ABORTED), Answer::Check(deferred)];
    for answer in answers {
        let (mut world, _) = World::over_a_later_path();
        let asked = world.asks(Command::SynchronizeCache);
        world.answer(asked, GOOD);
        assert_eq!(world.poll(), Step::ChooseWitness);
        world.flushes.on_witness(world.flush, Some(FIRST), &mut world.unit);
        let ready = world.asks(Command::TestUnitReady);
        let losses = world.losses();
        world.answer(ready, answer);
        assert_eq!(world.poll(), Step::ChooseWitness);
        // The only path that is offered is the previous witness, so there is no other witness.
        world.flushes.on_witness(world.flush, Some(FIRST), &mut world.unit);
        assert_eq!(world.poll(), DONE);
        assert!(world.losses() > losses, "{answer:?}");
    }
    // The first status of TEST UNIT READY reports a reset. The command is sent again, and ends with GOOD.
    let (mut world, _) = World::over_a_later_path();
    let asked = world.asks(Command::SynchronizeCache);
    world.answer(asked, GOOD);
    assert_eq!(world.poll(), Step::ChooseWitness);
    world.flushes.on_witness(world.flush, Some(FIRST), &mut world.unit);
    let ready = world.asks(Command::TestUnitReady);
    world.reset(FIRST);
    world.answer(ready, GOOD);
    assert_eq!(world.poll(), DONE);
    assert_eq!(world.losses(), 1);
    // An earlier command over the witness's path never ends: its status may have reported a reset.
    let (mut world, _) = World::over_a_later_path();
    let asked = world.asks(Command::SynchronizeCache);
    world.answer(asked, GOOD);
    assert_eq!(world.poll(), Step::ChooseWitness);
    let _silent = world.unit.begin_command(FIRST);
    world.flushes.on_witness(world.flush, Some(FIRST), &mut world.unit);
    let ready = world.asks(Command::TestUnitReady);
    world.answer(ready, GOOD);
    assert!(matches!(world.poll(), Step::AwaitCommands(FIRST, _)));
    assert_eq!(world.wait(PATIENCE), DONE);
    assert_eq!(world.losses(), 1);
}

#[test]
fn another_witness_vouches_in_the_place_of_a_lost_one() {
    let (mut world, [first, second]) = World::with_two_witnesses();
    assert_eq!(world.poll(), Step::ChooseWitness);
    world.flushes.on_witness(world.flush, Some(first), &mut world.unit);
    let ready = world.asks(Command::TestUnitReady);
    world.answer(ready, Answer::Silence);
    assert_eq!(world.poll(), Step::ChooseWitness);
    world.flushes.on_witness(world.flush, Some(second), &mut world.unit);
    assert!(world.flushes.needs_path(second) && !world.flushes.needs_path(first));
    let ready = world.asks(Command::TestUnitReady);
    assert_eq!(ready.0.path, second);
    world.answer(ready, GOOD);
    assert_eq!((world.poll(), world.losses()), (DONE, 0));
}

#[test]
fn witnesses_are_not_chosen_for_ever() {
    let (mut world, witnesses) = World::with_two_witnesses();
    let mut chosen = 0;
    while world.poll() == Step::ChooseWitness {
        let witness = witnesses[chosen % 2];
        world.flushes.on_witness(world.flush, Some(witness), &mut world.unit);
        if world.flushes.needs_path(witness) {
            let (ready, _) = world.asks(Command::TestUnitReady);
            world.flushes.on_end(world.flush, ready.number, End::NoAnswer, &mut world.unit);
            chosen += 1;
        }
    }
    assert_eq!(chosen, 8);
    assert!(world.losses() > 0);
}

/// A witness that refuses TEST UNIT READY for a temporary reason does not show whether there was a reset. The
/// command is repeated until the retry timeout.
#[test]
fn a_witness_that_does_not_take_the_question_is_asked_again_for_as_long_as_requests_are_retried() {
    let answers = [
        Answer::Status(Status::BUSY),
        Answer::Status(Status::TASK_SET_FULL),
        Answer::Check([0, 0xb, 0, 0]),
    ];
    for answer in answers {
        for gives_up in [false, true] {
            let (mut world, _) = World::over_a_later_path();
            let asked = world.asks(Command::SynchronizeCache);
            world.answer(asked, GOOD);
            assert_eq!(world.poll(), Step::ChooseWitness);
            world.flushes.on_witness(world.flush, Some(FIRST), &mut world.unit);
            let begun = world.now;
            for _ in 0..3 {
                let ready = world.asks(Command::TestUnitReady);
                world.answer(ready, answer);
                // A second end of the same command changes nothing.
                world.flushes.on_end(world.flush, ready.0.number, End::NoAnswer, &mut world.unit);
                assert_eq!(world.poll(), Step::Wait);
                world.now = world.flushes.poll_timeout(world.flush).unwrap();
            }
            let mut ready = world.asks(Command::TestUnitReady);
            world.answer(ready, if gives_up { answer } else { GOOD });
            let mut step = world.poll();
            while step == Step::Wait {
                world.now = world.flushes.poll_timeout(world.flush).unwrap();
                ready = world.asks(Command::TestUnitReady);
                world.answer(ready, answer);
                step = world.poll();
            }
            assert_eq!(step, DONE);
            let took = world.now - begun;
            assert!(!gives_up || (PATIENCE / 2..=PATIENCE).contains(&took), "{took:?}");
            assert_eq!(world.losses(), u64::from(gives_up), "{answer:?}");
        }
    }
}

#[test]
fn a_path_that_cannot_know_of_every_reset_is_not_asked() {
    let (mut world, _) = World::over_a_later_path();
    let third = world.unit.add_path(SharedReasons::default());
    let asked = world.asks(Command::SynchronizeCache);
    world.answer(asked, GOOD);
    assert_eq!(world.poll(), Step::ChooseWitness);
    world.flushes.on_witness(world.flush, Some(third), &mut world.unit);
    assert_eq!(world.poll(), DONE);
    assert_eq!(world.losses(), 1);
}
