//! Tests of the logout (RFC 7143 §11.14, §11.15).

use std::time::Duration;

use iscsi_pdu::scsi::{Cdb, Lun};
use iscsi_session::{
    Command, Config, Notice, Output, SessionError, SessionKind, SubmitError, TaskError,
};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::{expect, send};

use crate::pair::{Pair, config, pattern, read, target_config, write};
use crate::trace::Trace;

fn discovery() -> Config {
    let mut config = config();
    config.kind = SessionKind::Discovery;
    config
}

/// LGO-01, LGO-02, UNH FFP 14.1: checks the fields of the logout request, and that nothing follows it.
#[test]
fn lgo_02_request_and_the_silence_after_it() {
    let mut trace = Trace::logged_in();
    trace.assert_usable();
    trace.session.logout(trace.now);
    let request = expect!(trace, LogoutRequest { is_final: true, function: 0, cid: 0 });
    assert!(request.data.is_empty() && request.ahs.is_empty());
    let command = Command::new(Lun::ZERO, Cdb::test_unit_ready());
    assert_eq!(trace.session.submit(command, trace.now), Err(SubmitError::Closed));
    assert_eq!(trace.session.ping(trace.now), Err(SubmitError::Closed));
    assert_eq!(trace.session.send_targets(trace.now), Err(SubmitError::Closed));
    send!(trace, nop_in { ttt: 5 });
    trace.silence();
    send!(trace, logout_response { itt: request.itt() });
    assert_eq!(trace.ended, Some(Ok(())));
}

/// LGO-08: a gap in StatSN before the response to the logout still ends the session without an error.
#[test]
fn lgo_08_gap_before_the_answer_is_no_error() {
    let mut trace = Trace::without_pings();
    trace.session.logout(trace.now);
    let request = expect!(trace, LogoutRequest);
    trace.script.set_stat_sn(trace.script.numbers().stat_sn + 1);
    send!(trace, logout_response { itt: request.itt() });
    trace.advance(Duration::from_secs(5));
    assert_eq!(trace.ended, Some(Ok(())));
}

/// LGO-03: an immediate logout needs no window, and consumes no CmdSN.
#[test]
fn lgo_03_logout_through_a_closed_window() {
    let mut trace = Trace::with_closed_window();
    let next = trace.script.numbers().exp_cmd_sn;
    trace.session.logout(trace.now);
    let request = expect!(trace, LogoutRequest { immediate: true, cmd_sn: next });
    send!(trace, logout_response { itt: request.itt() });
    assert_eq!(trace.ended, Some(Ok(())));
}

/// LGO-04: after the response the connection is closed without a reset.
#[test]
fn lgo_04_connection_is_closed_after_the_response() {
    let mut trace = Trace::logged_in();
    trace.session.logout(trace.now);
    let request = expect!(trace, LogoutRequest);
    assert_eq!(trace.closed, None);
    send!(trace, logout_response { itt: request.itt() });
    assert_eq!(trace.closed, Some(false));
    assert!(trace.session.is_ended());
}

/// LGO-04, QRK-35: a target may close the connection instead of sending a response.
#[test]
fn lgo_04_target_closes_first() {
    let mut trace = Trace::logged_in();
    trace.session.logout(trace.now);
    expect!(trace, LogoutRequest);
    trace.close();
    assert_eq!(trace.ended, Some(Ok(())));
}

/// LGO-05, LGO-07: every response ends the session, whatever times it states; a failure is reported.
#[test]
fn lgo_05_every_response_ends_the_session() {
    for code in [0, 1, 2, 3, 0xff] {
        let mut trace = Trace::logged_in();
        trace.session.logout(trace.now);
        let itt = expect!(trace, LogoutRequest).itt();
        send!(trace, logout_response { itt: itt, response: code });
        assert_eq!(trace.ended, Some(Ok(())));
        let told = trace
            .notices
            .iter()
            .any(|notice| matches!(notice, Notice::LogoutFailed { response } if *response == code));
        assert_eq!(told, code != 0);
    }
    let mut trace = Trace::logged_in();
    trace.session.logout(trace.now);
    let itt = expect!(trace, LogoutRequest).itt();
    trace.send(iscsi_testkit::pdus::logout_response().itt(itt).times(3600, 3600));
    assert_eq!(trace.ended, Some(Ok(())));
}

