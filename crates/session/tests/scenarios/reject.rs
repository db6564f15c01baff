//! Tests of Rejects (RFC 7143 §7.3, §11.17).

use iscsi_pdu::scsi::{Lun, Status};
use iscsi_pdu::{RejectReason, TaskFunction};
use iscsi_session::{Notice, Output, SessionError, SubmitError, TaskError};
use iscsi_testkit::fault::{Effect, Fault};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::{NO_TAG, Pdu};
use iscsi_testkit::pdus::{Template, reject};
use iscsi_testkit::{expect, send};

use crate::pair::{Pair, config, pattern, read, target_config, write};
use crate::trace::Trace;

/// Reject reason: protocol error (RFC 7143 §11.17.1).
const PROTOCOL_ERROR: u8 = 4;
const WAITING_FOR_LOGOUT: u8 = 0x0c;

fn rejected(reason: u8, header: &[u8]) -> TaskError {
    TaskError::Rejected { reason: RejectReason(reason), header: header.to_vec().into() }
}

/// Rejects a command, sends `answer` as the response to its ABORT TASK, and returns the command's error.
fn refuse_command(trace: &mut Trace, reason: u8, answer: u8) -> TaskError {
    let itt = trace.submit(read(0, 1));
    let command = expect!(trace, ScsiCommand);
    trace.send(reject(&command).response(reason));
    assert!(trace.completed.is_empty(), "the target may still know the task");
    let abort = expect!(
        trace,
        TaskManagementRequest {
            function: 1,
            referenced_tag: itt.get(),
            ref_cmd_sn: command.cmd_sn(),
        }
    );
    send!(trace, task_management_response { itt: abort.itt(), response: answer });
    trace.result(itt).unwrap_err()
}

/// REJ-01, SEQ-14, the appendix of faults, and peers' fault 13: a Reject consumes a StatSN, whether it
/// returns the whole header, more, less, nothing, or arbitrary bytes.
#[test]
fn rej_01_header_may_be_junk() {
    let nobody = Pdu::new(Opcode::TaskManagementRequest).header.to_vec();
    let headers = [vec![], vec![1; 47], vec![0xff; 48], vec![0xff; 100], nobody];
    for header in headers {
        let mut trace = Trace::logged_in();
        let refusal = Template::new(Opcode::Reject).itt(NO_TAG).response(PROTOCOL_ERROR);
        let refusal = trace.send(refusal.data(header));
        assert!(matches!(trace.notices.as_slice(), [Notice::Rejected { .. }]));
        trace.session.ping(trace.now).unwrap();
        expect!(trace, NopOut { exp_stat_sn: refusal.stat_sn() + 1 });
        trace.assert_usable();
    }
}

/// REJ-02, REJ-04: a rejected command ends with the reason, after an ABORT TASK that fills the gap that it
/// may have left in CmdSN. It is never sent again, whatever the reason.
#[test]
fn rej_02_refused_command_is_aborted_and_never_sent_again() {
    for reason in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0xff] {
        for answer in [0, 1] {
            let mut trace = Trace::logged_in();
            let TaskError::Rejected { reason: told, header } =
                refuse_command(&mut trace, reason, answer)
            else {
                panic!("not told of the refusal")
            };
            assert_eq!((told, header.len()), (RejectReason(reason), 48));
            trace.silence();
            trace.assert_usable();
        }
    }
}

/// REJ-02, REJ-03: if the header in a Reject names no task, the rejected command reaches its time limit, and
/// its ABORT TASK fills the gap in CmdSN, so that the target executes the commands after it.
#[test]
fn rej_02_commands_behind_a_refused_one_get_through() {
    let mut target = target_config(256);
    // The second command arrives with an unassigned operation code.
    target.faults.push(Fault::receiving(
        Opcode::ScsiCommand,
        1,
        Effect::SetByte { at: 0, value: 0x1c },
    ));
    let mut pair = Pair::logged_in(config(), target);
    // The checker sees the command as the fault has changed it, so this violation is not the session's.
    pair.is_its_own = |found| found.rule != "ERR-14";
    let tags = [0, 1, 2].map(|lba| pair.submit(read(lba, 1)));
    pair.drive();
    assert!(pair.completed[&tags[0]].is_ok());
    pair.advance(std::time::Duration::from_secs(61));
    assert!(pair.completed[&tags[1]].is_err() && pair.completed.contains_key(&tags[2]));
    pair.execute(read(3, 1)).unwrap();
}

/// REJ-02, TMF-11: if the target refuses the ABORT TASK as well, the state of the command is unknown, and the
/// session ends.
#[test]
fn rej_02_refused_abort_of_a_refused_command_ends_the_session() {
    let mut trace = Trace::logged_in();
    let error = refuse_command(&mut trace, PROTOCOL_ERROR, 5);
    assert!(matches!(error, TaskError::Session { sent: true, .. }));
    assert!(trace.ended.is_some());
}

