//! Tests of authentications that must fail (the illegal cases of UNH CHAP 1.2 to 5.3, and attacks).

use iscsi_pdu::keys::{decode_binary, encode_hex};

use super::chap::{Asked, challenge, digest};
use super::*;
use crate::ChapAlgorithm;
use crate::login::AuthenticationError;

/// A response of a target that does not know its secret.
type Forgery = fn(&Asked) -> Vec<u8>;

/// Makes credentials unusable.
type Spoil = fn(&mut Chap);

fn authentication(error: LoginError) -> AuthenticationError {
    let LoginError::Authentication(error) = error else {
        panic!("{error:?} is no authentication error");
    };
    error
}

/// Returns a login that has sent its algorithms.
fn at_algorithms() -> Rig {
    let mut rig = Rig::new(with_chap(normal()));
    rig.reply("AuthMethod=CHAP").unwrap();
    rig
}

/// Returns a mutual login that has sent its response and its challenge.
fn at_response() -> Rig {
    let mut rig = Rig::new(with_mutual_chap(normal()));
    challenge(&mut rig, 5, "1", "0x42");
    rig
}

/// Wrong credentials count as an authentication error, which the caller can correct; a broken exchange does
/// not.
#[test]
fn a_broken_exchange_is_no_matter_of_credentials() {
    let mut refused = Rig::new(with_chap(normal()));
    let refused = refused.reply("AuthMethod=None").unwrap_err();
    assert!(refused.is_authentication() && !refused.is_authentication_violation());
    for text in ["CHAP_A=9\0CHAP_I=1\0CHAP_C=0x42", "CHAP_I=1", "CHAP_A=5\0CHAP_I=256\0CHAP_C=0x42"]
    {
        let broken = at_algorithms().reply(text).unwrap_err();
        assert!(broken.is_authentication() && broken.is_authentication_violation(), "{text}");
    }
}

/// UNH login 7.3, 22.1, LOG-31, CHP-14, KEY-25: if CHAP is configured, nothing else is accepted.
#[test]
fn log_31_no_login_without_chap() {
    let refused = [
        "AuthMethod=None",
        "AuthMethod=Reject",
        "AuthMethod=SRP",
        "AuthMethod=CHAP,None",
        "AuthMethod=NotUnderstood",
        "AuthMethod=",
    ];
    for text in refused {
        let error = Rig::new(with_chap(normal())).reply(text).unwrap_err();
        assert_eq!(authentication(error), AuthenticationError::MethodRefused, "{text}");
    }
    let error = Rig::new(with_chap(normal())).reply("").unwrap_err();
    assert_eq!(authentication(error), AuthenticationError::Missing("AuthMethod"));
}

/// CHP-14, LOG-31: the security stage cannot be skipped, whatever the target sends.
#[test]
fn chp_14_no_shortcut_through_the_stages() {
    for stage in [Stage::OperationalNegotiation, Stage::FullFeature] {
        for text in ["", "AuthMethod=None", "AuthMethod=CHAP"] {
            let mut rig = Rig::new(with_chap(normal()));
            let response = LoginResponse {
                transit: true,
                next_stage: Some(stage),
                tsih: TSIH,
                ..rig.response()
            };
            assert!(rig.send(&response, &pairs(text)).is_err());
            let mut rig = Rig::new(with_chap(normal()));
            let response = LoginResponse { current_stage: stage, ..rig.response() };
            assert!(rig.send(&response, &pairs(text)).is_err());
        }
    }
}

/// UNH CHAP 1.2.1, 1.2.2, CHP-05: the target must choose one of the proposed algorithms.
#[test]
fn unh_1_2_chap_a_invalid() {
    let cases = [
        ("9", AuthenticationError::AlgorithmNotOffered),
        ("0", AuthenticationError::AlgorithmNotOffered),
        ("MD5", AuthenticationError::Malformed("CHAP_A")),
        ("7,5", AuthenticationError::Malformed("CHAP_A")),
        ("05", AuthenticationError::Malformed("CHAP_A")),
        ("", AuthenticationError::Malformed("CHAP_A")),
    ];
    for (value, expected) in cases {
        let text = format!("CHAP_A={value} CHAP_I=1 CHAP_C=0x42");
        let error = at_algorithms().reply(&text).unwrap_err();
        assert_eq!(authentication(error), expected, "{value}");
    }
    let mut config = with_chap(normal());
    config.chap.as_mut().unwrap().algorithms = vec![ChapAlgorithm::Sha256];
    let mut rig = Rig::new(config);
    rig.reply("AuthMethod=CHAP").unwrap();
    let error = rig.reply("CHAP_A=5 CHAP_I=1 CHAP_C=0x42").unwrap_err();
    assert_eq!(authentication(error), AuthenticationError::AlgorithmNotOffered);
}

