//! Tests of headers that were assembled by hand from the figures of RFC 7143 §11, for PDUs that a correct
//! target does not send in a capture. Each header decodes to one value, and the value encodes to the same
//! words.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test may panic")]

use bytes::Bytes;
use iscsi_pdu::scsi::{Cdb, Lun, Status};
use iscsi_pdu::{
    AsyncEvent, AsyncMessage, Bhs, Cid, CmdSn, DataIn, DataInStatus, DataSn, Header, InitiatorPdu,
    Isid, Itt, LoginRequest, LoginResponse, LoginStatus, LogoutCode, LogoutReason, LogoutRequest,
    LogoutResponse, Reject, RejectReason, Residual, ScsiCommand, ScsiResponse, ServiceResponse,
    SnackKind, SnackRequest, Stage, StatSn, TargetPdu, TaskAttribute, TextRequest, Tsih, Ttt,
};

/// Returns a header from its twelve words and the additional header segments.
fn header(words: &str) -> Header {
    let words: Vec<u32> =
        words.split_whitespace().map(|word| u32::from_str_radix(word, 16).unwrap()).collect();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    let bhs = Bhs::from_bytes(*bytes.first_chunk().unwrap());
    Header { bhs, ahs: Bytes::from(bytes).slice(Bhs::LEN..) }
}

/// Checks that the words decode to the value, and that the value encodes to the words.
fn target(words: &str, pdu: &TargetPdu) {
    let header = header(words);
    assert_eq!(TargetPdu::decode(&header).as_ref(), Ok(pdu));
    assert_eq!(pdu.encode(), header);
}

fn initiator(words: &str, pdu: &InitiatorPdu) {
    let header = header(words);
    assert_eq!(InitiatorPdu::decode(&header).as_ref(), Ok(pdu));
    assert_eq!(pdu.encode(), header);
}

fn itt(tag: u32) -> Itt {
    Itt::new(tag).unwrap()
}

/// LAY-14, REJ-01: a Reject has no Initiator Task Tag, and a DataSN only for rejected data.
#[test]
fn lay_14_reject() {
    let reject = Reject {
        reason: RejectReason::PROTOCOL_ERROR,
        stat_sn: StatSn::new(0x11),
        exp_cmd_sn: CmdSn::new(0x22),
        max_cmd_sn: CmdSn::new(0x33),
        data_sn: DataSn::new(0x44),
    };
    target(
        "3f800400 00000000 00000000 00000000 ffffffff 00000000 \
         00000011 00000022 00000033 00000044 00000000 00000000",
        &TargetPdu::Reject(reject),
    );
}

/// LAY-14: the last words of an Asynchronous Message depend on its event.
#[test]
fn lay_14_asynchronous_messages() {
    let (time2wait, time2retain) = (3, 20);
    for (event, words) in [
        (AsyncEvent::ScsiAsyncEvent, "00000000 00000000"),
        (AsyncEvent::LogoutRequest { time: 10 }, "01000000 0000000a"),
        (
            AsyncEvent::ConnectionDropped { cid: Cid(7), time2wait, time2retain },
            "02000007 00030014",
        ),
        (AsyncEvent::SessionDropped { time2wait, time2retain }, "03000000 00030014"),
        (AsyncEvent::NegotiationRequest { time: 10 }, "04000000 0000000a"),
        (AsyncEvent::TaskTermination, "05000000 00000000"),
        (AsyncEvent::Vendor { event: 248, code: 9 }, "f8090000 00000000"),
        (AsyncEvent::Vendor { event: 255, code: 0 }, "ff000000 00000000"),
        (AsyncEvent::Other(247), "f7000000 00000000"),
    ] {
        let message = AsyncMessage {
            lun: Lun::from(1),
            stat_sn: StatSn::new(0x11),
            exp_cmd_sn: CmdSn::new(0x22),
            max_cmd_sn: CmdSn::new(0x33),
            event,
        };
        let head = "32800000 00000000 00010000 00000000 ffffffff 00000000 \
                    00000011 00000022 00000033";
        target(&format!("{head} {words} 00000000"), &TargetPdu::AsyncMessage(message));
    }
}

