//! Tests of actions of another initiator on a unit, and their effect on other sessions.

use std::time::{Duration, Instant};

use crate::rig::{NAMES, Rig, config, pattern};
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::{FINAL, NO_TAG, Pdu};
use iscsi_testkit::scsi::{Sense, Unit, status};

/// Logs in to a unit. If `tells`, the unit ends commands that another initiator aborts with TASK ABORTED, and
/// otherwise without a status.
fn rig(tells: bool) -> Rig {
    let mut config = config();
    config.units.values_mut().for_each(|unit| unit.behavior.task_aborted_status = tells);
    Rig::login(config, &[])
}

/// Returns the sense of TEST UNIT READY; `None` if it ends with GOOD.
fn attention(rig: &mut Rig) -> Option<Sense> {
    let ready = rig.command(0x80, &[0], 0, &[]);
    rig.put(ready);
    let response = rig.next();
    let fixed = response.data.get(2..)?;
    Some(Sense::new(fixed[2], fixed[12], fixed[13]))
}

#[expect(
    clippy::disallowed_methods,
    reason = "an Instant comes from a clock; all later ones are reckoned"
)]
fn start() -> Instant {
    Instant::now()
}

/// Starts a write of four blocks, of which one has arrived, and a read that waits for its turn.
fn begin_two(rig: &mut Rig) -> Pdu {
    let write = rig.write(4, 4, &[1; 512]);
    rig.put(write);
    let r2t = rig.next();
    assert!(r2t.is(Opcode::R2t));
    let read = rig.read(0, 1);
    rig.put(read);
    assert_eq!(rig.target.active_tasks(), 2);
    r2t
}

/// SAM-5 §5.6: without TAS the commands of all other nexuses end without a response, and the nexuses receive only
/// a unit attention.
#[test]
fn commands_end_without_a_status_where_tas_is_clear() {
    for clears in [false, true] {
        let mut rig = rig(false);
        let r2t = begin_two(&mut rig);
        let told = if clears {
            rig.target.clear_by_another(0);
            Sense::COMMANDS_CLEARED
        } else {
            rig.target.reset_by_another(0);
            Sense::UNIT_RESET
        };
        assert_eq!((rig.target.active_tasks(), rig.drain().len()), (0, 0));
        rig.answer(&r2t, &pattern(2048), 2048);
        assert!(
            rig.target.disk(0).unwrap().holds(5 * 512, &[0; 512]),
            "it is not executed any more"
        );
        assert_eq!((attention(&mut rig), attention(&mut rig)), (Some(told), None));
        rig.assert_no_violations();
    }
}

/// SAM-5 §5.6, SPC-4 §7.5.8: with TAS each command ends with TASK ABORTED, and a session without commands is not
/// informed.
#[test]
fn commands_end_with_task_aborted_where_tas_is_set() {
    for clears in [false, true] {
        let mut rig = rig(true);
        begin_two(&mut rig);
        if clears {
            rig.target.clear_by_another(0);
        } else {
            rig.target.reset_by_another(0);
        }
        let answers = rig.drain();
        assert_eq!(answers.len(), 2);
        assert!(answers.iter().all(|answer| answer.status() == status::TASK_ABORTED));
        assert_eq!(answers[0].exp_data_sn(), 1, "one R2T had gone out for the write");
        let told = (!clears).then_some(Sense::UNIT_RESET);
        assert_eq!((attention(&mut rig), attention(&mut rig)), (told, None));
        assert_eq!(rig.target.active_tasks(), 0);
        rig.assert_no_violations();
    }
    let mut rig = rig(true);
    let page = rig.command(0xc0, &[0x1a, 0, 0x0a, 0, 64], 64, &[]);
    rig.put(page);
    assert_eq!(rig.next().data[4 + 5] & 0x40, 0x40, "the control mode page says so");
}