/// RFC 7143 §11.15: a logout response with the tag of an aborted command ends nothing.
#[test]
fn response_to_a_task_that_was_given_up_is_no_logout() {
    let mut trace = Trace::logged_in();
    let itt = trace.submit(read(0, 1));
    expect!(trace, ScsiCommand);
    trace.session.abort(itt, trace.now);
    let abort = expect!(trace, TaskManagementRequest);
    send!(trace, task_management_response { itt: abort.itt() });
    assert_eq!(trace.result(itt).unwrap_err(), TaskError::Aborted);
    send!(trace, logout_response { itt: itt.get() });
    assert_eq!(trace.ended, None);
    trace.assert_usable();
}

/// LGO-06: an orderly logout waits for the last command, including commands without a CmdSN.
#[test]
fn lgo_06_logout_follows_the_last_command() {
    let mut target = target_config(256);
    target.window = 1;
    let mut pair = Pair::logged_in(config(), target);
    let data = pattern(64 * 512, 1);
    let tags = [0, 64, 128].map(|lba| pair.submit(write(lba, data.clone())));
    pair.session.logout(pair.now);
    pair.drive();
    assert!(tags.iter().all(|itt| pair.completed[itt].is_ok()));
    assert_eq!(pair.ended, Some(Ok(())));
    assert!(pair.target.disk(0).unwrap().holds(128 * 512, &data));
    let last = pair.target.received().last().unwrap().1.opcode();
    assert_eq!(last, Some(Opcode::LogoutRequest));
    pair.assert_no_violations();
}

/// LGO-06: a logout that the target requested does not wait for commands, but command responses that arrive
/// before the logout response are delivered.
#[test]
fn lgo_06_responses_between_logout_and_its_response() {
    let mut trace = Trace::logged_in();
    let tags = [0, 1].map(|lba| trace.submit(read(lba, 1)));
    tags.iter().for_each(|_| drop(expect!(trace, ScsiCommand)));
    send!(trace, async_message { event: 1 });
    let request = expect!(trace, LogoutRequest);
    send!(trace, data_in { itt: tags[0].get(), data: vec![1; 512], status: 0 });
    assert!(trace.result(tags[0]).is_ok());
    send!(trace, logout_response { itt: request.itt() });
    let expected = TaskError::Session { cause: SessionError::LogoutRequested, sent: true };
    assert_eq!(trace.result(tags[1]).unwrap_err(), expected);
}

/// LGO-08, QRK-35: without a response, the connection is closed after the time limit.
#[test]
fn lgo_08_silence_ends_the_session_too() {
    let mut trace = Trace::logged_in();
    trace.session.logout(trace.now);
    expect!(trace, LogoutRequest);
    trace.advance(Duration::from_millis(4900));
    assert_eq!(trace.ended, None);
    trace.advance(Duration::from_millis(200));
    assert_eq!(trace.ended, Some(Ok(())));
    assert!(trace.closed.is_some());
}

/// LGO-09: a discovery session is closed as a whole.
#[test]
fn lgo_09_discovery_closes_the_session() {
    let mut trace = Trace::established(discovery(), &[]);
    trace.session.logout(trace.now);
    let request = expect!(trace, LogoutRequest { function: 0, cid: 0 });
    send!(trace, logout_response { itt: request.itt() });
    assert_eq!(trace.ended, Some(Ok(())));
}

/// A ping without a response does not delay a logout, and ends with the session.
#[test]
fn pending_ping_does_not_hold_up_a_logout() {
    let mut trace = Trace::logged_in();
    let ping = trace.session.ping(trace.now).unwrap();
    expect!(trace, NopOut);
    trace.session.logout(trace.now);
    let request = expect!(trace, LogoutRequest);
    send!(trace, logout_response { itt: request.itt() });
    let ponged = |output: &Output| matches!(output, Output::Ponged { itt, result: Err(TaskError::Closed) } if *itt == ping);
    assert!(trace.outputs.iter().any(ponged));
}

/// A logout before the end of the login stops the login; commands that waited for it end.
#[test]
fn logout_during_login_gives_the_login_up() {
    let mut trace = Trace::new(config());
    let itt = trace.submit(read(0, 1));
    expect!(trace, LoginRequest);
    trace.session.logout(trace.now);
    trace.silence();
    assert_eq!(trace.ended, Some(Ok(())));
    assert_eq!(trace.result(itt).unwrap_err(), TaskError::Closed);
}
