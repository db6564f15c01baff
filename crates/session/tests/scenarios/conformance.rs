//! The UNH-IOL test suite for initiators, full feature phase: one test per item, with the item's number in
//! its name. Items for ErrorRecoveryLevel 1 and 2 (13, 10.2, 7.1, 19.4.2, 19.5) do not apply: only level 0 is
//! proposed.

mod command;
mod data;
mod numbering;
mod requests;

use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::Pdu;

use crate::trace::Trace;

/// Takes the Data-Out PDUs that are due, and checks that there are `count`.
#[track_caller]
fn data_out(trace: &mut Trace, count: usize) -> Vec<Pdu> {
    let pdus = (0..count).map(|_| trace.expect(Opcode::DataOut)).collect();
    trace.silence();
    pdus
}

/// Returns the data of several PDUs, joined.
fn payload(pdus: &[Pdu]) -> Vec<u8> {
    pdus.iter().flat_map(|pdu| pdu.data.to_vec()).collect()
}
