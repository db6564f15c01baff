//! Tests of complete logins: redirections, time limits, CHAP, parameters (RFC 7143 §6.3, §11.13.5, §12.1).

use std::time::Duration;

use iscsi_pdu::{Cid, Digest, IscsiName, Tsih};
use iscsi_session::{
    AuthenticationError, Chap, ChapAlgorithm, Config, LoginError, Notice, Secret, Session,
    SessionError, SessionKind, SubmitError, TargetCredentials, Timer,
};
use iscsi_testkit::config::{
    Chap as TargetChap, DigestPolicy, Encoding, Redirect, Reflection, TargetConfig,
};
use iscsi_testkit::expect;
use iscsi_testkit::fault::{Effect, Fault};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::Pdu;
use iscsi_testkit::pdus::login_response;
use iscsi_testkit::text::Pairs;

use crate::pair::{Pair, config, entropy, pattern, read, target_config, write};
use crate::trace::Trace;

const USER: &str = "host";
const SECRET: &[u8] = b"initiator secret";
const TARGET_USER: &str = "disk";
const TARGET_SECRET: &[u8] = b"the target's own";

pub(crate) fn with_chap(mutual: bool) -> Config {
    let mut config = config();
    let mut chap = Chap::new(USER, Secret::from(SECRET.to_vec()));
    if mutual {
        let secret = Secret::from(TARGET_SECRET.to_vec());
        chap.target = Some(TargetCredentials::new(secret).with_user(TARGET_USER));
    }
    config.chap = Some(chap);
    config
}

pub(crate) fn target_with_chap(algorithms: &[u8]) -> TargetConfig {
    let mut target = target_config(64);
    let mut chap = TargetChap::new(USER, SECRET).mutual(TARGET_USER, TARGET_SECRET);
    chap.algorithms = algorithms.to_vec();
    target.chap = Some(chap);
    target
}

fn login_error(pair: &Pair) -> &LoginError {
    match &pair.ended {
        Some(Err(SessionError::Login(error))) => error,
        other => panic!("the login has not failed: {other:?}"),
    }
}

/// Redirects the login request that is due.
fn redirect(trace: &mut Trace, permanent: bool, address: &str) -> Pdu {
    let request = expect!(trace, LoginRequest);
    let response = login_response().last(false).stages(request.csg(), 0).isid(request.isid());
    let response = response.itt(request.itt()).login_status(1, if permanent { 2 } else { 1 });
    trace.send(response.text(&[("TargetAddress", address)]));
    request
}

fn value_of(request: &Pdu, key: &str) -> Option<String> {
    Pairs::split(&request.data).unwrap().get(key).map(str::to_owned)
}

/// LOG-24, ISI-03: a redirection with any form of address is followed; the login starts again with the same
/// names.
#[test]
fn log_24_redirection_is_followed() {
    for (address, host, port) in [
        ("10.0.0.2", "10.0.0.2", 3260),
        ("10.0.0.2:3261", "10.0.0.2", 3261),
        ("10.0.0.2:3260,1", "10.0.0.2", 3260),
        ("san.example.org", "san.example.org", 3260),
        ("[2001:db8::1]", "2001:db8::1", 3260),
        ("[2001:db8::1]:860", "2001:db8::1", 860),
    ] {
        for permanent in [false, true] {
            let mut trace = Trace::new(config());
            let first = redirect(&mut trace, permanent, address);
            let to = trace.connects[1].clone().unwrap();
            assert_eq!((to.host.as_str(), to.port), (host, port));
            let again = trace.login(&[]);
            assert_eq!((again.tsih(), again.isid()), (0, first.isid()));
            assert_eq!(again.cmd_sn(), first.cmd_sn());
            assert_eq!(value_of(&again, "TargetName"), value_of(&first, "TargetName"));
            let told = |notice: &Notice| matches!(notice, Notice::Redirected { permanent: told, .. } if *told == permanent);
            assert!(trace.notices.iter().any(told));
            trace.assert_usable();
        }
    }
}

