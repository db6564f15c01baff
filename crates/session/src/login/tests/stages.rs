//! Tests of stages, headers and statuses (UNH login 1.x to 5.x, 8.x, 22.x, 23.x).

use super::*;
use crate::login::{LoginViolation, Redirect};

/// Changes a response so that it does not fit its request.
type Spoil = fn(&mut LoginResponse);

/// UNH login 1.1, LOG-05, LOG-06, LOG-07, UNH login 7.1, KEY-05, KEY-22, QRK-18, QRK-33, QRK-42: the first
/// request has the names first, then all other keys, and proposes full feature phase.
#[test]
fn unh_1_1_standard_login_takes_one_round_trip() {
    let mut rig = Rig::new(normal());
    let first = format!("InitiatorName={INITIATOR} TargetName={TARGET} SessionType=Normal ");
    assert!(rig.line().starts_with(&first), "{}", rig.line());
    assert_eq!(rig.stage(), (Stage::OperationalNegotiation, true));
    assert!(!rig.request.is_continued);
    assert!(!rig.sent().iter().any(|(key, _)| key.starts_with(['X', 'Y', 'Z'])));
    assert_eq!(rig.request.next_stage, Stage::FullFeature);
    assert_eq!(rig.request.cmd_sn, CmdSn::new(0xffff_fffe));
    let outcome = rig.conclude("MaxBurstLength=65536 FirstBurstLength=65536");
    assert_eq!(outcome.tsih, TSIH);
    assert_eq!(outcome.exp_stat_sn, StatSn::new(101));
    assert_eq!(outcome.exp_cmd_sn, CmdSn::new(0xffff_fffe));
    assert_eq!(outcome.max_cmd_sn, CmdSn::new(0xffff_fffe).plus(31));
}

/// UNH login 21.1, KEY-30, KEY-22: a discovery session has no TargetName and proposes only the
/// connection's keys, without digests (QRK-10).
#[test]
fn unh_21_1_discovery_login() {
    let mut rig = Rig::new(discovery());
    let expected = format!(
        "InitiatorName={INITIATOR} SessionType=Discovery HeaderDigest=None DataDigest=None \
         MaxRecvDataSegmentLength=262144"
    );
    assert_eq!(rig.line(), expected);
    rig.conclude("HeaderDigest=None DataDigest=None TargetPortalGroupTag=1");
}

/// KEY-08, TXT-28: the alias may be any text; an alias that is too long is omitted.
#[test]
fn key_08_initiator_alias() {
    let mut config = normal();
    config.initiator_alias = Some("Bob's backup, ünïcode".into());
    assert_eq!(Rig::new(config.clone()).value("InitiatorAlias"), "Bob's backup, ünïcode");
    config.initiator_alias = Some("x".repeat(256));
    assert!(!Rig::new(config).line().contains("InitiatorAlias"));
}

/// UNH login 2.2, LOG-12, UNH login 2.1: a session may lack a TSIH. Before the final response the field has
/// no meaning, and the initiator does not return it.
#[test]
fn unh_2_2_invalid_tsih() {
    let mut rig = Rig::new(normal());
    let early =
        LoginResponse { tsih: Tsih(0xbadd), transit: false, next_stage: None, ..rig.response() };
    rig.send(&early, b"").unwrap();
    assert_eq!(rig.request.tsih, Tsih::NEW_SESSION);
    let last = LoginResponse { tsih: Tsih::NEW_SESSION, ..rig.response() };
    let Ok(Progress::FullFeature(outcome)) = rig.send(&last, b"") else { panic!("no login") };
    assert_eq!(outcome.tsih, Tsih::NEW_SESSION);
}

/// LOG-03: the ISID of a response is not checked. Some targets leave it at zero or change it, and a
/// connection has only one login at a time.
#[test]
fn log_03_isid_need_not_come_back() {
    for isid in [[0; 6], [0xff; 6]] {
        let mut rig = Rig::new(normal());
        let isid = Isid::from_bytes(isid);
        let first = LoginResponse { isid, transit: false, next_stage: None, ..rig.response() };
        rig.send(&first, b"").unwrap();
        let last = LoginResponse { isid, ..rig.response() };
        assert!(matches!(rig.send(&last, b""), Ok(Progress::FullFeature(_))));
    }
}

