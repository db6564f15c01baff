//! Tests of digests that do not match (RFC 7143 §7.8, §13.1). No read may return a damaged byte with success.

use iscsi_initiator::Fault;
use iscsi_testkit::frame::Framing;
use iscsi_testkit::opcode::Opcode;

use crate::row::{Job, LieFn, Row};

const HEADER: &[&str] = &["comes damaged", "header digest"];

fn lie(job: Job, name: &'static str, opcode: Opcode, first: u32, act: impl LieFn) -> Row {
    Row::new(job, name).digests().on_send(opcode, first, act)
}

pub(crate) fn rows() -> Vec<Row> {
    use Opcode::{DataIn, NopIn, R2t, ScsiResponse};
    vec![
        lie(Job::Read, "a bit of a header of the data", DataIn, 1, |_, line| line.patch(40, 0xff))
            .ends(Fault::Network, HEADER),
        lie(Job::Read, "the header digest of the data", DataIn, 1, |_, line| line.patch(48, 0))
            .ends(Fault::Network, HEADER),
        lie(Job::Read, "a byte of the data", DataIn, 1, |pdu, line| {
            line.patch(52 + 100, !pdu.data[100]);
        })
        .on_a_disk(),
        lie(Job::Read, "the data digest", DataIn, 1, |_, line| line.damage_end()).on_a_disk(),
        lie(Job::Read, "a byte of the last data", DataIn, 7, |pdu, line| {
            line.patch(52 + 100, !pdu.data[100]);
        })
        .ends(Fault::Network, &["data digest"]),
        lie(Job::Read, "a length, and so the place of all digests", DataIn, 1, |_, line| {
            line.patch_length(4096);
        })
        .ends(Fault::Network, HEADER),
        lie(Job::Write, "a bit of an R2T", R2t, 0, |_, line| line.patch(43, 0x55))
            .ends(Fault::Network, HEADER),
        lie(Job::Write, "a bit of a response", ScsiResponse, 0, |_, line| line.patch(3, 0x08))
            .ends(Fault::Network, HEADER),
        lie(Job::Ping, "a bit of the answer to a ping", NopIn, 0, |_, line| line.patch(20, 0))
            .ends(Fault::Network, HEADER),
        Row::new(Job::Open, "no digests although they were agreed on")
            .digests()
            .always_on_send(DataIn, |_, line| line.reframe(Framing::PLAIN))
            .ends(Fault::Network, HEADER),
        Row::new(Job::Open, "digests although they were not agreed on")
            .always_on_send(DataIn, |_, line| {
                line.reframe(Framing { header_digest: true, data_digest: true });
            })
            .impatient()
            .fails_or_ends(&[]),
        lie(Job::Read, "every data digest", DataIn, 0, |_, line| line.damage_end())
            .always_on_send(DataIn, |_, line| line.damage_end())
            .fails_or_ends(&["digest"]),
    ]
}
