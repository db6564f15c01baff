//! Tests of dropping one connection of several in order (RFC 7143 §11.14).

use std::time::Duration;

use iscsi_session::{SessionError, SubmitError};
use iscsi_testkit::fault::{Effect, Fault};
use iscsi_testkit::opcode::Opcode;

use crate::connection_loss::{FIRST, THIRD, failure, lost};
use crate::connections::{SECOND, received, submit_over, target, two_connections};
use crate::pair::{pattern, read, write};

/// A connection that is dropped is closed by a logout when its last task has ended; the other connection
/// sends the commands that are submitted meanwhile.
#[test]
fn connection_let_go_in_order() {
    for cid in [FIRST, SECOND] {
        let other = if cid == FIRST { SECOND } else { FIRST };
        let mut pair = two_connections(target());
        pair.target.hold();
        let itt = submit_over(&mut pair, cid, write(0, pattern(4096, 2)));
        pair.session.drop_connection(cid, pair.now).unwrap();
        pair.drive();
        let later = submit_over(&mut pair, cid, read(30, 1));
        pair.drive();
        assert_eq!(received(&pair, cid, Opcode::LogoutRequest), []);
        pair.target.release();
        pair.drive_receive();
        pair.session.handle_timeout(pair.now);
        pair.drive();
        assert!(pair.completed[&itt].is_ok() && pair.completed[&later].is_ok());
        assert_eq!(pair.disconnects, [(cid, false)]);
        let over_other = pair.target.received().iter().rev();
        let mut commands = over_other.filter(|(_, pdu)| pdu.is(Opcode::ScsiCommand));
        assert_eq!(commands.next().unwrap().0, pair.link(other.0));
        let logouts = pair.target.received().iter().filter(|(_, p)| p.is(Opcode::LogoutRequest));
        let logouts: Vec<_> = logouts.map(|(_, pdu)| (pdu.function(), pdu.cid())).collect();
        assert_eq!(logouts, [(1, cid.0)]);
        assert_eq!(pair.lost(), []);
        let refused = pair.session.drop_connection(other, pair.now);
        assert_eq!(refused, Err(SubmitError::NoConnection));
        pair.assert_usable();
        pair.session.add_connection(cid, pair.now).unwrap();
        pair.drive();
        pair.session.logout(pair.now);
        pair.drive();
        assert_eq!(pair.ended, Some(Ok(())));
        pair.assert_no_violations();
    }
}

/// A response that the target has requested is sent before the logout, and does not delay the logout.
#[test]
fn connection_let_go_behind_an_answer() {
    let mut pair = two_connections(target());
    let link = pair.link(1);
    pair.target.ping(link, 0);
    pair.carry_to_session();
    pair.session.drop_connection(SECOND, pair.now).unwrap();
    pair.drive();
    let came = pair.target.received().iter().filter(|(at, _)| *at == link);
    let came: Vec<_> = came.map(|(_, pdu)| pdu.clone()).collect();
    let [.., answer, logout] = &came[..] else { panic!("{came:?}") };
    assert!(answer.is(Opcode::NopOut) && logout.is(Opcode::LogoutRequest), "{came:?}");
    assert_eq!(pair.disconnects, [(SECOND, false)]);
    pair.assert_usable();
    pair.assert_no_violations();
}

/// LGO-08, QRK-35: the dropped connection also ends if the target does not respond to the logout, or closes
/// the connection instead.
#[test]
fn connection_let_go_without_an_answer() {
    for closes in [false, true] {
        let effect = if closes { Effect::Close } else { Effect::Swallow };
        let mut target = target();
        target.faults.push(Fault::receiving(Opcode::LogoutRequest, 0, effect));
        let mut pair = two_connections(target);
        pair.session.drop_connection(SECOND, pair.now).unwrap();
        pair.drive();
        if closes {
            pair.session.add_connection(SECOND, pair.now).unwrap();
        }
        pair.advance(Duration::from_secs(6));
        assert_eq!(pair.disconnects, [(SECOND, false)]);
        assert_eq!(pair.session.negotiated_on(SECOND).is_some(), closes);
        assert_eq!(pair.ended, None);
        pair.assert_usable();
    }
}

/// A connection that is still logging in is dropped immediately. A connection that fails while it is being
/// dropped is cleaned up like any other.
#[test]
fn connection_let_go_in_other_states() {
    let mut pair = two_connections(target());
    assert_eq!(pair.session.drop_connection(THIRD, pair.now), Err(SubmitError::NoConnection));
    pair.target.hold();
    let itt = submit_over(&mut pair, SECOND, read(0, 1));
    pair.session.drop_connection(SECOND, pair.now).unwrap();
    pair.break_connection(SECOND);
    pair.drive();
    assert_eq!(failure(&pair, itt), lost(true));
    pair.target.release();
    pair.target.config_mut().login.silent = true;
    pair.session.add_connection(SECOND, pair.now).unwrap();
    pair.drive();
    pair.session.drop_connection(SECOND, pair.now).unwrap();
    pair.drive();
    assert_eq!(pair.disconnects, [(SECOND, true), (SECOND, false)]);
    pair.assert_usable();
    pair.advance(Duration::from_secs(20));
    assert_eq!(pair.lost().len(), 1);
    pair.assert_no_violations();
}

/// If the last connection that is not being dropped fails, the session fails too.
#[test]
fn last_connection_that_stays_fails() {
    let mut pair = two_connections(target());
    pair.target.hold();
    submit_over(&mut pair, SECOND, read(0, 1));
    pair.session.drop_connection(SECOND, pair.now).unwrap();
    pair.break_connection(FIRST);
    pair.drive();
    assert!(matches!(pair.ended, Some(Err(SessionError::Transport(_)))));
    assert_eq!(pair.lost(), []);
}

/// A logout of the session does not wait for a login in progress.
#[test]
fn logout_of_the_session_during_a_login() {
    let mut target = target();
    target.faults.push(Fault::receiving(Opcode::LogoutRequest, 0, Effect::Swallow));
    let mut pair = two_connections(target);
    pair.target.config_mut().login.silent = true;
    pair.session.add_connection(THIRD, pair.now).unwrap_err();
    pair.session.drop_connection(SECOND, pair.now).unwrap();
    pair.drive();
    pair.advance(Duration::from_secs(6));
    pair.disconnects.clear();
    pair.session.add_connection(SECOND, pair.now).unwrap();
    pair.drive();
    pair.session.logout(pair.now);
    pair.drive_receive();
    assert_eq!(pair.disconnects, [(SECOND, false)]);
    pair.drive();
    assert_eq!(pair.ended, Some(Ok(())));
}