/// LOG-24, QRK-27: after a redirection that follows an authentication, the initiator authenticates again at
/// the next portal.
#[test]
fn log_24_redirection_after_authentication() {
    let mut target = target_with_chap(&[7]);
    target.login.redirect = Some(Redirect {
        address: "10.0.0.9:3261".to_owned(),
        permanent: false,
        after_authentication: true,
    });
    let mut config = with_chap(true);
    config.max_redirects = 3;
    let mut pair = Pair::new(config, target);
    pair.drive();
    assert_eq!(pair.ended, Some(Err(SessionError::RedirectLoop)));
    assert_eq!((pair.connects, pair.target.accepted()), (4, 4));
    pair.assert_no_violations();
}

/// NAM-02: names are sent in their original spelling, because targets compare bytes.
#[test]
fn nam_02_names_go_out_as_they_are_spelled() {
    let (initiator, target) = ("iqn.2026-01.org.Example:Host", "iqn.2026-01.org.Example:DISK");
    let mut config = config();
    config.initiator_name = IscsiName::parse(initiator).unwrap();
    config.kind = SessionKind::Normal { target_name: IscsiName::parse(target).unwrap() };
    let mut trace = Trace::new(config);
    let request = trace.login(&[]);
    assert_eq!(value_of(&request, "InitiatorName").as_deref(), Some(initiator));
    assert_eq!(value_of(&request, "TargetName").as_deref(), Some(target));
}

/// QRK-41: a redirection leads to another address of the target, never to another target.
#[test]
fn qrk_41_redirection_to_another_name() {
    let mut trace = Trace::new(config());
    let request = expect!(trace, LoginRequest);
    let response = login_response().last(false).stages(request.csg(), 0).isid(request.isid());
    let response = response.itt(request.itt()).login_status(1, 1);
    let other = [("TargetAddress", "10.0.0.2"), ("TargetName", "iqn.2026-01.org.example:other")];
    trace.send(response.text(&other));
    let again = trace.login(&[]);
    assert_eq!(value_of(&again, "TargetName"), value_of(&request, "TargetName"));
    trace.assert_usable();
}

/// LOG-24: a redirection without a usable address fails the login.
#[test]
fn log_24_redirection_without_an_address() {
    for address in ["", "10.0.0.2:0", "10.0.0.2:99999", "[fe80::1"] {
        let mut trace = Trace::new(config());
        redirect(&mut trace, false, address);
        assert!(matches!(trace.failure(), SessionError::Login(LoginError::Protocol(_))));
        assert_eq!(trace.connects.len(), 1);
    }
}

/// LOG-25: the configured number of redirections is followed, and one more fails the login.
#[test]
fn log_25_redirections_in_a_circle_end() {
    for limit in [0, 1, 8] {
        let mut config = config();
        config.max_redirects = limit;
        let mut trace = Trace::new(config);
        for _ in 0..limit {
            redirect(&mut trace, false, "10.0.0.2");
            assert_eq!(trace.ended, None);
        }
        redirect(&mut trace, false, "10.0.0.2");
        assert_eq!(*trace.failure(), SessionError::RedirectLoop);
        assert_eq!(trace.connects.len(), usize::from(limit) + 1);
    }
}

/// LOG-26: a login may take many exchanges, but their number is limited.
#[test]
fn log_26_exchanges_are_bounded() {
    for (rounds, succeeds) in [(0, true), (6, true), (20, true), (200, false), (100_000, false)] {
        let mut target = target_config(64);
        target.login.extra_rounds = rounds;
        let mut pair = Pair::new(config(), target);
        pair.drive();
        assert_eq!(pair.session.negotiated().is_some(), succeeds);
        if !succeeds {
            assert!(matches!(login_error(&pair), LoginError::TooManyExchanges(_)));
        }
        pair.assert_no_violations();
    }
}

/// LOG-18, LOG-19, SEQ-11: a refused login is not retried, and the error shows whether a retry may succeed.
#[test]
fn log_18_refused_login_is_not_tried_again() {
    for (class, detail) in [(2, 0), (2, 1), (2, 3), (2, 6), (3, 0), (3, 1), (3, 2), (9, 9)] {
        let mut target = target_config(64);
        target.login.refuse = Some((class, detail));
        let mut pair = Pair::new(config(), target);
        pair.drive();
        let error = login_error(&pair);
        assert_eq!(error.is_retryable(), class == 3);
        assert_eq!(error.is_target_not_found(), (class, detail) == (2, 3));
        assert_eq!(pair.connects, 1);
    }
}

