//! Tests of wrong SCSI Responses, and of wrong numbers, which every PDU carries (RFC 7143 §11.4, §4.2.2).

use bytes::Bytes;
use iscsi_initiator::Fault;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::NO_TAG;
use iscsi_testkit::scsi::Sense;

use crate::row::{Job, LieFn, Row};

const RESPONSE: Opcode = Opcode::ScsiResponse;

/// Returns a test case that changes the response to the first write.
fn response(name: &'static str, act: impl LieFn) -> Row {
    Row::new(Job::Write, name).on_send(RESPONSE, 0, act)
}

pub(crate) fn rows() -> Vec<Row> {
    [statuses(), sense(), numbers(), windows()].concat()
}

fn statuses() -> Vec<Row> {
    vec![
        response("a response code of failure", |pdu, _| pdu.set(2, &[0x01]))
            .fails(Fault::Target, &["WRITE", "could not deliver"]),
        response("a response code that does not exist", |pdu, _| pdu.set(2, &[0x55]))
            .fails(Fault::Target, &["WRITE", "could not deliver"]),
        response("a response code of a vendor's own", |pdu, _| pdu.set(2, &[0x80]))
            .fails(Fault::Target, &["WRITE", "could not deliver"]),
        response("a status that does not exist", |pdu, _| pdu.set(3, &[0x77]))
            .fails(Fault::Target, &["WRITE", "0x77"]),
        response("a reservation that nobody made", |pdu, _| pdu.set(3, &[0x18]))
            .fails(Fault::Target, &["another initiator"]),
        response("BUSY behind all the data", |pdu, _| pdu.set(3, &[0x08])),
        response("an underflow of half", |pdu, _| residual(pdu, 0x02, 32768))
            .fails(Fault::Target, &["WRITE", "32768"]),
        response("an underflow of more than all", |pdu, _| residual(pdu, 0x02, u32::MAX))
            .fails(Fault::Target, &["WRITE"]),
        response("an overflow and an underflow", |pdu, _| residual(pdu, 0x06, 512))
            .ends(Fault::Target, &["overflow with underflow"]),
        response("a residual without a sign", |pdu, _| pdu.set_u32(44, 512)),
        response("ExpDataSN beyond all that was sent", |pdu, _| pdu.set_u32(36, 1 << 20)),
    ]
}

fn residual(pdu: &mut iscsi_testkit::pdu::Pdu, flags: u8, bytes: u32) {
    pdu.header[1] |= flags;
    pdu.set_u32(44, bytes);
}

fn check(name: &'static str, data: impl Fn(Vec<u8>) -> Vec<u8> + Send + Sync + 'static) -> Row {
    response(name, move |pdu, _| {
        pdu.set(3, &[0x02]);
        pdu.data = data(Sense::new(3, 0x0c, 0).segment()).into();
    })
}

fn sense() -> Vec<Row> {
    vec![
        check("CHECK CONDITION without a reason", |_| Vec::new())
            .fails(Fault::Target, &["WRITE", "CHECK CONDITION"]),
        check("sense data cut short", |sense| sense[..12].to_vec()).fails_or_ends(&[]),
        check("sense data of one byte", |sense| sense[..1].to_vec()).fails_or_ends(&[]),
        check("sense data in a format that does not exist", |sense| {
            let mut sense = sense;
            sense[2] = 0x33;
            sense
        })
        .fails(Fault::Target, &["WRITE"]),
        check("sense data of 64 KiB", |sense| [sense, vec![0; 65536]].concat())
            .fails(Fault::Target, &["WRITE"]),
        check("sense data with a key that does not exist", |mut sense| {
            sense[4] = 0x0f;
            sense
        })
        .fails(Fault::Target, &["WRITE"]),
        response("sense data with GOOD", |pdu, _| {
            pdu.data = Sense::new(3, 0x0c, 0).segment().into();
        }),
        response("16 MiB of sense data that are announced", |_, line| {
            line.patch_length(0xff_ffff);
        })
        .ends(Fault::Target, &["16777215 bytes", "limit"]),
        response("data beside GOOD that are no sense", |pdu, _| {
            pdu.data = Bytes::from_static(&[0, 0, 1, 2]);
        }),
    ]
}

fn numbers() -> Vec<Row> {
    vec![
        response("the response twice", |pdu, line| {
            let again = pdu.clone();
            line.then_as_is(&again);
        }),
        response("a failure for the other write", |pdu, line| {
            pdu.set(3, &[0x77]);
            pdu.set_u32(16, line.other_tag(pdu.itt()));
        })
        .impatient()
        .fails_or_ends(&[]),
        response("a response for no task", |pdu, _| pdu.set_u32(16, NO_TAG))
            .ends(Fault::Target, &["SCSI Response"]),
        response("a response for a task that does not exist", |pdu, _| pdu.set_u32(16, 0x7777))
            .ends(Fault::Target, &["SCSI Response", "0x00007777"]),
        response("a StatSN that leaves some out", |pdu, _| pdu.set_u32(24, pdu.stat_sn() + 3))
            .ends(Fault::Target, &["StatSN"]),
        response("a StatSN far ahead", |pdu, _| pdu.set_u32(24, pdu.stat_sn() + (1 << 30)))
            .ends(Fault::Target, &["StatSN"]),
        response("a StatSN far back", |pdu, _| {
            pdu.set_u32(24, pdu.stat_sn().wrapping_sub(1 << 30))
        })
        .ends(Fault::Target, &["StatSN"]),
        response("a StatSN used before", |pdu, _| pdu.set_u32(24, pdu.stat_sn() - 1))
            .limits(|timeouts, soon| timeouts.with_command(Some(soon)))
            .fails_or_ends(&[]),
    ]
}

fn windows() -> Vec<Row> {
    vec![
        response("a window that shrinks", |pdu, _| pdu.set_u32(32, pdu.exp_cmd_sn())),
        response("a window that makes no sense", |pdu, _| {
            pdu.set_u32(32, pdu.exp_cmd_sn().wrapping_sub(100));
        }),
        response("a window of 2^31 commands", |pdu, _| {
            pdu.set_u32(32, pdu.exp_cmd_sn().wrapping_add(1 << 31));
        }),
        response("an ExpCmdSN that was never sent", |pdu, _| {
            pdu.set_u32(28, pdu.exp_cmd_sn().wrapping_add(1000));
            pdu.set_u32(32, pdu.max_cmd_sn().wrapping_add(1000));
        }),
        Row::new(Job::Open, "a window that never opens")
            .always_on_send(Opcode::LoginResponse, |pdu, _| {
                pdu.set_u32(32, pdu.exp_cmd_sn().wrapping_sub(1));
            })
            .limits(|timeouts, soon| timeouts.with_command(Some(soon)))
            .fails_or_ends(&["timed out"]),
    ]
}
