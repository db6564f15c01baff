//! Tests of logins: negotiation, authentication, redirection, reinstatement.

use crate::rig::{NAMES, Rig, config, pattern};
use iscsi_testkit::config::{
    Answer, Chap, DigestPolicy, Encoding, Redirect, Reflection, Stage, TargetConfig,
};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::{CONTINUE, FINAL, Pdu};
use iscsi_testkit::text::Pairs;

fn answers(pdu: &Pdu) -> Pairs {
    Pairs::split(&pdu.data).unwrap()
}

/// Returns the target's answers in a login that starts in the operational stage.
fn negotiate(config: TargetConfig, keys: &[(&str, &str)]) -> Pairs {
    let mut rig = Rig::connect(config);
    answers(&rig.login_request(1, 3, FINAL, &[&NAMES[..], keys].concat()))
}

/// Returns the status of a login that starts in the operational stage.
fn status(config: TargetConfig, keys: &[(&str, &str)]) -> u16 {
    Rig::connect(config).login_request(1, 3, FINAL, keys).login_status()
}

#[test]
fn every_key_is_answered_by_its_result_function() {
    let table = [
        ("MaxBurstLength", "16776192", "1048576"),
        ("MaxBurstLength", "1024", "1024"),
        ("FirstBurstLength", "512", "512"),
        ("DefaultTime2Wait", "0", "2"),
        ("DefaultTime2Retain", "0", "0"),
        ("MaxConnections", "3", "3"),
        ("InitialR2T", "No", "No"),
        ("InitialR2T", "Yes", "Yes"),
        ("ImmediateData", "No", "No"),
        ("DataPDUInOrder", "No", "Yes"),
        ("ErrorRecoveryLevel", "2", "0"),
        ("HeaderDigest", "CRC32C,None", "CRC32C"),
        ("DataDigest", "None,CRC32C", "None"),
        ("iSCSIProtocolLevel", "2", "NotUnderstood"),
        ("X-org.example.what", "1", "NotUnderstood"),
        ("IFMarker", "Yes", "No"),
    ];
    for (key, offer, result) in table {
        let got = negotiate(config(), &[(key, offer)]);
        assert_eq!(got.get(key), Some(result), "{key}={offer}");
        assert_eq!(got.get("MaxRecvDataSegmentLength"), Some("262144"));
        assert_eq!(got.get("TargetPortalGroupTag"), Some("1"));
    }
}

#[test]
fn answers_can_be_replaced_left_out_and_added() {
    let mut config = config();
    config.keys.answer("MaxBurstLength", Answer::from("1"));
    config.keys.answer("InitialR2T", Answer::Omit);
    config.keys.originate(Stage::Operational, "X-org.example.more", "7");
    let got = negotiate(config, &[("MaxBurstLength", "8192"), ("InitialR2T", "No")]);
    assert_eq!(got.get("MaxBurstLength"), Some("1"));
    assert_eq!(got.get("InitialR2T"), None);
    assert_eq!(got.get("X-org.example.more"), Some("7"));
}

#[test]
fn failures_have_their_status() {
    assert_eq!(status(config(), &NAMES), 0);
    assert_eq!(status(config(), &NAMES[1..]), 0x0207);
    assert_eq!(status(config(), &NAMES[..1]), 0x0207);
    assert_eq!(status(config(), &[NAMES[0], ("TargetName", "iqn.else")]), 0x0203);
    let mut picky = config();
    picky.keys.header_digest = DigestPolicy::Require;
    assert_eq!(status(picky, &[&NAMES[..], &[("HeaderDigest", "None")]].concat()), 0x0200);
    let mut closed = config();
    closed.login.refuse = Some((3, 1));
    assert_eq!(status(closed, &NAMES), 0x0301);
    let mut guarded = config();
    guarded.chap = Some(Chap::new("user", "secret"));
    assert_eq!(status(guarded, &NAMES), 0x0201);
}

#[test]
fn a_redirect_names_the_other_address_and_closes() {
    let mut config = config();
    config.login.redirect = Some(Redirect {
        address: "[::1]:3261".into(),
        permanent: true,
        after_authentication: false,
    });
    let mut rig = Rig::connect(config);
    let response = rig.login_request(1, 3, FINAL, &NAMES);
    assert_eq!(response.login_status(), 0x0102);
    assert_eq!(answers(&response).get("TargetAddress"), Some("[::1]:3261"));
    assert!(rig.try_next().is_none());
    assert!(rig.target.is_closed(rig.id));
}