/// UNH login 2.3, KEY-29, LOG-13: an added connection sends the session's TSIH, negotiates only its own keys, and
/// keeps what the session has agreed on.
#[test]
fn unh_2_3_added_connection() {
    let session = Negotiated {
        max_burst_length: 8192,
        first_burst_length: 4096,
        header_digest: iscsi_pdu::Digest::Crc32c,
        target_portal_group_tag: Some(3),
        ..Negotiated::default()
    };
    let config = normal();
    let added =
        LoginIdentity { tsih: TSIH, leading: false, session: Some(session), ..identity(&config) };
    let mut rig = Rig::with_identity(config.clone(), added.clone());
    let expected = format!(
        "InitiatorName={INITIATOR} TargetName={TARGET} HeaderDigest=None,CRC32C \
         DataDigest=None,CRC32C MaxRecvDataSegmentLength=262144"
    );
    assert_eq!(rig.line(), expected);
    // If the target proposes a key of the session anyway, the agreed value stays.
    rig.stay("MaxBurstLength=512").unwrap();
    assert_eq!(rig.line(), "MaxBurstLength=Reject");
    let agreed = rig.conclude("HeaderDigest=None TargetPortalGroupTag=3").negotiated;
    assert_eq!((agreed.max_burst_length, agreed.first_burst_length), (8192, 4096));
    assert_eq!(agreed.header_digest, iscsi_pdu::Digest::None);

    for foreign in [Tsih(99), Tsih::NEW_SESSION] {
        let mut rig = Rig::with_identity(config.clone(), added.clone());
        let last = LoginResponse { tsih: foreign, ..rig.response() };
        assert_eq!(rig.send(&last, b"").unwrap_err(), LoginViolation::Mismatch("TSIH").into());
    }
    // All connections of a session belong to one portal group, so a different group fails the login.
    let mut rig = Rig::with_identity(config, added);
    let elsewhere = rig.reply("TargetPortalGroupTag=4").unwrap_err();
    assert_eq!(elsewhere, LoginError::PortalGroup { expected: 3, found: 4 });
}

/// UNH login 3.1, LOG-10, QRK-17: a target that is not ready receives the proposal of the transition again,
/// without the keys.
#[test]
fn unh_3_1_t_bit_is_repeated() {
    let mut rig = Rig::new(normal());
    rig.stay("ImmediateData=Yes").unwrap();
    assert_eq!((rig.line().as_str(), rig.stage().1), ("", true));
    // An answer that arrives late is accepted as well (QRK-17).
    let agreed = rig.conclude("MaxOutstandingR2T=4 InitialR2T=No").negotiated;
    assert_eq!((agreed.max_outstanding_r2t, agreed.initial_r2t), (4, false));
}

/// UNH login 3.2, LOG-26: many rounds are accepted, but their number is limited.
#[test]
fn unh_3_2_rounds_are_bounded() {
    let mut rig = Rig::new(normal());
    for _ in 0..63 {
        rig.stay("").unwrap();
    }
    rig.conclude("");

    let mut rig = Rig::new(normal());
    let error = (0..200).find_map(|_| rig.stay("").err());
    assert_eq!(error, Some(LoginError::TooManyExchanges(64)));
}

/// UNH login 4.1, 4.2, SEQ-12, UNH login 5.1: StatSN may start at any number and wrap; the rig checks
/// ExpStatSN.
#[test]
fn unh_4_1_and_4_2_first_stat_sn() {
    for first in [0, 1, 0xffff_ffff] {
        let mut rig = Rig::new(normal());
        rig.stat_sn = StatSn::new(first);
        rig.stay("").unwrap();
        assert_eq!(rig.request.exp_stat_sn, StatSn::new(first).next());
        rig.stay("").unwrap();
        assert_eq!(rig.conclude("").exp_stat_sn, StatSn::new(first).plus(3));
    }
}

/// SEQ-16, SEQ-18: a StatSN that jumps or is repeated ends the login.
#[test]
fn seq_16_stat_sn_gap() {
    for wrong in [99, 100, 102] {
        let mut rig = Rig::new(normal());
        rig.stay("").unwrap();
        rig.stat_sn = StatSn::new(wrong);
        let violation =
            LoginViolation::StatSn { expected: StatSn::new(101), found: StatSn::new(wrong) };
        assert_eq!(rig.stay("").unwrap_err(), violation.into());
    }
}

/// LOG-03, LOG-04, LOG-09, LOG-12: a response that does not repeat the required fields, or violates another
/// rule, ends the login.
#[test]
fn log_09_response_must_fit_its_request() {
    let full_feature = Some(Stage::FullFeature);
    let cases: [(Spoil, LoginViolation); 5] = [
        (|r| r.itt = Itt::new(1).unwrap(), LoginViolation::Mismatch("Initiator Task Tag")),
        (|r| r.version_active = 1, LoginViolation::Version(1)),
        (|r| r.current_stage = Stage::SecurityNegotiation, LoginViolation::Mismatch("CSG")),
        (|r| r.next_stage = Some(Stage::OperationalNegotiation), LoginViolation::Transition),
        (|r| r.is_continued = true, LoginViolation::Transition),
    ];
    for (spoil, violation) in cases {
        let mut rig = Rig::new(normal());
        let mut response = rig.response();
        assert_eq!(response.next_stage, full_feature);
        spoil(&mut response);
        assert_eq!(rig.send(&response, b"").unwrap_err(), violation.into());
    }
}

/// LOG-09, QRK-20: a transition that was not proposed, to any stage, ends the login.
#[test]
fn log_09_transition_without_proposal() {
    for stage in [Stage::OperationalNegotiation, Stage::FullFeature] {
        let mut rig = Rig::new(with_chap(normal()));
        assert_eq!(rig.stage(), (Stage::SecurityNegotiation, false));
        let response = LoginResponse { transit: true, next_stage: Some(stage), ..rig.response() };
        let error = rig.send(&response, &pairs("AuthMethod=CHAP")).unwrap_err();
        assert_eq!(error, LoginViolation::Transition.into());
    }
}

