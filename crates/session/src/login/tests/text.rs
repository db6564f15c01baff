//! Tests of text in one and in several PDUs, and of keys that do not belong (UNH login 6.x, 7.6, 11.1, 12.1).

use super::chap::Asked;
use super::*;
use crate::login::{LoginViolation, NegotiationFault};

fn fault(error: LoginError) -> NegotiationFault {
    let LoginError::Negotiation { why, .. } = error else {
        panic!("{error:?} is no fault of a negotiation");
    };
    why
}

/// Returns unknown keys whose answers do not fit into one login request.
fn many_unknown_keys() -> String {
    (0..200).map(|n| format!("X-org.example.{n:045}=1 ")).collect()
}

/// TXT-08, LOG-11, UNH CHAP 3.1: an answer may be split at every byte, also within names and values. Between
/// the parts the initiator sends no text and keeps its T bit.
#[test]
fn txt_08_answer_cut_at_every_byte() {
    let text = pairs("HeaderDigest=CRC32C MaxBurstLength=8192 FirstBurstLength=4096");
    for cut in 0..=text.len() {
        let (head, tail) = text.split_at(cut);
        let mut rig = Rig::new(normal());
        rig.reply_part(head).unwrap();
        assert_eq!((rig.data.len(), rig.stage()), (0, (Stage::OperationalNegotiation, true)));
        let response = rig.response();
        let Progress::FullFeature(outcome) = rig.send(&response, tail).unwrap() else {
            panic!("cut at {cut}");
        };
        assert_eq!(outcome.negotiated.max_burst_length, 8192);
        assert_eq!(outcome.negotiated.header_digest, iscsi_pdu::Digest::Crc32c);
    }
}

/// TXT-08 in the security stage: a challenge and a CHAP response in pieces are accepted.
#[test]
fn txt_08_authentication_cut_at_every_byte() {
    let text = pairs("CHAP_A=5 CHAP_I=1 CHAP_C=0x0123456789abcdef");
    for cut in 0..=text.len() {
        let mut rig = Rig::new(with_mutual_chap(normal()));
        rig.reply("AuthMethod=CHAP").unwrap();
        rig.reply_part(&text[..cut]).unwrap();
        assert_eq!((rig.data.len(), rig.stage()), (0, (Stage::SecurityNegotiation, false)));
        let response = rig.response();
        rig.send(&response, &text[cut..]).unwrap();
        let proof = pairs(&Asked::of(&rig).answer(5));
        let cut = cut.min(proof.len());
        rig.reply_part(&proof[..cut]).unwrap();
        assert_eq!((rig.data.len(), rig.stage()), (0, (Stage::SecurityNegotiation, true)));
        let response = rig.response();
        rig.send(&response, &proof[cut..]).unwrap();
        rig.conclude("");
    }
}

/// UNH CHAP 3.1, CHP-04: a challenge of 1024 bytes in PDUs of 100 bytes each is accepted.
#[test]
fn unh_chap_3_1_challenge_over_many_pdus() {
    let text = pairs(&format!("CHAP_A=5 CHAP_I=1 CHAP_C=0x{}", "5a".repeat(1024)));
    let mut rig = Rig::new(with_chap(normal()));
    rig.reply("AuthMethod=CHAP").unwrap();
    let last = text.len() - text.len() % 100;
    text[..last].chunks(100).for_each(|part| {
        rig.reply_part(part).unwrap();
    });
    let response = rig.response();
    rig.send(&response, &text[last..]).unwrap();
    assert_eq!(rig.value("CHAP_R").len(), 2 + 32);
}

/// Takes the initiator's complete text, acknowledges each part, and returns the text and the lengths of the
/// parts.
fn collect(rig: &mut Rig) -> (Vec<u8>, Vec<usize>) {
    let (mut text, mut lengths) = (Vec::new(), Vec::new());
    loop {
        text.extend_from_slice(&rig.data);
        lengths.push(rig.data.len());
        if !rig.request.is_continued {
            return (text, lengths);
        }
        assert!(!rig.request.transit);
        rig.reply("").unwrap();
    }
}

/// LOG-08, LOG-29, TXT-09, TXT-18: a long text of the initiator is sent in parts of 8192 bytes. All parts but
/// the last have the C bit, and only the last part has the T bit.
#[test]
fn log_29_long_text_is_split() {
    let mut rig = Rig::new(normal());
    rig.stay(&many_unknown_keys()).unwrap();
    let (text, lengths) = collect(&mut rig);
    let expected: String = many_unknown_keys().replace("=1 ", "=NotUnderstood\0");
    assert_eq!(text, expected.as_bytes());
    assert_eq!(lengths, [8192, text.len() - 8192]);
    assert!(rig.request.transit);
    rig.conclude("");
}

