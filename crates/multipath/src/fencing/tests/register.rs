//! Tests of the registration of the first path, and of the form that the unit accepts.

use iscsi_pdu::scsi::reservation::PersistentReserveOut;

use super::super::{Failure, Goal, ReserveCommand, Step};
use super::model::{Answer, keys, nexus, now};
use super::script::{A, Script, all_nexuses, cut_status, new, question, run};
use crate::PathId;

const FIRST: &str = "register for good";
const SPC_2: &str = "register as in SPC-2";

/// PRS-10: a path is registered even if the unit supports neither APTPL nor REGISTER AND IGNORE EXISTING KEY,
/// or does not report that it has made a change.
#[test]
fn prs_10_the_first_path_registers_in_the_form_that_the_unit_takes() {
    let (good, illegal, not_ready) = (Answer::changed, Answer::illegal_request, Answer::not_ready);
    let unclear = |status| vec![(FIRST, not_ready()), ("status", status), ("register", good())];
    let table: Vec<Script> = vec![
        vec![(FIRST, good())],
        vec![(FIRST, not_ready()), ("status", all_nexuses(1))],
        vec![(FIRST, not_ready()), ("status", cut_status()), ("longer status", all_nexuses(3))],
        unclear(all_nexuses(0)),
        unclear(illegal()),
        unclear(Answer::Good(vec![0; 3])),
        vec![(FIRST, illegal()), ("register", good())],
        vec![(FIRST, illegal()), ("register", illegal()), (SPC_2, good())],
    ];
    for script in table {
        let mut fencing = new();
        assert_eq!(run(&mut fencing, 1, Goal::Register, &script), Ok(()), "{script:?}");
        assert!(fencing.is_registered(PathId(1)) && fencing.is_nexus_registered(PathId(1)));
        assert!(fencing.may_be_left() && !fencing.is_preempted());
        assert_eq!(run(&mut fencing, 1, Goal::Register, &vec![]), Ok(()), "registered already");
    }
}

/// PRS-15, PRS-16: the registration of the first path fails. The registration may still exist only if its
/// command has no status, or if READ FULL STATUS does not show whether the unit has made it.
#[test]
fn prs_15_a_first_path_that_is_not_registered_says_why() {
    let (illegal, not_ready) = (Answer::illegal_request, Answer::not_ready);
    let (conflict, silence) = (Answer::conflict, || Answer::Silence);
    let second = |answer| vec![(FIRST, illegal()), ("register", answer)];
    let third = |answer| vec![(FIRST, illegal()), ("register", illegal()), (SPC_2, answer)];
    let unclear = |status| {
        let mut script = second(not_ready());
        let is_cut = matches!(&status, Answer::Good(data) if data.len() == 60);
        script.push(("status", status.clone()));
        script.extend(is_cut.then_some(("longer status", status)));
        script
    };
    let table: Vec<(Script, Result<(), Failure>, bool)> = vec![
        (third(illegal()), Err(Failure::NoReservations), false),
        (vec![(FIRST, conflict())], question(0), false),
        (vec![(FIRST, silence())], question(0), true),
        (second(conflict()), question(1), false),
        (second(silence()), question(1), true),
        (unclear(all_nexuses(0)), question(1), false),
        (unclear(illegal()), question(1), true),
        (unclear(silence()), question(1), true),
        (unclear(cut_status()), question(1), true),
        (third(conflict()), question(2), false),
        (third(silence()), question(2), true),
    ];
    for (script, result, may_be_left) in table {
        let mut fencing = new();
        assert_eq!(run(&mut fencing, 1, Goal::Register, &script), result, "{script:?}");
        assert!(!fencing.is_registered(PathId(1)) && !fencing.is_nexus_registered(PathId(1)));
        assert_eq!(fencing.may_be_left(), may_be_left, "{script:?}");
        assert!(!fencing.is_preempted());
    }
}

/// PRS-10: a form that the unit has refused once is not tried again over further paths.
#[test]
fn prs_10_a_further_path_registers_in_the_form_of_the_first() {
    let (good, illegal) = (Answer::changed, Answer::illegal_request);
    let without_aptpl: Script = vec![("register for good", illegal()), ("register", good())];
    let as_in_spc_2: Script = vec![
        ("register for good", illegal()),
        ("register", illegal()),
        ("register as in SPC-2", good()),
    ];
    for (script, form) in [(without_aptpl, "register"), (as_in_spc_2, "register as in SPC-2")] {
        let mut fencing = new();
        assert_eq!(run(&mut fencing, 1, Goal::Register, &script), Ok(()));
        fencing.attach(PathId(2), nexus(2));
        let joins = vec![("keys", keys(1, &[A])), (form, good()), ("keys", keys(2, &[A, A]))];
        assert_eq!(run(&mut fencing, 2, Goal::Join, &joins), Ok(()));
        let procedure = fencing.start(PathId(2), Goal::Prove);
        let Step::Ask(proof) = fencing.poll(procedure, now()) else { panic!() };
        let is_persistent = |command| {
            matches!(
                command,
                ReserveCommand::Out(PersistentReserveOut::Register {
                    persist_through_power_loss: true,
                    ..
                })
            )
        };
        assert!(!is_persistent(proof.command), "REGISTER would activate APTPL again");
    }
}
