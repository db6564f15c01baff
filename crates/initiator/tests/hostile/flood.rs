//! Endless PDUs. What the initiator keeps of them is bounded, and its time limits hold.

use iscsi_initiator::Fault;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::{NO_TAG, Pdu};
use iscsi_testkit::pdus::{self, Template};

use crate::row::{Job, Row};

/// Most bytes that a target can send before it is stopped if it reads no answer: its socket's buffers, ours,
/// and the answers that wait for it. Or the bytes that it sends until the time limit, if one answer is kept
/// for all.
const KEPT: u64 = 24 << 20;

/// Returns a row that sends the same PDU again and again, in place of the first response to a write.
fn flood(name: &'static str, deaf: bool, say: fn() -> Template) -> Row {
    Row::new(Job::Write, name).on_send(Opcode::ScsiResponse, 0, move |_, line| {
        line.drop_pdu();
        let mut pdu = line.numbered(say());
        let counts = !pdu.is(Opcode::NopIn) || pdu.itt() != NO_TAG;
        line.flood(deaf, move || {
            let said = pdu.clone();
            pdu.set_u32(24, said.stat_sn().wrapping_add(u32::from(counts)));
            said
        });
    })
}

pub(crate) fn rows() -> Vec<Row> {
    let late: &[&str] = &["did not answer in time"];
    vec![
        // Nothing is kept of a NOP-In that asks for no answer.
        flood("signs of life", false, pdus::nop_in).impatient().ends(Fault::Network, late),
        // One answer each, which is kept until the target takes it.
        flood("pings", false, || pdus::nop_in().ttt(7)).impatient().fails_or_ends(&[]),
        flood("pings whose answers are not read", true, || pdus::nop_in().ttt(7))
            .bounded(KEPT)
            .ends(Fault::Target, &["answers wait because it does not read them"]),
        flood("the end of all tasks, and what is said to it is not read", true, || {
            pdus::async_message().event(5)
        })
        .bounded(KEPT)
        .fails_or_ends(&[]),
        // One notice each: the last 64 are kept for subscribers, and none without subscribers.
        flood("events", false, || pdus::async_message().event(99))
            .impatient()
            .ends(Fault::Network, late),
        // One Text Request for all of them: it is not answered, so no second one follows.
        flood("the wish to negotiate", true, || {
            pdus::async_message().event(4).parameters([0, 0, 3])
        })
        .impatient()
        .bounded(KEPT)
        .ends(Fault::Network, late),
        // Notices, like events.
        flood("refusals of nothing", false, || pdus::reject(&Pdu::new(Opcode::NopOut)))
            .impatient()
            .ends(Fault::Network, late),
        // Notices, like events; each keeps the data segment that contains its sense data.
        flood("events with 200 KiB of sense data", false, || {
            pdus::async_message().event(0).data(vec![0; 200 << 10])
        })
        .impatient()
        .ends(Fault::Network, late),
    ]
}
