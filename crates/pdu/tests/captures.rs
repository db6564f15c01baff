//! Tests with captured PDUs: each is split and checked by its own lengths and digests, decoded, and encoded
//! again to the same bytes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test may panic")]

use std::num::NonZeroU32;

use bytes::Bytes;
use iscsi_pdu::scsi::{Cdb, Lun, Sense, StandardInquiry, Status};
use iscsi_pdu::{
    Bhs, CmdSn, DataIn, DataInStatus, DataSn, Digest, FrameLayout, FunctionResponse, Header,
    InitiatorPdu, Itt, NopIn, NopOut, R2t, R2tSn, Residual, ScsiCommand, StatSn, TargetPdu,
    TaskAttribute, TaskFunction, TaskManagementRequest, TaskManagementResponse, TextRequest,
    TextResponse, Ttt, crc32c, sense_of,
};

const SESSIONS: &str = include_str!("vectors/tgt-sessions.hex");
const DIGESTS: &str = include_str!("vectors/tgt-digests.hex");

fn unhex(digits: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(digit).collect()
}

/// Returns the PDUs of a file: name and bytes.
fn pdus(file: &'static str) -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    let lines = file.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_once(' ').unwrap()).map(|(name, digits)| (name, unhex(digits)))
}

fn layout(pdu: &[u8], digest: Digest) -> FrameLayout {
    FrameLayout::of(&Bhs::from_bytes(*pdu.first_chunk().unwrap()), digest, digest)
}

/// Returns the header and the data segment of a PDU, by its name in a file.
fn captured(file: &'static str, digest: Digest, name: &str) -> (Header, Bytes) {
    let (_, pdu) = pdus(file).find(|(found, _)| *found == name).unwrap();
    let layout = layout(&pdu, digest);
    let data = Bytes::copy_from_slice(&pdu[layout.data_offset()..][..layout.data_len]);
    (Bhs::from_bytes(*pdu.first_chunk().unwrap()).into(), data)
}

fn session(name: &str) -> (Header, Bytes) {
    captured(SESSIONS, Digest::None, name)
}

/// Returns the value of a target's PDU, after a check that it encodes to the captured bytes.
fn from_target((header, data): (Header, Bytes)) -> (TargetPdu, Bytes) {
    let pdu = TargetPdu::decode(&header).unwrap();
    let mut again = pdu.encode();
    again.bhs.set_data_len(data.len());
    assert_eq!(again, header);
    (pdu, data)
}

fn from_initiator((header, data): (Header, Bytes)) -> (InitiatorPdu, Bytes) {
    let pdu = InitiatorPdu::decode(&header).unwrap();
    let mut again = pdu.encode();
    again.bhs.set_data_len(data.len());
    assert_eq!(again, header);
    (pdu, data)
}

fn itt(tag: u32) -> Itt {
    Itt::new(tag).unwrap()
}

/// LAY-04: a header gives the length of its PDU.
#[test]
fn lay_04_length_of_every_pdu() {
    for (file, digest) in [(SESSIONS, Digest::None), (DIGESTS, Digest::Crc32c)] {
        assert!(pdus(file).count() >= 8);
        for (name, pdu) in pdus(file) {
            assert_eq!(layout(&pdu, digest).total_len(), pdu.len(), "{name}");
        }
    }
}

/// DIG-01, DIG-03, DIG-05, DIG-04: the digests of all captured PDUs are right. The target computed those of
/// its PDUs, and another implementation of CRC32C those of the requests. Digests cover the padding of "hello"
/// and of the 37 bytes of INQUIRY data.
#[test]
fn dig_05_digests_of_every_pdu() {
    let mut padded = 0;
    for (name, pdu) in pdus(DIGESTS) {
        let layout = layout(&pdu, Digest::Crc32c);
        let (header, rest) = pdu.split_at(Bhs::LEN + layout.ahs_len);
        let (header_digest, rest) = rest.split_at(layout.header_digest_len);
        let (data, data_digest) = rest.split_at(layout.data_len + layout.padding_len);
        assert_eq!(header_digest, crc32c(header), "{name}");
        if layout.data_len == 0 {
            assert!(data_digest.is_empty(), "{name}");
        } else {
            assert_eq!(data_digest, crc32c(data), "{name}");
        }
        padded += usize::from(layout.padding_len > 0);
    }
    assert_eq!(padded, 3);
}

#[test]
fn discovery() {
    let (request, text) = from_initiator(session("text-request"));
    let expected = TextRequest {
        immediate: true,
        is_final: true,
        is_continued: false,
        lun: Lun::ZERO,
        itt: itt(0x4ccd_97cb),
        ttt: None,
        cmd_sn: CmdSn::new(0x3b80_512e),
        exp_stat_sn: StatSn::new(1),
    };
    assert_eq!(
        (request, &text[..]),
        (InitiatorPdu::TextRequest(expected), &b"SendTargets=All\0"[..])
    );

    let (response, text) = from_target(session("text-response"));
    let expected = TextResponse {
        is_final: true,
        is_continued: false,
        lun: Lun::ZERO,
        itt: itt(0x4ccd_97cb),
        ttt: None,
        stat_sn: StatSn::new(1),
        exp_cmd_sn: CmdSn::new(0x3b80_512e),
        max_cmd_sn: CmdSn::new(0x3b80_512f),
    };
    assert_eq!(response, TargetPdu::TextResponse(expected));
    assert_eq!(text.last(), Some(&0));
}

