mod model;

use super::*;

const FIRST: PathId = PathId(0);
const SECOND: PathId = PathId(1);

/// Creates a unit with a volatile cache and one session.
fn cached() -> Durability {
    let mut unit = Durability::new(FIRST);
    unit.on_cache();
    unit
}

/// Creates a unit with a volatile cache and two sessions; the first command of the second session was
/// accepted.
fn cached_over_two() -> Durability {
    let mut unit = cached();
    unit.join(SECOND);
    unit.accept(SECOND, unit.now());
    unit
}

fn write(unit: &mut Durability, path: PathId) {
    unit.on_write(path, unit.now());
}

/// Flushes over this path, for a handle that has reported all earlier losses. Returns whether no further loss
/// was counted.
fn flush(unit: &mut Durability, path: PathId, witness: Option<PathId>) -> bool {
    let seen = unit.report_losses();
    let flush = unit.begin_flush(path);
    unit.end_flush(flush, witness);
    unit.losses() == seen
}

fn is_witness(unit: &Durability, path: PathId) -> bool {
    unit.flush_rank(path).is_witness
}

#[test]
fn only_a_reset_between_write_and_flush_loses_writes() {
    let mut unit = cached();
    unit.on_reset(FIRST);
    write(&mut unit, FIRST);
    assert!(flush(&mut unit, FIRST, None));
    unit.on_reset(FIRST);
    assert!(flush(&mut unit, FIRST, None), "nothing was unflushed");
    write(&mut unit, FIRST);
    unit.on_reset(FIRST);
    write(&mut unit, FIRST);
    assert!(!flush(&mut unit, FIRST, None));
    assert!(flush(&mut unit, FIRST, None), "a loss counts once");
}

#[test]
fn one_session_vouches_for_the_writes_of_all() {
    let mut unit = cached();
    unit.on_reset(FIRST);
    unit.join(SECOND);
    write(&mut unit, SECOND);
    assert!(is_witness(&unit, FIRST) && is_witness(&unit, SECOND));
    assert!(flush(&mut unit, FIRST, None));
    write(&mut unit, SECOND);
    // Both sessions receive the report of one reset.
    unit.on_reset(FIRST);
    unit.on_reset(SECOND);
    write(&mut unit, SECOND);
    assert!(!flush(&mut unit, FIRST, None));
    write(&mut unit, SECOND);
    assert!(flush(&mut unit, FIRST, None));
}

/// A unit may report a reset from before a session began to that session alone. Such a report counts as no
/// loss.
#[test]
fn what_a_new_session_receives_first_is_no_news() {
    let mut unit = cached();
    write(&mut unit, FIRST);
    assert!(flush(&mut unit, FIRST, None));
    unit.join(SECOND);
    let early = unit.now();
    unit.on_reset(SECOND);
    unit.accept(SECOND, early);
    write(&mut unit, SECOND);
    assert!(flush(&mut unit, FIRST, None));
    // Both sessions receive the report of this reset.
    write(&mut unit, FIRST);
    unit.on_reset(FIRST);
    assert!(!flush(&mut unit, FIRST, None));
    write(&mut unit, FIRST);
    unit.on_reset(SECOND);
    assert!(flush(&mut unit, FIRST, None), "the older report of a witness is the exact one");
}

#[test]
fn a_session_that_came_later_cannot_vouch() {
    let mut unit = cached();
    write(&mut unit, FIRST);
    unit.join(SECOND);
    assert!(!is_witness(&unit, SECOND));
    assert!(!flush(&mut unit, SECOND, None));
    write(&mut unit, SECOND);
    assert!(flush(&mut unit, SECOND, None));

    let mut unit = Durability::new(FIRST);
    write(&mut unit, FIRST);
    unit.join(SECOND);
    assert!(flush(&mut unit, SECOND, None), "there is no cache");
    write(&mut unit, FIRST);
    unit.on_cache();
    unit.join(PathId(2));
    assert!(!flush(&mut unit, PathId(2), None), "there is one by now");
}

/// A reset that a session reports before its first accepted command may have come after a write of another
/// session. So the new session cannot show that this write survived.
#[test]
fn a_session_vouches_for_nothing_before_its_first_accepted_command() {
    let mut unit = cached();
    unit.join(SECOND);
    let begun = unit.now();
    write(&mut unit, FIRST);
    unit.on_reset(SECOND);
    unit.accept(SECOND, begun);
    assert!(!is_witness(&unit, SECOND));
    assert!(!flush(&mut unit, SECOND, None));
}

#[test]
fn another_session_vouches_for_what_came_before_this_one() {
    let mut unit = cached();
    assert!(!unit.needs(FIRST));
    for (later, is_reset) in [(SECOND, false), (PathId(2), true)] {
        write(&mut unit, FIRST);
        unit.join(later);
        assert!(unit.needs(FIRST) && !unit.needs(later));
        let seen = unit.losses();
        let flush = unit.begin_flush(later);
        assert!(unit.needs(FIRST) && unit.needs_witness(&flush) && unit.covers(&flush, FIRST));
        if is_reset {
            unit.on_reset(FIRST);
        }
        unit.end_flush(flush, Some(FIRST));
        assert!(!unit.needs(FIRST));
        assert_eq!(unit.losses() > seen, is_reset);
    }
}

#[test]
fn a_session_that_has_left_vouches_for_nothing() {
    let mut unit = cached_over_two();
    write(&mut unit, FIRST);
    unit.join(PathId(2));
    unit.leave(FIRST);
    assert!(!is_witness(&unit, FIRST) && !unit.needs(FIRST));
    assert!(unit.witness_rank(FIRST) > unit.witness_rank(SECOND));
    assert!(!flush(&mut unit, PathId(2), Some(FIRST)));
    write(&mut unit, SECOND);
    unit.join(PathId(3));
    assert!(flush(&mut unit, PathId(3), Some(SECOND)));
}