/// KEY-13, LOG-16: if the target has declared less than 8192 bytes, later requests keep to that limit.
#[test]
fn key_13_declared_length_limits_later_requests() {
    let mut rig = Rig::new(normal());
    let text = format!("MaxRecvDataSegmentLength=512 {}", many_unknown_keys());
    rig.stay(&text).unwrap();
    let (text, lengths) = collect(&mut rig);
    assert!(lengths.iter().rev().skip(1).all(|&len| len == 512), "{lengths:?}");
    assert_eq!(lengths.len(), text.len().div_ceil(512));
}

/// TXT-09: the target must not send text before the initiator's text is complete.
#[test]
fn txt_09_interrupted_text() {
    for (continued, data) in [(false, &b"A=1\0"[..]), (true, b""), (true, b"A=")] {
        let mut rig = Rig::new(normal());
        rig.stay(&many_unknown_keys()).unwrap();
        let response = LoginResponse { is_continued: continued, ..rig.response() };
        let error = rig.send(&response, data).unwrap_err();
        assert_eq!(error, LoginViolation::Interruption.into());
    }
}

/// UNH login 7.6, TXT-10, QRK-38, KEY-27: an unknown key is answered once, in the next stage if the present
/// stage is over. A key in the last response cannot be answered.
#[test]
fn unh_7_6_unknown_keys() {
    let mut rig = Rig::new(normal());
    rig.stay("X-com.cisco.alpha=1 Unheard=2").unwrap();
    assert_eq!(rig.line(), "X-com.cisco.alpha=NotUnderstood Unheard=NotUnderstood");
    rig.stay("").unwrap();
    assert_eq!(rig.line(), "");
    rig.conclude("X-late=1");

    let mut rig = Rig::new(with_chap(normal()));
    rig.reply("AuthMethod=CHAP X-first=1").unwrap();
    assert_eq!(rig.line(), "CHAP_A=8,7,6,5 X-first=NotUnderstood");
    rig.reply("CHAP_A=5 CHAP_I=1 CHAP_C=0x42").unwrap();
    rig.reply("X-second=1").unwrap();
    assert!(rig.line().ends_with("X-second=NotUnderstood"), "{}", rig.line());
    rig.conclude("");
}

/// TXT-12: an answer to a key that was never proposed is an error, so that it cannot start a loop.
#[test]
fn txt_12_reserved_answers_as_proposals() {
    let keys = ["X-foo", "IFMarker", "OFMarkInt", "TaskReporting", "iSCSIProtocolLevel"];
    for key in keys {
        for word in ["NotUnderstood", "Irrelevant", "Reject"] {
            let error = Rig::new(normal()).stay(&format!("{key}={word}")).unwrap_err();
            assert_eq!(fault(error), NegotiationFault::AnswerWithoutProposal, "{key}={word}");
        }
    }
}

/// UNH login 12.1, TXT-25: marker keys are known, and refused.
#[test]
fn unh_12_1_markers() {
    let mut rig = Rig::new(normal());
    rig.stay("IFMarker=Yes OFMarker=No IFMarkInt=1~65535 OFMarkInt=2048").unwrap();
    assert_eq!(rig.line(), "IFMarker=No OFMarker=No IFMarkInt=Reject OFMarkInt=Reject");
    rig.conclude("");
    // In the last response marker keys cannot be answered, and have no effect.
    Rig::new(normal()).conclude("IFMarker=No OFMarker=No");
}

/// UNH login 6.1 to 6.3, LOG-21: a key that arrives twice, in one response or in two, fails the login.
#[test]
fn unh_6_x_repeated_keys() {
    let keys = [
        "ImmediateData=Yes",
        "MaxRecvDataSegmentLength=8192",
        "TargetAlias=disk",
        "TargetPortalGroupTag=1",
        "X-foo=1",
        "IFMarker=No",
    ];
    for pair in keys {
        let error = Rig::new(normal()).reply(&format!("{pair} {pair}")).unwrap_err();
        assert_eq!(fault(error), NegotiationFault::Repeated, "{pair}");
        let mut rig = Rig::new(normal());
        rig.stay(pair).unwrap();
        assert_eq!(fault(rig.reply(pair).unwrap_err()), NegotiationFault::Repeated, "{pair}");
    }
    let mut across = Rig::new(with_chap(normal()));
    across.reply("AuthMethod=CHAP TargetAlias=a").unwrap();
    across.reply("CHAP_A=5 CHAP_I=1 CHAP_C=0x42").unwrap();
    across.reply("").unwrap();
    assert_eq!(fault(across.reply("TargetAlias=b").unwrap_err()), NegotiationFault::Repeated);
}

