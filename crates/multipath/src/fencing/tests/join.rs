//! Tests of a further path that joins a disk, and of a path that joins again after a reconnect.

use iscsi_pdu::scsi::AdditionalSense;
use iscsi_pdu::scsi::reservation::{FullStatus, RegisteredKeys};

use super::super::{Failure, Fencing, Goal, PathNexus, Step};
use super::model::{Answer, full_status, keys, nexus, now};
use super::script::{
    A, B, Script, all_nexuses, cut_status, failures, name_of, new, question, registered, run,
};
use crate::PathId;

const REGISTER: &str = "register for good";

/// Returns the script of a registration between two READ KEYS; the second one has the PRGENERATION `after`.
fn registers(before: u32, after: u32) -> Script {
    vec![
        ("keys", keys(before, &[B, A])),
        (REGISTER, Answer::changed()),
        ("keys", keys(after, &[B, A, A])),
    ]
}

/// Returns the script of a registration that is not confirmed, and is ended.
fn does_not_count(end: Script) -> Script {
    registers(5, 7).into_iter().chain(end).collect()
}

/// PRS-12: a further path registers between two READ KEYS. Unless PRGENERATION has grown by exactly one, its
/// registration is ended and the path tries again.
#[test]
fn prs_12_a_further_path_joins_only_a_disk_that_is_registered_all_the_time() {
    let (good, not_ready) = (Answer::changed, Answer::not_ready);
    let again = |end: Script| does_not_count(end).into_iter().chain(registers(8, 9)).collect();
    let gone = || ("keys", keys(8, &[B]));
    let unclear = vec![
        ("keys", keys(5, &[A])),
        (REGISTER, not_ready()),
        ("status", all_nexuses(2)),
        ("keys", keys(6, &[A, A])),
    ];
    let table: Vec<(Script, Result<(), Failure>)> = vec![
        (registers(5, 6), Ok(())),
        (registers(u32::MAX, 0), Ok(())),
        (unclear, Ok(())),
        (vec![("keys", keys(5, &[B]))], Err(Failure::Preempted)),
        (vec![("keys", keys(5, &[]))], Err(Failure::Preempted)),
        // Other registrations have changed at the same time. The change may have been a fence, so the path
        // tries again.
        (again(vec![("end", good())]), Ok(())),
        (again(vec![("end", not_ready()), ("status", all_nexuses(1))]), Ok(())),
        (does_not_count(vec![("end", good()), gone()]), Err(Failure::Preempted)),
        (does_not_count(vec![("end", Answer::conflict()), gone()]), Err(Failure::Preempted)),
    ];
    for (script, result) in table {
        let mut fencing = registered();
        assert_eq!(run(&mut fencing, 2, Goal::Join, &script), result, "{script:?}");
        assert_eq!(fencing.is_registered(PathId(2)), result == Ok(()), "{script:?}");
        assert_eq!(fencing.is_nexus_registered(PathId(2)), result == Ok(()), "{script:?}");
        assert_eq!(fencing.is_preempted(), result == Err(Failure::Preempted), "{script:?}");
    }
}

/// PRS-12: a command of a joining path fails. Only a command without a status may still be executed.
#[test]
fn prs_12_a_path_that_fails_to_join_leaves_only_what_was_not_answered() {
    let illegal = Answer::illegal_request;
    let before = || ("keys", keys(5, &[A]));
    let refused = |form| vec![(form, Answer::not_ready()), ("status", all_nexuses(1))];
    let unclear: Script =
        [vec![before()], refused(REGISTER), refused("register")].into_iter().flatten().collect();
    let unreadable = Failure::Format(RegisteredKeys::decode(&[0; 7]).unwrap_err());
    let in_no_form = vec![
        before(),
        (REGISTER, illegal()),
        ("register", illegal()),
        ("register as in SPC-2", illegal()),
    ];
    let mut table: Vec<(Script, Result<(), Failure>, bool)> = vec![
        (vec![("keys", Answer::Good(vec![0; 7]))], Err(unreadable), false),
        (vec![before(), (REGISTER, Answer::conflict())], question(1), false),
        (vec![before(), (REGISTER, Answer::Silence)], question(1), true),
        (in_no_form, question(3), false),
        (unclear, question(3), false),
    ];
    for failure in failures().into_iter().chain([Answer::not_ready()]) {
        table.push((vec![("keys", failure.clone())], question(0), false));
        let look = vec![before(), (REGISTER, Answer::changed()), ("keys", failure)];
        table.push((look, question(2), true));
    }
    for failure in failures().into_iter().skip(1) {
        table.push((does_not_count(vec![("end", failure)]), question(3), true));
    }
    for (script, result, is_uncertain) in table {
        let mut fencing = registered();
        assert_eq!(run(&mut fencing, 2, Goal::Join, &script), result, "{script:?}");
        assert!(!fencing.is_registered(PathId(2)) && !fencing.is_preempted(), "{script:?}");
        let end = vec![("end", Answer::changed())];
        assert_eq!(run(&mut fencing, 1, Goal::End, &end), Ok(()));
        assert_eq!(fencing.may_be_left(), is_uncertain, "{script:?}");
    }
}

