//! Tests of Asynchronous Messages (RFC 7143 §11.9).

use std::time::Duration;

use iscsi_pdu::scsi::Lun;
use iscsi_pdu::{AsyncEvent, Cid};
use iscsi_session::{Config, Notice, SessionError, SessionKind, SubmitError, TaskError};
use iscsi_testkit::pdu::NO_TAG;
use iscsi_testkit::pdus::{Template, async_message};
use iscsi_testkit::scsi::Sense;
use iscsi_testkit::{expect, send};

use crate::pair::{config, pattern, read, write};
use crate::trace::{Trace, wire_lun};

/// Returns the fields of the only message that the session passed on.
fn only_message(trace: &Trace) -> (Lun, AsyncEvent, Vec<u8>) {
    match trace.notices.as_slice() {
        [Notice::AsyncMessage { lun, event, sense }] => (*lun, *event, sense.to_vec()),
        other => panic!("{other:?}"),
    }
}

fn discovery() -> Config {
    let mut config = config();
    config.kind = SessionKind::Discovery;
    config
}

/// ASY-01, ASY-07, SEQ-14, and the appendix of faults: every message consumes a StatSN, whatever its event,
/// and the next request acknowledges it.
#[test]
fn asy_01_every_event_uses_a_stat_sn_up() {
    for event in [0, 6, 100, 247, 248, 251, 255] {
        let mut trace = Trace::logged_in();
        let message = send!(trace, async_message { event: event, data: vec![0xff; 40] });
        trace.session.ping(trace.now).unwrap();
        expect!(trace, NopOut { exp_stat_sn: message.stat_sn() + 1 });
        trace.assert_usable();
    }
}

/// ASY-01, RD-13: arbitrary bytes instead of sense data are no error.
#[test]
fn asy_01_junk_instead_of_sense() {
    for (junk, sense) in [
        (vec![], &[][..]),
        (vec![0], &[]),
        (vec![0xff, 0xff, 1], &[1]),
        (vec![0, 0], &[]),
        (vec![0, 4, 1, 2, 3], &[1, 2, 3]),
    ] {
        let mut trace = Trace::logged_in();
        send!(trace, async_message { event: 0, data: junk });
        assert_eq!(only_message(&trace).2, sense);
        trace.assert_usable();
    }
}

/// ASY-02, QRK-29, LAY-19: a SCSI event is passed on with its sense data and its unit.
#[test]
fn asy_02_sense_is_passed_on_with_its_unit() {
    let mut trace = Trace::logged_in();
    let sense = Sense::new(6, 0x3f, 0x0e);
    send!(trace, async_message { event: 0, lun: wire_lun(7), data: sense.segment() });
    let expected = (Lun::new(7).unwrap(), AsyncEvent::ScsiAsyncEvent, sense.fixed().to_vec());
    assert_eq!(only_message(&trace), expected);
    trace.assert_usable();
}

/// ASY-03, UNH FFP 14.1, 17.1, 20.1, QRK-02, and the appendix of faults: if the target requests a logout, the
/// logout is sent immediately, whatever time the message states; commands that were submitted before and not
/// sent are not sent any more.
#[test]
fn asy_03_logout_request_is_followed_at_once() {
    for seconds in [0, 1, 5, 3600] {
        let mut trace = Trace::with_window(1);
        let sent = trace.submit(read(0, 1));
        expect!(trace, ScsiCommand);
        let waits = trace.submit(read(1, 1));
        trace.silence();
        trace.script.set_window(64);
        trace.send(async_message().event(1).parameters([0, 0, seconds]));
        let request = expect!(trace, LogoutRequest { immediate: true, function: 0, cid: 0 });
        trace.silence();
        let error = SubmitError::Closed;
        assert_eq!(trace.session.submit(read(2, 1), trace.now), Err(error));
        let cause = SessionError::LogoutRequested;
        let expected = TaskError::Session { cause: cause.clone(), sent: false };
        assert_eq!(trace.result(waits).unwrap_err(), expected);
        send!(trace, logout_response { itt: request.itt() });
        assert_eq!(trace.ended, Some(Err(cause.clone())));
        assert_eq!(trace.result(sent).unwrap_err(), TaskError::Session { cause, sent: true });
    }
}

/// ASY-03: if the target requests the logout twice, or while a logout is in flight, only one logout is sent.
#[test]
fn asy_03_one_logout_is_enough() {
    let mut trace = Trace::logged_in();
    send!(trace, async_message { event: 1 });
    send!(trace, async_message { event: 1 });
    expect!(trace, LogoutRequest);
    trace.silence();
    let mut trace = Trace::logged_in();
    trace.session.logout(trace.now);
    let request = expect!(trace, LogoutRequest);
    send!(trace, async_message { event: 1 });
    trace.silence();
    send!(trace, logout_response { itt: request.itt() });
    assert!(trace.ended.is_some());
}

/// ASY-03, QRK-35: the session ends if the target requests a logout and does not respond to it, or closes the
/// connection.
#[test]
fn asy_03_unanswered_logout_ends_the_session() {
    for closes in [false, true] {
        let mut trace = Trace::logged_in();
        send!(trace, async_message { event: 1 });
        expect!(trace, LogoutRequest);
        if closes {
            trace.close();
        } else {
            trace.advance(Duration::from_secs(6));
        }
        assert_eq!(trace.ended, Some(Err(SessionError::LogoutRequested)));
    }
}