/// CHP-05, QRK-07: after a refused list of algorithms, a retry with only MD5 is allowed.
#[test]
fn chp_05_rejected_algorithms() {
    let mut rig = at_algorithms();
    let error = rig.reply("CHAP_A=Reject").unwrap_err();
    assert!(rig.login.may_retry_with_single_algorithm(&error));
    assert_eq!(authentication(error), AuthenticationError::AlgorithmRefused);
}

/// UNH CHAP 2.2: an identifier that is not a byte fails the login.
#[test]
fn unh_2_2_chap_i_invalid() {
    for value in ["256", "x", "", "-1", "0x100", "1 "] {
        let mut text = b"CHAP_A=5\0CHAP_C=0x42\0CHAP_I=".to_vec();
        text.extend_from_slice(value.as_bytes());
        text.push(0);
        let mut rig = at_algorithms();
        let response = rig.response();
        let error = rig.send(&response, &text).unwrap_err();
        assert_eq!(authentication(error), AuthenticationError::Malformed("CHAP_I"), "{value}");
    }
}

/// UNH CHAP 3.3, 3.4, CHP-04: a challenge that is too long, empty, or not a binary item fails the login.
#[test]
fn unh_3_3_and_3_4_chap_c_invalid() {
    let long = encode_hex(&[7; 1025]);
    for value in [long.as_str(), "", "0x", "0b", "42", "0xgg", "0bA", "Reject"] {
        let text = format!("CHAP_A=5 CHAP_I=1 CHAP_C={value}");
        let error = at_algorithms().reply(&text).unwrap_err();
        assert_eq!(authentication(error), AuthenticationError::Malformed("CHAP_C"), "{value}");
    }
}

/// UNH CHAP 1.3, 2.3, 3.5, 4.5, CHP-13: a key at the wrong step fails the login.
#[test]
fn chp_13_keys_out_of_order() {
    let foreign = |step: fn() -> Rig, own: &str, keys: &[&str]| {
        for key in keys {
            let error = step().reply(&format!("{own} {key}=1")).unwrap_err();
            let AuthenticationError::Unexpected(found) = authentication(error) else {
                panic!("{key} was accepted after {own}");
            };
            assert_eq!(&found, key);
        }
    };
    let start = || Rig::new(with_mutual_chap(normal()));
    foreign(start, "AuthMethod=CHAP", &["CHAP_A", "CHAP_I", "CHAP_C", "CHAP_N", "CHAP_R"]);
    foreign(at_algorithms, "CHAP_A=5 CHAP_I=1 CHAP_C=0x42", &["CHAP_N", "CHAP_R"]);
    let done = || {
        let mut rig = at_response();
        let proof = Asked::of(&rig).answer(5);
        rig.stay(&proof).unwrap();
        rig
    };
    // Each key has arrived once before this, so any of them is a repetition.
    for key in ["AuthMethod", "CHAP_A", "CHAP_I", "CHAP_C", "CHAP_N", "CHAP_R"] {
        assert!(done().reply(&format!("{key}=1")).is_err(), "{key}");
    }
}

/// CHP-13: one-way CHAP expects no key after the response.
#[test]
fn chp_13_unasked_proof() {
    let mut rig = Rig::new(with_chap(normal()));
    challenge(&mut rig, 5, "1", "0x42");
    let error = rig.reply("CHAP_N=bob CHAP_R=0x00").unwrap_err();
    assert_eq!(authentication(error), AuthenticationError::Unexpected("CHAP_N"));
}

