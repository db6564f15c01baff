//! UNH items 14, 15 and 17 to 20: messages, pings, logout, text, task management.

use iscsi_pdu::TaskFunction;
use iscsi_pdu::scsi::Lun;
use iscsi_session::{Output, ProtocolError, SessionError, SessionKind};
use iscsi_testkit::pdu::NO_TAG;
use iscsi_testkit::pdus::async_message;
use iscsi_testkit::{expect, send};

use crate::pair::{config, pattern, read, write};
use crate::trace::{Trace, wire_lun};

/// Returns a discovery session with an outstanding text request, and the tag of the request.
fn asked() -> (Trace, u32) {
    let mut config = config();
    config.kind = SessionKind::Discovery;
    let mut trace = Trace::established(config, &[]);
    let tag = trace.session.send_targets(trace.now).unwrap();
    (trace, tag.get())
}

/// UNH FFP 14.1, 20.1: if the target requests a logout, it is sent immediately, and nothing after it.
#[test]
fn ffp_14_1_async_logout() {
    let mut trace = Trace::logged_in();
    trace.send(async_message().event(1).parameters([0, 0, 5]));
    let logout = expect!(trace, LogoutRequest { is_final: true, function: 0, cid: 0 });
    assert!(logout.data.is_empty() && logout.ahs.is_empty());
    assert!(trace.session.submit(read(0, 1), trace.now).is_err());
    trace.silence();
}

/// UNH FFP 15.1: checks the response to a ping of the target.
#[test]
fn ffp_15_1_ping_of_the_target() {
    let mut trace = Trace::logged_in();
    let cmd_sn = trace.script.numbers().exp_cmd_sn;
    send!(trace, nop_in { ttt: 0x1234, lun: wire_lun(6) });
    let answer = expect!(
        trace,
        NopOut { itt: NO_TAG, ttt: 0x1234, lun: wire_lun(6), immediate: true, cmd_sn: cmd_sn }
    );
    assert!(answer.data.is_empty());
    trace.submit(read(0, 1));
    expect!(trace, ScsiCommand { cmd_sn: cmd_sn });
}

/// UNH FFP 15.2: checks a ping of the initiator.
#[test]
fn ffp_15_2_ping_of_the_initiator() {
    let mut trace = Trace::logged_in();
    let cmd_sn = trace.script.numbers().exp_cmd_sn;
    trace.advance(std::time::Duration::from_secs(15));
    let ping = expect!(trace, NopOut { ttt: NO_TAG, lun: 0, immediate: true, cmd_sn: cmd_sn });
    assert_ne!(ping.itt(), NO_TAG);
}

/// UNH FFP 15.3: checks a NOP-Out that acknowledges and requests no response.
#[test]
fn ffp_15_3_acknowledging_nop_out() {
    let mut trace = Trace::logged_in();
    send!(trace, async_message { event: 5, lun: wire_lun(2) });
    expect!(trace, NopOut { itt: NO_TAG, ttt: NO_TAG, immediate: true });
    trace.silence();
}

/// UNH FFP 17.1: the connection is closed after the Logout Response.
#[test]
fn ffp_17_1_logout() {
    let mut trace = Trace::logged_in();
    send!(trace, async_message { event: 1 });
    let logout = expect!(trace, LogoutRequest);
    trace.silence();
    send!(trace, logout_response { itt: logout.itt() });
    assert!(trace.closed.is_some());
}

/// UNH FFP 18.1: checks the fields of a text request.
#[test]
fn ffp_18_1_text_fields() {
    let (mut trace, itt) = asked();
    let cmd_sn = trace.script.numbers().exp_cmd_sn;
    let request = expect!(
        trace,
        TextRequest { is_final: true, continues: false, ttt: NO_TAG, itt: itt, cmd_sn: cmd_sn }
    );
    assert!(!request.data.is_empty());
}

/// UNH FFP 18.2, TXT-24: if a text continues, the next request has the same task tag, and the transfer tag
/// and LUN of the response.
#[test]
fn ffp_18_2_text_continuation() {
    let (mut trace, itt) = asked();
    expect!(trace, TextRequest);
    send!(trace, text_response { itt: itt, ttt: 0xabba, lun: wire_lun(1), last: false });
    expect!(trace, TextRequest { itt: itt, ttt: 0xabba, lun: wire_lun(1), is_final: true });
}

/// UNH FFP 18.3.1: a response with F is final, even if it has a transfer tag.
#[test]
fn ffp_18_3_1_final_text_with_a_tag() {
    let (mut trace, itt) = asked();
    expect!(trace, TextRequest);
    send!(trace, text_response { itt: itt, ttt: 0xabba });
    trace.silence();
    assert!(
        trace
            .outputs
            .iter()
            .any(|output| matches!(output, Output::Discovered { result: Ok(_), .. }))
    );
}