/// Returns a disk whose path 1 is registered, and whose path 2 has a registration without a status. The nexus
/// of path 2 has not logged in again.
fn uncertain(second: PathNexus) -> Fencing {
    let mut fencing = new();
    let first = vec![(REGISTER, Answer::changed())];
    assert_eq!(run(&mut fencing, 1, Goal::Register, &first), Ok(()));
    fencing.attach(PathId(2), second);
    let silent = vec![("keys", keys(5, &[A])), (REGISTER, Answer::Silence)];
    assert_eq!(run(&mut fencing, 2, Goal::Join, &silent), question(1));
    fencing.detach(PathId(2));
    fencing
}

/// PRS-12: if the key may come from a registration without a status, READ KEYS alone shows neither that the
/// disk is registered nor that it was fenced off.
#[test]
fn prs_12_the_nexus_of_the_key_counts_where_a_registration_had_no_answer() {
    let status = |nexuses: &[PathNexus]| {
        let all: Vec<_> = nexuses.iter().map(|nexus| (A, *nexus)).collect();
        full_status(9, &all)
    };
    let without_isid = || {
        let Answer::Good(mut data) = status(&[nexus(1)]) else { unreachable!() };
        data[32] = 0x05;
        Answer::Good(data)
    };
    let other_port = PathNexus { portal_group: Some(2), ..nexus(1) };
    let registers = [(REGISTER, Answer::changed()), ("keys", keys(10, &[A, A]))];
    let table: Vec<(PathNexus, Script, Result<(), Failure>)> = vec![
        (nexus(2), vec![("status", status(&[nexus(1)]))], Ok(())),
        (nexus(2), vec![("status", status(&[nexus(2), nexus(1)]))], Ok(())),
        (nexus(2), vec![("status", cut_status()), ("longer status", all_nexuses(1))], Ok(())),
        (nexus(2), vec![("status", status(&[nexus(2)]))], Err(Failure::Preempted)),
        (nexus(2), vec![("status", status(&[]))], Err(Failure::Preempted)),
        (nexus(2), vec![("status", without_isid())], Err(Failure::Unproven)),
        (nexus(2), vec![("status", Answer::illegal_request())], question(1)),
        (nexus(2), vec![("status", Answer::Silence)], question(1)),
        (
            nexus(2),
            vec![("status", Answer::Good(vec![0; 7]))],
            Err(Failure::Format(FullStatus::decode(&[0; 7]).unwrap_err())),
        ),
        // Two nexuses have the same ISID, so one entry does not show which of them is registered.
        (other_port, vec![("status", status(&[nexus(1)]))], Err(Failure::Unproven)),
        (other_port, vec![("status", status(&[other_port, nexus(1)]))], Ok(())),
    ];
    for (second, mut script, result) in table {
        let mut fencing = uncertain(second);
        fencing.attach(PathId(4), nexus(4));
        let is_longer = script.len() > 1;
        script.insert(0, ("keys", keys(8, &[B, A])));
        if result == Ok(()) {
            script.extend(registers.clone());
        }
        if is_longer {
            // The PRGENERATION of READ FULL STATUS is used instead of the PRGENERATION of READ KEYS.
            *script.last_mut().unwrap() = ("keys", keys(2, &[A, A]));
        }
        assert_eq!(run(&mut fencing, 4, Goal::Join, &script), result, "{script:?}");
        assert_eq!(fencing.is_preempted(), result == Err(Failure::Preempted), "{script:?}");
        assert_eq!(fencing.is_registered(PathId(4)), result == Ok(()), "{script:?}");
    }
    // If there are more keys than registrations that may be late, READ FULL STATUS is not needed.
    let mut fencing = uncertain(nexus(2));
    fencing.attach(PathId(4), nexus(4));
    let mut script = vec![("keys", keys(9, &[A, A]))];
    script.extend(registers);
    assert_eq!(run(&mut fencing, 4, Goal::Join, &script), Ok(()));
}

/// PRS-12: a nexus that logs in again may have been registered before the login, but after a fence. So it
/// first ends its registration.
#[test]
fn prs_12_a_nexus_whose_registration_had_no_answer_ends_it_first() {
    let joins = |end: Script| end.into_iter().chain(registers(5, 6)).collect();
    let table: Vec<(Script, Result<(), Failure>)> = vec![
        (joins(vec![("end", Answer::changed())]), Ok(())),
        (joins(vec![("end", Answer::conflict())]), Ok(())),
        (joins(vec![("end", Answer::not_ready()), ("status", all_nexuses(1))]), Ok(())),
        (vec![("end", Answer::not_ready()), ("status", all_nexuses(2))], question(0)),
        (vec![("end", Answer::illegal_request())], question(0)),
        (vec![("end", Answer::Silence)], question(0)),
        (vec![("end", Answer::changed()), ("keys", keys(5, &[B]))], Err(Failure::Preempted)),
    ];
    for (script, result) in table {
        let mut fencing = uncertain(nexus(2));
        fencing.attach(PathId(5), nexus(2));
        assert_eq!(run(&mut fencing, 5, Goal::Join, &script), result, "{script:?}");
        assert_eq!(fencing.is_preempted(), result == Err(Failure::Preempted), "{script:?}");
        let end = vec![("end", Answer::changed())];
        let is_preempted = fencing.is_preempted();
        assert_eq!(
            run(&mut fencing, 1, Goal::End, &if is_preempted { vec![] } else { end }),
            Ok(())
        );
        assert_eq!(fencing.may_be_left(), !is_preempted, "it is registered, or may be: {script:?}");
    }
}

