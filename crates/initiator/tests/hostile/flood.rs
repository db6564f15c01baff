//! Tests of endless PDUs. The memory that the initiator uses for them is bounded, and its time limits hold.

use iscsi_initiator::Fault;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::{NO_TAG, Pdu};
use iscsi_testkit::pdus::{self, Template};

use crate::row::{Job, Row};

/// Maximum number of bytes that a target may send if it reads no answers: those that fill the socket buffers of
/// both sides, and those whose answers wait in the initiator, up to its limit. If the PDUs request a
/// negotiation, the initiator keeps only one answer, and the time limit ends the flood before this number is
/// reached.
const KEPT: u64 = 24 << 20;

/// Returns a test case that sends the same PDU repeatedly, in place of the first response to a write.
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
        // The initiator stores nothing for a NOP-In that requests no answer.
        flood("signs of life", false, pdus::nop_in).impatient().ends(Fault::Network, late),
        // The initiator stores one answer for each ping, until the target takes it.
        flood("pings", false, || pdus::nop_in().ttt(7)).impatient().fails_or_ends(&[]),
        flood("pings whose answers are not read", true, || pdus::nop_in().ttt(7))
            .bounded(KEPT)
            .ends(Fault::Target, &["answers wait because it does not read them"]),
        flood("the end of all tasks, and what is said to it is not read", true, || {
            pdus::async_message().event(5)
        })
        .bounded(KEPT)
        .fails_or_ends(&[]),
        // Each event is a notice. The last 64 are stored for subscribers; without subscribers, none is
        // stored.
        flood("events", false, || pdus::async_message().event(99))
            .impatient()
            .ends(Fault::Network, late),
        // One Text Request answers all of these messages. The target does not respond to that request, so the
        // initiator sends no second one.
        flood("the wish to negotiate", true, || {
            pdus::async_message().event(4).parameters([0, 0, 3])
        })
        .impatient()
        .bounded(KEPT)
        .ends(Fault::Network, late),
        // Each Reject is a notice, like an event.
        flood("refusals of nothing", false, || pdus::reject(&Pdu::new(Opcode::NopOut)))
            .impatient()
            .ends(Fault::Network, late),
        // Each event is a notice, which stores the data segment with its sense data.
        flood("events with 200 KiB of sense data", false, || {
            pdus::async_message().event(0).data(vec![0; 200 << 10])
        })
        .impatient()
        .ends(Fault::Network, late),
    ]
}
