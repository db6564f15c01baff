//! Tests of R2Ts that request data that does not exist, or have wrong tags or numbers (RFC 7143 §11.8). A write
//! that succeeds is on the disk.

use iscsi_initiator::Fault;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::NO_TAG;
use iscsi_testkit::pdus;

use crate::row::{Job, LieFn, Row};

const R2T: Opcode = Opcode::R2t;

fn write(name: &'static str) -> Row {
    Row::new(Job::Write, name)
}

/// Returns a test case that changes the first of the four R2Ts of the first write.
fn first(name: &'static str, act: impl LieFn) -> Row {
    write(name).on_send(R2T, 0, act)
}

/// Makes the time limit of commands end the test case, because the target reports no error.
fn impatient(row: Row) -> Row {
    row.limits(|timeouts, soon| timeouts.with_command(Some(soon)))
}

pub(crate) fn rows() -> Vec<Row> {
    [ranges(), tags(), order()].concat()
}

fn ranges() -> Vec<Row> {
    vec![
        first("data beyond the end", |pdu, _| pdu.set_u32(40, 65536))
            .ends(Fault::Target, &["R2T", "beyond the end"]),
        first("data across the end", |pdu, _| pdu.set_u32(40, 65536 - 512))
            .ends(Fault::Target, &["R2T", "beyond the end"]),
        first("data near 4 GiB", |pdu, _| pdu.set_u32(40, u32::MAX))
            .ends(Fault::Target, &["R2T", "beyond the end"]),
        first("4 GiB of data", |pdu, _| pdu.set_u32(44, u32::MAX))
            .ends(Fault::Target, &["R2T", "beyond the end"]),
        first("no data", |pdu, _| pdu.set_u32(44, 0))
            .ends(Fault::Target, &["Ready To Transfer", "Desired Data Transfer Length"]),
        first("GOOD for data that were never asked for", |pdu, line| {
            line.first(pdus::scsi_response().itt(pdu.itt()));
            line.drop_pdu();
        })
        .fails_or_ends(&["WRITE", "only 4096"]),
        impatient(first("the same data as before", |pdu, _| pdu.set_u32(40, 0))).open(),
        write("more data than MaxBurstLength").by_configuration().target(|config| {
            config.r2t.oversized_burst = Some(60 << 10);
        }),
        write("the first data once more at the end").by_configuration().target(|config| {
            config.r2t.repeat_first = true;
        }),
    ]
}

fn tags() -> Vec<Row> {
    vec![
        first("the reserved transfer tag", |pdu, _| pdu.set_u32(20, NO_TAG))
            .ends(Fault::Target, &["Ready To Transfer", "Target Transfer Tag"]),
        first("another unit than the command's", |pdu, _| pdu.set(8, &[0, 9])),
        first("a task that does not exist", |pdu, _| pdu.set_u32(16, 0x7777))
            .ends(Fault::Target, &["Ready To Transfer", "0x00007777"]),
        first("no task", |pdu, _| pdu.set_u32(16, NO_TAG))
            .ends(Fault::Target, &["Ready To Transfer"]),
        Row::new(Job::Ping, "an R2T for a ping")
            .on_send(Opcode::NopIn, 0, |pdu, line| {
                line.first(pdus::r2t().itt(pdu.itt()).ttt(5).desired_length(512));
            })
            .ends(Fault::Target, &["Ready To Transfer"]),
        write("an R2T behind the response").on_send(Opcode::ScsiResponse, 0, |pdu, line| {
            line.then(pdus::r2t().itt(pdu.itt()).ttt(5).desired_length(512));
        }),
        impatient(first("a transfer tag that the target does not know", |pdu, _| {
            pdu.set_u32(20, 0x5555);
        })),
    ]
}

fn order() -> Vec<Row> {
    vec![
        first("an R2TSN left out", |pdu, _| pdu.set_u32(36, 1))
            .ends(Fault::Target, &["R2TSN leaves a gap"]),
        first("an R2T twice", |pdu, line| {
            let again = pdu.clone();
            line.then_as_is(&again);
        }),
        first("more R2Ts than MaxOutstandingR2T", |pdu, line| {
            for number in 2..6 {
                let more = pdus::r2t().itt(pdu.itt()).ttt(90 + number).r2t_sn(number);
                line.then(more.desired_length(512));
            }
        })
        .ends(Fault::Target, &["R2T"]),
        first("R2Ts without an end", |pdu, line| {
            let (mut r2t, mut number) = (pdu.clone(), pdu.data_sn());
            line.flood(false, move || {
                number += 1;
                r2t.set_u32(36, number);
                r2t.clone()
            });
        })
        .bounded(8 << 20)
        .ends(Fault::Target, &["MaxOutstandingR2T"]),
        first("R2Ts without an end, and nobody takes the data", |pdu, line| {
            let (mut r2t, mut number) = (pdu.clone(), pdu.data_sn());
            line.flood(true, move || {
                number += 1;
                r2t.set_u32(36, number);
                r2t.clone()
            });
        })
        .bounded(8 << 20)
        .ends(Fault::Target, &["MaxOutstandingR2T"]),
        first("the same R2T without an end", |pdu, line| {
            let r2t = pdu.clone();
            line.flood(false, move || r2t.clone());
        })
        .impatient()
        .ends(Fault::Network, &["did not answer in time"]),
        impatient(first("an R2T lost", |_, line| line.drop_pdu())).ends(Fault::Target, &["R2T"]),
    ]
}
