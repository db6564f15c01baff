//! Tests of an added connection whose login fails: the session continues (RFC 7143 §6.3, §13.9).

use std::time::Duration;

use iscsi_pdu::{Cid, Digest, LoginStatus};
use iscsi_session::{
    AuthenticationError, Config, LoginError, Output, ProtocolError, SessionError, Timer,
    TransportError,
};
use iscsi_testkit::config::{Chap as TargetChap, Redirect};
use iscsi_testkit::config::{DigestPolicy, TargetConfig};
use iscsi_testkit::fault::{Effect, Fault};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdus::{Numbers, nop_in};

use crate::connections::{SECOND, submit_over, target};
use crate::login_flow::{target_with_chap, with_chap};
use crate::pair::{Pair, config, pattern, read, write};

impl Pair {
    /// Returns the connections that were lost, and the reasons.
    pub(crate) fn lost(&self) -> Vec<(Cid, &SessionError)> {
        let lost = |output| match output {
            &Output::ConnectionLost { cid, ref why } => Some((cid, why)),
            _ => None,
        };
        self.outputs.iter().filter_map(lost).collect()
    }

    /// Returns the reason for which the only lost connection was lost.
    #[track_caller]
    pub(crate) fn only_loss(&self, cid: Cid) -> &SessionError {
        match self.lost()[..] {
            [(lost, why)] if lost == cid => why,
            ref other => panic!("{other:?}, {:?}", self.ended),
        }
    }

    /// Checks that the session still executes commands.
    #[track_caller]
    pub(crate) fn assert_usable(&mut self) {
        let data = pattern(4096, 77);
        self.execute(write(100, data.clone())).unwrap();
        assert_eq!(self.execute(read(100, 8)).unwrap().data, data);
        assert_eq!(self.ended, None);
    }
}

fn leading(mut config: Config, target: TargetConfig) -> Pair {
    config.offer = config.offer.with_max_connections(4);
    Pair::logged_in(config, target)
}

/// Adds a connection that fails while a command of the first one is in flight, and checks that neither the
/// command nor the session is affected.
fn fail_to_add(pair: &mut Pair) -> SessionError {
    pair.target.hold();
    let itt = submit_over(pair, Cid(0), read(0, 8));
    pair.session.add_connection(SECOND, pair.now).unwrap();
    pair.drive();
    pair.advance(Duration::from_secs(16));
    let why = pair.only_loss(SECOND).clone();
    pair.target.release();
    pair.drive();
    assert!(pair.completed[&itt].is_ok());
    pair.assert_usable();
    assert_eq!(pair.disconnects.iter().filter(|(cid, _)| *cid != SECOND).count(), 0);
    pair.assert_no_violations();
    why
}

/// Checks that the CID is free again immediately.
fn add_again(pair: &mut Pair) {
    pair.session.add_connection(SECOND, pair.now).unwrap();
    pair.drive();
    assert!(pair.session.negotiated_on(SECOND).is_some());
    submit_over(pair, SECOND, read(1, 1));
    pair.drive();
    pair.assert_usable();
    pair.assert_no_violations();
}

/// MC-I-06: an added connection to a portal of another portal group fails.
#[test]
fn mc_i_06_wrong_portal_group() {
    let mut pair = leading(config(), target());
    pair.target.config_mut().portal_group = Some(9);
    let why = fail_to_add(&mut pair);
    let expected = LoginError::PortalGroup { expected: 1, found: 9 };
    assert_eq!(why, SessionError::Login(expected));
    pair.target.config_mut().portal_group = Some(1);
    add_again(&mut pair);
}

/// MC-I-07, LOG-30: the first connection is authenticated; an added connection whose target omits the
/// authentication fails.
#[test]
fn mc_i_07_second_connection_without_authentication() {
    let mut target = target_with_chap(&[7]);
    target.keys.max_connections = 4;
    target.units = crate::connections::target().units;
    let mut pair = leading(with_chap(false), target);
    let chap = pair.target.config_mut().chap.take();
    let why = fail_to_add(&mut pair);
    let expected = LoginError::Authentication(AuthenticationError::MethodRefused);
    assert_eq!(why, SessionError::Login(expected));
    pair.target.config_mut().chap = chap;
    add_again(&mut pair);
}

/// MC-I-07, LOG-30: the first connection needs no authentication; an added connection whose target requires
/// it fails.
#[test]
fn mc_i_07_second_connection_wants_authentication() {
    let mut pair = leading(config(), target());
    pair.target.config_mut().chap = Some(TargetChap::new("host", b"initiator secret"));
    let why = fail_to_add(&mut pair);
    assert!(matches!(&why, SessionError::Login(error) if error.is_authentication()), "{why:?}");
}

/// MC-I-07: an added connection to a portal that cannot authenticate itself fails.
#[test]
fn mc_i_07_second_connection_to_an_impostor() {
    let mut target = target_with_chap(&[7]);
    target.units = crate::connections::target().units;
    let mut pair = leading(with_chap(true), target);
    let chap = pair.target.config_mut().chap.as_mut().unwrap();
    chap.target.as_mut().unwrap().secret = b"guessed by somebody".to_vec();
    let why = fail_to_add(&mut pair);
    let expected = LoginError::Authentication(AuthenticationError::WrongResponse);
    assert_eq!(why, SessionError::Login(expected));
}