/// LAY-15, SNK-02, SNK-03: a SNACK Request has its type, tags and runs in the right fields.
#[test]
fn lay_15_snack_requests() {
    let none = SnackRequest {
        kind: SnackKind::Status,
        lun: Lun::ZERO,
        itt: None,
        tag: u32::MAX,
        exp_stat_sn: StatSn::new(0x11),
        beg_run: 5,
        run_length: 2,
    };
    let acknowledge =
        SnackRequest { kind: SnackKind::DataAck, lun: Lun::from(1), tag: 0x99, ..none };
    let data = SnackRequest { kind: SnackKind::DataOrR2t, itt: Some(itt(0)), ..none };
    for (snack, flags, middle) in [
        (none, "10810000", "00000000 00000000 ffffffff ffffffff"),
        (acknowledge, "10820000", "00010000 00000000 ffffffff 00000099"),
        (data, "10800000", "00000000 00000000 00000000 ffffffff"),
    ] {
        let tail = "00000000 00000011 00000000 00000000 00000005 00000002";
        let words = format!("{flags} 00000000 {middle} {tail}");
        initiator(&words, &InitiatorPdu::SnackRequest(snack));
    }
}

/// LAY-02, LAY-03, LAY-05, WR-22: a CDB of 18 bytes and a read length are in two additional segments. The
/// first segment holds 1 + 2 bytes and two of padding.
#[test]
fn lay_03_bidirectional_command_with_an_extended_cdb() {
    let cdb: Vec<u8> = (0x7f..0x7f + 18).collect();
    let command = ScsiCommand {
        immediate: true,
        is_final: false,
        read: true,
        write: true,
        attribute: TaskAttribute::HeadOfQueue,
        priority: 10,
        lun: Lun::new(300).unwrap(),
        itt: itt(0x1234),
        expected_data_transfer_length: 0x200,
        cmd_sn: CmdSn::new(0x22),
        exp_stat_sn: StatSn::new(0x11),
        cdb: Cdb::new(&cdb).unwrap(),
        bidirectional_read_length: Some(0x400),
    };
    initiator(
        "4163a000 04000000 412c0000 00000000 00001234 00000200 00000022 00000011 \
         7f808182 83848586 8788898a 8b8c8d8e \
         00030100 8f900000 00050200 00000400",
        &InitiatorPdu::ScsiCommand(command),
    );
}

/// LAY-06, PL2-03: the residual of the read half comes before the residual of the write half.
#[test]
fn lay_06_response_with_two_residuals() {
    let response = ScsiResponse {
        response: ServiceResponse::COMPLETED_AT_TARGET,
        status: Status::TASK_SET_FULL,
        residual: Residual::Overflow(0x66),
        bidirectional_residual: Residual::Underflow(0x55),
        status_qualifier: 0xc00a,
        itt: itt(0x1234),
        snack_tag: 0x99,
        stat_sn: StatSn::new(0x11),
        exp_cmd_sn: CmdSn::new(0x22),
        max_cmd_sn: CmdSn::new(0x33),
        exp_data_sn: DataSn::new(0x44),
    };
    target(
        "218c0028 00000000 c00a0000 00000000 00001234 00000099 \
         00000011 00000022 00000033 00000044 00000055 00000066",
        &TargetPdu::ScsiResponse(response),
    );
}

/// LAY-07: checks the fields of a Data-In with all flags except U, and with a tag to acknowledge.
#[test]
fn lay_07_data_in() {
    let status = DataInStatus {
        stat_sn: StatSn::new(0x11),
        status: Status::CONDITION_MET,
        residual: Residual::Overflow(0x66),
    };
    let data_in = DataIn {
        is_final: true,
        acknowledge: true,
        status: Some(status),
        lun: Lun::from(1),
        itt: itt(0x1234),
        ttt: Ttt::new(0x99),
        exp_cmd_sn: CmdSn::new(0x22),
        max_cmd_sn: CmdSn::new(0x33),
        data_sn: DataSn::new(0x44),
        buffer_offset: 0x55,
    };
    target(
        "25c50004 00000000 00010000 00000000 00001234 00000099 \
         00000011 00000022 00000033 00000044 00000055 00000066",
        &TargetPdu::DataIn(data_in),
    );
}

