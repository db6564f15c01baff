//! Tests of discovery sessions and SendTargets (RFC 7143 §4.3, appendix C).

use std::time::Duration;

use iscsi_pdu::scsi::Lun;
use iscsi_pdu::{IscsiName, Itt, TaskFunction};
use iscsi_session::{
    Config, DiscoveredTarget, Output, SessionError, SessionKind, SubmitError, TaskError, Timer,
    decode_send_targets,
};
use iscsi_testkit::config::{Portal, TargetConfig};
use iscsi_testkit::pdu::{NO_TAG, Pdu};
use iscsi_testkit::text::Pairs;
use iscsi_testkit::{expect, send};

use crate::pair::{Pair, TARGET, config, read, target_config};
use crate::trace::{Trace, wire_lun};

fn discovery() -> Config {
    let mut config = config();
    config.kind = SessionKind::Discovery;
    config
}

fn portal(name: &str, addresses: &[&str]) -> Portal {
    let addresses = addresses.iter().map(|address| (*address).to_owned()).collect();
    Portal { name: name.to_owned(), addresses }
}

/// Returns the result of an exchange, which must have ended.
fn discovered(outputs: &[Output], tag: Itt) -> Result<Vec<DiscoveredTarget>, TaskError> {
    let result = outputs.iter().find_map(|output| match output {
        Output::Discovered { itt, result } if *itt == tag => Some(result.clone()),
        _ => None,
    });
    result.expect("the exchange has not ended").map(|text| decode_send_targets(&text).unwrap())
}

fn discover(target: TargetConfig) -> Vec<DiscoveredTarget> {
    let mut pair = Pair::logged_in(discovery(), target);
    let tag = pair.session.send_targets(pair.now).unwrap();
    pair.drive();
    let targets = discovered(&pair.outputs, tag).unwrap();
    pair.session.logout(pair.now);
    pair.drive();
    assert_eq!(pair.ended, Some(Ok(())));
    pair.assert_no_violations();
    targets
}

fn text_of(request: &Pdu) -> String {
    String::from_utf8(request.data.to_vec()).unwrap()
}

/// DSC-01: a discovery session names no target, proposes no digest, and accepts no commands.
#[test]
fn dsc_01_login_of_a_discovery_session() {
    let mut trace = Trace::new(discovery());
    let request = trace.login(&[]);
    let said = Pairs::split(&request.data).unwrap();
    assert_eq!(said.get("SessionType"), Some("Discovery"));
    assert_eq!(said.get("TargetName"), None);
    assert_eq!(said.get("HeaderDigest").unwrap_or("None"), "None");
    assert_eq!(said.get("DataDigest").unwrap_or("None"), "None");
    assert_eq!(said.get("MaxConnections").unwrap_or("1"), "1");
    assert_eq!(said.get("ErrorRecoveryLevel").unwrap_or("0"), "0");
}

/// DSC-01: a discovery session sends only text requests and a logout.
#[test]
fn dsc_01_other_requests_are_refused() {
    let mut trace = Trace::established(discovery(), &[]);
    let refused = Err(SubmitError::WrongSession);
    assert_eq!(trace.session.submit(read(0, 1), trace.now), refused);
    assert_eq!(trace.session.ping(trace.now), refused);
    let reset = TaskFunction::LogicalUnitReset;
    assert_eq!(trace.session.manage(reset, Lun::ZERO, None, trace.now), refused);
    trace.silence();
}

/// DSC-01, NOP-01: an idle discovery session sends no ping, but responds to pings.
#[test]
fn dsc_01_pings_of_the_target_are_answered() {
    let mut trace = Trace::established(discovery(), &[]);
    trace.advance(Duration::from_secs(3600));
    trace.silence();
    assert_eq!(trace.ended, None);
    send!(trace, nop_in { ttt: 5 });
    expect!(trace, NopOut { itt: NO_TAG, ttt: 5 });
}

/// DSC-02, DSC-05, QRK-37, peers' fault 14: a target may have any number of addresses; bad addresses are
/// skipped.
#[test]
fn dsc_02_targets_with_their_addresses() {
    let mut target = target_config(64);
    target.discovery.targets = vec![
        portal("iqn.2026-01.org.example:a", &["10.0.0.1:3260,1", "[2001:db8::1]:3260,2", "san,-1"]),
        portal("iqn.2026-01.org.example:b", &[]),
        portal("iqn.2026-01.org.example:c", &["0.0.0.0:3260,1", "[::]:3260,1", "10.0.0.2:3260,1"]),
    ];
    let targets = discover(target);
    let hosts: Vec<Vec<&str>> = targets
        .iter()
        .map(|target| target.addresses.iter().map(|address| address.host.as_str()).collect())
        .collect();
    assert_eq!(hosts, [vec!["10.0.0.1", "2001:db8::1", "san"], vec![], vec!["10.0.0.2"]]);
    assert_eq!(targets[0].addresses[2].portal_group_tag, None);
}

