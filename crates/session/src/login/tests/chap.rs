//! Tests of authentications that succeed (the legal cases of UNH CHAP 1.1 to 5.3). The test computes the
//! target's CHAP responses.

use iscsi_pdu::keys::{decode_binary, encode_base64, encode_hex};
use md5::Digest as _;

use super::*;
use crate::ChapAlgorithm;

/// Returns the hash of CHAP_A=`number` over identifier, secret and challenge.
pub(super) fn digest(number: u8, identifier: u8, secret: &str, challenge: &[u8]) -> Vec<u8> {
    let message = [&[identifier], secret.as_bytes(), challenge].concat();
    match number {
        5 => md5::Md5::digest(message).to_vec(),
        6 => sha1::Sha1::digest(message).to_vec(),
        7 => sha2::Sha256::digest(message).to_vec(),
        8 => sha3::Sha3_256::digest(message).to_vec(),
        _ => panic!("no such algorithm"),
    }
}

/// The initiator's own challenge, in the outstanding request.
pub(super) struct Asked {
    pub(super) identifier: u8,
    pub(super) challenge: Vec<u8>,
}

impl Asked {
    pub(super) fn of(rig: &Rig) -> Self {
        Self {
            identifier: rig.value("CHAP_I").parse().unwrap(),
            challenge: decode_binary(&rig.value("CHAP_C")).unwrap(),
        }
    }

    /// Returns the text with the target's CHAP response.
    pub(super) fn answer(&self, number: u8) -> String {
        let response = digest(number, self.identifier, TARGET_SECRET, &self.challenge);
        format!("CHAP_N={TARGET_USER} CHAP_R={}", encode_hex(&response))
    }
}

/// Runs the login up to the response of the initiator to `CHAP_I=identifier CHAP_C=challenge`.
pub(super) fn challenge(rig: &mut Rig, number: u8, identifier: &str, challenge: &str) {
    assert_eq!(rig.stage(), (Stage::SecurityNegotiation, false));
    rig.reply("AuthMethod=CHAP").unwrap();
    assert_eq!(rig.stage(), (Stage::SecurityNegotiation, false));
    let text = format!("CHAP_A={number} CHAP_I={identifier} CHAP_C={challenge}");
    rig.reply(&text).unwrap();
}

/// Runs a whole authentication with the first proposed algorithm, and checks the initiator's response.
pub(super) fn authenticate(rig: &mut Rig) {
    let number = rig.config.chap.as_ref().unwrap().algorithms[0].number();
    authenticate_with(rig, number);
}

fn authenticate_with(rig: &mut Rig, number: u8) {
    challenge(rig, number, "23", "0x000102030405060708090a0b0c0d0e0f");
    let theirs: Vec<u8> = (0..16).collect();
    check_response(rig, number, 23, &theirs);
    let mutual = rig.config.chap.as_ref().unwrap().target.is_some();
    let answer = if mutual { Asked::of(rig).answer(number) } else { String::new() };
    rig.reply(&answer).unwrap();
    assert_eq!(rig.stage(), (Stage::OperationalNegotiation, true));
}

/// CHP-02: name and response are in one request, and this request proposes the next stage.
fn check_response(rig: &Rig, number: u8, identifier: u8, challenge: &[u8]) {
    assert_eq!(rig.stage(), (Stage::SecurityNegotiation, true));
    assert_eq!(rig.request.next_stage, Stage::OperationalNegotiation);
    assert_eq!(rig.value("CHAP_N"), USER);
    let response = decode_binary(&rig.value("CHAP_R")).unwrap();
    assert_eq!(response, digest(number, identifier, SECRET, challenge));
}

/// CHP-01, CHP-02, CHP-16, UNH CHAP 1.1, QRK-11, LOG-27: every algorithm, one way and both ways,
/// for both kinds of session.
#[test]
fn chp_02_all_algorithms_both_ways_and_both_session_types() {
    let bases: [fn() -> Config; 2] = [normal, discovery];
    let ways: [fn(Config) -> Config; 2] = [with_chap, with_mutual_chap];
    for (base, way) in bases.into_iter().flat_map(|base| ways.map(|way| (base, way))) {
        for algorithm in ChapAlgorithm::ALL {
            let mut rig = Rig::new(way(base()));
            authenticate_with(&mut rig, algorithm.number());
            let first = rig.sent().remove(0).0;
            assert_eq!(first, "HeaderDigest", "names are not repeated (LOG-05, QRK-19)");
            rig.conclude("");
        }
    }
}

/// CHP-01, CHP-02, LOG-31: the first request proposes only CHAP, without None that a target could choose
/// instead; the next one contains only the list of algorithms.
#[test]
fn chp_01_offers() {
    let mut rig = Rig::new(with_chap(normal()));
    let names = format!("InitiatorName={INITIATOR} TargetName={TARGET} SessionType=Normal");
    assert_eq!(rig.line(), format!("{names} AuthMethod=CHAP"));
    rig.reply("AuthMethod=CHAP").unwrap();
    assert_eq!(rig.line(), "CHAP_A=8,7,6,5");
}