/// LOG-22, KEY-31: operational keys in the security stage fail the login.
#[test]
fn log_22_operational_keys_in_the_security_stage() {
    for pair in [
        "ImmediateData=Yes",
        "HeaderDigest=None",
        "MaxRecvDataSegmentLength=8192",
        "ErrorRecoveryLevel=0",
        "IFMarker=No",
        "X#NodeArchitecture=vax",
    ] {
        let mut rig = Rig::new(with_chap(normal()));
        let error = rig.reply(&format!("AuthMethod=CHAP {pair}")).unwrap_err();
        assert_eq!(fault(error), NegotiationFault::WrongStage, "{pair}");
    }
}

/// UNH login 11.1, 21.1, KEY-05, KEY-22: keys that only an initiator may send, or a target only in full
/// feature phase, fail the login.
#[test]
fn unh_11_1_wrong_direction() {
    for key in ["InitiatorName", "InitiatorAlias", "SessionType", "TargetName", "SendTargets"] {
        for config in [normal(), with_chap(normal())] {
            let error = Rig::new(config).reply(&format!("{key}=Normal")).unwrap_err();
            assert_eq!(fault(error), NegotiationFault::WrongDirection, "{key}");
        }
    }
}

/// KEY-07, KEY-09, KEY-26, TXT-28: a target may declare its alias, its addresses and its architecture.
#[test]
fn key_07_declarations() {
    let mut rig = Rig::new(normal());
    let text = "TargetAlias=Bob's dïsk\0TargetAddress=10.0.0.1,1\0TargetAddress=10.0.0.2,1\0\
                X#NodeArchitecture=vax\0";
    let response = LoginResponse { transit: false, next_stage: None, ..rig.response() };
    rig.send(&response, text.as_bytes()).unwrap();
    assert_eq!(rig.line(), "", "declarations have no answer");
    assert_eq!(rig.conclude("").negotiated.target_alias.as_deref(), Some("Bob's dïsk"));
}

/// KEY-26: control characters in texts of the target are escaped.
#[test]
fn key_26_texts_of_a_target_are_shown_escaped() {
    let alias = negotiated("TargetAlias=good\u{1b}[2J").target_alias;
    assert_eq!(alias.as_deref(), Some("good\\u{1b}[2J"));
    let answer = "HeaderDigest=\u{1b}[1Acopied";
    let error = Rig::new(normal()).reply(answer).unwrap_err().to_string();
    assert!(error.contains("answered \\u{1b}[1Acopied, but"), "{error:?}");
}

/// TXT-03: a value of 255 bytes is accepted, a longer one is an error.
#[test]
fn txt_03_value_lengths() {
    let alias = |len| format!("TargetAlias={}", "a".repeat(len));
    assert_eq!(negotiated(&alias(255)).target_alias.map(|alias| alias.len()), Some(255));
    let error = Rig::new(normal()).reply(&alias(256)).unwrap_err();
    assert_eq!(fault(error), NegotiationFault::TooLong(256));
}

/// TXT-27, TXT-04: bytes that are not text, and too much text, are errors.
#[test]
fn txt_27_garbage() {
    for garbage in [&b"NoEquals\0"[..], b"=1\0", b"A", b"lower=1\0", b"A=\xff\0", b"\0A\0"] {
        let mut rig = Rig::new(normal());
        let response = rig.response();
        let error = rig.send(&response, garbage).unwrap_err();
        assert!(matches!(error, LoginError::Text(_)), "{garbage:?}: {error:?}");
    }
    let mut rig = Rig::new(normal());
    let error = (0..9).find_map(|_| rig.reply_part(&[b'x'; 8192]).err());
    assert!(matches!(error, Some(LoginError::Text(_))), "{error:?}");
}

/// TXT-27, TXT-28: too many or too few NULs, and an alias that is not UTF-8, do not fail a login.
#[test]
fn txt_27_harmless_faults_of_the_text() {
    for text in [
        &b"TargetAlias=a\0\0MaxBurstLength=512\0FirstBurstLength=512\0\0"[..],
        b"\0TargetAlias=a\0MaxBurstLength=512\0FirstBurstLength=512",
        b"TargetAlias=a\xe4\0MaxBurstLength=512\0FirstBurstLength=512\0",
    ] {
        let mut rig = Rig::new(normal());
        let response = LoginResponse {
            transit: true,
            next_stage: Some(Stage::FullFeature),
            tsih: TSIH,
            ..rig.response()
        };
        let Ok(Progress::FullFeature(outcome)) = rig.send(&response, text) else {
            panic!("{text:?}")
        };
        assert_eq!(outcome.negotiated.max_burst_length, 512);
        assert_eq!(outcome.negotiated.target_alias.as_deref(), Some("a"));
    }
}
