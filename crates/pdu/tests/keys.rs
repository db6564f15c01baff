//! Tests of text keys: pairs, values and the table (RFC 7143 §6.1, §12, §13).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use iscsi_pdu::keys::{
    Key, Kind, MAX_TEXT_LEN, Scope, Sender, TextBuilder, TextError, Use, decode_binary,
    decode_pairs, encode_base64, encode_hex, format_boolean, list_values, parse_boolean,
    parse_number,
};
use proptest::prelude::*;
use std::collections::HashSet;

// Tests of pairs.

/// TXT-01: every pair ends with a NUL, also the last one.
#[test]
fn txt_01_each_pair_ends_in_a_nul() {
    let mut text = TextBuilder::new();
    assert!(text.is_empty());
    text.pair("InitialR2T", "No").pair("HeaderDigest", "CRC32C,None");
    assert!(!text.is_empty());
    assert_eq!(&text.finish()[..], b"InitialR2T=No\0HeaderDigest=CRC32C,None\0");
}

/// TXT-02: a pair splits at the first "=", so that the padding of base64 stays in the value.
#[test]
fn txt_02_split_at_the_first_equals() {
    let pairs = decode_pairs(b"CHAP_C=0bAQ==\0Empty=\0").unwrap();
    assert_eq!(pairs, [("CHAP_C", "0bAQ=="), ("Empty", "")]);
}

/// TXT-03: a key name has at most 63 bytes and begins with a capital.
#[test]
fn txt_03_key_names() {
    for good in
        ["A", "iSCSIProtocolLevel", "X-com.example.a_b@c+1", "X#NodeArchitecture", &"A".repeat(63)]
    {
        let text = format!("{good}=1\0");
        assert_eq!(decode_pairs(text.as_bytes()).unwrap(), [(good, "1")]);
    }
    for bad in ["", "a", "1A", "-A", "A B", "A\n", "A,B", "Ä", "Aä", &"A".repeat(64)] {
        let text = format!("{bad}=1\0");
        let error = decode_pairs(text.as_bytes()).unwrap_err();
        assert!(matches!(error, TextError::KeyName(_)), "{bad:?}: {error}");
    }
}

/// TXT-04: a text of 64 KiB is accepted, and one more byte is an error.
#[test]
fn txt_04_long_texts() {
    let mut text = format!("CHAP_C={}\0", "5".repeat(MAX_TEXT_LEN - 8)).into_bytes();
    assert_eq!(text.len(), MAX_TEXT_LEN);
    assert_eq!(decode_pairs(&text).unwrap()[0].1.len(), MAX_TEXT_LEN - 8);
    text.push(0);
    assert_eq!(decode_pairs(&text), Err(TextError::TooLong { len: MAX_TEXT_LEN + 1 }));
}

/// TXT-27: bytes that are not text are an error; additional NULs, or a missing last NUL, are accepted.
#[test]
fn txt_27_rubbish_is_an_error() {
    assert_eq!(decode_pairs(b"").unwrap(), []);
    assert_eq!(decode_pairs(b"\0\0").unwrap(), []);
    for text in [&b"A=1\0B=\0"[..], b"A=1\0\0\0B=\0\0", b"\0A=1\0B=", b"A=1\0\0B=\0\0"] {
        assert_eq!(decode_pairs(text).unwrap(), [("A", "1"), ("B", "")], "{text:?}");
    }
    for text in [&b"A=1\0B\0"[..], b"A=1\0\0B\0", b"A=1\0B", b"A=1\0 \0"] {
        assert_eq!(decode_pairs(text), Err(TextError::MissingEquals), "{text:?}");
    }
    for text in [&b"=1\0"[..], b"=\0", b"A=1\0=1", b"\xc3\xa4=1\0"] {
        assert!(matches!(decode_pairs(text), Err(TextError::KeyName(_))), "{text:?}");
    }
    for text in [&b"A=\xff\0"[..], b"A=1\xff", b"\xff=1\0", b"TargetAlias\xff=1\0", b"\xff"] {
        assert_eq!(decode_pairs(text), Err(TextError::NotUtf8), "{text:?}");
    }
}