/// CHP-03: the response equals a value that was computed elsewhere: MD5 over 0x17, the secret, and 00..0f.
#[test]
fn chp_03_known_response() {
    let mut config = with_chap(normal());
    config.chap.as_mut().unwrap().secret = "correct horse battery".into();
    let mut rig = Rig::new(config);
    challenge(&mut rig, 5, "0x17", "0x000102030405060708090A0B0C0D0E0F");
    assert_eq!(rig.line(), "CHAP_N=alice CHAP_R=0x21193f037e447a0962a5e687c53dabff");
}

/// UNH CHAP 2.1, CHP-03, QRK-12: an identifier is a byte, in decimal or hexadecimal form.
#[test]
fn unh_2_1_identifiers() {
    for (text, identifier) in [("0", 0), ("255", 255), ("0x0", 0), ("0xFf", 255)] {
        let mut rig = Rig::new(with_chap(normal()));
        challenge(&mut rig, 7, text, "0xa5");
        check_response(&rig, 7, identifier, &[0xa5]);
    }
}

/// UNH CHAP 3.1, 3.2, CHP-04, QRK-22, QRK-12: challenges of 1 and of 1024 bytes are accepted in base64 and in
/// hexadecimal, also with an odd number of digits.
#[test]
fn unh_3_1_and_3_2_challenge_lengths_and_forms() {
    let long: Vec<u8> = (0..1024).map(|n: usize| n.to_le_bytes()[0]).collect();
    let cases = [
        (encode_hex(&long), long.clone()),
        (encode_hex(&long).to_uppercase().replacen("0X", "0x", 1), long.clone()),
        (encode_base64(&long), long),
        ("0x7".to_owned(), vec![7]),
        ("0X123".to_owned(), vec![0x01, 0x23]),
        ("0bAA==".to_owned(), vec![0]),
        ("0BAQI=".to_owned(), vec![1, 2]),
    ];
    for (text, bytes) in cases {
        let mut rig = Rig::new(with_chap(normal()));
        challenge(&mut rig, 6, "1", &text);
        check_response(&rig, 6, 1, &bytes);
    }
}

/// UNH CHAP 2.4 to 2.6, 3.6.1, 3.6.2: the same identifier and challenge twice, concurrently and one after the
/// other, and the initiator's own identifier sent back, are no errors.
#[test]
fn unh_2_4_and_3_6_repeated_identifiers_and_challenges() {
    let config = with_mutual_chap(normal());
    let mut first = Rig::new(config.clone());
    let mut second = Rig::new(config.clone());
    challenge(&mut first, 5, "1", "0x42");
    let own = first.value("CHAP_I");
    challenge(&mut second, 5, &own, "0x42");
    let conclude = |mut rig: Rig| {
        let answer = Asked::of(&rig).answer(5);
        rig.reply(&answer).unwrap();
        rig.conclude("");
    };
    conclude(first);
    conclude(second);
    let mut third = Rig::new(config);
    challenge(&mut third, 5, "1", "0x42");
    conclude(third);
}

/// UNH CHAP 3.6.3, 3.7, CHP-08, QRK-08: the initiator's challenges are new each time, differ from the
/// target's, and are neither shorter than the hash nor longer than targets accept.
#[test]
fn chp_08_own_challenges() {
    let config = with_mutual_chap(normal());
    for (number, len) in [(5, 16), (6, 20), (7, 32), (8, 32)] {
        let mut first = Rig::new(config.clone());
        challenge(&mut first, number, "1", "0x42");
        let ours = Asked::of(&first).challenge;
        assert_eq!(ours.len(), len);
        // A second login of the process with the same random numbers.
        let mut second = Rig::new(config.clone());
        challenge(&mut second, number, "1", "0x42");
        assert_ne!(Asked::of(&second).challenge, ours);
    }
    // The target's challenge has the bytes that the initiator's source of random bytes returns next.
    let mut rig = Rig::new(config);
    let next = encode_hex(&(2..18).collect::<Vec<u8>>());
    challenge(&mut rig, 5, "1", &next);
    assert_ne!(rig.value("CHAP_C"), next);
}

/// UNH CHAP 4.1 to 4.3, 4.6 to 4.8: unless a name is configured, any name is accepted, because only the
/// response is checked.
#[test]
fn unh_4_x_target_names() {
    let long = "n".repeat(255);
    for name in ["x", long.as_str(), USER, TARGET_USER] {
        let mut config = with_mutual_chap(normal());
        config.chap.as_mut().unwrap().target.as_mut().unwrap().user = None;
        let mut rig = Rig::new(config);
        challenge(&mut rig, 5, "1", "0x42");
        let answer = Asked::of(&rig).answer(5).replacen(TARGET_USER, name, 1);
        rig.reply(&answer).unwrap();
        rig.conclude("");
    }
}

