//! Tests of targets that cannot prove their identity, or refuse to (RFC 7143 §12.1.3, §9.2.1).

use bytes::Bytes;
use iscsi_initiator::Fault;
use iscsi_testkit::config::{Answer, Chap, Reflection};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::FINAL;

use crate::row::{Job, Row};

const USER: &str = "me:hunter-of-initiators@";
const MUTUAL: &str = "?target_password=hunter-of-targets";

fn chap() -> Chap {
    Chap::new("me", "hunter-of-initiators").mutual("you", "hunter-of-targets")
}

/// Returns a test case whose target sends another value for a key of the CHAP exchange.
fn answer(name: &'static str, key: &'static str, answer: impl Into<Answer>) -> Row {
    let answer = answer.into();
    mutual(name).target(move |config| {
        config.chap = Some(chap());
        config.keys.answer(key, answer.clone());
    })
}

fn mutual(name: &'static str) -> Row {
    let row = Row::new(Job::Open, name).user(USER).query(MUTUAL).by_configuration();
    row.target(|config| config.chap = Some(chap()))
}

pub(crate) fn rows() -> Vec<Row> {
    let long: &'static str = format!("0x{}", "ab".repeat(1025)).leak();
    vec![
        answer("an algorithm that was not offered", "CHAP_A", "9")
            .ends(Fault::Target, &["algorithm", "not proposed"]),
        answer("an algorithm by its name", "CHAP_A", "MD5").ends(Fault::Target, &["CHAP_A"]),
        answer("no algorithm", "CHAP_A", Answer::Omit).ends(Fault::Target, &["CHAP_A"]),
        answer("an identifier of 256", "CHAP_I", "256").ends(Fault::Target, &["CHAP_I"]),
        answer("no identifier", "CHAP_I", Answer::Omit).ends(Fault::Target, &["CHAP_I"]),
        answer("an empty challenge", "CHAP_C", "0x").ends(Fault::Target, &["CHAP_C"]),
        answer("a challenge of 1025 bytes", "CHAP_C", long).ends(Fault::Target, &["CHAP_C"]),
        answer("a challenge that is no number", "CHAP_C", "zebra").ends(Fault::Target, &["CHAP_C"]),
        answer("no challenge", "CHAP_C", Answer::Omit).ends(Fault::Target, &["CHAP_C"]),
        answer("no authentication at all", "AuthMethod", "None")
            .ends(Fault::Caller, &["CHAP is configured"]),
        answer("a method that was not offered", "AuthMethod", "KRB5").ends(Fault::Caller, &[]),
        answer("no method", "AuthMethod", Answer::Omit).ends(Fault::Target, &["AuthMethod"]),
        answer("a response that is wrong", "CHAP_R", "0x00112233445566778899aabbccddeeff")
            .ends(Fault::Target, &["CHAP_R"]),
        answer("no response", "CHAP_R", Answer::Omit).ends(Fault::Target, &["CHAP_R"]),
        answer("no name", "CHAP_N", Answer::Omit).ends(Fault::Target, &["CHAP_N"]),
        mutual("the initiator's own response")
            .target(|config| {
                config.chap = Some(chap().with_reflection(Reflection::Response));
            })
            .ends(Fault::Caller, &["could not prove"]),
        mutual("another secret than agreed on")
            .target(|config| {
                let chap = Chap::new("me", "hunter-of-initiators");
                config.chap = Some(chap.mutual("you", "a secret of nobody"));
            })
            .ends(Fault::Caller, &["could not prove"]),
        mutual("the end of the stage before the proof")
            .on_send(Opcode::LoginResponse, 1, |pdu, _| pdu.header[1] |= FINAL | 1)
            .ends(Fault::Target, &["transition"]),
        mutual("no proof, and the end of the stage")
            .on_send(Opcode::LoginResponse, 2, |pdu, _| pdu.data = Bytes::new())
            .ends(Fault::Target, &["before the authentication was complete"]),
        mutual("a challenge again behind the proof")
            .on_send(Opcode::LoginResponse, 2, |pdu, _| {
                pdu.data = [&pdu.data[..], b"CHAP_C=0x1234\0"].concat().into();
            })
            .ends(Fault::Target, &["CHAP_C"]),
    ]
}
