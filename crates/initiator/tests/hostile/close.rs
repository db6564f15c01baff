//! Tests of targets that close the connection, each time at another place.

use iscsi_initiator::Fault;
use iscsi_testkit::opcode::Opcode;

use crate::row::{Job, Row};

/// Returns a test case whose connection is closed at the target's n-th PDU of this kind, of which only the
/// first bytes are sent.
fn closed(job: Job, name: &'static str, opcode: Opcode, first: u32, bytes: usize) -> Row {
    Row::new(job, name)
        .on_send(opcode, first, move |_, line| {
            line.keep(bytes);
            line.close();
        })
        .ends(Fault::Network, &["lost", "connect again"])
}

/// Returns a test case whose connection is closed at the initiator's n-th PDU of this kind.
fn closed_at_request(job: Job, name: &'static str, opcode: Opcode, first: u32) -> Row {
    Row::new(job, name)
        .on_receive(opcode, first, |_, line| {
            line.drop_pdu();
            line.close();
        })
        .ends(Fault::Network, &["lost", "connect again"])
}

pub(crate) fn rows() -> Vec<Row> {
    use Opcode::{DataIn, LoginResponse, NopIn, R2t, ScsiResponse, TextResponse};
    vec![
        closed_at_request(Job::Open, "at the login", Opcode::LoginRequest, 0),
        closed(Job::Open, "in the header of the login's answer", LoginResponse, 0, 20),
        closed(Job::Open, "in the text of the login's answer", LoginResponse, 0, 60),
        closed(Job::Open, "behind the login", LoginResponse, 0, usize::MAX),
        closed_at_request(Job::Discover, "at the login in discovery", Opcode::LoginRequest, 0),
        closed_at_request(
            Job::Discover,
            "at the request for the list of targets",
            Opcode::TextRequest,
            0,
        ),
        closed(Job::Discover, "in the list of targets", TextResponse, 0, 50),
        closed_at_request(Job::Open, "at the first command", Opcode::ScsiCommand, 0),
        closed(Job::Open, "between the answers of the unit", DataIn, 3, 0),
        closed_at_request(Job::Read, "at a read", Opcode::ScsiCommand, 0),
        closed(Job::Read, "before the data", DataIn, 0, 0),
        closed(Job::Read, "in a header of the data", DataIn, 1, 20),
        closed(Job::Read, "in the midst of the data", DataIn, 1, 1000),
        closed(Job::Read, "before the last byte", DataIn, 7, 48 + 8191),
        closed_at_request(Job::Write, "at a write", Opcode::ScsiCommand, 0),
        closed(Job::Write, "before the first R2T", R2t, 0, 0),
        closed(Job::Write, "behind the first R2T", R2t, 0, usize::MAX),
        closed_at_request(Job::Write, "in the midst of the data it asked for", Opcode::DataOut, 2),
        closed(Job::Write, "before the response", ScsiResponse, 0, 0),
        closed(Job::Write, "in the response", ScsiResponse, 0, 47),
        closed(Job::Ping, "before the answer to a ping", NopIn, 0, 0),
        closed(Job::Text, "before the text", TextResponse, 0, 0),
        closed(Job::Reset, "before the answer to a reset", Opcode::TaskManagementResponse, 0, 0),
    ]
}
