//! Tests of all negotiated keys: each key with every kind of answer, against a table written for the tests.

use super::*;
use crate::config::{DigestOffer, Offer};
use crate::login::NegotiationFault;
use iscsi_pdu::Digest;

/// A numerical key, its values in the standard, and the offer with which it is tested.
struct Number {
    rule: &'static str,
    key: &'static str,
    function: Function,
    default: u32,
    range: (u32, u32),
    offer: u32,
    result: fn(&Negotiated) -> u32,
}

#[derive(PartialEq)]
enum Function {
    Minimum,
    Maximum,
}

const NUMBERS: [Number; 8] = [
    Number {
        rule: "KEY-03",
        key: "MaxConnections",
        function: Function::Minimum,
        default: 1,
        range: (1, 65_535),
        offer: 4,
        result: |n| n.max_connections.into(),
    },
    Number {
        rule: "KEY-14",
        key: "MaxBurstLength",
        function: Function::Minimum,
        default: 262_144,
        range: (512, 0xff_ffff),
        offer: 1 << 20,
        result: |n| n.max_burst_length,
    },
    Number {
        rule: "KEY-15",
        key: "FirstBurstLength",
        function: Function::Minimum,
        default: 65_536,
        range: (512, 0xff_ffff),
        offer: 1 << 17,
        result: |n| n.first_burst_length,
    },
    Number {
        rule: "KEY-16",
        key: "DefaultTime2Wait",
        function: Function::Maximum,
        default: 2,
        range: (0, 3600),
        offer: 5,
        result: |n| n.default_time2wait.into(),
    },
    Number {
        rule: "KEY-17",
        key: "DefaultTime2Retain",
        function: Function::Minimum,
        default: 20,
        range: (0, 3600),
        offer: 100,
        result: |n| n.default_time2retain.into(),
    },
    Number {
        rule: "KEY-18",
        key: "MaxOutstandingR2T",
        function: Function::Minimum,
        default: 1,
        range: (1, 65_535),
        offer: 16,
        result: |n| n.max_outstanding_r2t.into(),
    },
    Number {
        rule: "KEY-21",
        key: "ErrorRecoveryLevel",
        function: Function::Minimum,
        default: 0,
        range: (0, 2),
        offer: 0,
        result: |n| n.error_recovery_level.into(),
    },
    Number {
        rule: "KEY-24",
        key: "iSCSIProtocolLevel",
        function: Function::Minimum,
        default: 1,
        range: (0, 31),
        offer: 2,
        result: |n| n.protocol_level.into(),
    },
];

/// Returns a configuration with the offers in [`NUMBERS`].
fn offering_numbers() -> Config {
    let offer = Offer {
        max_connections: 4,
        max_burst_length: 1 << 20,
        first_burst_length: 1 << 17,
        default_time2wait: 5,
        default_time2retain: 100,
        max_outstanding_r2t: 16,
        protocol_level: Some(2),
        ..Offer::default()
    };
    Config { offer, ..normal() }
}

/// Returns the smallest FirstBurstLength as text if the key under test is MaxBurstLength, so that any value
/// of that key is valid; otherwise an empty text.
fn other_bursts(key: &str) -> &'static str {
    if key == "MaxBurstLength" { "FirstBurstLength=512" } else { "" }
}

impl Number {
    fn answer(&self, value: &str) -> Result<u32, LoginError> {
        let mut rig = Rig::new(offering_numbers());
        assert_eq!(rig.value(self.key), self.offer.to_string());
        let text = format!("{} {}={value}", other_bursts(self.key), self.key);
        match rig.reply(&text)? {
            Progress::FullFeature(outcome) => Ok((self.result)(&outcome.negotiated)),
            Progress::Pending | Progress::Redirected(_) => panic!("{} goes on", self.key),
        }
    }

    fn is_legal(&self, answer: u32) -> bool {
        let allowed = match self.function {
            Function::Minimum => answer <= self.offer,
            Function::Maximum => answer >= self.offer,
        };
        allowed && (self.range.0..=self.range.1).contains(&answer)
    }
}