/// LOG-32: if the process was stopped in the middle of a login, the time limit of the login starts again, and
/// then applies.
#[test]
fn log_32_time_in_which_the_process_was_stopped_does_not_count() {
    let limit = Duration::from_secs(15);
    let stopped = Duration::from_secs(3600);
    let mut trace = Trace::new(config());
    trace.now += stopped;
    trace.session.handle_timeout(trace.now);
    trace.drain();
    assert_eq!(trace.ended, None);
    trace.advance(limit - Duration::from_millis(1));
    assert_eq!(trace.ended, None);
    trace.advance(Duration::from_millis(1));
    assert_eq!(*trace.failure(), SessionError::TimedOut(Timer::Login));
}

/// LOG-32: the time limit covers the whole login: also without a connection, with a silent or slow target,
/// and with redirections.
#[test]
fn log_32_login_has_one_time_limit() {
    let late = Duration::from_secs(15);
    let mut now = crate::start();
    let mut session = Session::new(config(), entropy(1), now);
    assert_eq!(session.poll_timeout(), Some((now + late, Timer::Login)));
    now += late;
    session.handle_timeout(now);
    let ended = std::iter::from_fn(|| session.poll_output()).last().unwrap();
    let expected = SessionError::TimedOut(Timer::Login);
    assert!(matches!(ended, iscsi_session::Output::Ended(Err(error)) if error == expected));

    let mut target = target_config(64);
    target.login.silent = true;
    let mut pair = Pair::new(config(), target);
    pair.drive();
    pair.advance(late);
    assert_eq!(pair.ended, Some(Err(expected.clone())));

    let mut trace = Trace::new(config());
    for _ in 0..7 {
        redirect(&mut trace, false, "10.0.0.2");
        trace.advance(late / 8);
    }
    assert_eq!(trace.ended, None);
    expect!(trace, LoginRequest);
    trace.advance(late / 8);
    assert_eq!(*trace.failure(), expected);
}

/// LOG-32: after the login, its time limit has no effect.
#[test]
fn log_32_limit_ends_with_the_login() {
    let mut config = config();
    config.timeouts = config.timeouts.with_nop_interval(None);
    let mut trace = Trace::established(config, &[]);
    assert_eq!(trace.session.poll_timeout(), None);
    trace.advance(Duration::from_secs(3600));
    trace.assert_usable();
}

/// CHP-01, CHP-16, peers' faults 1 and 19: every algorithm, one-way and mutual, in both kinds of session,
/// with values in both encodings and a challenge of 1024 bytes.
#[test]
fn chp_01_every_algorithm_logs_in() {
    for algorithm in [5, 6, 7, 8] {
        for (mutual, discovery) in [(false, false), (true, false), (true, true)] {
            for encoding in [Encoding::Hex, Encoding::Base64] {
                let mut target = target_with_chap(&[algorithm]);
                let chap = target.chap.as_mut().unwrap();
                chap.discovery = true;
                chap.encoding = encoding;
                chap.challenge = pattern(if mutual { 1024 } else { 1 }, 9);
                let mut config = with_chap(mutual);
                if discovery {
                    config.kind = SessionKind::Discovery;
                }
                Pair::logged_in(config, target).assert_no_violations();
            }
        }
    }
}

/// CHP-06, CHP-09: if one side cannot authenticate itself, the login fails.
#[test]
fn chp_06_wrong_secrets_fail() {
    let mut target = target_with_chap(&[7]);
    target.chap.as_mut().unwrap().initiator.secret = b"another secret".to_vec();
    let mut pair = Pair::new(with_chap(false), target);
    pair.drive();
    assert!(login_error(&pair).is_authentication());

    let mut target = target_with_chap(&[7]);
    target.chap.as_mut().unwrap().target.as_mut().unwrap().secret = b"an impostor's".to_vec();
    let mut pair = Pair::new(with_chap(true), target);
    pair.drive();
    let expected = LoginError::Authentication(AuthenticationError::WrongResponse);
    assert_eq!(*login_error(&pair), expected);

    let mut target = target_with_chap(&[7]);
    target.chap.as_mut().unwrap().reflection = Reflection::Response;
    let mut pair = Pair::new(with_chap(true), target);
    pair.drive();
    assert_eq!(*login_error(&pair), expected);
}

