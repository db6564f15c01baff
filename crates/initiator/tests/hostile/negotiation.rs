//! Tests of responses to operational keys that break the rules of the negotiation (RFC 7143 §6.2, §13).

use bytes::Bytes;
use iscsi_initiator::Fault;
use iscsi_testkit::config::{Answer, Stage};
use iscsi_testkit::opcode::Opcode;

use crate::row::{Job, Row};

pub(crate) fn rows() -> Vec<Row> {
    [answers(), additions(), texts()].concat()
}

/// Returns a test case in which the target answers the key `key` with `value`.
fn answer(name: &'static str, key: &'static str, value: &'static str) -> Row {
    Row::new(Job::Open, name)
        .target(move |config| {
            config.keys.answer(key, value.into());
        })
        .by_configuration()
}

/// Returns a test case with a key that the target sends without being asked.
fn addition(name: &'static str, key: &'static str, value: &'static str) -> Row {
    Row::new(Job::Open, name)
        .target(move |config| {
            config.keys.originate(Stage::Operational, key, value);
        })
        .by_configuration()
}

/// Returns a test case in which this text replaces the first response.
fn text(name: &'static str, text: &'static [u8]) -> Row {
    Row::new(Job::Open, name)
        .on_send(Opcode::LoginResponse, 0, move |pdu, _| pdu.data = Bytes::from_static(text))
}

fn answers() -> Vec<Row> {
    vec![
        answer("MaxBurstLength above the offer", "MaxBurstLength", "16777215")
            .ends(Fault::Target, &["MaxBurstLength", "16777215"]),
        answer("MaxBurstLength of 0", "MaxBurstLength", "0")
            .ends(Fault::Target, &["MaxBurstLength"]),
        answer("MaxBurstLength that is no number", "MaxBurstLength", "lots")
            .ends(Fault::Target, &["MaxBurstLength", "lots"]),
        answer("MaxBurstLength beyond 64 bits", "MaxBurstLength", "99999999999999999999999")
            .ends(Fault::Target, &["MaxBurstLength"]),
        answer("MaxBurstLength that is not understood", "MaxBurstLength", "NotUnderstood")
            .ends(Fault::Target, &["MaxBurstLength", "must understand"]),
        answer("FirstBurstLength above MaxBurstLength", "FirstBurstLength", "32768")
            .ends(Fault::Target, &["FirstBurstLength", "32768", "16384"]),
        answer("ImmediateData=Maybe", "ImmediateData", "Maybe")
            .ends(Fault::Target, &["ImmediateData", "Maybe"]),
        answer("InitialR2T=yes, in small letters", "InitialR2T", "yes")
            .ends(Fault::Target, &["InitialR2T", "yes"]),
        answer("DataPDUInOrder=No against the offer", "DataPDUInOrder", "No")
            .ends(Fault::Target, &["DataPDUInOrder"]),
        answer("MaxOutstandingR2T of 0", "MaxOutstandingR2T", "0")
            .ends(Fault::Target, &["MaxOutstandingR2T"]),
        answer("MaxOutstandingR2T of 65536", "MaxOutstandingR2T", "65536")
            .ends(Fault::Target, &["MaxOutstandingR2T", "65536"]),
        answer("ErrorRecoveryLevel=2", "ErrorRecoveryLevel", "2")
            .ends(Fault::Target, &["ErrorRecoveryLevel"]),
        answer("MaxConnections of 0", "MaxConnections", "0")
            .ends(Fault::Target, &["MaxConnections"]),
        answer("DefaultTime2Wait below the offer", "DefaultTime2Wait", "0")
            .ends(Fault::Target, &["DefaultTime2Wait"]),
        answer("a digest that was not offered", "HeaderDigest", "CRC64")
            .ends(Fault::Target, &["HeaderDigest", "CRC64"]),
        answer("a list where a choice is due", "HeaderDigest", "CRC32C,None")
            .ends(Fault::Target, &["HeaderDigest"]),
        answer("a segment length of 100", "MaxRecvDataSegmentLength", "100")
            .ends(Fault::Target, &["MaxRecvDataSegmentLength", "100"]),
        answer("a segment length of 2^24", "MaxRecvDataSegmentLength", "16777216")
            .ends(Fault::Target, &["MaxRecvDataSegmentLength", "16777216"]),
        answer("a portal group that is no number", "TargetPortalGroupTag", "70000")
            .ends(Fault::Target, &["TargetPortalGroupTag", "70000"]),
        Row::new(Job::Open, "no answer to a key")
            .target(|config| {
                config.keys.answer("MaxBurstLength", Answer::Omit);
                config.keys.answer("FirstBurstLength", Answer::Omit);
            })
            .by_configuration(),
    ]
}

fn additions() -> Vec<Row> {
    vec![
        Row::new(Job::Open, "an answer twice")
            .on_send(Opcode::LoginResponse, 0, |pdu, _| {
                pdu.data = [&pdu.data[..], b"InitialR2T=No\0"].concat().into();
            })
            .ends(Fault::Target, &["InitialR2T", "twice"]),
        addition(
            "a key that only an initiator sends",
            "InitiatorName",
            "iqn.2026-01.org.example:x",
        )
        .ends(Fault::Target, &["InitiatorName", "must not send"]),
        addition("an authentication in the wrong stage", "AuthMethod", "CHAP")
            .ends(Fault::Target, &["AuthMethod"]),
        addition("a request in the wrong phase", "SendTargets", "All")
            .ends(Fault::Target, &["SendTargets"]),
        addition("an answer to nothing", "TaskReporting", "Irrelevant")
            .ends(Fault::Target, &["TaskReporting"]),
        addition("a key that nobody knows", "X-org.example.mood", "bad"),
        addition(
            "a key whose name is too long",
            "X-a-name-that-goes-on-and-on-and-on-far-beyond-the-63-bytes-that-are-its-limit",
            "1",
        )
        .ends(Fault::Target, &["X-a-name"]),
    ]
}

fn texts() -> Vec<Row> {
    vec![
        text("a text without an end", b"TargetPortalGroupTag=1"),
        text("a pair without a value", b"TargetPortalGroupTag\0").ends(Fault::Target, &["text"]),
        text("a pair without a key", b"=1\0").ends(Fault::Target, &["text"]),
        text("a key that is no text", b"\xff\xfe\x01=1\0").ends(Fault::Target, &["text"]),
        text("a value that is no text", b"MaxBurstLength=\xff\xfe\0").ends(Fault::Target, &[]),
        text("a value with a line break", b"MaxBurstLength=1\n2\0")
            .ends(Fault::Target, &["MaxBurstLength"]),
        Row::new(Job::Open, "a value of 300 bytes")
            .target(|config| config.alias = Some("x".repeat(300)))
            .by_configuration()
            .ends(Fault::Target, &["TargetAlias", "300 bytes"]),
        Row::new(Job::Open, "a text of a thousand keys").on_send(
            Opcode::LoginResponse,
            0,
            |pdu, _| {
                let pairs = (0..1000).map(|number| format!("X-{number}=\0"));
                pdu.data = pairs.collect::<String>().into();
            },
        ),
    ]
}