#[test]
fn long_answers_are_split_and_rounds_added() {
    let mut config = config();
    config.login.split = Some(7);
    config.login.extra_rounds = 3;
    let mut rig = Rig::connect(config);
    let mut response = rig.login_request(1, 3, FINAL, &NAMES);
    let mut text = response.data.to_vec();
    let (mut parts, mut rounds) = (0, 0);
    while !response.is_final() {
        parts += u32::from(response.continues());
        rounds += u32::from(!response.continues());
        response = rig.login_request(1, 3, FINAL, &[]);
        text.extend(&response.data);
    }
    assert!(parts > 3 && rounds == 3, "{parts} {rounds}");
    assert_eq!(Pairs::split(&text).unwrap().get("TargetPortalGroupTag"), Some("1"));
    assert_ne!(response.tsih(), 0);
    rig.assert_no_violations();
}

#[test]
fn a_request_may_come_in_parts() {
    let mut rig = Rig::connect(config());
    let mut whole = Pdu::new(Opcode::LoginRequest);
    whole.data = NAMES.into_iter().collect::<Pairs>().join().into();
    for (at, piece) in whole.data.chunks(10).enumerate() {
        let more = (at + 1) * 10 < whole.data.len();
        let mut part = Pdu::new(Opcode::LoginRequest);
        part.header[0] |= 0x40;
        part.header[1] = if more { CONTINUE | 4 } else { FINAL | 7 };
        part.set(8, &[0x80, 0, 0, 0, 0, 1]);
        part.data = piece.to_vec().into();
        rig.put(part);
        assert_eq!(rig.next().is_final(), !more);
    }
    rig.assert_no_violations();
}

fn digest_login(header: &str, data: &str) {
    let keys = [("HeaderDigest", header), ("DataDigest", data)];
    let mut rig = Rig::login(config(), &keys);
    let write = rig.write(0, 1, &pattern(512));
    rig.put(write);
    assert_eq!(rig.next().status(), 0);
    let read = rig.read(0, 1);
    rig.put(read);
    assert_eq!(rig.next().data, pattern(512));
    rig.assert_no_violations();
}

#[test]
fn all_mixes_of_digests_work() {
    for header in ["None", "CRC32C"] {
        for data in ["None", "CRC32C"] {
            digest_login(header, data);
        }
    }
}

/// Returns the MD5 over identifier, secret and challenge.
fn md5(identifier: u8, secret: &[u8], challenge: &[u8]) -> String {
    use md5::Digest as _;
    let digest = md5::Md5::digest([&[identifier], secret, challenge].concat());
    digest.iter().fold("0x".into(), |text, byte| format!("{text}{byte:02x}"))
}

fn to_challenge(config: TargetConfig) -> (Rig, Pairs) {
    let mut rig = Rig::connect(config);
    let names = [&NAMES[..], &[("AuthMethod", "CHAP,None")]].concat();
    let chosen = rig.login_request(0, 1, 0, &names);
    assert_eq!(answers(&chosen).get("AuthMethod"), Some("CHAP"));
    let challenge = rig.login_request(0, 1, 0, &[("CHAP_A", "7,5")]);
    let pairs = answers(&challenge);
    (rig, pairs)
}

#[test]
fn chap_lets_in_who_knows_the_secret() {
    let challenge: Vec<u8> = (0x40..0x50).collect();
    for (secret, status) in [("secret of the host", 0), ("another", 0x0201)] {
        let mut config = config();
        let mut chap = Chap::new("host", "secret of the host").mutual("disk", "secret of the disk");
        chap.algorithms = vec![5];
        chap.encoding = Encoding::Base64;
        config.chap = Some(chap);
        let (mut rig, pairs) = to_challenge(config);
        assert_eq!(pairs.get("CHAP_A"), Some("5"));
        assert_eq!(pairs.get("CHAP_C"), Some("0bQEFCQ0RFRkdISUpLTE1OTw=="));
        let response = md5(0x2a, secret.as_bytes(), &challenge);
        let own = [("CHAP_I", "9"), ("CHAP_C", "0x0102")];
        let proof = [&[("CHAP_N", "host"), ("CHAP_R", &response)][..], &own].concat();
        let last = rig.login_request(0, 1, FINAL, &proof);
        assert_eq!(last.login_status(), status);
        if status == 0 {
            assert_eq!(answers(&last).get("CHAP_N"), Some("disk"));
            assert!(last.is_final());
            let done = rig.login_request(1, 3, FINAL, &[]);
            assert_ne!(done.tsih(), 0);
        }
        rig.assert_no_violations();
    }
}