/// TXT-28: an alias that is not UTF-8 is read up to the first invalid byte, because aliases are only for
/// display.
#[test]
fn txt_28_aliases_in_another_encoding() {
    for key in ["TargetAlias", "InitiatorAlias"] {
        let text = [key.as_bytes(), b"=Bob's gr\xf6\xdfte\0A=1\0"].concat();
        assert_eq!(decode_pairs(&text).unwrap(), [(key, "Bob's gr"), ("A", "1")]);
    }
    assert_eq!(decode_pairs(b"TargetAlias=\xff").unwrap(), [("TargetAlias", "")]);
}

/// TXT-28: an alias may be any UTF-8 text.
#[test]
fn txt_28_aliases_are_free_text() {
    let text = "TargetAlias=Bob's disk — größer\0";
    assert_eq!(decode_pairs(text.as_bytes()).unwrap(), [("TargetAlias", "Bob's disk — größer")]);
}

#[test]
fn a_value_cannot_smuggle_in_another_pair() {
    let mut text = TextBuilder::new();
    text.pair("CHAP_N", "bob\0SessionType=Discovery");
    let text = text.finish();
    assert_eq!(decode_pairs(&text).unwrap(), [("CHAP_N", "bobSessionType=Discovery")]);
}

/// CHP-15: `Debug` output of the builder does not contain values.
#[test]
fn chp_15_builder_does_not_show_values() {
    let mut text = TextBuilder::new();
    text.pair("CHAP_R", "0x5ec7e7");
    assert!(!format!("{text:?}").contains("5ec7e7"));
}

// Tests of values.

/// TXT-05: a number is decimal without leading zeros, or hexadecimal after 0x or 0X, and below 2^64.
#[test]
fn txt_05_numbers() {
    for (text, number) in [
        ("0", 0),
        ("7", 7),
        ("262144", 262_144),
        ("0x10", 16),
        ("0XfF", 255),
        ("0x0000000000000000000f", 15),
        ("18446744073709551615", u64::MAX),
        ("0xffffffffffffffff", u64::MAX),
    ] {
        assert_eq!(parse_number(text), Ok(number), "{text}");
    }
    let bad = ["", "010", "00", "+5", "-5", "5 ", " 5", "5a", "0x", "0x+5", "0xg", "x5", "1_0"];
    let too_large = ["18446744073709551616", "0x10000000000000000"];
    for text in bad.into_iter().chain(too_large) {
        assert_eq!(parse_number(text), Err(TextError::Number(text.into())));
    }
}

/// TXT-06: n hexadecimal digits are (n + 1) / 2 bytes; base64 must have its padding.
#[test]
fn txt_06_binary_items() {
    let decoded = |text| decode_binary(text).unwrap();
    assert_eq!(decoded("0x1"), [0x01]);
    assert_eq!(decoded("0X123"), [0x01, 0x23]);
    assert_eq!(decoded("0xDeadBeef"), [0xde, 0xad, 0xbe, 0xef]);
    assert_eq!(decoded("0bZg=="), b"f");
    assert_eq!(decoded("0BZm8="), b"fo");
    assert_eq!(decoded("0bZm9v"), b"foo");
    assert_eq!(decoded("0b+/+/"), [0xfb, 0xff, 0xbf]);
    for bad in [
        "",
        "0",
        "12",
        "0x",
        "0b",
        "0xg",
        "0x1g",
        "0x 1",
        "0b=",
        "0b====",
        "0bZ",
        "0bZg",
        "0bZg=",
        "0bZg==Zg==",
        "0bZ===",
        "0bZh==",
        "0bZm9=",
        "0bZm9v=",
        "0bZm 9v",
        "0bZm-_",
        "0xä",
        "abcd",
    ] {
        assert_eq!(decode_binary(bad), Err(TextError::Binary), "{bad:?}");
    }
}