/// KEY-03, KEY-14 to KEY-18, KEY-21, KEY-24, TXT-16, UNH login 7.4, 10.1, 15.1, 17.1, 18.1, 19.1, 20.1:
/// numbers at, inside and outside the limits of the range and of the offer.
#[test]
fn numbers_obey_range_and_result_function() {
    for row in NUMBERS {
        let (min, max) = row.range;
        let around_offer = [row.offer.saturating_sub(1), row.offer, row.offer + 1];
        let around_range = [min, min.saturating_sub(1), max, max + 1];
        for answer in around_offer.into_iter().chain(around_range) {
            let agreed = row.answer(&answer.to_string());
            if row.is_legal(answer) {
                assert_eq!(agreed, Ok(answer), "{} {}", row.rule, row.key);
                assert_eq!(row.answer(&format!("{answer:#x}")), Ok(answer), "{}", row.rule);
            } else {
                assert!(agreed.is_err(), "{} {}={answer}", row.rule, row.key);
            }
        }
    }
}

/// TXT-05, TXT-11, TXT-13, TXT-14, TXT-26: if a numerical key gets no answer, Reject or Irrelevant, its
/// default applies. A malformed number fails the login, and so does NotUnderstood, except for
/// iSCSIProtocolLevel.
#[test]
fn numbers_with_reserved_and_malformed_answers() {
    for row in NUMBERS {
        let absent = Rig::new(offering_numbers()).conclude("").negotiated;
        assert_eq!((row.result)(&absent), row.default, "{} absent", row.rule);
        for word in ["Reject", "Irrelevant"] {
            assert_eq!(row.answer(word), Ok(row.default), "{} {word}", row.rule);
        }
        let ignorant = row.answer("NotUnderstood");
        if row.key == "iSCSIProtocolLevel" {
            assert_eq!(ignorant, Ok(1), "PL2-01");
        } else {
            assert!(ignorant.is_err(), "{}", row.rule);
        }
        for malformed in ["", "00", "+1", "-1", "1.0", "0x", "Yes", "1,2", "18446744073709551616"] {
            assert!(row.answer(malformed).is_err(), "{} {}={malformed}", row.rule, row.key);
        }
    }
}

/// KEY-13, UNH login 14.1: the two declared lengths are independent, one per direction.
#[test]
fn key_13_max_recv_data_segment_length() {
    for (answer, declared) in [("512", 512), ("16777215", 0xff_ffff), ("0x2000", 8192)] {
        let agreed = negotiated(&format!("MaxRecvDataSegmentLength={answer}"));
        assert_eq!(agreed.target_max_recv_data_segment_length, declared);
        assert_eq!(agreed.initiator_max_recv_data_segment_length, 262_144);
    }
    assert_eq!(negotiated("").target_max_recv_data_segment_length, 8192);
    for illegal in ["511", "16777216", "0", "Reject", "Irrelevant", "NotUnderstood", ""] {
        let text = format!("MaxRecvDataSegmentLength={illegal}");
        assert!(Rig::new(normal()).reply(&text).is_err(), "{illegal}");
    }
}

