//! PDUs without an end. What the initiator keeps of them is bounded, and its time limits hold.

use iscsi_initiator::Fault;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::{NO_TAG, Pdu};
use iscsi_testkit::pdus::{self, Template};

use crate::row::{Job, Row};

/// What a target may get rid of that hears no answer: its socket's buffers, ours, and the answers
/// that are kept for it.
const KEPT: u64 = 24 << 20;

/// The same PDU again and again in place of the first response to a write.
fn flood(name: &'static str, deaf: bool, say: fn() -> Template) -> Row {
    Row::new(Job::Write, name).says(Opcode::ScsiResponse, 0, move |_, line| {
        line.lose();
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
        flood("signs of life", false, pdus::nop_in).impatient().ends(Fault::Network, late),
        flood("pings", false, || pdus::nop_in().ttt(7)).impatient().fails_or_ends(&[]),
        flood("pings whose answers are not read", true, || pdus::nop_in().ttt(7))
            .bounded(KEPT)
            .ends(Fault::Target, &["answers wait because it does not read them"]),
        flood("the end of all tasks, and what is said to it is not read", true, || {
            pdus::async_message().event(5)
        })
        .bounded(KEPT)
        .fails_or_ends(&[]),
        flood("events", false, || pdus::async_message().event(99))
            .impatient()
            .ends(Fault::Network, late),
        flood("the wish to negotiate", true, || {
            pdus::async_message().event(4).parameters([0, 0, 3])
        })
        .impatient()
        .ends(Fault::Network, late),
        flood("refusals of nothing", false, || pdus::reject(&Pdu::new(Opcode::NopOut)))
            .impatient()
            .ends(Fault::Network, late),
        flood("events with 200 KiB of sense data", false, || {
            pdus::async_message().event(0).data(vec![0; 200 << 10])
        })
        .impatient()
        .ends(Fault::Network, late),
    ]
}
