//! Tests of invalid responses about the properties of a unit (SPC-4, SBC-3).

use bytes::Bytes;
use iscsi_initiator::Fault;
use iscsi_testkit::pdu::Pdu;

use crate::row::{Asked, Job, LieFn, Row};

const INQUIRY: Asked = asked(0x12, 0, 0);
const PAGES: Asked = asked(0x12, 1, 0);
const SERIAL: Asked = asked(0x12, 1, 0x80);
const IDENTIFICATION: Asked = asked(0x12, 1, 0x83);
const LIMITS: Asked = asked(0x12, 1, 0xb0);
const CHARACTERISTICS: Asked = asked(0x12, 1, 0xb1);
const PROVISIONING: Asked = asked(0x12, 1, 0xb2);
const CAPACITY_16: Asked = asked(0x9e, 0, 0);
const CAPACITY_10: Asked = asked(0x25, 0, 0);
const MODE: Asked = asked(0x1a, 0, 0x3f);

const fn asked(operation: u8, second: u8, third: u8) -> Asked {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[2]) = (operation, second, third);
    Asked::by(cdb)
}

/// Returns a test case that changes bytes of a response, but not its length.
fn edit(name: &'static str, asked: Asked, at: usize, bytes: &'static [u8]) -> Row {
    answer(name, asked, move |pdu, _| {
        let mut data = pdu.data.to_vec();
        for (slot, byte) in data.iter_mut().skip(at).zip(bytes) {
            *slot = *byte;
        }
        pdu.data = data.into();
    })
}

fn answer(name: &'static str, asked: Asked, act: impl LieFn) -> Row {
    Row::new(Job::Open, name).answers(asked, act)
}

/// Shortens the data, and reports that in the residual count.
fn shorten(pdu: &mut Pdu, length: usize) {
    let lost = pdu.data.len() - length.min(pdu.data.len());
    pdu.data = pdu.data.slice(..pdu.data.len() - lost);
    pdu.header[1] |= 0x02;
    pdu.set_u32(44, pdu.residual() + lost as u32);
}

pub(crate) fn rows() -> Vec<Row> {
    [refused(), nonsense(), lengths()].concat()
}

/// Returns test cases with invalid values of properties that the unit must have.
fn refused() -> Vec<Row> {
    vec![
        edit("a tape", INQUIRY, 0, &[0x01]).fails(Fault::Caller, &["not a block device"]),
        edit("no device behind the number", INQUIRY, 0, &[0x7f])
            .fails(Fault::Caller, &["no logical unit 0"]),
        edit("blocks of no bytes in the long answer", CAPACITY_16, 8, &[0; 4]),
        edit("blocks of no bytes", CAPACITY_16, 8, &[0; 4])
            .answers(CAPACITY_10, |pdu, _| pdu.data = vec![0; 8].into())
            .fails(Fault::Target, &["READ CAPACITY (10)", "BLOCK LENGTH"]),
        edit("blocks of 4 GiB", CAPACITY_16, 8, &[0xff; 4])
            .answers(CAPACITY_10, |pdu, _| pdu.data = vec![0xff; 8].into())
            .fails(Fault::Target, &["READ CAPACITY (10)", "BLOCK LENGTH"]),
    ]
}

/// Returns test cases with pages that a unit may omit. An invalid page counts as omitted.
fn nonsense() -> Vec<Row> {
    vec![
        edit("a list of pages that is longer than it is", PAGES, 2, &[0xff, 0xff]),
        edit("another page than the one asked for", SERIAL, 1, &[0x55]),
        edit("a serial number that is no text", SERIAL, 4, &[0xff, 0x0a, 0x00, 0x1b]),
        edit("designators beyond the end", IDENTIFICATION, 2, &[0xff, 0xff]),
        edit("a designator beyond its page", IDENTIFICATION, 7, &[0xff]),
        edit("limits of nothing", LIMITS, 4, &[0; 24]),
        edit("limits of everything", LIMITS, 4, &[0xff; 24]),
        edit("no more than a block at once", LIMITS, 8, &[0, 0, 0, 1]),
        edit("a rotation rate that does not exist", CHARACTERISTICS, 4, &[0xff, 0xff]),
        edit("a provisioning that does not exist", PROVISIONING, 4, &[0xff; 4]),
        edit("mode pages beyond the end", MODE, 0, &[0xff]),
        edit("block descriptors beyond the end", MODE, 3, &[0xff]),
        answer("mode pages of random bytes", MODE, |pdu, _| {
            // The third byte says whether the unit is write protected. The initiator trusts this byte, so
            // it is not changed.
            let flip = |(at, byte): (usize, &u8)| if at == 2 { *byte } else { byte ^ 0x95 };
            pdu.data = pdu.data.iter().enumerate().map(flip).collect();
        }),
    ]
}

fn lengths() -> Vec<Row> {
    vec![
        answer("an INQUIRY of no bytes", INQUIRY, |pdu, _| shorten(pdu, 0))
            .fails(Fault::Target, &["INQUIRY"]),
        answer("an INQUIRY of four bytes", INQUIRY, |pdu, _| shorten(pdu, 4))
            .fails(Fault::Target, &["INQUIRY"]),
        answer("a capacity of eleven bytes", CAPACITY_16, |pdu, _| shorten(pdu, 11)),
        answer("pages of one byte", IDENTIFICATION, |pdu, _| shorten(pdu, 1)),
        answer("limits of five bytes", LIMITS, |pdu, _| shorten(pdu, 5)),
        answer("mode pages of three bytes", MODE, |pdu, _| shorten(pdu, 3)),
        answer("an answer that is longer than asked for", MODE, |pdu, _| {
            pdu.data = Bytes::from(vec![0; 2048]);
        })
        .ends(Fault::Target, &["beyond the buffer"]),
    ]
}

#[test]
fn what_the_unit_is_and_the_list_of_its_pages_are_two_answers() {
    assert_ne!(INQUIRY, PAGES);
}
