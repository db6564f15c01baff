//! Tests of discovery with invalid lists of targets (RFC 7143 §11.11, appendix C).

use bytes::Bytes;
use iscsi_initiator::Fault;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::{CONTINUE, FINAL, NO_TAG};
use iscsi_testkit::pdus;

use crate::row::{Job, Row};

const RESPONSE: Opcode = Opcode::TextResponse;

/// Returns a test case whose list of targets is this text.
fn text(name: &'static str, text: &'static [u8]) -> Row {
    discover(name).on_send(RESPONSE, 0, move |pdu, _| pdu.data = Bytes::from_static(text))
}

fn discover(name: &'static str) -> Row {
    Row::new(Job::Discover, name)
}

pub(crate) fn rows() -> Vec<Row> {
    [answers(), other_pdus()].into_iter().flatten().collect()
}

/// Returns test cases with lists that are wrong, or in the wrong PDU.
fn answers() -> Vec<Row> {
    vec![
        text("an address before any target", b"TargetAddress=10.0.0.5:3260,1\0"),
        text("a name that is none", b"TargetName=my disk!\0"),
        text("a text without an end", b"TargetName=iqn.2026-01.org.example:disk"),
        text("a text that is none", b"\xde\xad\xbe\xef\0")
            .ends(Fault::Target, &["list of targets"]),
        discover("a key that does not belong there").on_send(RESPONSE, 0, |pdu, _| {
            pdu.data = [b"MaxRecvDataSegmentLength=512\0", &pdu.data[..]].concat().into();
        }),
        discover("more to come without a tag")
            .on_send(RESPONSE, 0, |pdu, _| pdu.header[1] &= !FINAL)
            .ends(Fault::Target, &["without a Target Transfer Tag"]),
        discover("the end and more to come")
            .on_send(RESPONSE, 0, |pdu, _| pdu.header[1] |= CONTINUE)
            .ends(Fault::Target, &["F and C"]),
        discover("another Initiator Task Tag")
            .on_send(RESPONSE, 0, |pdu, _| pdu.set_u32(16, 0x7777))
            .ends(Fault::Target, &["Text Response"]),
        discover("a StatSN that leaves some out")
            .on_send(RESPONSE, 0, |pdu, _| pdu.set_u32(24, pdu.stat_sn() + 5))
            .ends(Fault::Target, &["StatSN"]),
        discover("a list that never ends")
            .always_on_receive(Opcode::TextRequest, |pdu, line| {
                let part = pdus::text_response().itt(pdu.itt()).ttt(1).last(false);
                line.answer(pdu, part.data(vec![b'x'; 65536]));
            })
            .bounded(20 << 20)
            .ends(Fault::Target, &["longer than any list"]),
        discover("a list that never begins")
            .always_on_receive(Opcode::TextRequest, |pdu, line| {
                line.answer(pdu, pdus::text_response().itt(pdu.itt()).ttt(1).last(false));
            })
            .limits(|timeouts, soon| timeouts.with_command(Some(soon)))
            .ends(Fault::Network, &["did not answer in time"]),
        discover("a list twice").on_send(RESPONSE, 0, |pdu, line| {
            let again = pdu.clone();
            line.then_as_is(&again);
        }),
        discover("a tag with the end").on_send(RESPONSE, 0, |pdu, _| pdu.set_u32(20, NO_TAG - 1)),
    ]
}

/// Returns test cases with other PDUs in place of the list or of the logout response.
fn other_pdus() -> Vec<Row> {
    vec![
        discover("a SCSI response in place of the list")
            .on_send(RESPONSE, 0, |pdu, _| {
                pdu.header[0] = Opcode::ScsiResponse as u8;
                pdu.data = Bytes::new();
            })
            .ends(Fault::Target, &["SCSI Response"]),
        discover("a refusal")
            .on_receive(Opcode::TextRequest, 0, |pdu, line| {
                line.answer(pdu, pdus::reject(pdu).response(0x05));
            })
            .ends(Fault::Target, &["rejected"]),
        discover("the wish for a logout in place of the list")
            .on_receive(Opcode::TextRequest, 0, |pdu, line| {
                line.answer(pdu, pdus::async_message().event(1).parameters([0, 0, 1]));
            })
            .ends(Fault::Target, &["log out"]),
        discover("the drop of the session in place of the list")
            .on_receive(Opcode::TextRequest, 0, |pdu, line| {
                line.answer(pdu, pdus::async_message().event(3).parameters([0, 2, 20]));
            })
            .ends(Fault::Target, &["dropped the session"]),
        discover("no answer to the logout")
            .on_receive(Opcode::LogoutRequest, 0, |_, line| line.drop_pdu())
            .limits(|timeouts, soon| timeouts.with_logout(soon)),
        discover("a close in place of the logout's answer").on_receive(
            Opcode::LogoutRequest,
            0,
            |_, line| line.close(),
        ),
    ]
}
