//! Tests of PDUs that a target may send unasked, with errors in them: NOP-In, Asynchronous Message, Reject,
//! and responses that no task waits for (RFC 7143 §11.9, §11.17, §11.19).

use iscsi_initiator::Fault;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::{NO_TAG, Pdu};
use iscsi_testkit::pdus::{self, Template};

use crate::row::{Job, LieFn, Row};

const PONG: Opcode = Opcode::NopIn;

pub(crate) fn rows() -> Vec<Row> {
    [pongs(), nops(), events(), rejects(), strays()].concat()
}

/// Returns a test case with a wrong response to a ping.
fn pong(name: &'static str, act: impl LieFn) -> Row {
    Row::new(Job::Ping, name).on_send(PONG, 0, act)
}

/// Returns a test case with a PDU before the response to a write whose data has arrived at the target.
fn before(name: &'static str, say: fn() -> Template) -> Row {
    Row::new(Job::Write, name).on_send(Opcode::ScsiResponse, 0, move |_, line| line.first(say()))
}

fn pongs() -> Vec<Row> {
    vec![
        pong("an answer that asks for an answer", |pdu, _| pdu.set_u32(20, 5))
            .ends(Fault::Target, &["NOP-In"]),
        pong("an answer to another ping", |pdu, _| pdu.set_u32(16, 0x7777))
            .ends(Fault::Target, &["NOP-In", "0x00007777"]),
        pong("an answer with data that nobody sent", |pdu, _| pdu.data = vec![1; 8192].into()),
        pong("an answer twice", |pdu, line| {
            let again = pdu.clone();
            line.then_as_is(&again);
        }),
        pong("an answer with a StatSN that leaves some out", |pdu, _| {
            pdu.set_u32(24, pdu.stat_sn() + 5);
        })
        .ends(Fault::Target, &["StatSN"]),
        pong("no answer", |_, line| line.drop_pdu())
            .limits(|timeouts, soon| timeouts.with_nop_response(soon))
            .fails_or_ends(&[]),
    ]
}

fn nops() -> Vec<Row> {
    vec![
        before("a ping of the target's", || pdus::nop_in().ttt(7)),
        before("a ping with data", || pdus::nop_in().ttt(7).data(vec![1; 4096])),
        before("a sign of life with data", || pdus::nop_in().data(vec![1; 4096])),
        before("a sign of life for a unit that does not exist", || pdus::nop_in().lun(u64::MAX)),
        before("a ping with a StatSN far ahead", || pdus::nop_in().ttt(7).stat_sn(1 << 20))
            .ends(Fault::Target, &["StatSN"]),
    ]
}

fn event(code: u8) -> Template {
    pdus::async_message().event(code)
}

fn events() -> Vec<Row> {
    vec![
        before("the wish for a logout at once", || event(1).parameters([0, 0, 0]))
            .fails_or_ends(&[]),
        before("the drop of this connection", || event(2).parameters([0, 0, 0]))
            .ends(Fault::Target, &["dropped"]),
        before("the drop of a connection that does not exist", || event(2).parameters([77, 0, 0])),
        before("the drop of all connections", || event(3).parameters([0, 1, 1]))
            .ends(Fault::Target, &["dropped the session", "1 s"]),
        before("the wish to negotiate", || event(4).parameters([0, 0, 3])),
        before("the end of all tasks of the unit", || event(5))
            .fails(Fault::Target, &["WRITE", "aborted"]),
        before("the end of all tasks of another unit", || event(5).lun(0x0007 << 48)),
        before("an event that does not exist", || event(99)),
        before("an event of a vendor's own", || event(255).parameters([1, 2, 3])),
        before("a SCSI event with sense data cut short", || event(0).data(vec![0, 18, 0x70])),
        before("a SCSI event with no sense data", || event(0)),
    ]
}

fn rejects() -> Vec<Row> {
    let reject = |name, reason| {
        Row::new(Job::Write, name).on_receive(Opcode::ScsiCommand, 0, move |pdu, line| {
            line.answer(pdu, pdus::reject(pdu).response(reason));
        })
    };
    vec![
        reject("a refusal of a command", 0x05).fails(Fault::Target, &["WRITE", "not supported"]),
        reject("a refusal for a reason that does not exist", 0x77)
            .fails(Fault::Target, &["WRITE", "rejected"]),
        reject("a refusal for a digest that nobody agreed on", 0x02).on_a_disk(),
        reject("a refusal until a logout", 0x0c)
            .fails_and_ends(Fault::Target, &["WRITE", "waiting for logout"]),
        before("a refusal of nothing", || pdus::reject(&Pdu::new(Opcode::NopOut)).response(4)),
        before("a refusal without the refused", || {
            Template::new(Opcode::Reject).itt(NO_TAG).response(4)
        }),
        before("a refusal of half a header", || {
            Template::new(Opcode::Reject).itt(NO_TAG).response(4).data(vec![1; 20])
        }),
        before("a refusal of a PDU that the target sent", || {
            pdus::reject(&Pdu::new(Opcode::R2t)).response(4)
        }),
        Row::new(Job::Write, "a refusal of write data")
            .on_receive(Opcode::DataOut, 0, |pdu, line| {
                let reject = pdus::reject(pdu).response(0x04);
                line.inject(reject);
                line.drop_pdu();
            })
            .limits(|timeouts, soon| timeouts.with_command(Some(soon))),
    ]
}

fn strays() -> Vec<Row> {
    vec![
        before("the response to a login", pdus::login_response)
            .ends(Fault::Target, &["Login Response", "not allowed"]),
        before("the response to a logout", || pdus::logout_response().itt(9))
            .ends(Fault::Target, &["Logout Response"]),
        before("the response to a text", || pdus::text_response().itt(9))
            .ends(Fault::Target, &["Text Response"]),
        before("the response to a task management request", || {
            pdus::task_management_response().itt(9)
        })
        .ends(Fault::Target, &["Task Management"]),
        before("an opcode that does not exist", || pdus::nop_in().byte(0, 0x3a))
            .ends(Fault::Target, &["opcode 0x3a"]),
        before("the I bit in a PDU of the target's", || pdus::nop_in().byte(0, 0x60)),
        Row::new(Job::Write, "random bytes")
            .on_send(Opcode::ScsiResponse, 0, |_, line| {
                line.drop_pdu();
                line.then_bytes(&[0x5c; 4096]);
            })
            .ends(Fault::Target, &["does not speak iSCSI"]),
    ]
}
