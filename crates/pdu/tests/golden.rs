//! Tests with captured PDUs of both directions: their values, and that the values encode to the same bytes.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    missing_docs,
    reason = "a test may panic"
)]

use std::num::NonZeroU32;

use bytes::Bytes;
use iscsi_pdu::keys::decode_pairs;
use iscsi_pdu::scsi::{Lun, Sense, Status};
use iscsi_pdu::{
    Bhs, Cid, CmdSn, DataInStatus, Header, InitiatorPdu, Itt, LogoutCode, LogoutReason, R2t, R2tSn,
    Residual, Stage, StatSn, TargetPdu, Tsih, Ttt, sense_of,
};

const TGT: &str = include_str!("vectors/tgt.hex");

/// Returns the header and the data segment of a captured PDU, by its name.
fn captured(name: &str) -> (Header, Bytes) {
    let line = TGT.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
    let digit = |at: usize| u8::from_str_radix(&line[at..at + 2], 16).unwrap();
    let bytes: Vec<u8> = (0..line.len()).step_by(2).map(digit).collect();
    let bhs = Bhs::from_bytes(*bytes.first_chunk().unwrap());
    let data = Bytes::from(bytes).slice(Bhs::LEN..);
    let len = bhs.data_len().min(data.len());
    (bhs.into(), data.slice(..len))
}

/// Decodes a PDU, encodes it, and compares everything except DataSegmentLength, which framing sets.
fn target(name: &str) -> TargetPdu {
    let (header, _) = captured(name);
    let pdu = TargetPdu::decode(&header).unwrap();
    let mut again = pdu.encode();
    again.bhs.set_data_len(header.bhs.data_len());
    assert_eq!(again, header, "{name}");
    pdu
}

fn initiator(name: &str) -> InitiatorPdu {
    let (header, _) = captured(name);
    let pdu = InitiatorPdu::decode(&header).unwrap();
    let mut again = pdu.encode();
    again.bhs.set_data_len(header.bhs.data_len());
    assert_eq!(again, header, "{name}");
    pdu
}

#[test]
fn login() {
    let InitiatorPdu::LoginRequest(request) = initiator("login-request") else { panic!() };
    assert_eq!(
        (request.current_stage, request.next_stage),
        (Stage::OperationalNegotiation, Stage::FullFeature)
    );
    assert_eq!((request.tsih, request.cid, request.cmd_sn), (Tsih(0), Cid(0), CmdSn::new(1)));
    assert_eq!(request.isid.to_bytes()[0], 0x80);
    let TargetPdu::LoginResponse(response) = target("login-response") else { panic!() };
    assert_eq!(response.next_stage, Some(Stage::FullFeature));
    assert_eq!((response.tsih, response.isid), (Tsih(0x100), request.isid));
    assert!(response.status.is_success());
    let text = captured("login-response").1;
    let pairs = decode_pairs(&text).unwrap();
    assert_eq!(pairs.first(), Some(&("TargetPortalGroupTag", "1")));
    assert_eq!(pairs.last(), Some(&("ErrorRecoveryLevel", "0")));
    assert!(pairs.contains(&("MaxBurstLength", "262144")));
}

#[test]
fn commands_and_their_ends() {
    let InitiatorPdu::ScsiCommand(ready) = initiator("command-test-unit-ready") else { panic!() };
    assert!(ready.is_final && !ready.read && !ready.write);
    assert_eq!((ready.lun, ready.cdb.as_bytes()), (Lun::from(1), &[0; 6][..]));
    let InitiatorPdu::ScsiCommand(inquiry) = initiator("command-inquiry") else { panic!() };
    assert!(inquiry.is_final && inquiry.read && !inquiry.write);
    assert_eq!(inquiry.expected_data_transfer_length, 1024);
    assert_eq!(inquiry.cdb.as_bytes(), [0x12, 1, 0, 4, 0, 0]);
    let TargetPdu::ScsiResponse(response) = target("response-check-condition") else { panic!() };
    assert_eq!(response.status, Status::CHECK_CONDITION);
    assert_eq!((response.stat_sn, response.max_cmd_sn), (StatSn::new(1), CmdSn::new(0x83)));
    let sense = sense_of(&captured("response-check-condition").1);
    assert_eq!(Sense::decode(&sense).unwrap().additional.asc, 0x29);
    let TargetPdu::DataIn(data_in) = target("data-in-status") else { panic!() };
    let status = DataInStatus {
        stat_sn: StatSn::new(2),
        status: Status::GOOD,
        residual: Residual::Underflow(30),
    };
    assert_eq!((data_in.is_final, data_in.status), (true, Some(status)));
}

/// LAY-08, LAY-09: checks the fields of an R2T, and of a Data-Out that is sent for this R2T.
#[test]
fn write_data() {
    let TargetPdu::R2t(r2t) = target("r2t") else { panic!() };
    let expected = R2t {
        lun: Lun::from(1),
        itt: Itt::new(0x1002).unwrap(),
        ttt: Ttt::new(0xf005_2e49).unwrap(),
        stat_sn: StatSn::new(14),
        exp_cmd_sn: CmdSn::new(15),
        max_cmd_sn: CmdSn::new(0x8f),
        r2t_sn: R2tSn::new(0),
        buffer_offset: 0x2000,
        desired_data_transfer_length: NonZeroU32::new(0xe000).unwrap(),
    };
    assert_eq!(r2t, expected);
    let InitiatorPdu::DataOut(data_out) = initiator("data-out") else { panic!() };
    assert_eq!((data_out.ttt, data_out.buffer_offset), (Some(r2t.ttt), r2t.buffer_offset));
    assert!(!data_out.is_final);
}

/// LAY-17: a ping has no transfer tag, and its response has the task tag of the ping.
#[test]
fn pings_and_logout() {
    let InitiatorPdu::NopOut(ping) = initiator("nop-out") else { panic!() };
    let TargetPdu::NopIn(pong) = target("nop-in") else { panic!() };
    assert_eq!((ping.itt, ping.ttt, ping.immediate), (pong.itt, None, true));
    let InitiatorPdu::LogoutRequest(request) = initiator("logout-request") else { panic!() };
    assert_eq!((request.reason, request.cid), (LogoutReason::CloseSession, Cid(0)));
    let TargetPdu::LogoutResponse(response) = target("logout-response") else { panic!() };
    assert_eq!((response.response, response.itt), (LogoutCode::SUCCESS, request.itt));
}