/// CHP-13: the login fails if any key of a step is missing.
#[test]
fn chp_13_missing_keys() {
    let cases = [
        ("CHAP_I=1 CHAP_C=0x42", "CHAP_A"),
        ("CHAP_A=5 CHAP_C=0x42", "CHAP_I"),
        ("CHAP_A=5 CHAP_I=1", "CHAP_C"),
        ("", "CHAP_A"),
    ];
    for (text, key) in cases {
        let error = at_algorithms().reply(text).unwrap_err();
        assert_eq!(authentication(error), AuthenticationError::Missing(key));
    }
    for (kept, key) in [(0, "CHAP_R"), (1, "CHAP_N")] {
        let mut rig = at_response();
        let proof = Asked::of(&rig).answer(5);
        let half = proof.split(' ').nth(kept).unwrap();
        let error = rig.reply(half).unwrap_err();
        assert_eq!(authentication(error), AuthenticationError::Missing(key));
    }
}

/// CHP-13, LOG-21: the same key twice in one step fails the login.
#[test]
fn chp_13_repeated_key() {
    let error = at_algorithms().reply("CHAP_A=5 CHAP_I=1 CHAP_C=0x42 CHAP_C=0x42").unwrap_err();
    assert_eq!(error, LoginError::negotiation("CHAP_C", crate::login::NegotiationFault::Repeated));
}

/// CHP-14: the login fails if mutual CHAP is configured and the target omits its CHAP response.
#[test]
fn chp_14_target_without_proof() {
    let error = at_response().reply("").unwrap_err();
    assert_eq!(authentication(error), AuthenticationError::Incomplete);
    let error = at_response().stay("").unwrap_err();
    assert_eq!(authentication(error), AuthenticationError::Incomplete);
}

/// UNH CHAP 3.8, CHP-09: the login fails if the target sends back a challenge of this initiator, from this
/// login or from another one in progress.
#[test]
fn chp_09_reflected_challenge() {
    let config = with_mutual_chap(normal());
    let mut other = Rig::new(config.clone());
    challenge(&mut other, 5, "1", "0x42");
    let stolen = other.value("CHAP_C");

    let mut victim = Rig::new(config.clone());
    victim.reply("AuthMethod=CHAP").unwrap();
    let text = format!("CHAP_A=5 CHAP_I=1 CHAP_C={stolen}");
    let error = victim.reply(&text).unwrap_err();
    assert_eq!(authentication(error), AuthenticationError::ReflectedChallenge);

    // The login that issued the challenge has ended, so the response to it is useless.
    drop(other);
    let mut later = Rig::new(config);
    later.reply("AuthMethod=CHAP").unwrap();
    later.reply(&text).unwrap();
}

/// UNH CHAP 5.1, CHP-06, CHP-07: these responses fail the login: a wrong one, one with the initiator's own
/// secret, and one for another challenge or identifier.
#[test]
fn unh_5_1_wrong_responses() {
    let wrong = AuthenticationError::WrongResponse;
    let cases: [(Forgery, AuthenticationError); 5] = [
        (|_| vec![0; 16], wrong),
        (|asked| digest(5, asked.identifier, "guess", &asked.challenge), wrong),
        (|asked| digest(5, asked.identifier, TARGET_SECRET, &[0x42]), wrong),
        (|asked| digest(5, !asked.identifier, TARGET_SECRET, &asked.challenge), wrong),
        (
            |asked| digest(5, asked.identifier, SECRET, &asked.challenge),
            AuthenticationError::ReflectedResponse,
        ),
    ];
    for (response, expected) in cases {
        let mut rig = at_response();
        let response = encode_hex(&response(&Asked::of(&rig)));
        let error = rig.reply(&format!("CHAP_N=bob CHAP_R={response}")).unwrap_err();
        assert_eq!(authentication(error), expected);
    }
}

/// CHP-06: a response with a single wrong bit fails the login.
#[test]
fn chp_06_every_bit_of_the_response_counts() {
    for bit in 0..128 {
        let mut rig = at_response();
        let asked = Asked::of(&rig);
        let mut response = digest(5, asked.identifier, TARGET_SECRET, &asked.challenge);
        response[bit / 8] ^= 1 << (bit % 8);
        let error = rig.reply(&format!("CHAP_N=bob CHAP_R={}", encode_hex(&response))).unwrap_err();
        assert_eq!(authentication(error), AuthenticationError::WrongResponse);
    }
}

