//! Tests of Data-In PDUs that cannot be right (RFC 7143 §11.7). A read that succeeds has the right bytes.

use bytes::Bytes;
use iscsi_initiator::Fault;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::{FINAL, NO_TAG, Pdu};
use iscsi_testkit::pdus;

use crate::row::{Job, LieFn, Row};

const DATA: Opcode = Opcode::DataIn;
/// The flags of a Data-In: S (`STATUS`), U and O.
const STATUS: u8 = 0x01;
const UNDERFLOW: u8 = 0x02;
const OVERFLOW: u8 = 0x04;

pub(crate) fn rows() -> Vec<Row> {
    [places(), lengths(), ends(), residuals(), tags()].concat()
}

fn read(name: &'static str) -> Row {
    Row::new(Job::Read, name)
}

/// Returns a test case that changes the second of the eight Data-Ins of the first read.
fn second(name: &'static str, act: impl LieFn) -> Row {
    read(name).on_send(DATA, 1, act)
}

/// Returns a test case that changes the last of the eight Data-Ins of the first read, which carries the
/// status.
fn last(name: &'static str, act: impl LieFn) -> Row {
    read(name).on_send(DATA, 7, act)
}

fn places() -> Vec<Row> {
    vec![
        second("a DataSN left out", |pdu, _| pdu.set_u32(36, 2))
            .ends(Fault::Target, &["DataSN is not the next one"]),
        second("a DataSN twice", |pdu, _| pdu.set_u32(36, 0))
            .ends(Fault::Target, &["DataSN is not the next one"]),
        second("an offset beyond the buffer", |pdu, _| pdu.set_u32(40, 1 << 20))
            .ends(Fault::Target, &["beyond the buffer"]),
        second("an offset near 4 GiB", |pdu, _| pdu.set_u32(40, u32::MAX - 100))
            .ends(Fault::Target, &["beyond the buffer"]),
        second("data across the end of the buffer", |pdu, _| pdu.set_u32(40, 65536 - 4096))
            .ends(Fault::Target, &["beyond the buffer"]),
        second("an offset again", |pdu, _| pdu.set_u32(40, 0))
            .ends(Fault::Target, &["repeats bytes"]),
        second("an offset that leaves a hole", |pdu, _| pdu.set_u32(40, 16384))
            .ends(Fault::Target, &["repeats bytes"]),
        last("a hole before the end", |pdu, _| pdu.set_u32(40, 65536 - 4096))
            .ends(Fault::Target, &["beyond the buffer"]),
        second("a Data-In twice", |pdu, line| {
            let again = pdu.clone();
            line.then_as_is(&again);
        })
        .ends(Fault::Target, &["DataSN is not the next one"]),
        second("a Data-In lost", |_, line| line.drop_pdu())
            .ends(Fault::Target, &["DataSN is not the next one"]),
        last("the end lost", |_, line| line.drop_pdu()).ends(Fault::Target, &["StatSN"]),
    ]
}

fn lengths() -> Vec<Row> {
    vec![
        second("no data where some are due", |pdu, _| pdu.data = Bytes::new())
            .fails(Fault::Target, &["READ", "only 8192"]),
        second("fewer data than are due", |pdu, _| pdu.data = pdu.data.slice(..100))
            .fails(Fault::Target, &["READ", "only 8292"]),
        second("more data than are due", |pdu, _| pdu.data = vec![0; 12288].into())
            .ends(Fault::Target, &["repeats bytes"]),
        second("more data than a PDU may have", |pdu, _| pdu.data = vec![0; 1 << 20].into())
            .ends(Fault::Target, &["1048576 bytes", "limit"]),
        second("a length of 16 MiB over nothing", |_, line| line.patch_length(0xff_ffff))
            .ends(Fault::Target, &["16777215 bytes", "limit"]),
        second("a length below the truth", |_, line| line.patch_length(4096))
            .ends(Fault::Target, &["does not speak iSCSI"]),
        last("a length above the truth", |_, line| {
            line.patch_length(8192 + 512);
            line.hush();
        })
        .ends(Fault::Target, &["beyond the buffer"]),
        second("additional headers that are not there", |_, line| line.patch(4, 0xff))
            .ends(Fault::Target, &[]),
        read("Data-In without data, without an end")
            .on_send(DATA, 0, |pdu, line| {
                let (mut nothing, mut number) = (pdu.clone(), 0);
                nothing.data = Bytes::new();
                nothing.header[1] = 0;
                line.flood(false, move || {
                    number += 1;
                    nothing.set_u32(36, number);
                    nothing.clone()
                });
            })
            .impatient()
            .ends(Fault::Network, &["did not answer in time"]),
    ]
}

