//! Tests of task management: aborted commands, and resets (RFC 7143 §4.2.3, §11.5, §11.6).

use std::time::Duration;

use bytes::Buf;
use iscsi_pdu::scsi::{Cdb, Lun, Status};
use iscsi_pdu::{Cid, FunctionResponse, Itt, TaskFunction};
use iscsi_session::{Command, Output, SessionError, TaskError, Timer};
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::fault::{Effect, Fault};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::NO_TAG;
use iscsi_testkit::{expect, send};

use crate::pair::{Pair, config, pattern, read, target_config, write};
use crate::trace::{Trace, wire_lun};

/// Longer than the time limit of a command, 60 s, and shorter than this limit and the one of its ABORT TASK
/// together.
const COMMAND_LIMIT: Duration = Duration::from_secs(61);

/// Every function but TASK REASSIGN and ABORT TASK, with its code and whether it names a LUN.
const FUNCTIONS: [(TaskFunction, u8, bool); 6] = [
    (TaskFunction::AbortTaskSet, 2, true),
    (TaskFunction::ClearAca, 3, true),
    (TaskFunction::ClearTaskSet, 4, true),
    (TaskFunction::LogicalUnitReset, 5, true),
    (TaskFunction::TargetWarmReset, 6, false),
    (TaskFunction::TargetColdReset, 7, false),
];

fn lun(number: u16) -> Lun {
    Lun::new(number).unwrap()
}

fn on_unit(number: u16, mut command: Command) -> Command {
    command.lun = lun(number);
    command
}

fn target_with(fault: Fault) -> TargetConfig {
    let mut target = target_config(256);
    target.faults.push(fault);
    target
}

/// Returns the result of a function that the caller requested.
fn managed(outputs: &[Output], tag: Itt) -> Option<&Result<FunctionResponse, TaskError>> {
    outputs.iter().find_map(|output| match output {
        Output::Managed { itt, result } if *itt == tag => Some(result),
        _ => None,
    })
}

/// TMF-01, TMF-02, TMF-03, UNH FFP 19.2, 19.3, and the appendix of faults: ABORT TASK has the tag, the LUN
/// and the CmdSN of its task.
#[test]
fn tmf_01_abort_task_names_the_task() {
    let mut trace = Trace::logged_in();
    let itt = trace.submit(on_unit(3, read(0, 1)));
    let command = expect!(trace, ScsiCommand { lun: wire_lun(3) });
    trace.session.abort(itt, trace.now);
    let abort = expect!(
        trace,
        TaskManagementRequest {
            immediate: true,
            function: 1,
            lun: wire_lun(3),
            referenced_tag: command.itt(),
            ref_cmd_sn: command.cmd_sn(),
            cmd_sn: command.cmd_sn() + 1,
            exp_data_sn: 0,
            is_final: true,
        }
    );
    assert!(abort.data.is_empty() && abort.ahs.is_empty());
    send!(trace, task_management_response { itt: abort.itt() });
    assert_eq!(trace.result(itt).unwrap_err(), TaskError::Aborted);
    trace.assert_usable();
}

/// TMF-03, UNH FFP 19.3: for an immediate command RefCmdSN is the CmdSN of the request itself.
#[test]
fn tmf_03_abort_of_an_immediate_command() {
    let mut trace = Trace::logged_in();
    trace.assert_usable();
    let mut command = read(0, 1);
    command.immediate = true;
    let itt = trace.submit(command);
    expect!(trace, ScsiCommand { immediate: true });
    trace.assert_usable();
    trace.session.abort(itt, trace.now);
    let abort = expect!(trace, TaskManagementRequest { referenced_tag: itt.get() });
    assert_eq!(abort.ref_cmd_sn(), abort.cmd_sn());
    send!(trace, task_management_response { itt: abort.itt() });
    assert_eq!(trace.result(itt).unwrap_err(), TaskError::Aborted);
}