/// DSC-03, TXT-22, peers' fault 15: a list may be split anywhere over many PDUs, with or without the C bit.
#[test]
fn dsc_03_list_over_many_pdus() {
    for with_continue in [false, true] {
        for split in [1, 7, 20, 100] {
            let mut target = target_config(64);
            target.window = 1;
            target.discovery.split = Some(split);
            target.discovery.with_continue = with_continue;
            target.discovery.targets = (0..10)
                .map(|n| portal(&format!("iqn.2026-01.org.example:{n}"), &["10.0.0.1:3260,1"]))
                .collect();
            let targets = discover(target);
            assert_eq!(targets.len(), 10);
            assert!(targets.iter().all(|target| target.addresses.len() == 1));
        }
    }
}

/// DSC-03: a list of ten thousand targets is accepted.
#[test]
fn dsc_03_ten_thousand_targets() {
    let mut target = target_config(64);
    target.discovery.targets =
        (0..10_000).map(|n| portal(&format!("iqn.2026-01.org.example:{n}"), &[])).collect();
    assert_eq!(discover(target).len(), 10_000);
}

/// DSC-03: a list without an end does not use all memory, but ends the session.
#[test]
fn dsc_03_endless_list_ends_the_session() {
    let mut trace = Trace::established(discovery(), &[]);
    let tag = trace.session.send_targets(trace.now).unwrap();
    let part = vec![b'a'; 256 * 1024];
    for ttt in 0..65 {
        let itt = expect!(trace, TextRequest).itt();
        send!(trace, text_response { itt: itt, ttt: ttt, last: false, data: part.clone() });
        if trace.ended.is_some() {
            break;
        }
    }
    assert!(matches!(trace.failure(), SessionError::Protocol(_)));
    assert!(discovered(&trace.outputs, tag).is_err());
}

/// DSC-04, KEY-04: a normal session can request only the addresses of its own target; a discovery session can
/// request all targets.
#[test]
fn dsc_04_all_only_in_discovery() {
    let other = IscsiName::parse("iqn.2026-01.org.example:other").unwrap();
    let own = IscsiName::parse(TARGET).unwrap();
    let mut trace = Trace::established(discovery(), &[]);
    trace.session.send_targets(trace.now).unwrap();
    let request = expect!(trace, TextRequest { is_final: true, ttt: NO_TAG, lun: 0 });
    assert_eq!(text_of(&request), "SendTargets=All\0");
    send!(trace, text_response { itt: request.itt() });
    trace.session.send_target(&other, trace.now).unwrap();
    let request = expect!(trace, TextRequest);
    assert_eq!(text_of(&request), format!("SendTargets={other}\0"));
    send!(trace, text_response { itt: request.itt() });

    let mut trace = Trace::logged_in();
    trace.session.send_targets(trace.now).unwrap();
    let request = expect!(trace, TextRequest);
    assert_eq!(text_of(&request), "SendTargets=\0");
    send!(trace, text_response { itt: request.itt() });
    trace.session.send_target(&own, trace.now).unwrap();
    let request = expect!(trace, TextRequest);
    assert_eq!(text_of(&request), format!("SendTargets={TARGET}\0"));
    send!(trace, text_response { itt: request.itt() });
    assert_eq!(trace.session.send_target(&other, trace.now), Err(SubmitError::WrongSession));
}

/// NAM-02: a session accepts any spelling of its own target's name, and always sends the spelling of its
/// configuration, because targets compare bytes.
#[test]
fn nam_02_own_target_is_asked_for_as_it_was_found() {
    let upper = IscsiName::parse(&TARGET.to_uppercase()).unwrap();
    let mut trace = Trace::logged_in();
    trace.session.send_target(&upper, trace.now).unwrap();
    let request = expect!(trace, TextRequest);
    assert_eq!(text_of(&request), format!("SendTargets={TARGET}\0"));
}

/// DSC-04: in a normal session the request works while commands are in flight.
#[test]
fn dsc_04_own_addresses_beside_commands() {
    let mut target = target_config(64);
    target.discovery.targets = vec![portal(TARGET, &["10.0.0.1:3260,1", "10.0.0.2:3260,2"])];
    let mut pair = Pair::logged_in(config(), target);
    let command = pair.submit(read(0, 1));
    let tag = pair.session.send_target(&IscsiName::parse(TARGET).unwrap(), pair.now).unwrap();
    pair.drive();
    assert!(pair.completed[&command].is_ok());
    assert_eq!(discovered(&pair.outputs, tag).unwrap()[0].addresses.len(), 2);
    pair.assert_no_violations();
}

/// TXT-21, SEQ-07: every request of an exchange is immediate, in both kinds of session: it needs no command
/// window, and no CmdSN waits for it.
#[test]
fn txt_21_all_requests_of_an_exchange_are_immediate() {
    for config in [config(), discovery()] {
        let mut trace = Trace::new(config);
        trace.script.set_window(0);
        trace.login(&[]);
        let next = trace.script.numbers().exp_cmd_sn;
        trace.session.send_targets(trace.now).unwrap();
        for ttt in 0..3 {
            let itt = expect!(trace, TextRequest { immediate: true, cmd_sn: next }).itt();
            send!(trace, text_response { itt: itt, ttt: ttt, last: false });
        }
        expect!(trace, TextRequest { immediate: true, cmd_sn: next, ttt: 2 });
        trace.silence();
    }
}