fn ends() -> Vec<Row> {
    vec![
        read("GOOD in the first of eight Data-Ins")
            .on_send(DATA, 0, |pdu, line| {
                let mut early = pdu.clone();
                early.header[1] = FINAL | STATUS;
                early.set_u32(24, line.take_stat_sn());
                *pdu = early;
            })
            .fails_and_ends(Fault::Target, &["only 8192"]),
        second("a status without the end", |pdu, _| pdu.header[1] = STATUS)
            .ends(Fault::Target, &["S without F"]),
        last("a CHECK CONDITION without a reason", |pdu, _| pdu.set(3, &[0x02]))
            .fails(Fault::Target, &["READ", "CHECK CONDITION"]),
        last("a status that does not exist", |pdu, _| pdu.set(3, &[0x77]))
            .fails(Fault::Target, &["READ"]),
        last("another read's StatSN", |pdu, _| pdu.set_u32(24, pdu.stat_sn() + 1))
            .ends(Fault::Target, &["StatSN"]),
        last("the end twice", |pdu, line| {
            let again = pdu.clone();
            line.then_as_is(&again);
        })
        .ends(Fault::Target, &["SCSI Data-In"]),
        last("data behind the end", |pdu, line| {
            let mut late = pdu.clone();
            late.header[1] = 0;
            late.set_u32(36, 8);
            line.then_as_is(&late);
        })
        .ends(Fault::Target, &["SCSI Data-In"]),
        read("a response without any data")
            .on_receive(Opcode::ScsiCommand, 0, |pdu, line| {
                line.answer(pdu, pdus::scsi_response().itt(pdu.itt()));
            })
            .fails(Fault::Target, &["READ", "only 0"]),
        read("a failure of the target")
            .on_receive(Opcode::ScsiCommand, 0, |pdu, line| {
                line.answer(pdu, pdus::scsi_response().itt(pdu.itt()).response(0x01));
            })
            .fails(Fault::Target, &["READ", "could not deliver"]),
    ]
}

fn residuals() -> Vec<Row> {
    vec![
        last("an underflow that is none", |pdu, _| {
            pdu.header[1] |= UNDERFLOW;
            pdu.set_u32(44, 512);
        })
        .fails(Fault::Target, &["READ", "65024 bytes instead of 65536"]),
        last("an underflow of all", |pdu, _| {
            pdu.header[1] |= UNDERFLOW;
            pdu.set_u32(44, 65536);
        })
        .fails(Fault::Target, &["READ"]),
        last("an underflow of more than all", |pdu, _| {
            pdu.header[1] |= UNDERFLOW;
            pdu.set_u32(44, u32::MAX);
        })
        .fails(Fault::Target, &["READ"]),
        last("an overflow and an underflow", |pdu, _| pdu.header[1] |= UNDERFLOW | OVERFLOW)
            .ends(Fault::Target, &["overflow with underflow"]),
        last("an overflow", |pdu, _| {
            pdu.header[1] |= OVERFLOW;
            pdu.set_u32(44, 512);
        })
        .fails(Fault::Target, &["READ"]),
        read("an underflow that hides lost data")
            .on_send(DATA, 6, |_, line| line.drop_pdu())
            .on_send(DATA, 7, |pdu, _| {
                pdu.header[1] |= UNDERFLOW;
                pdu.set_u32(36, 6);
                pdu.set_u32(44, 8192);
            })
            .fails(Fault::Target, &["READ"]),
    ]
}

fn tags() -> Vec<Row> {
    vec![
        second("a task that does not exist", |pdu, _| pdu.set_u32(16, 0x7777))
            .ends(Fault::Target, &["SCSI Data-In", "0x00007777"]),
        second("no task", |pdu, _| pdu.set_u32(16, NO_TAG)).ends(Fault::Target, &[]),
        second("the other read's tag", |pdu, line| {
            pdu.set_u32(16, line.other_tag(pdu.itt()));
        })
        .ends(Fault::Target, &[]),
        Row::new(Job::Ping, "data for a ping")
            .on_send(Opcode::NopIn, 0, |pdu, line| {
                line.first(pdus::data_in().itt(pdu.itt()).data(vec![0; 512]));
            })
            .ends(Fault::Target, &["SCSI Data-In"]),
        second("an R2T for a read", |pdu, line| {
            let r2t = pdus::r2t().itt(pdu.itt()).ttt(5).desired_length(512);
            line.first(r2t);
        })
        .ends(Fault::Target, &["Ready To Transfer"]),
        second("the wish for an acknowledgement", |pdu, _| {
            pdu.header[1] |= 0x40;
            pdu.set_u32(20, 77);
        }),
        second("junk in the fields that mean nothing", |pdu, _| {
            pdu.header[2] = 0xff;
            pdu.header[3] = 0xff;
            pdu.set_u32(24, 0xdead_beef);
            pdu.set_u32(44, 0xdead_beef);
        }),
        second("a NOP-In in the midst", |_, line| {
            let nop = pdus::nop_in();
            line.first(nop);
        }),
        second("a text response in the midst", |pdu, line| {
            let text = pdus::text_response().itt(pdu.itt());
            line.first(text);
        })
        .ends(Fault::Target, &["Text Response"]),
        second("a login response in the midst", |pdu, line| {
            let login = pdus::login_response().itt(pdu.itt());
            line.first(login);
        })
        .ends(Fault::Target, &["Login Response"]),
        second("an opcode of the initiator's in the midst", |_, line| {
            line.first_as_is(&Pdu::new(Opcode::Snack));
        })
        .ends(Fault::Target, &["opcode 0x10"]),
    ]
}
