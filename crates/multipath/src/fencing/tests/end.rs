//! Tests of the check after a conflict, and of the end of a registration.

use std::time::Duration;

use iscsi_pdu::scsi::AdditionalSense;
use iscsi_pdu::scsi::reservation::ReservationType;

use super::super::{Failure, Goal, Step};
use super::model::{Answer, held, now};
use super::script::{A, B, Script, all_nexuses, failures, question, registered, run};
use crate::PathId;

/// PRS-14: a REGISTER shows whether a RESERVATION CONFLICT means that the disk was fenced off.
#[test]
fn prs_14_a_conflict_is_a_fence_if_the_proof_is_refused() {
    let mut table: Vec<(Script, Result<(), Failure>)> = vec![
        (vec![("prove", Answer::changed())], Ok(())),
        (vec![("prove", Answer::conflict())], Err(Failure::Preempted)),
        (vec![("prove", Answer::not_ready()), ("status", all_nexuses(1))], Ok(())),
        (vec![("prove", Answer::not_ready()), ("status", all_nexuses(0))], question(0)),
    ];
    for failure in failures().into_iter().skip(1) {
        table.push((vec![("prove", failure)], question(0)));
    }
    for (script, result) in table {
        let mut fencing = registered();
        assert_eq!(run(&mut fencing, 1, Goal::Prove, &script), result, "{script:?}");
        assert_eq!(fencing.is_preempted(), result == Err(Failure::Preempted), "{script:?}");
    }
}

/// PRS-11: after another host has fenced the disk off, no procedure sends a command.
#[test]
fn prs_11_nothing_is_asked_after_a_fence() {
    for goal in [Goal::Register, Goal::Join, Goal::Prove, Goal::End, Goal::EndUnlessReserved] {
        let mut fencing = registered();
        assert!(fencing.on_unit_attention(PathId(1), AdditionalSense::RESERVATIONS_PREEMPTED));
        let is_end = matches!(goal, Goal::End | Goal::EndUnlessReserved);
        let expected = if is_end { Ok(()) } else { Err(Failure::Preempted) };
        for path in [1, 2, 3] {
            assert_eq!(run(&mut fencing, path, goal, &vec![]), expected, "{goal:?}");
        }
        assert!(!fencing.may_be_left() && !fencing.is_nexus_registered(PathId(1)));
    }
}

/// PRS-16: either a registration is ended, or the disk reports that the registration may still exist.
#[test]
fn prs_16_the_end_of_a_registration_is_noted_only_if_the_unit_says_so() {
    let mut table: Vec<(Script, Result<(), Failure>)> = vec![
        (vec![("end", Answer::changed())], Ok(())),
        (vec![("end", Answer::conflict())], Ok(())),
        (vec![("end", Answer::not_ready()), ("status", all_nexuses(0))], Ok(())),
        (vec![("end", Answer::not_ready()), ("status", all_nexuses(1))], question(0)),
        (vec![("end", Answer::not_ready()), ("status", Answer::Silence)], question(0)),
    ];
    for failure in failures().into_iter().skip(1) {
        table.push((vec![("end", failure)], question(0)));
    }
    for (script, result) in table {
        let mut fencing = registered();
        assert_eq!(run(&mut fencing, 1, Goal::End, &script), result, "{script:?}");
        let is_left = result != Ok(());
        assert_eq!(fencing.is_registered(PathId(1)), is_left, "{script:?}");
        assert_eq!(fencing.may_be_left(), is_left, "{script:?}");
    }
    let mut fencing = registered();
    assert_eq!(run(&mut fencing, 2, Goal::End, &vec![]), Ok(()), "it was not registered");
}

/// PRS-17: a registration stays if a reservation may end with it, or if the unit does not report its
/// reservation.
#[test]
fn prs_17_a_registration_ends_unless_a_reservation_may_end_with_it() {
    let kind = ReservationType::WriteExclusiveRegistrantsOnly;
    let of_all = ReservationType::WriteExclusiveAllRegistrants;
    let end = || ("end", Answer::changed());
    let mut table: Vec<(Script, bool)> = vec![
        (vec![("reservation", held(None)), end()], false),
        (vec![("reservation", held(Some((B, kind)))), end()], false),
        (vec![("reservation", held(Some((A, kind))))], true),
        (vec![("reservation", held(Some((0, of_all))))], true),
        (vec![("reservation", Answer::Good(vec![0; 7]))], true),
    ];
    for failure in failures().into_iter().chain([Answer::not_ready()]) {
        table.push((vec![("reservation", failure)], true));
    }
    for (script, stays) in table {
        let mut fencing = registered();
        assert_eq!(run(&mut fencing, 1, Goal::EndUnlessReserved, &script), Ok(()), "{script:?}");
        assert_eq!(fencing.is_registered(PathId(1)), stays, "{script:?}");
        assert_eq!(fencing.may_be_left(), stays, "{script:?}");
    }
    let mut fencing = registered();
    let script = vec![("reservation", held(None)), ("end", Answer::Silence)];
    assert_eq!(run(&mut fencing, 1, Goal::EndUnlessReserved, &script), question(1));
    assert!(fencing.is_registered(PathId(1)));
}

/// The end of a registration has a time limit of five seconds for the change, including the READ FULL STATUS
/// after it, and another five seconds for READ RESERVATION before it. Other procedures rely on the time
/// limits of the session.
#[test]
fn only_the_end_of_a_registration_has_a_time_limit() {
    let mut fencing = registered();
    let begun = now();
    let at = |seconds| begun + Duration::from_secs(seconds);
    let procedure = fencing.start(PathId(1), Goal::EndUnlessReserved);
    let mut deadline = |seconds, answer: Answer| {
        let Step::Ask(question) = fencing.poll(procedure, at(seconds)) else { panic!() };
        fencing.on_end(procedure, answer.end());
        question.deadline
    };
    assert_eq!(deadline(0, held(None)), Some(at(5)));
    assert_eq!(deadline(3, Answer::not_ready()), Some(at(8)), "a limit for the next part");
    assert_eq!(deadline(4, all_nexuses(0)), Some(at(8)), "the limit of the change");
    assert_eq!(fencing.poll(procedure, at(9)), Step::Done(Ok(())));
    let procedure = fencing.start(PathId(2), Goal::Join);
    let Step::Ask(question) = fencing.poll(procedure, at(9)) else { panic!() };
    assert_eq!(question.deadline, None);
}