/// LAY-10: every field of a Login Request is in its place.
#[test]
fn lay_10_login_request() {
    let request = LoginRequest {
        transit: true,
        is_continued: false,
        current_stage: Stage::SecurityNegotiation,
        next_stage: Stage::OperationalNegotiation,
        version_max: 2,
        version_min: 1,
        isid: Isid::from_bytes([0x80, 0xa1, 0xa2, 0xa3, 0xb1, 0xb2]),
        tsih: Tsih(0xc1c2),
        itt: itt(0x1234),
        cid: Cid(0xd1d2),
        cmd_sn: CmdSn::new(0x22),
        exp_stat_sn: StatSn::new(0x11),
    };
    initiator(
        "43810201 00000000 80a1a2a3 b1b2c1c2 00001234 d1d20000 \
         00000022 00000011 00000000 00000000 00000000 00000000",
        &InitiatorPdu::LoginRequest(request),
    );
    let continued = LoginRequest {
        transit: false,
        is_continued: true,
        current_stage: Stage::OperationalNegotiation,
        next_stage: Stage::OperationalNegotiation,
        ..request
    };
    initiator(
        "43440201 00000000 80a1a2a3 b1b2c1c2 00001234 d1d20000 \
         00000022 00000011 00000000 00000000 00000000 00000000",
        &InitiatorPdu::LoginRequest(continued),
    );
}

/// LAY-10: checks the fields of a Login Response that refuses the login, and the name of its status.
#[test]
fn lay_10_login_response() {
    let response = LoginResponse {
        transit: false,
        is_continued: false,
        current_stage: Stage::SecurityNegotiation,
        next_stage: None,
        version_max: 2,
        version_active: 1,
        isid: Isid::from_bytes([0x80, 0xa1, 0xa2, 0xa3, 0xb1, 0xb2]),
        tsih: Tsih(0),
        itt: itt(0x1234),
        stat_sn: StatSn::new(0x11),
        exp_cmd_sn: CmdSn::new(0x22),
        max_cmd_sn: CmdSn::new(0x33),
        status: LoginStatus { class: 2, detail: 1 },
    };
    assert_eq!(response.status.to_string(), "authentication failure (0201)");
    target(
        "23000201 00000000 80a1a2a3 b1b20000 00001234 00000000 \
         00000011 00000022 00000033 02010000 00000000 00000000",
        &TargetPdu::LoginResponse(response),
    );
}

/// LAY-12: the CID is at byte 20, the times are at 40 and 42, and a text has its C bit.
#[test]
fn lay_12_logout_and_text() {
    let request = LogoutRequest {
        immediate: false,
        reason: LogoutReason::RemoveConnectionForRecovery,
        itt: itt(0x1234),
        cid: Cid(0xd1d2),
        cmd_sn: CmdSn::new(0x22),
        exp_stat_sn: StatSn::new(0x11),
    };
    initiator(
        "06820000 00000000 00000000 00000000 00001234 d1d20000 \
         00000022 00000011 00000000 00000000 00000000 00000000",
        &InitiatorPdu::LogoutRequest(request),
    );
    let response = LogoutResponse {
        response: LogoutCode::RECOVERY_NOT_SUPPORTED,
        itt: itt(0x1234),
        stat_sn: StatSn::new(0x11),
        exp_cmd_sn: CmdSn::new(0x22),
        max_cmd_sn: CmdSn::new(0x33),
        time2wait: 2,
        time2retain: 20,
    };
    target(
        "26800200 00000000 00000000 00000000 00001234 00000000 \
         00000011 00000022 00000033 00000000 00020014 00000000",
        &TargetPdu::LogoutResponse(response),
    );
    let text = TextRequest {
        immediate: false,
        is_final: false,
        is_continued: true,
        lun: Lun::from(1),
        itt: itt(0x1234),
        ttt: Ttt::new(0),
        cmd_sn: CmdSn::new(0x22),
        exp_stat_sn: StatSn::new(0x11),
    };
    initiator(
        "04400000 00000000 00010000 00000000 00001234 00000000 \
         00000022 00000011 00000000 00000000 00000000 00000000",
        &InitiatorPdu::TextRequest(text),
    );
}