fn management(function: TaskFunction, tag: u32, referenced: Option<Itt>) -> InitiatorPdu {
    InitiatorPdu::TaskManagementRequest(TaskManagementRequest {
        immediate: true,
        function,
        lun: Lun::from(1),
        itt: itt(tag),
        referenced_task_tag: referenced,
        cmd_sn: CmdSn::new(1),
        exp_stat_sn: StatSn::new(tag - 1),
        ref_cmd_sn: CmdSn::new(0),
        exp_data_sn: DataSn::new(0),
    })
}

fn managed(response: FunctionResponse, tag: u32) -> TargetPdu {
    TargetPdu::TaskManagementResponse(TaskManagementResponse {
        response,
        additional: [0; 3],
        itt: itt(tag),
        stat_sn: StatSn::new(tag - 1),
        exp_cmd_sn: CmdSn::new(1),
        max_cmd_sn: CmdSn::new(0x81),
    })
}

/// LAY-13: in task management PDUs, function, tags and sequence numbers are in the same fields as in PDUs of a
/// real target.
#[test]
fn task_management() {
    let request = |name| from_initiator(session(name)).0;
    let response = |name| from_target(session(name)).0;
    let reset = management(TaskFunction::LogicalUnitReset, 2, None);
    assert_eq!(request("lun-reset-request"), reset);
    assert_eq!(response("lun-reset-response"), managed(FunctionResponse::COMPLETE, 2));
    let abort = management(TaskFunction::AbortTask, 3, Some(itt(0x77)));
    assert_eq!(request("abort-task-request"), abort);
    assert_eq!(response("abort-task-response"), managed(FunctionResponse::TASK_DOES_NOT_EXIST, 3));
}

/// NOP-01: the response to the target's ping has the tag of the ping, and consumes no sequence number of
/// either side.
#[test]
fn nop_01_ping_of_the_target() {
    let ping = NopIn {
        lun: Lun::ZERO,
        itt: None,
        ttt: Ttt::new(1),
        stat_sn: StatSn::new(15),
        exp_cmd_sn: CmdSn::new(0x3300_bb47),
        max_cmd_sn: CmdSn::new(0x3300_bbc7),
    };
    let answer = NopOut {
        immediate: true,
        lun: ping.lun,
        itt: None,
        ttt: ping.ttt,
        cmd_sn: ping.exp_cmd_sn,
        exp_stat_sn: ping.stat_sn,
    };
    assert_eq!(from_target(session("target-ping")).0, TargetPdu::NopIn(ping));
    assert_eq!(from_initiator(session("target-ping-answer")).0, InitiatorPdu::NopOut(answer));
}

#[test]
fn read_command() {
    let command = ScsiCommand {
        immediate: false,
        is_final: true,
        read: true,
        write: false,
        attribute: TaskAttribute::Simple,
        priority: 0,
        lun: Lun::from(1),
        itt: itt(0x08da_2349),
        expected_data_transfer_length: 4096,
        cmd_sn: CmdSn::new(0x3300_bb44),
        exp_stat_sn: StatSn::new(12),
        cdb: Cdb::read_10(0, 8),
        bidirectional_read_length: None,
    };
    assert_eq!(from_initiator(session("read-command")).0, InitiatorPdu::ScsiCommand(command));
}

/// LAY-09: the R2T carries the StatSN that the response to the write then has.
#[test]
fn write_with_ready_to_transfer() {
    let expected = R2t {
        lun: Lun::from(1),
        itt: itt(0x08da_234a),
        ttt: Ttt::new(0x9024_3e13).unwrap(),
        stat_sn: StatSn::new(13),
        exp_cmd_sn: CmdSn::new(0x3300_bb46),
        max_cmd_sn: CmdSn::new(0x3300_bbc6),
        r2t_sn: R2tSn::new(0),
        buffer_offset: 0x2000,
        desired_data_transfer_length: NonZeroU32::new(0x3_e000).unwrap(),
    };
    let (r2t, _) = from_target(session("write-r2t"));
    assert_eq!(r2t, TargetPdu::R2t(expected));
    let (TargetPdu::ScsiResponse(end), _) = from_target(session("write-response")) else {
        panic!()
    };
    assert_eq!((end.itt, end.stat_sn), (itt(0x08da_234a), expected.stat_sn));
    assert_eq!((end.status, end.residual), (Status::GOOD, Residual::None));
}

#[test]
fn data_with_status_under_digests() {
    let (pdu, data) = from_target(captured(DIGESTS, Digest::Crc32c, "inquiry-data-in"));
    let status =
        DataInStatus { stat_sn: StatSn::new(2), status: Status::GOOD, residual: Residual::None };
    let expected = DataIn {
        is_final: true,
        acknowledge: false,
        status: Some(status),
        lun: Lun::ZERO,
        itt: itt(10),
        ttt: None,
        exp_cmd_sn: CmdSn::new(3),
        max_cmd_sn: CmdSn::new(0x83),
        data_sn: DataSn::new(0),
        buffer_offset: 0,
    };
    assert_eq!(pdu, TargetPdu::DataIn(expected));
    assert_eq!(StandardInquiry::decode(&data).unwrap().product, "VIRTUAL-DISK");

    let (_, data) = from_target(captured(DIGESTS, Digest::Crc32c, "check-condition"));
    let sense = Sense::decode(&sense_of(&data)).unwrap();
    assert_eq!((sense.additional.asc, sense.additional.ascq), (0x29, 0));
}