/// LOG-02: a response without an outstanding request ends the login.
#[test]
fn log_02_unsolicited_response() {
    let config = normal();
    let mut login = Login::new(&config, identity(&config));
    let response = Rig::new(config.clone()).response();
    let error = login.handle_response(&config, &response, b"").unwrap_err();
    assert_eq!(error, LoginViolation::Unsolicited.into());
}

/// LOG-17, LOG-18, LOG-19, SEQ-11: the status class decides how a login fails, whatever else the response
/// contains.
#[test]
fn log_17_status_classes() {
    let cases = [
        ((2, 0), (false, false, false)),
        ((2, 1), (true, false, false)),
        ((2, 2), (true, false, false)),
        ((2, 3), (false, true, false)),
        ((2, 4), (false, true, false)),
        ((2, 0xff), (false, false, false)),
        ((3, 0), (false, false, true)),
        ((3, 1), (false, false, true)),
        ((3, 0x77), (false, false, true)),
        ((0x42, 1), (false, false, false)),
    ];
    for ((class, detail), expected) in cases {
        let mut rig = Rig::new(normal());
        let garbage = LoginResponse {
            status: LoginStatus { class, detail },
            stat_sn: StatSn::new(0xdead_beef),
            version_active: 9,
            isid: Isid::from_bytes([9; 6]),
            current_stage: Stage::SecurityNegotiation,
            ..rig.response()
        };
        let error = rig.send(&garbage, b"\xff\xff").unwrap_err();
        assert_eq!(error, LoginError::Status(LoginStatus { class, detail }));
        let told = (error.is_authentication(), error.is_target_not_found(), error.is_retryable());
        assert_eq!(told, expected, "{class:#x} {detail:#x}");
    }
}

fn redirected(rig: &mut Rig, detail: u8, text: &str) -> Result<Redirect, LoginError> {
    match rig.refuse(1, detail, text)? {
        Progress::Redirected(redirect) => Ok(redirect),
        Progress::Pending | Progress::FullFeature(_) => panic!("not a redirection"),
    }
}

/// LOG-24, KEY-09, QRK-06: the initiator follows redirections to a new address, to a new address and port, to
/// the same address with a new port, to names and to IPv6 addresses. An unknown detail counts as temporary.
#[test]
fn log_24_redirections() {
    let cases = [
        (1, "10.0.0.2", ("10.0.0.2", 3260), false),
        (1, "10.0.0.2:3261", ("10.0.0.2", 3261), false),
        (2, "127.0.0.1:3262,1", ("127.0.0.1", 3262), true),
        (2, "[2001:db8::2]:3260", ("2001:db8::2", 3260), true),
        (0, "san.example.org", ("san.example.org", 3260), false),
    ];
    for (detail, address, (host, port), permanent) in cases {
        let mut rig = Rig::new(normal());
        let redirect = redirected(&mut rig, detail, &format!("TargetAddress={address}")).unwrap();
        assert_eq!((redirect.address.host.as_str(), redirect.address.port), (host, port));
        assert_eq!(redirect.permanent, permanent);
    }
}

/// LOG-24: a redirection may come in any stage, also after an authentication.
#[test]
fn log_24_redirection_after_chap() {
    let mut rig = Rig::at_operational_stage(with_mutual_chap(normal()));
    assert!(redirected(&mut rig, 1, "TargetAddress=10.0.0.2").is_ok());
}

/// QRK-06: a redirection without an address is a failure.
#[test]
fn qrk_06_redirection_without_address() {
    for text in ["", "TargetAddress=", "TargetName=iqn.2026-01.org.example:x", "garbage"] {
        let error = redirected(&mut Rig::new(normal()), 0, text).unwrap_err();
        assert_eq!(error, LoginViolation::Redirection.into(), "{text}");
    }
}

/// UNH login 23.1, LOG-23, KEY-10: the portal group tag is read, also 0 and hexadecimal numbers, and compared
/// with the configured one. A target that does not send a tag is accepted.
#[test]
fn unh_23_1_portal_group_tag() {
    for (value, tag) in [("0", 0), ("0x1F", 31), ("65535", 65_535)] {
        let agreed = negotiated(&format!("TargetPortalGroupTag={value}"));
        assert_eq!(agreed.target_portal_group_tag, Some(tag));
    }
    let config = || Config { expected_portal_group_tag: Some(2), ..normal() };
    Rig::new(config()).conclude("TargetPortalGroupTag=2");
    assert_eq!(Rig::new(config()).conclude("").negotiated.target_portal_group_tag, None);
    let error = Rig::new(config()).reply("TargetPortalGroupTag=0").unwrap_err();
    assert_eq!(error, LoginError::PortalGroup { expected: 2, found: 0 });
}

/// LOG-28, TXT-26: an empty answer is valid, and then the defaults apply instead of the proposals.
#[test]
fn log_28_empty_answer_leaves_the_defaults() {
    let agreed = negotiated("");
    let expected =
        Negotiated { initiator_max_recv_data_segment_length: 262_144, ..Negotiated::default() };
    assert_eq!(agreed, expected);
}