/// The test vectors of RFC 4648 §10 decode and encode.
#[test]
fn base64_vectors() {
    for (bytes, text) in [
        ("", "0b"),
        ("f", "0bZg=="),
        ("fo", "0bZm8="),
        ("foo", "0bZm9v"),
        ("foob", "0bZm9vYg=="),
        ("fooba", "0bZm9vYmE="),
        ("foobar", "0bZm9vYmFy"),
    ] {
        assert_eq!(encode_base64(bytes.as_bytes()), text);
    }
    assert_eq!(encode_hex(&[0x00, 0x9a, 0xff]), "0x009aff");
}

/// TXT-07: a boolean is exactly Yes or No.
#[test]
fn txt_07_booleans() {
    assert_eq!(parse_boolean(format_boolean(true)), Ok(true));
    assert_eq!(parse_boolean(format_boolean(false)), Ok(false));
    for bad in ["", "yes", "NO", "Yes ", "1", "true", "Yes,No"] {
        assert_eq!(parse_boolean(bad), Err(TextError::Boolean(bad.into())));
    }
}

#[test]
fn lists_keep_their_order() {
    assert_eq!(list_values("CRC32C,None").collect::<Vec<_>>(), ["CRC32C", "None"]);
    assert_eq!(list_values("").count(), 0);
}

#[test]
fn errors_quote_no_more_than_the_beginning() {
    let text = "9".repeat(10_000);
    assert_eq!(parse_number(&text), Err(TextError::Number("9".repeat(64))));
}

// Tests of the table.

#[test]
fn table_is_consistent() {
    let mut names = HashSet::new();
    for &key in Key::ALL {
        let definition = key.definition();
        assert_eq!(definition.key, key);
        assert_eq!(Key::from_name(definition.name), Some(key));
        assert_eq!(key.to_string(), definition.name);
        assert!(names.insert(definition.name), "{key} twice");
        assert!(decode_pairs(format!("{key}=\0").as_bytes()).is_ok(), "{key}");
        if let Some((min, max)) = definition.kind.range() {
            let default = definition.kind.default_number().unwrap();
            assert!((min..=max).contains(&default), "{key}");
        }
    }
    assert_eq!(Key::from_name("headerdigest"), None);
    assert_eq!(Key::from_name("X-com.example.key"), None);
}

/// KEY-03, KEY-10, KEY-13 to KEY-18, KEY-21, KEY-24: range, default and result function of the numerical keys
/// are those of RFC 7143 §13.
#[test]
fn key_numbers() {
    let minimum = |default, min, max| Kind::Minimum { default, min, max };
    let declared = |default, min, max| Kind::DeclaredNumber { default, min, max };
    for (key, kind) in [
        (Key::MaxConnections, minimum(1, 1, 65_535)),
        (Key::TargetPortalGroupTag, declared(0, 0, 65_535)),
        (Key::MaxRecvDataSegmentLength, declared(8192, 512, 16_777_215)),
        (Key::MaxBurstLength, minimum(262_144, 512, 16_777_215)),
        (Key::FirstBurstLength, minimum(65_536, 512, 16_777_215)),
        (Key::DefaultTime2Wait, Kind::Maximum { default: 2, min: 0, max: 3600 }),
        (Key::DefaultTime2Retain, minimum(20, 0, 3600)),
        (Key::MaxOutstandingR2T, minimum(1, 1, 65_535)),
        (Key::ErrorRecoveryLevel, minimum(0, 0, 2)),
        (Key::ISCSIProtocolLevel, minimum(1, 0, 31)),
    ] {
        assert_eq!(key.definition().kind, kind, "{key}");
    }
}

/// KEY-11, KEY-12, KEY-19, KEY-20: the default of all booleans is Yes.
#[test]
fn key_booleans() {
    for key in [Key::InitialR2T, Key::DataPDUInOrder, Key::DataSequenceInOrder] {
        assert_eq!(key.definition().kind, Kind::Or { default: true }, "{key}");
    }
    assert_eq!(Key::ImmediateData.definition().kind, Kind::And { default: true });
}