/// PRS-12: PRGENERATION always grows by more than one. The path gives up after eight tries.
#[test]
fn prs_12_a_path_that_never_counts_gives_up() {
    let mut fencing = registered();
    let script = (0..8).flat_map(|_| does_not_count(vec![("end", Answer::changed())])).collect();
    let result = run(&mut fencing, 2, Goal::Join, &script);
    assert_eq!(result, Err(Failure::NoGeneration));
    assert!(!fencing.is_preempted() && !fencing.is_registered(PathId(2)));
}

/// PRS-12: all keys are read, also if there are more than the first response holds.
#[test]
fn prs_12_keys_that_were_cut_are_read_again() {
    let mut fencing = registered();
    let many: Vec<u64> = std::iter::repeat_n(B, 200).chain([A]).collect();
    let Answer::Good(mut cut) = keys(5, &many) else { unreachable!() };
    cut.truncate(1024);
    let after = vec![
        ("keys", Answer::Good(cut)),
        ("longer keys", keys(5, &many)),
        (REGISTER, Answer::changed()),
        ("keys", keys(6, &[A, A])),
    ];
    assert_eq!(run(&mut fencing, 2, Goal::Join, &after), Ok(()));
}

/// PRS-11: a unit attention over another path reports a fence while a path joins. Nothing is registered after
/// it, and a registration that was made before it is ended.
#[test]
fn prs_11_a_path_that_joins_while_a_fence_is_reported_does_not_stay_registered() {
    let script = does_not_count(vec![("end", Answer::changed())]);
    for (asked_before, expected) in
        [(0, vec![]), (1, vec!["keys"]), (2, vec!["keys", REGISTER, "keys", "end"])]
    {
        let mut fencing = registered();
        let procedure = fencing.start(PathId(2), Goal::Join);
        let mut asked = Vec::new();
        let result = loop {
            if asked.len() == asked_before {
                let preempted = AdditionalSense::REGISTRATIONS_PREEMPTED;
                assert!(fencing.on_unit_attention(PathId(1), preempted));
            }
            match fencing.poll(procedure, now()) {
                Step::Ask(question) => {
                    asked.push(name_of(question.command));
                    let (_, answer) = &script[asked.len() - 1];
                    fencing.on_end(procedure, answer.end());
                }
                Step::Done(result) => break result,
                Step::Wait => panic!("nothing else runs"),
            }
        };
        assert_eq!((result, asked), (Err(Failure::Preempted), expected));
        assert!(!fencing.is_registered(PathId(2)));
    }
}

/// PRS-13: a path whose nexus was registered checks that the registration still exists.
#[test]
fn prs_13_a_path_that_has_reconnected_proves_its_registration() {
    let conflict = Answer::conflict;
    let table: Vec<(Script, Result<(), Failure>)> = vec![
        (vec![("prove", Answer::changed())], Ok(())),
        (vec![("prove", Answer::not_ready()), ("status", all_nexuses(1))], Ok(())),
        (vec![("prove", Answer::not_ready()), ("status", all_nexuses(0))], question(0)),
        (vec![("prove", Answer::not_ready()), ("status", Answer::illegal_request())], question(0)),
        (vec![("prove", Answer::illegal_request())], question(0)),
        (vec![("prove", Answer::Silence)], question(0)),
        // The target treats each session as a new nexus.
        (
            vec![
                ("prove", conflict()),
                ("keys", keys(5, &[A])),
                (REGISTER, Answer::changed()),
                ("keys", keys(6, &[A, A])),
            ],
            Ok(()),
        ),
        (vec![("prove", conflict()), ("keys", keys(5, &[B]))], Err(Failure::Preempted)),
        (vec![("prove", conflict()), ("keys", Answer::Silence)], question(1)),
    ];
    for (script, result) in table {
        let mut fencing = registered();
        fencing.detach(PathId(1));
        assert_eq!(run(&mut fencing, 3, Goal::Join, &script), result, "{script:?}");
        assert_eq!(fencing.is_preempted(), result == Err(Failure::Preempted), "{script:?}");
        if result == Ok(()) {
            assert!(fencing.is_registered(PathId(3)), "{script:?}");
        }
    }
}