/// SAM-5 §7.5, §7.7: a session that clears a task set or resets a unit ends the commands of all others.
#[test]
fn the_functions_of_one_session_end_the_commands_of_another() {
    const CLEAR_TASK_SET: u8 = 4;
    const LOGICAL_UNIT_RESET: u8 = 5;
    for (function, tells) in
        [CLEAR_TASK_SET, LOGICAL_UNIT_RESET].into_iter().flat_map(|it| [(it, false), (it, true)])
    {
        let mut rig = rig(tells);
        begin_two(&mut rig);
        let first = (rig.id, rig.cmd_sn, rig.exp_stat_sn);
        (rig.id, rig.isid[5], rig.tsih, rig.exp_stat_sn) = (rig.target.accept(), 6, 0, 0);
        assert_eq!(rig.login_request(1, 3, FINAL, &NAMES).login_status(), 0);
        let mut request = rig.request(Opcode::TaskManagementRequest);
        request.header[0] |= 0x40;
        request.header[1] = FINAL | function;
        request.set_u32(20, NO_TAG);
        rig.put(request);
        assert_eq!(rig.next().response(), 0);
        (rig.id, rig.cmd_sn, rig.exp_stat_sn) = first;
        let answers = rig.drain();
        assert_eq!(answers.len(), if tells { 2 } else { 0 });
        assert!(answers.iter().all(|answer| answer.status() == status::TASK_ABORTED));
        assert_eq!(rig.target.active_tasks(), 0);
        let told = match (function, tells) {
            (CLEAR_TASK_SET, true) => None,
            (CLEAR_TASK_SET, false) => Some(Sense::COMMANDS_CLEARED),
            _ => Some(Sense::UNIT_RESET),
        };
        assert_eq!((attention(&mut rig), attention(&mut rig)), (told, None));
    }
}

/// A command that waits to be executed is not executed after a reset.
#[test]
fn a_reset_ends_what_is_executed_late() {
    let mut config = config();
    config.execution_delays = vec![Duration::from_secs(1)];
    let mut rig = Rig::login(config, &[]);
    let write = rig.write(0, 1, &[1; 512]);
    rig.put(write);
    assert_eq!(rig.target.put_off_commands(), 1);
    rig.target.reset_by_another(0);
    assert_eq!(rig.target.put_off_commands(), 0);
    assert!(rig.target.disk(0).unwrap().holds(0, &[0; 512]));
}

/// SAM-5 §8.6: commands with the attribute SIMPLE are executed in any order, and each reads the data at the time
/// of its execution.
#[test]
fn commands_are_executed_in_another_order_than_they_come() {
    let mut config = config();
    config.execution_delays = [30, 10, 20].map(Duration::from_millis).to_vec();
    let mut rig = Rig::login(config, &[]);
    let begun = start();
    let commands = [rig.write(0, 1, &[1; 512]), rig.write(0, 1, &[2; 512]), rig.read(0, 1)];
    let tags = commands.each_ref().map(Pdu::itt);
    commands.into_iter().for_each(|command| rig.put(command));
    rig.target.advance(begun);
    assert!(rig.drain().is_empty());
    rig.target.advance(begun + Duration::from_millis(30));
    let answers = rig.drain();
    assert_eq!(answers.iter().map(Pdu::itt).collect::<Vec<_>>(), [tags[1], tags[2], tags[0]]);
    assert_eq!(answers[1].data, [2; 512][..]);
    assert!(rig.target.disk(0).unwrap().holds(0, &[1; 512]));
    let mut ordered = rig.read(0, 1);
    ordered.header[1] = ordered.header[1] & !7 | 2;
    rig.put(ordered);
    assert_eq!(rig.next().data, [1; 512][..], "ORDERED keeps its place");
    rig.assert_no_violations();
}

/// A command that arrived before the unit was replaced is executed by the old unit, even if its parameter list
/// arrives later.
#[test]
fn a_command_under_way_goes_on_with_the_old_unit() {
    let mut rig = Rig::login(config(), &[]);
    let old = rig.target.disk(0).unwrap();
    let new = RamDisk::new(512, 256);
    old.fill(1);
    new.fill(2);
    let unmap = rig.command(0xa0, &[0x42, 0, 0, 0, 0, 0, 0, 0, 24], 24, &[]);
    rig.put(unmap);
    let r2t = rig.next();
    rig.target.replace_unit_with_attention(0, Unit::new(new.clone()), Sense::INQUIRY_CHANGED);
    let list = [0, 22, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0];
    rig.answer(&r2t, &list, 24);
    assert_eq!(rig.next().status(), status::GOOD);
    assert!(old.holds(512, &[0; 512]) && !new.holds(512, &[0; 512]));
    assert_eq!(attention(&mut rig), Some(Sense::INQUIRY_CHANGED));
}

/// A unit that becomes smaller fails the commands in flight beyond its end.
#[test]
fn a_write_behind_a_new_end_fails() {
    let mut rig = Rig::login(config(), &[]);
    let write = rig.write(100, 2, &[]);
    rig.put(write);
    let r2t = rig.next();
    rig.target.disk(0).unwrap().resize(50);
    rig.answer(&r2t, &pattern(1024), 1024);
    let answer = rig.next();
    assert_eq!((answer.status(), answer.data[2 + 12]), (status::CHECK_CONDITION, 0x21));
}