/// LOG-17: a refusal of the added connection, with any status, ends only this connection.
#[test]
fn refused_by_the_target() {
    for (class, detail) in [(2, 0), (2, 6), (2, 8), (2, 0x0a), (3, 1), (3, 2), (9, 9)] {
        let mut pair = leading(config(), target());
        pair.target.config_mut().login.refuse = Some((class, detail));
        let why = fail_to_add(&mut pair);
        let expected = LoginError::Status(LoginStatus { class, detail });
        assert_eq!(why, SessionError::Login(expected));
        pair.target.config_mut().login.refuse = None;
        add_again(&mut pair);
    }
}

/// A portal that cannot be reached, or closes the connection after any byte of the login, ends only the added
/// connection.
#[test]
fn transport_fails_before_or_in_login() {
    let mut pair = leading(config(), target());
    pair.refuses = true;
    let why = fail_to_add(&mut pair);
    assert!(matches!(why, SessionError::Transport(TransportError::Connect(_))));
    pair.refuses = false;
    add_again(&mut pair);
    for at in 0..48 {
        let mut target = target();
        target.faults.push(Fault::cut_after_sent(at).on_connection(1));
        let mut pair = leading(config(), target);
        let why = fail_to_add(&mut pair);
        assert_eq!(why, SessionError::Transport(TransportError::Closed));
        add_again(&mut pair);
    }
}

/// The time limit of an added connection's login starts when the connection is added.
#[test]
fn login_that_takes_too_long() {
    let mut pair = leading(config(), target());
    pair.target.config_mut().login.silent = true;
    pair.session.add_connection(SECOND, pair.now).unwrap();
    pair.advance(Duration::from_secs(10));
    pair.session.add_connection(Cid(2), pair.now).unwrap();
    pair.advance(Duration::from_millis(4900));
    assert_eq!(pair.lost(), []);
    pair.advance(Duration::from_millis(200));
    assert_eq!(*pair.only_loss(SECOND), SessionError::TimedOut(Timer::Login));
    assert_eq!(pair.disconnects, [(SECOND, true)]);
    pair.advance(Duration::from_millis(9700));
    assert_eq!(pair.lost().len(), 1);
    pair.advance(Duration::from_millis(300));
    assert_eq!(pair.lost().len(), 2);
    pair.assert_usable();
    pair.assert_no_violations();
}

/// LOG-01, UNH login 8.1: another PDU in the login phase ends only the added connection.
#[test]
fn other_pdu_in_login() {
    let mut target = target();
    let ping = nop_in().ttt(5).build(Numbers { stat_sn: 1, exp_cmd_sn: 1, max_cmd_sn: 9 });
    let fault = Fault::sending(Opcode::LoginResponse, 0, Effect::Before(Box::new(ping)));
    target.faults.push(fault.on_connection(1));
    let mut pair = leading(config(), target);
    let why = fail_to_add(&mut pair);
    assert_eq!(why, SessionError::Protocol(ProtocolError::Unexpected { pdu: "NOP-In" }));
}

/// LOG-25: redirections are counted per connection, and too many end only the added connection.
#[test]
fn redirected_in_a_circle() {
    let mut pair = leading(config(), target());
    let address = "127.0.0.2:3260".to_owned();
    let redirect = Redirect { address, permanent: false, after_authentication: false };
    pair.target.config_mut().login.redirect = Some(redirect);
    assert_eq!(fail_to_add(&mut pair), SessionError::RedirectLoop);
    assert_eq!(pair.connects, 1 + 1 + 8);
    pair.target.config_mut().login.redirect = None;
    add_again(&mut pair);
}

/// A redirection of an added connection does not change the numbers of the session.
#[test]
fn redirected_once() {
    let mut pair = leading(config(), target());
    pair.execute(read(0, 1)).unwrap();
    let before = pair.session.exp_cmd_sn();
    let address = "127.0.0.2:3260".to_owned();
    let redirect = Redirect { address, permanent: false, after_authentication: false };
    pair.target.config_mut().login.redirect = Some(redirect);
    pair.session.add_connection(SECOND, pair.now).unwrap();
    while pair.connects < 3 {
        assert!(pair.step(), "there was no redirection");
    }
    pair.target.config_mut().login.redirect = None;
    pair.drive();
    assert!(pair.session.negotiated_on(SECOND).is_some());
    assert_eq!(pair.session.exp_cmd_sn(), before);
    pair.assert_usable();
    pair.assert_no_violations();
}

/// DIG-11, UNH login 9.3: if only the second connection agrees on digests, they are in force on this
/// connection, from its first PDU after the login, and on no other.
#[test]
fn dig_11_digests_of_one_connection() {
    let mut pair = leading(config(), target());
    pair.target.config_mut().keys.header_digest = DigestPolicy::Require;
    pair.target.config_mut().keys.data_digest = DigestPolicy::Require;
    add_again(&mut pair);
    for (cid, digest) in [(Cid(0), Digest::None), (SECOND, Digest::Crc32c)] {
        let agreed = pair.session.negotiated_on(cid).unwrap();
        assert_eq!((agreed.header_digest, agreed.data_digest), (digest, digest));
        let write = submit_over(&mut pair, cid, write(2, pattern(512, 2)));
        pair.drive();
        assert!(pair.completed[&write].is_ok());
        let read = submit_over(&mut pair, cid, read(2, 1));
        pair.drive();
        assert_eq!(pair.completed[&read].as_ref().unwrap().data, pattern(512, 2));
    }
    assert_eq!(pair.lost(), []);
    pair.assert_no_violations();
}