/// TMF-01, TMF-02, TMF-03: the other functions name no task, and only functions for a unit name a LUN.
#[test]
fn tmf_01_functions_for_units_and_targets() {
    for (function, code, unit) in FUNCTIONS {
        let mut trace = Trace::logged_in();
        let bystander = trace.submit(read(0, 1));
        expect!(trace, ScsiCommand);
        let itt = trace.session.manage(function, lun(5), Some(bystander), trace.now).unwrap();
        let request = expect!(
            trace,
            TaskManagementRequest {
                immediate: true,
                function: code,
                lun: if unit { wire_lun(5) } else { 0 },
                referenced_tag: NO_TAG,
                ref_cmd_sn: 0,
                exp_data_sn: 0,
                itt: itt.get(),
            }
        );
        assert!(request.data.is_empty() && request.ahs.is_empty());
        send!(trace, task_management_response { itt: itt.get() });
        assert_eq!(managed(&trace.outputs, itt), Some(&Ok(FunctionResponse::COMPLETE)));
    }
}

/// Peers' fault 5: a command that is aborted before it was sent leaves no gap in CmdSN.
#[test]
fn abort_before_sending_leaves_no_hole() {
    let mut trace = Trace::logged_in();
    let tags = [0, 1, 2].map(|lba| trace.submit(read(lba, 1)));
    trace.session.abort(tags[1], trace.now);
    let first = expect!(trace, ScsiCommand { itt: tags[0].get() });
    expect!(trace, ScsiCommand { itt: tags[2].get(), cmd_sn: first.cmd_sn() + 1 });
    trace.silence();
    assert_eq!(trace.result(tags[1]).unwrap_err(), TaskError::Aborted);
}

/// Peers' fault 6: if a command is aborted in the middle of a PDU, the rest of that PDU is still sent, so
/// that the stream stays valid.
#[test]
fn abort_in_the_middle_of_a_pdu_keeps_the_stream_in_order() {
    for sent in [1, 47, 48, 100, 48 + 4096, 48 + 8192 + 20] {
        let mut target = target_config(256);
        target.keys.max_recv_data_segment_length = Some(4096);
        let mut pair = Pair::logged_in(config(), target);
        let itt = pair.submit(write(0, pattern(32 * 512, 3)));
        let link = pair.link(0);
        let mut transmit = pair.session.poll_transmit(Cid(0), pair.now).unwrap();
        pair.target.receive(link, &transmit.copy_to_bytes(sent));
        pair.session.abort(itt, pair.now);
        pair.drive();
        assert!(pair.completed.contains_key(&itt));
        let data = pattern(512, 4);
        assert_eq!(pair.execute(write(100, data.clone())).unwrap().status, Status::GOOD);
        assert_eq!(pair.execute(read(100, 1)).unwrap().data, data);
        pair.assert_no_violations();
    }
}

/// TMF-05: the ABORT TASK of a command that never arrived fills the gap in CmdSN.
#[test]
fn tmf_05_abort_fills_the_gap_of_a_lost_command() {
    let lost = Fault::receiving(Opcode::ScsiCommand, 1, Effect::Swallow);
    let mut pair = Pair::logged_in(config(), target_with(lost));
    // The checker does not see the lost command, so it reports a gap in CmdSN that the session did not make:
    // it is ignored.
    pair.is_its_own = |found| found.rule != "SEQ-02";
    let tags = [0, 1, 2].map(|lba| pair.submit(read(lba, 1).with_timeout(COMMAND_LIMIT / 2)));
    pair.drive();
    assert!(pair.completed[&tags[0]].is_ok() && pair.completed.len() == 1);
    pair.advance(COMMAND_LIMIT / 2);
    assert_eq!(*pair.completed[&tags[1]].as_ref().unwrap_err(), TaskError::TimedOut);
    assert!(pair.completed.contains_key(&tags[2]));
    pair.execute(read(3, 1)).unwrap();
    let executed: Vec<u8> = pair.target.commands().iter().map(|command| command.cdb[5]).collect();
    assert_eq!(executed, [0, 2, 3]);
}