/// CHP-08, UNH CHAP 3.8, and the appendix of faults: the target sends the challenge of a login in progress
/// back in another login, which fails before the target receives the response to the challenge.
#[test]
fn chp_08_reflected_challenge_fails() {
    let config = with_chap(true);
    let mut target = target_with_chap(&[7]);
    target.chap.as_mut().unwrap().reflection = Reflection::Challenge;
    target.faults.push(Fault::sending(Opcode::LoginResponse, 2, Effect::Swallow));
    let mut pair = Pair::new(config.clone(), target);
    pair.drive();
    let other = Session::new(config, entropy(2), pair.now);
    let waiting = std::mem::replace(&mut pair.session, other);
    pair.drive();
    assert!(waiting.negotiated().is_none());
    let expected = LoginError::Authentication(AuthenticationError::ReflectedChallenge);
    assert_eq!(*login_error(&pair), expected);
}

/// LOG-31, CHP-14, peers' fault 25: if credentials are configured, a login without CHAP fails, whatever the
/// target answers.
#[test]
fn log_31_no_session_without_chap() {
    for method in ["None", "Reject", "NotUnderstood", "Irrelevant", "KRB5", ""] {
        let mut target = target_config(64);
        target.keys.answer("AuthMethod", method.into());
        let mut pair = Pair::new(with_chap(false), target);
        pair.drive();
        assert!(matches!(pair.ended, Some(Err(SessionError::Login(_)))), "{method}");
        pair.assert_no_violations();
    }
}

/// LOG-31: the login fails if the target requires CHAP and the initiator has no credentials.
#[test]
fn log_31_credentials_are_missing() {
    let mut pair = Pair::new(config(), target_with_chap(&[5]));
    pair.drive();
    assert!(login_error(&pair).is_authentication());
}

/// QRK-07: if a target cannot read a list of algorithms, the login is retried once with only MD5.
#[test]
fn qrk_07_single_algorithm_is_the_second_try() {
    let mut target = target_with_chap(&[5]);
    target.chap.as_mut().unwrap().no_lists = true;
    let mut pair = Pair::logged_in(with_chap(true), target);
    assert_eq!(pair.connects, 2);
    assert!(matches!(pair.notices.as_slice(), [Notice::SingleChapAlgorithm]));
    pair.execute(read(0, 1)).unwrap();
    pair.assert_no_violations();
}

/// QRK-07: there is no retry if no list was sent, or if a retry cannot help.
#[test]
fn qrk_07_no_second_try_without_a_list() {
    let mut config = with_chap(false);
    config.chap.as_mut().unwrap().algorithms = vec![ChapAlgorithm::Md5];
    let mut target = target_with_chap(&[5]);
    target.chap.as_mut().unwrap().initiator.secret = b"another secret".to_vec();
    let mut pair = Pair::new(config, target);
    pair.drive();
    assert!(login_error(&pair).is_authentication());
    assert_eq!(pair.connects, 1);
}

/// LOG-03, LOG-12: a target may omit the ISID and the TSIH in its responses; then no connection can join the
/// session.
#[test]
fn log_12_session_without_a_tsih() {
    let mut target = target_config(64);
    target.keys.max_connections = 4;
    target.login.tsih = Some(0);
    let isid = Effect::SetWord { at: 8, value: 0 };
    target.faults.push(Fault::sending(Opcode::LoginResponse, 0, isid));
    let mut config = config();
    config.offer = config.offer.with_max_connections(4);
    let mut pair = Pair::logged_in(config, target);
    assert_eq!(pair.session.tsih(), Tsih::NEW_SESSION);
    assert_eq!(pair.session.negotiated().unwrap().max_connections, 4);
    assert_eq!(pair.session.add_connection(Cid(1), pair.now), Err(SubmitError::NoTsih));
    let data = pattern(4096, 1);
    pair.execute(write(0, data.clone())).unwrap();
    assert_eq!(pair.execute(read(0, 8)).unwrap().data, data);
    pair.session.logout(pair.now);
    pair.drive();
    assert_eq!(pair.ended, Some(Ok(())));
    pair.assert_no_violations();
}

