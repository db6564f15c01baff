//! Tests of the times for a reconnect, by how the session ended (RFC 7143 §7.4, §11.9.1, §11.15).

use std::time::Duration;

use iscsi_session::{DigestOffer, Session};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdus::{async_message, logout_response};
use iscsi_testkit::{expect, send};

use crate::connections::{SECOND, target, two_connections};
use crate::pair::{Pair, config, target_config};
use crate::trace::Trace;

/// Returns a session in full feature phase, with 5 s and 7 s as DefaultTime2Wait and DefaultTime2Retain.
fn logged_in() -> Trace {
    Trace::with_answers(&[("DefaultTime2Wait", "5"), ("DefaultTime2Retain", "7")])
}

/// Returns Time2Wait and Time2Retain, seconds.
fn times(session: &Session) -> Option<(u64, u64)> {
    let times = session.reopening()?;
    Some((times.time2wait.as_secs(), times.time2retain.as_secs()))
}

/// ERR-09: after an unannounced end, the times agreed at login apply.
#[test]
fn err_09_abrupt_end_leaves_the_agreed_times() {
    let ends: [fn(&mut Trace); 3] = [
        |trace| trace.close(),
        |trace| trace.advance(Duration::from_secs(120)),
        |trace| drop(trace.send(async_message().stat_sn(1000))),
    ];
    for end in ends {
        let mut trace = logged_in();
        assert_eq!(times(&trace.session), None);
        end(&mut trace);
        assert!(matches!(trace.ended, Some(Err(_))));
        assert_eq!(times(&trace.session), Some((5, 7)));
    }
}

/// ERR-09: a session whose login failed has no times.
#[test]
fn err_09_failed_login_has_no_times() {
    let mut config = config();
    config.offer = config.offer.with_header_digest(DigestOffer::Required);
    let mut trace = Trace::new(config);
    trace.login(&[]);
    assert!(matches!(trace.ended, Some(Err(_))));
    assert_eq!(times(&trace.session), None);
}

/// ASY-04, ERR-09: an announced drop gives its own times, also zero. Other events, and drops of foreign
/// connections, give none.
#[test]
fn asy_04_announced_drop_names_the_times() {
    for (event, parameters, expected) in [
        (2, [0, 7, 9], (7, 9)),
        (2, [0, 0, 0], (0, 0)),
        (2, [5, 7, 9], (5, 7)),
        (3, [0, 7, 9], (7, 9)),
        (3, [0xffff, 0, 3600], (0, 3600)),
        (3, [0, 0xffff, 0xffff], (0xffff, 0xffff)),
        (4, [0, 30, 40], (5, 7)),
        (255, [0, 30, 40], (5, 7)),
    ] {
        let mut trace = logged_in();
        trace.send(async_message().event(event).parameters(parameters));
        if trace.ended.is_none() {
            trace.pump();
            while trace.script.try_next().is_some() {}
            trace.close();
        }
        assert_eq!(times(&trace.session), Some(expected), "event {event}, {parameters:?}");
    }
}

/// LGO-05, LGO-07, ERR-09: the times of a logout response apply only with the codes for which they have a
/// meaning, whichever side requested the logout.
#[test]
fn lgo_07_times_of_the_logout_response() {
    for (code, expected) in
        [(0, (0, 0)), (1, (5, 7)), (2, (11, 13)), (3, (11, 13)), (4, (5, 7)), (0xff, (5, 7))]
    {
        for asked in [false, true] {
            let mut trace = logged_in();
            if asked {
                trace.send(async_message().event(1).parameters([0, 0, 3]));
            } else {
                trace.session.logout(trace.now);
            }
            let itt = expect!(trace, LogoutRequest).itt();
            assert_eq!(times(&trace.session), None);
            trace.send(logout_response().itt(itt).response(code).times(11, 13));
            assert!(trace.ended.is_some());
            assert_eq!(times(&trace.session), Some(expected), "code {code}");
        }
    }
}

/// LGO-08, ERR-09: after a logout without a response, the times agreed at login apply.
#[test]
fn lgo_08_unanswered_logout_leaves_the_agreed_times() {
    for closes in [false, true] {
        let mut trace = logged_in();
        send!(trace, async_message { event: 1 });
        expect!(trace, LogoutRequest);
        if closes {
            trace.close();
        } else {
            trace.advance(Duration::from_secs(6));
        }
        assert_eq!(times(&trace.session), Some((5, 7)));
    }
}

/// ERR-09: the loss of one of two connections, announced or not, does not set the times of the session; the
/// end of the session does.
#[test]
fn err_09_times_of_a_lost_connection_are_not_those_of_the_session() {
    let mut pair = two_connections(target());
    let link = pair.link(0);
    pair.target.async_message(link, 2, [1, 7, 9]);
    pair.drive();
    pair.only_loss(SECOND);
    assert_eq!(times(&pair.session), None);
    let agreed = pair.session.negotiated().unwrap();
    let agreed = (agreed.default_time2wait.into(), agreed.default_time2retain.into());
    pair.break_connection(iscsi_pdu::Cid(0));
    pair.drive();
    assert!(matches!(pair.ended, Some(Err(_))));
    assert_eq!(times(&pair.session), Some(agreed));
}

/// A session that logs out in order may reconnect immediately.
#[test]
fn lgo_07_orderly_end_leaves_nothing_to_wait_for() {
    let mut pair = Pair::logged_in(config(), target_config(8));
    pair.session.logout(pair.now);
    pair.drive();
    assert!(pair.target.received().iter().any(|(_, pdu)| pdu.is(Opcode::LogoutRequest)));
    assert_eq!(times(&pair.session), Some((0, 0)));
}