#[test]
fn a_target_that_cannot_read_lists_refuses_them() {
    let mut config = config();
    let mut chap = Chap::new("host", "secret");
    chap.no_lists = true;
    config.chap = Some(chap);
    let mut rig = Rig::connect(config);
    rig.login_request(0, 1, 0, &[&NAMES[..], &[("AuthMethod", "CHAP")]].concat());
    let refused = rig.login_request(0, 1, 0, &[("CHAP_A", "7,5")]);
    assert_eq!(refused.login_status(), 0x0200);
}

#[test]
fn the_same_nexus_reinstates_its_session() {
    let mut rig = Rig::login(config(), &[]);
    let old = rig.id;
    rig.id = rig.target.accept();
    rig.tsih = 0;
    let response = rig.login_request(1, 3, FINAL, &NAMES);
    assert_eq!(response.login_status(), 0);
    assert!(rig.target.is_closed(old));
    assert_eq!(rig.target.sessions(), 1);
}

#[test]
fn a_second_connection_joins_the_session() {
    let mut rig = Rig::login(config(), &[("MaxConnections", "2")]);
    let first = rig.id;
    let stat_sn = rig.exp_stat_sn;
    rig.id = rig.target.accept();
    rig.cid = 2;
    let joined = rig.login_request(1, 3, FINAL, &NAMES);
    assert_eq!((joined.login_status(), joined.tsih()), (0, rig.tsih));
    assert_eq!((rig.target.sessions(), rig.target.is_closed(first)), (1, false));
    let (early, late) = (rig.read(0, 1), rig.read(1, 1));
    rig.put(late.clone());
    assert!(rig.try_next().is_none(), "its turn comes after the first command");
    let second = rig.id;
    rig.id = first;
    let kept = std::mem::replace(&mut rig.exp_stat_sn, stat_sn);
    rig.put(early.clone());
    assert_eq!(rig.next().itt(), early.itt());
    rig.id = second;
    rig.exp_stat_sn = kept;
    assert_eq!(rig.next().itt(), late.itt());
    rig.id = rig.target.accept();
    rig.cid = 3;
    assert_eq!(rig.login_request(1, 3, FINAL, &NAMES).login_status(), 0x0206);
    rig.assert_no_violations();
}

#[test]
fn an_unknown_session_cannot_be_joined() {
    let mut rig = Rig::connect(config());
    rig.tsih = 77;
    assert_eq!(rig.login_request(1, 3, FINAL, &NAMES).login_status(), 0x020a);
}

/// Runs CHAP up to the target's response to the initiator's challenge.
fn proof_of(chap: Chap, own_challenge: &str) -> (Rig, Pairs) {
    let mut config = config();
    config.chap = Some(chap.with_algorithms([5]));
    let (mut rig, _) = to_challenge(config);
    let proof = prove(&mut rig, own_challenge, &(0x40..0x50).collect::<Vec<u8>>());
    (rig, proof)
}

fn prove(rig: &mut Rig, own_challenge: &str, challenge: &[u8]) -> Pairs {
    let response = md5(0x2a, b"secret", challenge);
    let own = [("CHAP_N", "host"), ("CHAP_R", &response), ("CHAP_I", "9")];
    let all = [&own[..], &[("CHAP_C", own_challenge)]].concat();
    answers(&rig.login_request(0, 1, FINAL, &all))
}

#[test]
fn a_target_may_reflect_what_it_saw() {
    let chap = Chap::new("host", "secret").mutual("disk", "other");
    let response = chap.clone().with_reflection(Reflection::Response);
    let (_, proof) = proof_of(response, "0x0102");
    let seen: Vec<u8> = (0x40..0x50).collect();
    assert_eq!(proof.get("CHAP_R"), Some(md5(0x2a, b"secret", &seen).as_str()));
    let challenge = chap.with_reflection(Reflection::Challenge);
    let (mut rig, proof) = proof_of(challenge, "0x0102");
    assert_eq!(proof.get("CHAP_R"), Some(md5(9, b"other", &[1, 2]).as_str()));
    rig.id = rig.target.accept();
    rig.login_request(0, 1, 0, &[&NAMES[..], &[("AuthMethod", "CHAP")]].concat());
    let again = answers(&rig.login_request(0, 1, 0, &[("CHAP_A", "5")]));
    assert_eq!(again.get("CHAP_C"), Some("0x0102"));
}

#[test]
fn the_values_of_chap_can_be_replaced() {
    let mut config = config();
    config.chap = Some(Chap::new("host", "secret"));
    config.keys.answer("CHAP_I", Answer::from("256"));
    config.keys.answer("CHAP_C", Answer::Omit);
    let (_, pairs) = to_challenge(config);
    assert_eq!((pairs.get("CHAP_I"), pairs.get("CHAP_C")), (Some("256"), None));
}