/// TXT-20: a connection has one text exchange at a time. The second exchange begins when the first one has
/// ended, with success or with a Reject.
#[test]
fn txt_20_one_exchange_at_a_time() {
    for ends in [true, false] {
        let mut trace = Trace::logged_in();
        let first = trace.session.send_targets(trace.now).unwrap();
        let second = trace.session.send_targets(trace.now).unwrap();
        let request = expect!(trace, TextRequest { itt: first.get() });
        trace.silence();
        // Other requests do not wait for the exchange.
        trace.assert_usable();
        send!(trace, text_response { itt: first.get(), ttt: 5, last: false });
        expect!(trace, TextRequest { itt: first.get(), ttt: 5 });
        trace.silence();
        if ends {
            send!(trace, text_response { itt: first.get() });
        } else {
            trace.send(iscsi_testkit::pdus::reject(&request).response(4));
        }
        expect!(trace, TextRequest { itt: second.get() });
        send!(trace, text_response { itt: second.get() });
        assert_eq!(discovered(&trace.outputs, second).unwrap(), []);
    }
}

/// ASY-03: an exchange that has not begun when the target requests a logout does not begin.
#[test]
fn asy_03_no_exchange_begins_after_a_logout_request() {
    let mut trace = Trace::logged_in();
    trace.session.send_targets(trace.now).unwrap();
    let waits = trace.session.send_targets(trace.now).unwrap();
    expect!(trace, TextRequest);
    send!(trace, async_message { event: 1 });
    expect!(trace, LogoutRequest);
    trace.silence();
    let cause = SessionError::LogoutRequested;
    let expected = TaskError::Session { cause, sent: false };
    assert_eq!(discovered(&trace.outputs, waits), Err(expected));
}

/// DSC-06, UNH FFP 18.4, peers' fault 15: keys that do not belong in a list have no effect.
#[test]
fn dsc_06_foreign_keys_have_no_effect() {
    let mut target = target_config(64);
    let foreign = [("MaxRecvDataSegmentLength", "512"), ("TargetAlias", "x"), ("Y-1", "z")];
    target.discovery.foreign =
        foreign.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
    let mut pair = Pair::logged_in(discovery(), target);
    let before = pair.session.negotiated().cloned();
    let tag = pair.session.send_targets(pair.now).unwrap();
    pair.drive();
    assert_eq!(discovered(&pair.outputs, tag).unwrap()[0].name.as_str(), TARGET);
    assert_eq!(pair.session.negotiated().cloned(), before);
}

/// DSC-07: an empty list is no error.
#[test]
fn dsc_07_empty_list() {
    let mut target = target_config(64);
    target.discovery.nothing = true;
    assert_eq!(discover(target), []);
}

/// DSC-08: a target may close the connection of a discovery session without a logout.
#[test]
fn dsc_08_target_drops_a_discovery_session() {
    let mut trace = Trace::established(discovery(), &[]);
    let tag = trace.session.send_targets(trace.now).unwrap();
    expect!(trace, TextRequest);
    trace.close();
    assert!(matches!(trace.failure(), SessionError::Transport(_)));
    let expected =
        matches!(discovered(&trace.outputs, tag), Err(TaskError::Session { sent: true, .. }));
    assert!(expected);
}

/// ERR-13: a target that does not respond does not make the caller wait for ever.
#[test]
fn silent_target_ends_the_exchange() {
    let mut trace = Trace::established(discovery(), &[]);
    let tag = trace.session.send_targets(trace.now).unwrap();
    expect!(trace, TextRequest);
    trace.advance(Duration::from_secs(61));
    assert_eq!(*trace.failure(), SessionError::TimedOut(Timer::Command));
    assert!(discovered(&trace.outputs, tag).is_err());
}

/// UNH FFP 18.2, TXT-22, SEQ-03: an exchange continues under its task tag, with the target's transfer tag and
/// LUN, and its requests consume no CmdSN.
#[test]
fn exchange_goes_on_with_the_tag_and_lun_of_the_target() {
    let mut trace = Trace::established(discovery(), &[]);
    let tag = trace.session.send_targets(trace.now).unwrap();
    let first = expect!(trace, TextRequest { ttt: NO_TAG, lun: 0 });
    for (round, last) in [(1, false), (2, false), (3, true)] {
        let (itt, text) = (first.itt(), &b"TargetName=iqn.2026-01.org.example:a\0"[..]);
        let lun = wire_lun(round);
        let ttt = if last { NO_TAG } else { 0xabba_0000 + u32::from(round) };
        send!(trace, text_response { itt: itt, ttt: ttt, lun: lun, last: last, data: text });
        if !last {
            let next = expect!(trace, TextRequest { itt: itt, ttt: ttt, lun: lun });
            assert_eq!(next.cmd_sn(), first.cmd_sn());
            assert!(next.data.is_empty());
        }
    }
    assert_eq!(discovered(&trace.outputs, tag).unwrap().len(), 1);
}