/// KEY-25, KEY-31: checks which keys are allowed in the security stage.
#[test]
fn key_31_security_stage() {
    let allowed: Vec<Key> =
        Key::ALL.iter().copied().filter(|key| key.definition().security_stage).collect();
    let expected = [
        Key::TargetName,
        Key::InitiatorName,
        Key::TargetAlias,
        Key::InitiatorAlias,
        Key::TargetAddress,
        Key::TargetPortalGroupTag,
        Key::SessionType,
        Key::AuthMethod,
        Key::ChapA,
        Key::ChapI,
        Key::ChapC,
        Key::ChapN,
        Key::ChapR,
    ];
    assert_eq!(allowed, expected);
}

/// KEY-29: every key that is allowed only on the first connection of a session has the scope of the session.
#[test]
fn key_29_leading_login_keys_are_of_the_session() {
    for key in Key::ALL {
        let definition = key.definition();
        if definition.phase == Use::LeadingLogin {
            assert_eq!(definition.scope, Scope::Session, "{key}");
        }
    }
    for key in [Key::HeaderDigest, Key::DataDigest, Key::AuthMethod] {
        assert_eq!(key.definition().phase, Use::Login, "{key}");
    }
}

/// KEY-30: checks which keys have no meaning in a discovery session. DefaultTime2Wait, DefaultTime2Retain and
/// ErrorRecoveryLevel have a meaning there.
#[test]
fn key_30_irrelevant_in_discovery() {
    let irrelevant: Vec<Key> =
        Key::ALL.iter().copied().filter(|key| key.definition().irrelevant_in_discovery).collect();
    let expected = [
        Key::MaxConnections,
        Key::InitialR2T,
        Key::ImmediateData,
        Key::MaxBurstLength,
        Key::FirstBurstLength,
        Key::MaxOutstandingR2T,
        Key::DataPDUInOrder,
        Key::DataSequenceInOrder,
        Key::TaskReporting,
        Key::ISCSIProtocolLevel,
    ];
    assert_eq!(irrelevant, expected);
}

#[test]
fn target_does_not_originate_the_initiators_keys() {
    for key in [Key::InitiatorName, Key::InitiatorAlias, Key::SessionType, Key::SendTargets] {
        assert_eq!(key.definition().sender, Sender::Initiator);
        assert!(!key.definition().sender.is_target_allowed());
    }
    assert!(Key::TargetAddress.definition().sender.is_target_allowed());
    assert!(Key::MaxBurstLength.definition().sender.is_target_allowed());
}

/// TXT-25: marker keys are refused, and not answered with "NotUnderstood".
#[test]
fn txt_25_markers_are_refused() {
    for (key, reply) in [
        (Key::IFMarker, "No"),
        (Key::OFMarker, "No"),
        (Key::IFMarkInt, "Reject"),
        (Key::OFMarkInt, "Reject"),
    ] {
        assert_eq!(key.definition().kind, Kind::Obsolete { reply }, "{key}");
    }
}

/// TXT-16: both ends of a range are valid, and the numbers beyond them are not.
#[test]
fn txt_16_ranges() {
    let kind = Key::MaxBurstLength.definition().kind;
    assert_eq!(kind.check_number("512"), Ok(512));
    assert_eq!(kind.check_number("16777215"), Ok(16_777_215));
    assert_eq!(kind.check_number("0x200"), Ok(512));
    let (min, max) = (512, 16_777_215);
    for (text, value) in [("511", 511), ("16777216", 16_777_216), ("4294967808", 4_294_967_808)] {
        assert_eq!(kind.check_number(text), Err(TextError::OutOfRange { value, min, max }));
    }
    assert_eq!(kind.check_number("0512"), Err(TextError::Number("0512".into())));
    let list = Key::HeaderDigest.definition().kind;
    assert_eq!(list.check_number("512"), Err(TextError::NotNumeric));
}