/// UNH CHAP 5.2, 5.3: a response that is too long, too short, or not a binary item fails the login.
#[test]
fn unh_5_2_and_5_3_response_lengths() {
    let mut rig = at_response();
    let good = decode_binary(Asked::of(&rig).answer(5).split('=').next_back().unwrap()).unwrap();
    let long = encode_hex(&[good.as_slice(), &[0]].concat());
    let short = encode_hex(&good[..15]);
    for value in [long.as_str(), short.as_str(), "0x", "", "bob"] {
        let error = rig.reply(&format!("CHAP_N=bob CHAP_R={value}")).unwrap_err();
        assert_eq!(authentication(error), AuthenticationError::Malformed("CHAP_R"), "{value}");
        rig = at_response();
    }
}

/// UNH CHAP 4.4, 4.7: a name that is too long, empty, or not the configured one fails the login.
#[test]
fn unh_4_4_wrong_names() {
    let long = "n".repeat(256);
    let cases = [
        (long.as_str(), AuthenticationError::Malformed("CHAP_N")),
        ("", AuthenticationError::Malformed("CHAP_N")),
        ("mallory", AuthenticationError::WrongName),
    ];
    for (name, expected) in cases {
        let mut rig = at_response();
        let proof = Asked::of(&rig).answer(5).replacen(TARGET_USER, name, 1);
        assert_eq!(authentication(rig.reply(&proof).unwrap_err()), expected);
    }
}

/// CHP-11, CHP-12: credentials that are not secure are refused before anything of them is sent.
#[test]
fn chp_11_and_chp_12_credentials_are_checked() {
    let cases: [(Spoil, AuthenticationError); 7] = [
        (|c| c.target.as_mut().unwrap().secret = SECRET.into(), AuthenticationError::SameSecret),
        (|c| c.secret = "".into(), AuthenticationError::ShortSecret),
        (
            |c| {
                c.allow_short_secret = false;
                c.secret = "elevenbytes".into();
            },
            AuthenticationError::ShortSecret,
        ),
        (
            |c| {
                c.allow_short_secret = false;
                c.target.as_mut().unwrap().secret = "elevenbytes".into();
            },
            AuthenticationError::ShortSecret,
        ),
        (|c| c.user.clear(), AuthenticationError::UserName),
        (|c| c.user = "u".repeat(256), AuthenticationError::UserName),
        (|c| c.algorithms.clear(), AuthenticationError::NoAlgorithm),
    ];
    for (spoil, expected) in cases {
        let mut config = with_mutual_chap(normal());
        spoil(config.chap.as_mut().unwrap());
        let error = Rig::new(config).reply("AuthMethod=CHAP").unwrap_err();
        assert_eq!(authentication(error), expected);
    }
    let mut config = with_chap(normal());
    let chap = config.chap.as_mut().unwrap();
    (chap.secret, chap.allow_short_secret) = ("twelve bytes".into(), false);
    challenge(&mut Rig::new(config), 5, "1", "0x42");
}

/// KEY-25, CHP-13: authentication keys in the operational stage fail the login.
#[test]
fn key_25_authentication_in_the_operational_stage() {
    for text in ["AuthMethod=CHAP", "CHAP_A=5", "CHAP_C=0x42"] {
        let error = Rig::new(normal()).reply(text).unwrap_err();
        assert!(matches!(authentication(error), AuthenticationError::Unexpected(_)));
    }
    let mut rig = Rig::at_operational_stage(with_chap(normal()));
    let error = rig.reply("CHAP_N=bob").unwrap_err();
    assert_eq!(authentication(error), AuthenticationError::Unexpected("CHAP_N"));
}

/// CHP-15: secrets, responses and challenges do not appear in `Debug` output, which may be logged.
#[test]
fn chp_15_nothing_secret_in_debug() {
    let rig = at_response();
    let shown = format!("{:?} {:?}", rig.login, rig.config);
    let response = rig.value("CHAP_R").replacen("0x", "", 1);
    let challenge = rig.value("CHAP_C").replacen("0x", "", 1);
    for secret in [SECRET, TARGET_SECRET, &response, &challenge] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
}