#[test]
fn a_write_counts_from_its_beginning() {
    let mut unit = cached();
    let begun = unit.now();
    unit.on_reset(FIRST);
    unit.on_write(FIRST, begun);
    assert!(!flush(&mut unit, FIRST, None));
}

#[test]
fn an_abandoned_flush_leaves_its_writes_unflushed() {
    let mut unit = cached();
    write(&mut unit, FIRST);
    let abandoned = unit.begin_flush(FIRST);
    unit.on_reset(FIRST);
    write(&mut unit, FIRST);
    unit.abandon_flush(abandoned);
    assert!(!flush(&mut unit, FIRST, None));
}

#[test]
fn a_flush_is_for_no_write_that_ends_after_its_beginning() {
    let mut unit = cached();
    write(&mut unit, FIRST);
    let early = unit.begin_flush(FIRST);
    write(&mut unit, FIRST);
    unit.end_flush(early, None);
    unit.on_reset(FIRST);
    assert!(!flush(&mut unit, FIRST, None), "the second write was in no flush");
}

/// A command ends without a status, for example an aborted hedged copy: the status may have reported a reset.
/// So another session, the witness, must vouch for the writes.
#[test]
fn another_session_vouches_for_one_that_may_have_missed_a_report() {
    let mut unit = cached_over_two();
    for (is_reset, is_uncertain) in [(false, false), (true, false), (false, true)] {
        write(&mut unit, FIRST);
        unit.on_uncertain_end(FIRST);
        let [first, second] = [FIRST, SECOND].map(|path| unit.flush_rank(path));
        assert!(first.may_know_reset && !second.may_know_reset, "the second one should flush");
        if is_reset {
            unit.on_reset(SECOND);
        } else if is_uncertain {
            unit.on_uncertain_end(SECOND);
        }
        let seen = unit.losses();
        let flush = unit.begin_flush(FIRST);
        assert!(unit.needs_witness(&flush));
        assert_eq!(unit.witness_rank(SECOND) < unit.witness_rank(FIRST), !is_uncertain);
        unit.end_flush(flush, Some(SECOND));
        assert_eq!(unit.losses() == seen, !is_reset && !is_uncertain);
    }
    write(&mut unit, FIRST);
    unit.on_uncertain_end(FIRST);
    assert!(!flush(&mut unit, FIRST, None));
    write(&mut unit, FIRST);
    assert!(flush(&mut unit, FIRST, None), "a report of what came before has arrived by then");
}

#[test]
fn what_could_not_be_written_is_lost_once() {
    let mut unit = cached();
    let seen = unit.losses();
    write(&mut unit, FIRST);
    let failing = unit.begin_flush(FIRST);
    unit.on_lost_writes();
    unit.fail_flush(failing);
    assert!(unit.losses() > seen);
    assert!(flush(&mut unit, FIRST, None), "nothing is left that could be lost");
}

/// While a flush is in progress, a write ends that this flush does not cover. Then the unit reports that it
/// could not write acknowledged data, and the flush ends with GOOD or fails on the medium. In both cases that
/// write may be lost as well, so the next flush reports a loss.
#[test]
fn what_could_not_be_written_counts_for_the_flush_after_the_one_in_progress() {
    for fails in [false, true] {
        let mut unit = cached();
        write(&mut unit, FIRST);
        let running = unit.begin_flush(FIRST);
        write(&mut unit, FIRST);
        unit.on_lost_writes();
        if fails {
            unit.fail_flush(running);
        } else {
            unit.end_flush(running, None);
        }
        assert!(!flush(&mut unit, FIRST, None), "the second write may be lost");
        assert!(flush(&mut unit, FIRST, None), "a loss counts once");
        write(&mut unit, FIRST);
        assert!(flush(&mut unit, FIRST, None), "it began after the report");
    }
}

#[test]
fn a_failure_that_no_flush_has_reported_counts_once() {
    let mut unit = cached();
    write(&mut unit, FIRST);
    unit.on_lost_writes();
    let running = unit.begin_flush(FIRST);
    unit.end_flush(running, None);
    assert_eq!((unit.reported_losses(), unit.losses()), (LossCount(0), LossCount(1)));
}

/// An older session is needed for the flush in progress, although a younger one can vouch for later writes.
#[test]
fn a_witness_is_needed_beside_one_that_vouches_for_later_writes_only() {
    let mut unit = cached();
    write(&mut unit, FIRST);
    unit.join(SECOND);
    let others = || [SECOND].into_iter();
    assert!(unit.needs_beside(FIRST, others()));
    let running = unit.begin_flush(SECOND);
    write(&mut unit, SECOND);
    assert!(unit.needs(SECOND) && unit.needs_beside(FIRST, others()));
    unit.end_flush(running, Some(FIRST));
    assert!(!unit.needs_beside(FIRST, others()), "both can vouch for the second write");
    unit.on_uncertain_end(SECOND);
    assert!(unit.needs_beside(FIRST, others()), "the other one may have missed a report");
    assert!(!unit.needs_beside(SECOND, [FIRST].into_iter()));
}

#[test]
fn a_new_handle_begins_with_the_losses_that_some_handle_has_reported() {
    let mut unit = cached();
    unit.on_lost_writes();
    assert_eq!(unit.reported_losses(), LossCount(0));
    assert_eq!(unit.report_losses(), LossCount(1));
    unit.on_lost_writes();
    assert_eq!((unit.reported_losses(), unit.losses()), (LossCount(1), LossCount(2)));
}