#[test]
fn result_functions() {
    let minimum = Key::MaxBurstLength.definition().kind;
    assert_eq!((minimum.number_result(8, 9), minimum.number_result(9, 8)), (8, 8));
    let maximum = Key::DefaultTime2Wait.definition().kind;
    assert_eq!((maximum.number_result(8, 9), maximum.number_result(9, 8)), (9, 9));
    let declared = Key::MaxRecvDataSegmentLength.definition().kind;
    assert_eq!(declared.number_result(8, 9), 9);

    let and = Key::ImmediateData.definition().kind;
    let or = Key::InitialR2T.definition().kind;
    for (offered, answered) in [(false, false), (false, true), (true, false), (true, true)] {
        assert_eq!(and.boolean_result(offered, answered), offered && answered);
        assert_eq!(or.boolean_result(offered, answered), offered || answered);
    }
    assert_eq!(and.default_boolean(), Some(true));
    assert_eq!(minimum.default_boolean(), None);
    assert_eq!(and.default_number(), None);
}

// Property tests.

fn key_name() -> impl Strategy<Value = String> {
    "[A-Z][A-Za-z0-9.+@_#-]{0,62}"
}

proptest! {
    #[test]
    fn pairs_round_trip(pairs in prop::collection::vec((key_name(), "[^\0]{0,300}"), 0..20)) {
        let mut text = TextBuilder::new();
        for (key, value) in &pairs {
            text.pair(key, value);
        }
        let text = text.finish();
        let decoded = decode_pairs(&text).unwrap();
        let expected: Vec<_> = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        prop_assert_eq!(decoded, expected);
    }

    /// TXT-27: every accepted text consists of well-formed pairs only.
    #[test]
    fn any_bytes_decode_to_pairs_or_to_an_error(text in prop::collection::vec(
        prop_oneof![any::<u8>(), Just(0), Just(b'='), Just(b'A')], 0..64)
    ) {
        if let Ok(pairs) = decode_pairs(&text) {
            let mut again = TextBuilder::new();
            pairs.iter().for_each(|(key, value)| { again.pair(key, value); });
            let again = again.finish();
            let pairs = text.split(|&byte| byte == 0).filter(|pair| !pair.is_empty());
            let whole: Vec<u8> = pairs.flat_map(|pair| [pair, &[0]].concat()).collect();
            prop_assert_eq!(&again[..], &whole[..]);
        }
    }

    #[test]
    fn numbers_round_trip(number: u64) {
        prop_assert_eq!(parse_number(&number.to_string()), Ok(number));
        prop_assert_eq!(parse_number(&format!("{number:#x}")), Ok(number));
        prop_assert_eq!(parse_number(&format!("0X{number:X}")), Ok(number));
    }

    #[test]
    fn binary_items_round_trip(bytes in prop::collection::vec(any::<u8>(), 1..1025)) {
        prop_assert_eq!(&decode_binary(&encode_hex(&bytes)).unwrap(), &bytes);
        prop_assert_eq!(&decode_binary(&encode_base64(&bytes)).unwrap(), &bytes);
    }

    /// A value has only one base64 text, so a text that decodes equals the text that the encoder writes.
    #[test]
    fn base64_is_canonical(digits in "[A-Za-z0-9+/=]{1,12}") {
        let text = format!("0b{digits}");
        if let Ok(bytes) = decode_binary(&text) {
            prop_assert_eq!(encode_base64(&bytes), text);
        }
    }

    #[test]
    fn values_never_panic(text in any::<String>()) {
        let accepted = parse_number(&text).is_ok();
        let digit = |c: char| c.is_ascii_hexdigit() || matches!(c, 'x' | 'X');
        prop_assert!(!accepted || text.chars().all(digit));
        let _ = decode_binary(&text);
        for key in Key::ALL {
            let _ = key.definition().kind.check_number(&text);
        }
    }
}