/// ASY-04, UNH FFP 20.2, 20.3: the target drops the connection, or all connections. The times for the
/// reconnect are those of the message, not those of the login.
#[test]
fn asy_04_dropped_by_the_target() {
    for event in [2, 3] {
        let mut trace = Trace::logged_in();
        let itt = trace.submit(read(0, 1));
        expect!(trace, ScsiCommand);
        trace.send(async_message().event(event).parameters([0, 7, 9]));
        let cause = SessionError::DroppedByTarget { time2wait: 7, time2retain: 9 };
        assert_eq!(trace.ended, Some(Err(cause.clone())));
        assert_eq!(trace.closed, Some(true));
        assert_eq!(trace.result(itt).unwrap_err(), TaskError::Session { cause, sent: true });
    }
}

/// ASY-04: a message about a connection that this session does not have changes nothing.
#[test]
fn asy_04_foreign_connection_dropped() {
    let mut trace = Trace::logged_in();
    trace.send(async_message().event(2).parameters([5, 7, 9]));
    let event = AsyncEvent::ConnectionDropped { cid: Cid(5), time2wait: 7, time2retain: 9 };
    assert_eq!(only_message(&trace).1, event);
    trace.assert_usable();
}

/// ASY-05, UNH FFP 20.4: the session answers a request for a negotiation with an empty text request, one at a
/// time.
#[test]
fn asy_05_negotiation_request_is_answered() {
    let mut trace = Trace::logged_in();
    trace.send(async_message().event(4).parameters([0, 0, 3]));
    let request = expect!(trace, TextRequest { is_final: true, continues: false, ttt: NO_TAG });
    assert!(request.data.is_empty());
    trace.send(async_message().event(4).parameters([0, 0, 3]));
    trace.silence();
    send!(trace, text_response { itt: request.itt() });
    trace.send(async_message().event(4).parameters([0, 0, 3]));
    let again = expect!(trace, TextRequest);
    assert_ne!(again.itt(), request.itt());
    send!(trace, text_response { itt: again.itt() });
    trace.assert_usable();
}

/// ASY-05: if a text exchange is pending, it answers the request for a negotiation, and no other request is
/// sent.
#[test]
fn asy_05_pending_exchange_is_an_answer() {
    let mut trace = Trace::logged_in();
    trace.session.send_targets(trace.now).unwrap();
    let request = expect!(trace, TextRequest);
    send!(trace, async_message { event: 4 });
    trace.silence();
    send!(trace, text_response { itt: request.itt() });
    trace.assert_usable();
}

/// ASY-06: after the target ended all tasks of a unit, no more data is sent for the unit, and an
/// acknowledgement is sent; another unit is not affected.
#[test]
fn asy_06_terminated_tasks_are_acknowledged() {
    let mut trace = Trace::with_answers(&[("InitialR2T", "Yes"), ("ImmediateData", "No")]);
    let tags = [3, 4].map(|number| {
        let mut command = write(0, pattern(1024, 1));
        command.lun = Lun::new(number).unwrap();
        trace.submit(command)
    });
    tags.iter().for_each(|_| drop(expect!(trace, ScsiCommand)));
    let message = send!(trace, async_message { event: 5, lun: wire_lun(3) });
    expect!(
        trace,
        NopOut {
            immediate: true,
            itt: NO_TAG,
            ttt: NO_TAG,
            lun: wire_lun(3),
            exp_stat_sn: message.stat_sn() + 1,
        }
    );
    assert_eq!(trace.result(tags[0]).unwrap_err(), TaskError::Aborted);
    send!(trace, r2t { itt: tags[0].get(), lun: wire_lun(3), ttt: 1, desired_length: 1024 });
    trace.silence();
    send!(trace, r2t { itt: tags[1].get(), lun: wire_lun(4), ttt: 2, desired_length: 1024 });
    expect!(trace, DataOut { lun: wire_lun(4), ttt: 2 });
    send!(trace, scsi_response { itt: tags[1].get() });
    assert!(trace.result(tags[1]).is_ok());
}

/// ASY-07, and peers' fault 12: vendor-specific and unknown events are passed on and change nothing.
#[test]
fn asy_07_unknown_events_are_passed_on() {
    let message = |event: u8| -> Template { async_message().event(event).byte(37, 2) };
    for (event, expected) in [
        (6, AsyncEvent::Other(6)),
        (247, AsyncEvent::Other(247)),
        (248, AsyncEvent::Vendor { event: 248, code: 2 }),
        (255, AsyncEvent::Vendor { event: 255, code: 2 }),
    ] {
        let mut trace = Trace::logged_in();
        trace.send(message(event));
        assert_eq!(only_message(&trace).1, expected);
        trace.assert_usable();
    }
}

/// ASY-03, DSC-08: a discovery session logs out on request of the target too.
#[test]
fn asy_03_discovery_session_logs_out() {
    let mut trace = Trace::established(discovery(), &[]);
    send!(trace, async_message { event: 1 });
    let request = expect!(trace, LogoutRequest { function: 0 });
    send!(trace, logout_response { itt: request.itt() });
    assert_eq!(trace.ended, Some(Err(SessionError::LogoutRequested)));
}