/// TMF-06, RD-17 and peers' fault 4: a command that exceeds its time limit is aborted; late data and a late
/// status are dropped, and their StatSN is counted.
#[test]
fn tmf_06_late_response_after_a_timeout() {
    let mut trace = Trace::without_pings();
    let itt = trace.submit(read(0, 1));
    let command = expect!(trace, ScsiCommand);
    trace.advance(COMMAND_LIMIT);
    let abort = expect!(trace, TaskManagementRequest { referenced_tag: itt.get() });
    assert!(trace.completed.is_empty(), "bytes may still land in its buffer");
    send!(trace, task_management_response { itt: abort.itt() });
    assert_eq!(trace.result(itt).unwrap_err(), TaskError::TimedOut);
    let last = send!(trace, data_in { itt: command.itt(), data: vec![9; 512], status: 0 });
    assert!(trace.completed.is_empty());
    trace.session.ping(trace.now).unwrap();
    expect!(trace, NopOut { exp_stat_sn: last.stat_sn() + 1 });
}

/// TMF-06: if the process was stopped, the time limits of a command and of its ABORT TASK start again, and
/// then apply.
#[test]
fn tmf_06_time_in_which_the_process_was_stopped_does_not_count() {
    let limit = Duration::from_secs(60);
    let mut trace = Trace::without_pings();
    let stop = |trace: &mut Trace| {
        trace.now += Duration::from_secs(3600);
        trace.session.handle_timeout(trace.now);
        trace.silence();
    };
    let itt = trace.submit(read(0, 1));
    expect!(trace, ScsiCommand);
    stop(&mut trace);
    trace.advance(limit - Duration::from_millis(1));
    trace.silence();
    trace.advance(Duration::from_millis(1));
    expect!(trace, TaskManagementRequest { referenced_tag: itt.get() });
    stop(&mut trace);
    assert_eq!(trace.ended, None);
    trace.advance(Duration::from_secs(10));
    assert_eq!(*trace.failure(), SessionError::TimedOut(Timer::TaskManagement));
}

/// TMF-07, QRK-31: if the status arrives before the response to the ABORT TASK, the command ends with it,
/// whatever that response is.
#[test]
fn tmf_07_status_before_the_answer_to_the_abort_wins() {
    for code in [0, 1, 5, 255] {
        let mut trace = Trace::logged_in();
        let itt = trace.submit(read(0, 1));
        expect!(trace, ScsiCommand);
        trace.session.abort(itt, trace.now);
        let abort = expect!(trace, TaskManagementRequest);
        send!(trace, data_in { itt: itt.get(), data: vec![9; 512], status: 0 });
        assert_eq!(trace.result(itt).unwrap().data, vec![9; 512]);
        send!(trace, task_management_response { itt: abort.itt(), response: code });
        trace.assert_usable();
    }
}

/// TMF-07: after the responses "complete" and "does not exist" the task has ended; later PDUs for it are
/// dropped.
#[test]
fn tmf_07_nothing_is_delivered_after_the_answer_to_the_abort() {
    for code in [0, 1] {
        let mut trace = Trace::logged_in();
        let itt = trace.submit(read(0, 1));
        expect!(trace, ScsiCommand);
        trace.session.abort(itt, trace.now);
        let abort = expect!(trace, TaskManagementRequest);
        send!(trace, task_management_response { itt: abort.itt(), response: code });
        assert_eq!(trace.result(itt).unwrap_err(), TaskError::Aborted);
        send!(trace, data_in { itt: itt.get(), data: vec![9; 512], status: 0 });
        assert!(trace.completed.is_empty());
        trace.assert_usable();
    }
}

/// TMF-08, UNH FFP 19.4.1, QRK-04: until the response to the function, R2Ts and pings are served as usual.
#[test]
fn tmf_08_tags_are_answered_until_the_function_is_complete() {
    let mut trace = Trace::with_answers(&[("InitialR2T", "Yes"), ("ImmediateData", "No")]);
    let itt = trace.submit(write(0, pattern(1024, 1)));
    expect!(trace, ScsiCommand);
    let reset = TaskFunction::LogicalUnitReset;
    let reset = trace.session.manage(reset, Lun::ZERO, None, trace.now).unwrap();
    expect!(trace, TaskManagementRequest);
    send!(trace, r2t { itt: itt.get(), ttt: 7, desired_length: 1024 });
    expect!(trace, DataOut { itt: itt.get(), ttt: 7, is_final: true });
    send!(trace, nop_in { ttt: 8 });
    expect!(trace, NopOut { itt: NO_TAG, ttt: 8 });
    send!(trace, task_management_response { itt: reset.get() });
    assert_eq!(trace.result(itt).unwrap_err(), TaskError::Aborted);
}

