//! Tests of wrong responses to an abort, a reset, a text and a logout (RFC 7143 §11.6, §11.11, §11.15).

use iscsi_initiator::Fault;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::FINAL;
use iscsi_testkit::pdus;

use crate::row::{Job, LieFn, Row};

const RESPONSE: Opcode = Opcode::TaskManagementResponse;

pub(crate) fn rows() -> Vec<Row> {
    [aborts(), resets(), texts(), logouts()].concat()
}

/// Returns a test case in which the response to the first write is lost, and the response to its abort is
/// wrong.
fn abort(name: &'static str, act: impl LieFn) -> Row {
    Row::new(Job::Abort, name)
        .on_send(Opcode::ScsiResponse, 0, |pdu, line| {
            // Another PDU takes the StatSN of the response, as if the response had never been sent.
            pdu.header[0] = Opcode::AsyncMessage as u8;
            *pdu = line.numbered(pdus::async_message().event(99));
        })
        .on_send(RESPONSE, 0, act)
        .impatient()
}

fn aborts() -> Vec<Row> {
    vec![
        abort("an abort that is done", |_, _| {}),
        abort("no answer to the abort", |_, line| line.drop_pdu())
            .ends(Fault::Network, &["did not answer in time"]),
        abort("an abort that is refused", |pdu, _| pdu.set(2, &[255]))
            .ends(Fault::Target, &["refused to abort"]),
        abort("an abort that is not supported", |pdu, _| pdu.set(2, &[5]))
            .ends(Fault::Target, &["refused to abort"]),
        abort("an abort whose task does not exist", |pdu, _| pdu.set(2, &[1])),
        abort("an answer to another abort", |pdu, _| pdu.set_u32(16, 0x7777))
            .ends(Fault::Target, &["Task Management"]),
        abort("an abort that is refused as a PDU", |pdu, line| {
            *pdu = line.numbered(pdus::reject(pdu).response(5));
        })
        .fails_or_ends(&[]),
        abort("an R2T behind the abort", |pdu, line| {
            let itt = line.other_tag(pdu.itt());
            line.then(pdus::r2t().itt(itt).ttt(5).desired_length(512).r2t_sn(9));
        }),
    ]
}

fn resets() -> Vec<Row> {
    let reset = |name| Row::new(Job::Reset, name);
    vec![
        reset("a reset without an answer")
            .on_receive(Opcode::TaskManagementRequest, 0, |_, line| line.drop_pdu())
            .limits(|timeouts, soon| timeouts.with_task_management(soon))
            .ends(Fault::Network, &["did not answer in time", "task management"]),
        reset("a reset that is refused").on_send(RESPONSE, 0, |pdu, _| pdu.set(2, &[255])),
        reset("a reset with an answer that does not exist")
            .on_send(RESPONSE, 0, |pdu, _| pdu.set(2, &[0x66])),
        reset("a reset that is done twice").on_send(RESPONSE, 0, |pdu, line| {
            let again = pdu.clone();
            line.then_as_is(&again);
        }),
        reset("a reset that is refused as a PDU")
            .on_receive(Opcode::TaskManagementRequest, 0, |pdu, line| {
                line.answer(pdu, pdus::reject(pdu).response(5));
            })
            .fails(Fault::Target, &["rejected"]),
    ]
}

fn texts() -> Vec<Row> {
    let text = |name, act: fn(&mut iscsi_testkit::pdu::Pdu, &mut crate::line::Line<'_>)| {
        Row::new(Job::Text, name).on_send(Opcode::TextResponse, 0, act)
    };
    vec![
        text("another tag", |pdu, _| pdu.set_u32(16, 0x7777))
            .ends(Fault::Target, &["Text Response", "0x00007777"]),
        text("more to come without a tag", |pdu, _| pdu.header[1] &= !FINAL)
            .ends(Fault::Target, &["without a Target Transfer Tag"]),
        text("a text that is none", |pdu, _| pdu.data = vec![0xff; 64].into())
            .fails(Fault::Target, &["list of targets"]),
        text("more text than a PDU may have", |pdu, _| pdu.data = vec![b'x'; 1 << 19].into())
            .ends(Fault::Target, &["524288 bytes", "limit"]),
        Row::new(Job::Text, "a text that never ends")
            .always_on_receive(Opcode::TextRequest, |pdu, line| {
                let part = pdus::text_response().itt(pdu.itt()).ttt(1).last(false);
                line.answer(pdu, part.data(vec![b'x'; 1 << 18]));
            })
            .bounded(20 << 20)
            .ends(Fault::Target, &["longer than any list"]),
        Row::new(Job::Text, "a text that is refused")
            .on_receive(Opcode::TextRequest, 0, |pdu, line| {
                line.answer(pdu, pdus::reject(pdu).response(5));
            })
            .fails(Fault::Target, &["SendTargets", "rejected"]),
    ]
}

fn logouts() -> Vec<Row> {
    let logout = |name, act: fn(&mut iscsi_testkit::pdu::Pdu, &mut crate::line::Line<'_>)| {
        Row::new(Job::Logout, name).on_send(Opcode::LogoutResponse, 0, act)
    };
    vec![
        logout("a logout that fails", |pdu, _| pdu.set(2, &[3])),
        logout("a logout with an answer that does not exist", |pdu, _| pdu.set(2, &[0x66])),
        logout("a logout of another tag", |pdu, _| pdu.set_u32(16, 0x7777))
            .ends(Fault::Target, &["Logout Response"]),
        logout("a logout without an answer", |_, line| line.drop_pdu())
            .limits(|timeouts, soon| timeouts.with_logout(soon)),
        logout("data behind the logout", |_, line| line.then_bytes(&[0xee; 4096])),
        logout("a close in place of the answer", |_, line| {
            line.drop_pdu();
            line.close();
        }),
        logout("a logout answered with a StatSN far ahead", |pdu, _| {
            pdu.set_u32(24, pdu.stat_sn() + 1000);
        })
        .ends(Fault::Target, &["StatSN"]),
        Row::new(Job::Logout, "a logout that is refused as a PDU").on_receive(
            Opcode::LogoutRequest,
            0,
            |pdu, line| line.answer(pdu, pdus::reject(pdu).response(5)),
        ),
    ]
}