/// UNH FFP 18.3.2, TXT-23: a response that is not final and has no transfer tag is an error.
#[test]
fn ffp_18_3_2_text_without_a_tag_goes_nowhere() {
    let (mut trace, itt) = asked();
    expect!(trace, TextRequest);
    send!(trace, text_response { itt: itt, last: false });
    let expected =
        |error: &SessionError| matches!(error, SessionError::Protocol(ProtocolError::Text(_)));
    assert!(expected(trace.failure()));
}

/// UNH FFP 18.4: the target sends a key of the login, MaxRecvDataSegmentLength, in its list of targets. The key
/// changes no parameter, and the session goes on.
#[test]
fn ffp_18_4_foreign_key_in_the_list() {
    let (mut trace, itt) = asked();
    let before = trace.session.negotiated().cloned();
    expect!(trace, TextRequest);
    trace.send(
        iscsi_testkit::pdus::text_response()
            .itt(itt)
            .text(&[("MaxRecvDataSegmentLength", "512"), ("TargetName", crate::pair::TARGET)]),
    );
    assert_eq!(trace.session.negotiated().cloned(), before);
    assert_eq!(trace.ended, None);
}

/// UNH FFP 18.5: a rejected text request changes nothing, and the connection stays usable.
#[test]
fn ffp_18_5_refused_text() {
    let mut trace = Trace::logged_in();
    let before = trace.session.negotiated().cloned();
    trace.session.send_targets(trace.now).unwrap();
    let request = expect!(trace, TextRequest);
    trace.send(iscsi_testkit::pdus::reject(&request).response(4));
    assert_eq!(trace.session.negotiated().cloned(), before);
    trace.assert_usable();
}

/// UNH FFP 19.2, 19.3: ABORT TASK has the LUN and the CmdSN of its task.
#[test]
fn ffp_19_2_abort_task_fields() {
    let mut trace = Trace::logged_in();
    let mut command = read(0, 1);
    command.lun = Lun::new(9).unwrap();
    let itt = trace.submit(command);
    let command = expect!(trace, ScsiCommand);
    trace.session.abort(itt, trace.now);
    expect!(
        trace,
        TaskManagementRequest {
            lun: wire_lun(9),
            ref_cmd_sn: command.cmd_sn(),
            referenced_tag: itt.get()
        }
    );
}

/// UNH FFP 19.4.1: after a task set was aborted, pings of the target get a response.
#[test]
fn ffp_19_4_1_ping_after_abort_task_set() {
    for function in [TaskFunction::AbortTaskSet, TaskFunction::ClearTaskSet] {
        let mut trace = Trace::logged_in();
        trace.submit(read(0, 1));
        expect!(trace, ScsiCommand);
        trace.session.manage(function, Lun::ZERO, None, trace.now).unwrap();
        expect!(trace, TaskManagementRequest);
        send!(trace, nop_in { ttt: 0x77 });
        expect!(trace, NopOut { ttt: 0x77 });
    }
}

/// UNH FFP 19.4.3: responses that arrive before the response to the function are delivered.
#[test]
fn ffp_19_4_3_late_responses() {
    let mut trace = Trace::logged_in();
    let itt = trace.submit(write(0, pattern(512, 1)));
    expect!(trace, ScsiCommand);
    let function = TaskFunction::AbortTaskSet;
    let function = trace.session.manage(function, Lun::ZERO, None, trace.now).unwrap();
    expect!(trace, TaskManagementRequest);
    send!(trace, scsi_response { itt: itt.get() });
    assert!(trace.result(itt).is_ok());
    send!(trace, task_management_response { itt: function.get() });
    trace.assert_usable();
}

/// UNH FFP 20.2, 20.3: if the target drops a connection or the session, the times for the reconnect are
/// passed on.
#[test]
fn ffp_20_2_dropped_by_the_target() {
    for (event, wait, retain) in [(2, 0, 1), (3, 1, 2)] {
        let mut trace = Trace::logged_in();
        trace.send(async_message().event(event).parameters([0, wait, retain]));
        let expected = SessionError::DroppedByTarget { time2wait: wait, time2retain: retain };
        assert_eq!(*trace.failure(), expected);
    }
}

/// UNH FFP 20.4: the session answers a request of the target for a negotiation.
#[test]
fn ffp_20_4_negotiation_request() {
    let mut trace = Trace::logged_in();
    trace.send(async_message().event(4).parameters([0, 0, 3]));
    expect!(trace, TextRequest { is_final: true, ttt: NO_TAG });
    trace.silence();
}