/// TMF-09: no data is sent for a task that the target has given up.
#[test]
fn tmf_09_no_data_after_the_answer_to_the_abort() {
    let mut trace = Trace::with_answers(&[("InitialR2T", "Yes"), ("ImmediateData", "No")]);
    let itt = trace.submit(write(0, pattern(1024, 1)));
    expect!(trace, ScsiCommand);
    trace.session.abort(itt, trace.now);
    let abort = expect!(trace, TaskManagementRequest);
    send!(trace, task_management_response { itt: abort.itt() });
    send!(trace, r2t { itt: itt.get(), ttt: 7, desired_length: 1024 });
    trace.silence();
    trace.assert_usable();
}

/// TMF-08, TMF-10, UNH FFP 19.4.3: responses that arrive before the response to the function are delivered.
/// The other tasks of the unit end with the function. Other units, and commands that were sent after the
/// function, are not affected.
#[test]
fn tmf_10_a_reset_ends_what_was_sent_before_it_to_its_unit() {
    let mut trace = Trace::logged_in();
    let answered = trace.submit(on_unit(1, Command::new(Lun::ZERO, Cdb::test_unit_ready())));
    let reset_away = trace.submit(on_unit(1, read(0, 1)));
    let elsewhere = trace.submit(on_unit(2, read(0, 1)));
    (0..3).for_each(|_| drop(expect!(trace, ScsiCommand)));
    let reset = TaskFunction::LogicalUnitReset;
    let reset = trace.session.manage(reset, lun(1), None, trace.now).unwrap();
    expect!(trace, TaskManagementRequest);
    let later = trace.submit(on_unit(1, read(0, 1)));
    expect!(trace, ScsiCommand { itt: later.get() });
    send!(trace, scsi_response { itt: answered.get() });
    send!(trace, task_management_response { itt: reset.get() });
    assert!(trace.result(answered).is_ok());
    assert_eq!(trace.result(reset_away).unwrap_err(), TaskError::Aborted);
    assert!(trace.completed.is_empty(), "two commands are still under way");
    for itt in [elsewhere, later] {
        send!(trace, data_in { itt: itt.get(), data: vec![1; 512], status: 0 });
        assert!(trace.result(itt).is_ok());
    }
}

/// TMF-10: the resets of a target end the tasks of all its units.
#[test]
fn tmf_10_target_reset_ends_the_tasks_of_every_unit() {
    let mut trace = Trace::logged_in();
    let tags = [1, 2].map(|number| trace.submit(on_unit(number, read(0, 1))));
    tags.iter().for_each(|_| drop(expect!(trace, ScsiCommand)));
    let function = TaskFunction::TargetWarmReset;
    let function = trace.session.manage(function, lun(1), None, trace.now).unwrap();
    expect!(trace, TaskManagementRequest);
    send!(trace, task_management_response { itt: function.get() });
    for itt in tags {
        assert_eq!(trace.result(itt).unwrap_err(), TaskError::Aborted);
    }
}

/// TMF-11: a function that the target did not execute ends no task.
#[test]
fn tmf_11_failed_functions_end_no_task() {
    for code in [1, 2, 3, 4, 5, 6, 7, 0x80, 254, 255] {
        let mut trace = Trace::logged_in();
        let itt = trace.submit(read(0, 1));
        expect!(trace, ScsiCommand);
        let function = TaskFunction::AbortTaskSet;
        let function = trace.session.manage(function, Lun::ZERO, None, trace.now).unwrap();
        expect!(trace, TaskManagementRequest);
        send!(trace, task_management_response { itt: function.get(), response: code });
        let response = managed(&trace.outputs, function).unwrap().as_ref().unwrap();
        assert_ne!(*response, FunctionResponse::COMPLETE);
        assert!(trace.completed.is_empty());
        send!(trace, data_in { itt: itt.get(), data: vec![1; 512], status: 0 });
        assert!(trace.result(itt).is_ok());
    }
}