/// QRK-07: a target that closes the connection because of the list, or responds without an algorithm, gets
/// the retry too. Only the list can be the cause, so there is only one retry.
#[test]
fn qrk_07_target_that_closes_over_the_list() {
    for closes in [true, false] {
        let mut trace = Trace::new(with_chap(false));
        let stumble = |trace: &mut Trace, list: &str| {
            answer_security(trace, &[("AuthMethod", "CHAP")]);
            trace.pump();
            if closes {
                let request = expect!(trace, LoginRequest);
                assert_eq!(Pairs::split(&request.data).unwrap().get("CHAP_A"), Some(list));
                trace.close();
            } else {
                answer_security(trace, &[]);
            }
        };
        stumble(&mut trace, "8,7,6,5");
        assert_eq!((trace.connects.len(), &trace.ended), (2, &None));
        assert!(matches!(trace.notices.as_slice(), [Notice::SingleChapAlgorithm]));
        stumble(&mut trace, "5");
        assert_eq!(trace.connects.len(), 2);
        assert!(matches!(trace.ended, Some(Err(_))));
    }
}

/// QRK-07, LOG-18: there is no retry if the target closes the connection at another step: before it has
/// received the list, or after the CHAP response, which is how some targets report a wrong password.
#[test]
fn qrk_07_no_second_try_where_the_list_is_not_the_cause() {
    let challenge =
        [("CHAP_A", "7"), ("CHAP_I", "1"), ("CHAP_C", "0x00112233445566778899aabbccddeeff")];
    for steps in [&[][..], &[&[("AuthMethod", "CHAP")][..], &challenge[..]][..]] {
        let mut trace = Trace::new(with_chap(false));
        steps.iter().for_each(|step| answer_security(&mut trace, step));
        expect!(trace, LoginRequest);
        trace.close();
        assert_eq!(trace.connects.len(), 1);
        assert!(matches!(trace.ended, Some(Err(SessionError::Transport(_)))));
    }
}

/// Sends a response in the security stage without leaving the stage.
fn answer_security(trace: &mut Trace, pairs: &[(&str, &str)]) {
    let request = expect!(trace, LoginRequest);
    let answer = login_response().last(false).stages(0, 0).isid(request.isid()).text(pairs);
    trace.send(answer.itt(request.itt()));
}

/// ISI-01, and the appendix of faults: the two highest bits of a random ISID have the value of the type
/// "random".
#[test]
fn isi_01_random_isid_on_the_wire() {
    let mut trace = Trace::new(config());
    let isid = trace.login(&[]).isid();
    assert_eq!(isid.to_be_bytes()[2..], [0x80, 1, 2, 3, 0, 4]);
}

/// TXT-26, KEY-13, KEY-16, peers' faults 10, 16 and 17, QRK-25: whatever the target answers to the offers,
/// its answers apply, and reads and writes work.
#[test]
fn peers_16_smaller_answers_to_every_key() {
    let mut target = target_config(256);
    target.window = 1;
    let keys = &mut target.keys;
    keys.header_digest = DigestPolicy::Require;
    keys.data_digest = DigestPolicy::Require;
    keys.max_connections = 1;
    keys.initial_r2t = true;
    keys.immediate_data = false;
    keys.max_recv_data_segment_length = Some(512);
    keys.max_burst_length = 512;
    keys.first_burst_length = 512;
    keys.default_time2wait = 60;
    keys.default_time2retain = 0;
    keys.max_outstanding_r2t = 1;
    let mut pair = Pair::logged_in(config(), target);
    let agreed = pair.session.negotiated().unwrap().clone();
    assert_eq!((agreed.header_digest, agreed.data_digest), (Digest::Crc32c, Digest::Crc32c));
    assert_eq!((agreed.initial_r2t, agreed.immediate_data), (true, false));
    assert_eq!(agreed.target_max_recv_data_segment_length, 512);
    assert_eq!((agreed.max_burst_length, agreed.first_burst_length), (512, 512));
    assert_eq!((agreed.default_time2wait, agreed.default_time2retain), (60, 0));
    assert_eq!((agreed.max_outstanding_r2t, agreed.max_connections), (1, 1));
    for lba in 0..4 {
        let data = pattern(16 * 512, u64::from(lba));
        pair.execute(write(lba * 16, data.clone())).unwrap();
        assert_eq!(pair.execute(read(lba * 16, 16)).unwrap().data, data);
    }
    pair.assert_no_violations();
}