/// REJ-03, DIG-12: rejected data is reported, and not sent again; the status of the command decides its
/// result.
#[test]
fn rej_03_refused_data_is_left_to_the_status() {
    let mut trace = Trace::with_answers(&[("InitialR2T", "Yes"), ("ImmediateData", "No")]);
    let itt = trace.submit(write(0, pattern(1024, 1)));
    expect!(trace, ScsiCommand);
    send!(trace, r2t { itt: itt.get(), ttt: 7, desired_length: 1024 });
    let data = expect!(trace, DataOut);
    trace.send(reject(&data).response(2));
    assert!(matches!(trace.notices.as_slice(), [Notice::Rejected { .. }]));
    trace.silence();
    send!(trace, scsi_response { itt: itt.get(), status: 8 });
    assert_eq!(trace.result(itt).unwrap().status, Status::BUSY);
    trace.assert_usable();
}

/// REJ-03: a rejected response to a ping, a rejected ping, and a rejected function are each reported for
/// their request, and the session continues.
#[test]
fn rej_03_refused_requests_end_alone() {
    let mut trace = Trace::logged_in();
    send!(trace, nop_in { ttt: 3 });
    let answer = expect!(trace, NopOut);
    trace.send(reject(&answer).response(PROTOCOL_ERROR));
    let ping = trace.session.ping(trace.now).unwrap();
    let request = expect!(trace, NopOut);
    trace.send(reject(&request).response(PROTOCOL_ERROR));
    let function = TaskFunction::LogicalUnitReset;
    let function = trace.session.manage(function, Lun::ZERO, None, trace.now).unwrap();
    let reset = expect!(trace, TaskManagementRequest);
    trace.send(reject(&reset).response(PROTOCOL_ERROR));
    let [Output::LoggedIn { .. }, Output::Ponged { itt: pong, result: Err(no_ping) }, managed] =
        trace.outputs.as_slice()
    else {
        panic!("{:?}", trace.outputs)
    };
    let Output::Managed { itt, result: Err(no_reset) } = managed else { panic!("{managed:?}") };
    assert_eq!((*pong, *itt), (ping, function));
    assert_eq!(*no_ping, rejected(PROTOCOL_ERROR, &request.header));
    assert_eq!(*no_reset, rejected(PROTOCOL_ERROR, &reset.header));
    trace.assert_usable();
}

/// REJ-05: a Reject during the login fails the login.
#[test]
fn rej_05_reject_during_login_fails_it() {
    let mut trace = Trace::new(config());
    let request = expect!(trace, LoginRequest);
    trace.send(reject(&request).response(0x0b));
    assert!(matches!(trace.failure(), SessionError::Protocol(_)));
    assert_eq!(trace.closed, Some(true));
}

/// REJ-06: if the reason is that the target waits for a logout, the logout is sent and nothing is retried.
#[test]
fn rej_06_waiting_for_logout() {
    let mut trace = Trace::logged_in();
    let itt = trace.submit(read(0, 1));
    let command = expect!(trace, ScsiCommand);
    trace.send(reject(&command).response(WAITING_FOR_LOGOUT));
    assert_eq!(trace.session.submit(read(0, 1), trace.now), Err(SubmitError::Closed));
    let logout = loop {
        // The ABORT TASK of the refused command may precede the logout.
        trace.pump();
        let pdu = trace.script.try_next().unwrap();
        assert!(!pdu.is(Opcode::ScsiCommand));
        if pdu.is(Opcode::LogoutRequest) {
            break pdu;
        }
    };
    trace.silence();
    send!(trace, logout_response { itt: logout.itt() });
    assert_eq!(*trace.failure(), SessionError::LogoutRequested);
    assert!(trace.result(itt).is_err());
}

/// REJ-07, UNH FFP 18.5, TXT-19: after a rejected text request only its exchange fails; the agreed parameters
/// stay.
#[test]
fn rej_07_refused_text_fails_alone() {
    let mut trace = Trace::logged_in();
    let before = trace.session.negotiated().cloned();
    let tag = trace.session.send_targets(trace.now).unwrap();
    let request = expect!(trace, TextRequest);
    trace.send(reject(&request).response(PROTOCOL_ERROR));
    let told = trace.outputs.iter().any(|output| {
        matches!(output, Output::Discovered { itt, result: Err(TaskError::Rejected { .. }) } if *itt == tag)
    });
    assert!(told);
    assert_eq!(trace.session.negotiated().cloned(), before);
    trace.assert_usable();
}

/// REJ-02, REJ-07: a refused text request has consumed no CmdSN, so there is no gap to fill.
#[test]
fn rej_02_refused_text_leaves_no_gap() {
    let mut trace = Trace::logged_in();
    let next = trace.script.numbers().exp_cmd_sn;
    trace.session.send_targets(trace.now).unwrap();
    let request = expect!(trace, TextRequest { immediate: true, cmd_sn: next });
    trace.send(reject(&request).response(PROTOCOL_ERROR));
    trace.silence();
    trace.submit(read(0, 1));
    expect!(trace, ScsiCommand { cmd_sn: next });
}

/// LGO-05, REJ-03: a rejected logout ends the session too.
#[test]
fn refused_logout_ends_the_session() {
    let mut trace = Trace::logged_in();
    trace.session.logout(trace.now);
    let request = expect!(trace, LogoutRequest);
    trace.send(reject(&request).response(5));
    assert_eq!(trace.ended, Some(Ok(())));
}