/// TMF-11, TMF-15: the target refuses to abort the command that the caller aborted. The task continues with
/// its time limit; if the target then sends nothing, the session ends.
#[test]
fn tmf_11_refused_abort_leaves_the_task_with_a_time_limit() {
    for code in [2, 3, 4, 5, 6, 255] {
        let mut trace = Trace::without_pings();
        let itt = trace.submit(read(0, 1));
        expect!(trace, ScsiCommand);
        trace.session.abort(itt, trace.now);
        for _ in 0..2 {
            assert!(trace.completed.is_empty());
            let abort = expect!(trace, TaskManagementRequest { referenced_tag: itt.get() });
            send!(trace, task_management_response { itt: abort.itt(), response: code });
            trace.advance(COMMAND_LIMIT);
        }
        let cause = SessionError::AbortRefused;
        assert_eq!(trace.result(itt).unwrap_err(), TaskError::Session { cause, sent: true });
    }
}

/// TMF-11: after a timeout the caller must not wait for ever, so a refused ABORT TASK ends the session.
#[test]
fn tmf_11_refused_abort_of_a_command_that_timed_out_ends_the_session() {
    let mut target = target_config(256);
    target.task_management_response = Some(5);
    let mut pair = Pair::logged_in(config(), target);
    pair.target.hold();
    let itt = pair.submit(read(0, 1));
    pair.drive();
    pair.advance(COMMAND_LIMIT);
    let cause = SessionError::AbortRefused;
    assert_eq!(pair.ended, Some(Err(cause.clone())));
    let expected = TaskError::Session { cause, sent: true };
    assert_eq!(*pair.completed[&itt].as_ref().unwrap_err(), expected);
}

/// TMF-13: a request that is not a SCSI command cannot be aborted.
#[test]
fn tmf_13_management_itself_cannot_be_aborted() {
    let mut trace = Trace::logged_in();
    let function = TaskFunction::LogicalUnitReset;
    let function = trace.session.manage(function, Lun::ZERO, None, trace.now).unwrap();
    expect!(trace, TaskManagementRequest);
    trace.session.abort(function, trace.now);
    trace.silence();
    send!(trace, task_management_response { itt: function.get() });
    assert!(managed(&trace.outputs, function).is_some());
}

/// TMF-14: a cold reset may close the connection, with or without a response.
#[test]
fn tmf_14_cold_reset_ends_the_session() {
    for silent in [false, true] {
        let mut target = target_config(256);
        target.silent_task_management = silent;
        let mut pair = Pair::logged_in(config(), target);
        pair.target.hold();
        let itt = pair.submit(read(0, 1));
        pair.drive();
        let function = TaskFunction::TargetColdReset;
        let function = pair.session.manage(function, Lun::ZERO, None, pair.now).unwrap();
        pair.drive();
        pair.advance(COMMAND_LIMIT);
        assert!(matches!(pair.ended, Some(Err(_))));
        assert!(pair.completed[&itt].is_err());
        assert_eq!(managed(&pair.outputs, function).unwrap().is_ok(), !silent);
    }
}

/// TMF-15: the response to an ABORT TASK has its own time limit; when it ends, the session ends.
#[test]
fn tmf_15_silent_management_ends_the_session() {
    let mut target = target_config(256);
    target.silent_task_management = true;
    let mut pair = Pair::logged_in(config(), target);
    pair.target.hold();
    let itt = pair.submit(read(0, 1));
    pair.drive();
    pair.session.abort(itt, pair.now);
    pair.drive();
    assert!(pair.completed.is_empty());
    pair.advance(Duration::from_secs(11));
    assert_eq!(pair.ended, Some(Err(SessionError::TimedOut(Timer::TaskManagement))));
    assert!(matches!(pair.completed[&itt], Err(TaskError::Session { sent: true, .. })));
}