/// LOG-10 in the security stage: if a target delays the transition after its CHAP response, it receives the
/// proposal again, and nothing else.
#[test]
fn log_10_delayed_transition_after_the_proof() {
    let mut rig = Rig::new(with_mutual_chap(normal()));
    challenge(&mut rig, 5, "1", "0x42");
    let answer = Asked::of(&rig).answer(5);
    rig.stay(&answer).unwrap();
    assert_eq!((rig.line().as_str(), rig.stage()), ("", (Stage::SecurityNegotiation, true)));
    rig.reply("").unwrap();
    assert_eq!(rig.stage(), (Stage::OperationalNegotiation, true));
    rig.conclude("");
}

/// QRK-34, KEY-31: a target may declare certain keys in the security stage.
#[test]
fn qrk_34_declarations_in_the_security_stage() {
    let mut rig = Rig::new(with_chap(normal()));
    let text = "AuthMethod=CHAP TargetAlias=disk TargetPortalGroupTag=1 TargetAddress=10.0.0.1,1";
    rig.reply(text).unwrap();
    rig.reply("CHAP_A=5 CHAP_I=1 CHAP_C=0x42 TargetAddress=10.0.0.2,1").unwrap();
    rig.reply("").unwrap();
    let agreed = rig.conclude("").negotiated;
    assert_eq!(agreed.target_alias.as_deref(), Some("disk"));
    assert_eq!(agreed.target_portal_group_tag, Some(1));
}

/// QRK-20: a target that sends AuthMethod=None unasked is accepted if no credentials are configured.
#[test]
fn qrk_20_unasked_auth_method() {
    Rig::new(normal()).conclude("AuthMethod=None");
}

/// QRK-07: if a target does not understand a list of algorithms, the login is retried once with MD5.
#[test]
fn qrk_07_single_algorithm() {
    for detail in [0, 1] {
        let mut rig = Rig::new(with_chap(normal()));
        rig.reply("AuthMethod=CHAP").unwrap();
        let error = rig.refuse(2, detail, "").unwrap_err();
        assert!(rig.login.may_retry_with_single_algorithm(&error));
    }
    let config = with_chap(normal());
    let again = LoginIdentity { single_chap_algorithm: true, ..identity(&config) };
    let mut rig = Rig::with_identity(config, again);
    rig.reply("AuthMethod=CHAP").unwrap();
    assert_eq!(rig.line(), "CHAP_A=5");
    let error = rig.refuse(2, 0, "").unwrap_err();
    assert!(!rig.login.may_retry_with_single_algorithm(&error), "one more try, not two");
}

/// QRK-08: if a target chooses an algorithm whose response does not fit its buffer, the login is retried once
/// with MD5; if it chose MD5, there is no retry.
#[test]
fn qrk_08_response_too_long_for_the_target() {
    for (algorithm, again) in [(7, true), (6, true), (5, false)] {
        let mut rig = Rig::new(with_chap(normal()));
        challenge(&mut rig, algorithm, "1", "0x42");
        let error = rig.refuse(2, 0, "").unwrap_err();
        assert_eq!(rig.login.may_retry_with_single_algorithm(&error), again);
    }
}

/// QRK-07, LOG-18: after any other failure there is no retry.
#[test]
fn qrk_07_only_failures_over_the_list() {
    let mut wrong_secret = Rig::new(with_chap(normal()));
    challenge(&mut wrong_secret, 5, "1", "0x42");
    let error = wrong_secret.refuse(2, 1, "").unwrap_err();
    assert!(!wrong_secret.login.may_retry_with_single_algorithm(&error));

    let mut not_found = Rig::new(with_chap(normal()));
    not_found.reply("AuthMethod=CHAP").unwrap();
    let error = not_found.refuse(2, 3, "").unwrap_err();
    assert!(!not_found.login.may_retry_with_single_algorithm(&error));

    let mut config = with_chap(normal());
    config.chap.as_mut().unwrap().algorithms = vec![ChapAlgorithm::Sha256, ChapAlgorithm::Sha1];
    let mut without_md5 = Rig::new(config);
    without_md5.reply("AuthMethod=CHAP").unwrap();
    assert_eq!(without_md5.line(), "CHAP_A=7,6");
    let error = without_md5.refuse(2, 0, "").unwrap_err();
    assert!(!without_md5.login.may_retry_with_single_algorithm(&error));

    let mut no_chap = Rig::new(normal());
    let error = no_chap.refuse(2, 1, "").unwrap_err();
    assert!(!no_chap.login.may_retry_with_single_algorithm(&error));
}

/// CHP-10: a secret may contain bytes that are not text.
#[test]
fn chp_10_binary_secret() {
    let mut config = with_chap(normal());
    config.chap.as_mut().unwrap().secret = vec![0xff; 16].into();
    let mut rig = Rig::new(config);
    challenge(&mut rig, 5, "1", "0x42");
    let message = [&[1][..], &[0xff; 16], &[0x42]].concat();
    assert_eq!(rig.value("CHAP_R"), encode_hex(&md5::Md5::digest(message)));
}