/// A boolean key: its name, whether its result function is AND (else OR), its offer, and its result.
type Boolean = (&'static str, bool, fn(&mut Offer) -> &mut bool, fn(&Negotiated) -> bool);

const BOOLEANS: [Boolean; 4] = [
    ("InitialR2T", false, |o| &mut o.initial_r2t, |n| n.initial_r2t),
    ("ImmediateData", true, |o| &mut o.immediate_data, |n| n.immediate_data),
    ("DataPDUInOrder", false, |o| &mut o.data_pdu_in_order, |n| n.data_pdu_in_order),
    ("DataSequenceInOrder", false, |o| &mut o.data_sequence_in_order, |n| n.data_sequence_in_order),
];

/// KEY-11, KEY-12, KEY-19, KEY-20, TXT-07, TXT-11, TXT-13, TXT-17, UNH login 7.5, 13.1 to 13.3: each boolean
/// key with each offer and each answer. The default of all four is Yes.
#[test]
fn booleans_obey_their_function() {
    for ((key, is_and, offer, result), own) in
        BOOLEANS.into_iter().flat_map(|row| [(row, true), (row, false)])
    {
        let answer = |text: &str| {
            let mut config = normal();
            *offer(&mut config.offer) = own;
            let mut rig = Rig::new(config);
            assert_eq!(rig.value(key), if own { "Yes" } else { "No" });
            rig.reply(text).map(|progress| match progress {
                Progress::FullFeature(outcome) => result(&outcome.negotiated),
                Progress::Pending | Progress::Redirected(_) => panic!("{key} goes on"),
            })
        };
        for (word, theirs) in [("Yes", true), ("No", false)] {
            let outcome = if is_and { own && theirs } else { own || theirs };
            let agreed = answer(&format!("{key}={word}"));
            if outcome == theirs {
                assert_eq!(agreed, Ok(outcome), "{key}: {own} and {word}");
            } else {
                assert!(agreed.is_err(), "{key}: {own} and {word}");
            }
        }
        // Without an answer, the default is used as the target's value.
        let unanswered = if is_and { own } else { true };
        assert_eq!(answer(""), Ok(unanswered), "{key}");
        assert_eq!(answer(&format!("{key}=Reject")), Ok(unanswered), "{key}");
        assert_eq!(answer(&format!("{key}=Irrelevant")), Ok(unanswered), "{key}");
        for illegal in ["NotUnderstood", "yes", "TRUE", "Maybe", "", "1", "Yes,No"] {
            assert!(answer(&format!("{key}={illegal}")).is_err(), "{key}={illegal}");
        }
    }
}

/// KEY-01, KEY-02, TXT-15, UNH login 7.2, 9.1, 9.2, QRK-09: each offer with each answer, for both digests.
#[test]
fn digests_come_from_the_offer() {
    let offers = [
        (DigestOffer::Never, "None"),
        (DigestOffer::NoneFirst, "None,CRC32C"),
        (DigestOffer::Crc32cFirst, "CRC32C,None"),
        (DigestOffer::Required, "CRC32C"),
    ];
    for (offer, list) in offers {
        let config = || {
            let offer = Offer { header_digest: offer, data_digest: offer, ..Offer::default() };
            Config { offer, ..normal() }
        };
        let answer = |key: &str, value: &str| {
            let other = if key == "HeaderDigest" { "DataDigest" } else { "HeaderDigest" };
            let own = list.split(',').next().unwrap();
            let mut rig = Rig::new(config());
            assert_eq!(rig.value(key), list);
            let Progress::FullFeature(outcome) =
                rig.reply(&format!("{other}={own} {key}={value}"))?
            else {
                panic!("{key} goes on");
            };
            let agreed = outcome.negotiated;
            Ok::<_, LoginError>(match key {
                "HeaderDigest" => agreed.header_digest,
                _ => agreed.data_digest,
            })
        };
        for key in ["HeaderDigest", "DataDigest"] {
            for (value, digest) in [("None", Digest::None), ("CRC32C", Digest::Crc32c)] {
                if list.split(',').any(|own| own == value) {
                    assert_eq!(answer(key, value), Ok(digest), "{key}: {list}");
                } else {
                    assert!(answer(key, value).is_err(), "{key}={value}: {list}");
                }
            }
            for illegal in ["CRC32C,None", "None,CRC32C", "crc32c", "X-md5", "", "NotUnderstood"] {
                assert!(answer(key, illegal).is_err(), "{key}={illegal}: {list}");
            }
            for word in ["Reject", "Irrelevant"] {
                let agreed = answer(key, word);
                if offer == DigestOffer::Required {
                    assert!(agreed.is_err(), "TXT-13: {key}={word} is not acceptable");
                } else {
                    assert_eq!(agreed, Ok(Digest::None), "{key}={word}");
                }
            }
        }
        let silent = Rig::new(config()).reply("");
        assert_eq!(silent.is_err(), offer == DigestOffer::Required, "TXT-26: {list}");
    }
}

/// KEY-28, UNH login 16.1, 16.2: FirstBurstLength must not exceed MaxBurstLength. This is checked when all
/// keys are known, in whatever order they arrive; a default is checked if it is in force.
#[test]
fn key_28_first_burst_within_max_burst() {
    let agreed = negotiated("FirstBurstLength=4096 MaxBurstLength=8192");
    assert_eq!((agreed.first_burst_length, agreed.max_burst_length), (4096, 8192));
    let exceeding = [
        "FirstBurstLength=8193 MaxBurstLength=8192",
        "MaxBurstLength=8192 FirstBurstLength=8193",
        "MaxBurstLength=8192",
        "MaxBurstLength=8192 FirstBurstLength=Irrelevant",
        "FirstBurstLength=262145",
        "MaxBurstLength=8192 InitialR2T=No ImmediateData=No",
        "MaxBurstLength=512 FirstBurstLength=1024 InitialR2T=Yes ImmediateData=No",
    ];
    for text in exceeding {
        let error = Rig::new(normal()).reply(text).unwrap_err();
        let LoginError::Negotiation { why, .. } = error else { panic!("{text}: {error:?}") };
        assert!(matches!(why, NegotiationFault::ExceedsMaxBurstLength { .. }), "{text}");
    }
    // The result is the same if the keys arrive in two responses.
    let mut rig = Rig::new(normal());
    rig.stay("MaxBurstLength=8192").unwrap();
    rig.conclude("FirstBurstLength=8192");
}

/// KEY-15, TXT-14: if no write starts without an R2T, FirstBurstLength has no meaning.
#[test]
fn key_15_irrelevant_first_burst() {
    let text = "MaxBurstLength=8192 InitialR2T=Yes ImmediateData=No FirstBurstLength=Irrelevant";
    let agreed = negotiated(text);
    assert_eq!((agreed.first_burst_length, agreed.max_burst_length), (8192, 8192));
}

/// TXT-18, KEY-23, KEY-24: keys that the target proposes are answered once, each by its function.
#[test]
fn txt_18_target_proposals() {
    let mut rig = Rig::new(normal());
    rig.stay("TaskReporting=ResponseFence,RFC3720 iSCSIProtocolLevel=2").unwrap();
    assert_eq!(rig.line(), "TaskReporting=RFC3720 iSCSIProtocolLevel=1");
    rig.stay("").unwrap();
    assert_eq!(rig.line(), "");
    assert_eq!(rig.conclude("").negotiated.protocol_level, 1);

    let mut rig = Rig::new(normal());
    rig.stay("TaskReporting=FastAbort").unwrap();
    assert_eq!(rig.line(), "TaskReporting=Reject");
    for illegal in ["iSCSIProtocolLevel=32", "iSCSIProtocolLevel=x"] {
        assert!(Rig::new(normal()).stay(illegal).is_err(), "{illegal}");
    }
}

/// KEY-30, KEY-16, KEY-17, KEY-21, QRK-21: in a discovery session the answer to most keys is Irrelevant,
/// whatever their value; the others are answered by their function.
#[test]
fn key_30_target_proposals_in_discovery() {
    let irrelevant = [
        "MaxConnections=8",
        "InitialR2T=No",
        "ImmediateData=Yes",
        "MaxBurstLength=1",
        "FirstBurstLength=65536",
        "MaxOutstandingR2T=2",
        "DataPDUInOrder=No",
        "DataSequenceInOrder=No",
        "TaskReporting=FastAbort",
        "iSCSIProtocolLevel=2",
    ];
    let mut rig = Rig::new(discovery());
    let relevant = "DefaultTime2Wait=10 DefaultTime2Retain=10 ErrorRecoveryLevel=2";
    rig.stay(&format!("{} {relevant}", irrelevant.join(" "))).unwrap();
    let answers: String =
        irrelevant.map(|pair| format!("{}=Irrelevant ", pair.split_once('=').unwrap().0)).concat();
    let expected = "DefaultTime2Wait=10 DefaultTime2Retain=10 ErrorRecoveryLevel=0";
    assert_eq!(rig.line(), format!("{answers}{expected}"));
    let agreed = rig.conclude("").negotiated;
    assert_eq!((agreed.default_time2wait, agreed.default_time2retain), (10, 10));
    assert_eq!(agreed.error_recovery_level, 0);
    assert_eq!(agreed.max_connections, 1);
}

/// KEY-30: keys that the target proposes in its last response, where no answer is possible, have no effect.
#[test]
fn key_30_proposals_without_room_for_an_answer() {
    let text = "DefaultTime2Wait=10 MaxBurstLength=512 InitialR2T=No ErrorRecoveryLevel=0";
    let agreed = Rig::new(discovery()).conclude(text).negotiated;
    let expected =
        Negotiated { initiator_max_recv_data_segment_length: 262_144, ..Negotiated::default() };
    assert_eq!(agreed, expected);
}
