//! Tests of reads: all legal sequences of Data-In, and the check that all data arrived (RFC 7143 §11.4,
//! §11.7).

use bytes::BytesMut;
use iscsi_pdu::scsi::{Cdb, Lun, Sense, SenseKey, Status};
use iscsi_pdu::{Cid, Residual, ServiceResponse};
use iscsi_session::{Command, ProtocolError, SessionError, TaskError, Waiting};
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::fault::{Effect, Fault};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdus::scsi_response;
use iscsi_testkit::{expect, send};

use crate::pair::{BLOCK, Pair, config, read, target_config, write};
use crate::trace::Trace;

fn target_with(fault: Fault) -> TargetConfig {
    let mut target = target_config(256);
    target.data_in.separate_status = true;
    target.data_in.pdu = Some(2048);
    target.faults.push(fault);
    target
}

fn protocol_error(pair: &Pair) -> &ProtocolError {
    match &pair.ended {
        Some(Err(SessionError::Protocol(error))) => error,
        other => panic!("no protocol error: {other:?}"),
    }
}

/// RD-01, RD-02, RD-03, RD-05, RD-07, RD-09, UNH FFP 10.1, 11.1.2, QRK-13, QRK-16: all legal sequences of
/// Data-In give the same bytes.
#[test]
fn rd_03_every_shape_of_data_in_brings_the_same_bytes() {
    for shape in 0..64u32 {
        let bit = |n: u32| shape & (1 << n) != 0;
        let mut target = target_config(256);
        target.data_in.pdu = Some(1500);
        target.data_in.sequence = Some(4096);
        target.data_in.separate_status = bit(0);
        target.data_in.empty_first = bit(1);
        target.data_in.junk = bit(2);
        target.data_in.zero_exp_data_sn = bit(3);
        target.data_in.shuffle_pdus = bit(4);
        target.data_in.shuffle_sequences = bit(5);
        target.keys.data_pdu_in_order = !bit(4);
        target.keys.data_sequence_in_order = !bit(5);
        let mut offer = config();
        offer.offer =
            offer.offer.with_data_pdu_in_order(!bit(4)).with_data_sequence_in_order(!bit(5));
        let mut pair = Pair::logged_in(offer, target);
        for blocks in [1, 7, 40] {
            let done = pair.execute(read(3, blocks)).unwrap();
            let len = usize::from(blocks) * BLOCK;
            assert_eq!(done.status, Status::GOOD);
            assert_eq!(done.data, pair.target.disk(0).unwrap().read(3 * BLOCK as u64, len));
        }
        pair.assert_no_violations();
    }
}

/// RD-12: fewer bytes than expected are no error; the buffer is cut to their number.
#[test]
fn rd_12_underflow_is_reported_and_the_buffer_is_cut() {
    let mut pair = Pair::logged_in(config(), target_config(256));
    let command = Command::new(Lun::ZERO, Cdb::inquiry(255)).with_read(BytesMut::zeroed(4096));
    let done = pair.execute(command).unwrap();
    assert_eq!(done.status, Status::GOOD);
    assert!(
        matches!(done.residual, Residual::Underflow(left) if left as usize == 4096 - done.data.len())
    );
    assert!((36..=255).contains(&done.data.len()));
}

/// RD-09, SPC-4 §4.2.5.6: parameter data contain their own length, so a target that sends less than the
/// allocation length may omit the residual.
#[test]
fn rd_09_parameter_data_are_taken_as_far_as_they_came() {
    for separate_status in [false, true] {
        let mut target = target_config(256);
        target.data_in.no_residual = true;
        target.data_in.separate_status = separate_status;
        let mut pair = Pair::logged_in(config(), target);
        for (cdb, len, sent) in [
            (Cdb::inquiry(255), 255, 74),
            (Cdb::inquiry_vpd(0, 255), 255, 10),
            (Cdb::mode_sense_6(0x3f, 255), 255, 36),
            (Cdb::mode_sense_10(0x3f, 512), 512, 40),
            (Cdb::report_luns(0, 256), 256, 16),
            (Cdb::read_capacity_10(), 16, 8),
            (Cdb::read_capacity_16(64), 64, 32),
            (Cdb::get_lba_status(0, 64), 64, 24),
        ] {
            let name = cdb.operation_name();
            let command = Command::new(Lun::ZERO, cdb).with_read(BytesMut::zeroed(len));
            let done = pair.execute(command).unwrap();
            assert_eq!((done.status, done.data.len()), (Status::GOOD, sent), "{name}");
            assert_eq!(done.residual, Residual::None);
        }
    }
}

/// Parameter data that arrive with a gap end at the gap: only the bytes before it are returned.
#[test]
fn rd_09_parameter_data_end_at_a_hole() {
    let mut target = target_config(256);
    target.data_in.no_residual = true;
    target.data_in.separate_status = true;
    target.data_in.zero_exp_data_sn = true;
    target.data_in.pdu = Some(32);
    let moved = Effect::SetWord { at: 40, value: 96 };
    target.faults.push(Fault::sending(Opcode::DataIn, 1, moved));
    target.faults.push(Fault::sending(Opcode::DataIn, 2, Effect::SetWord { at: 40, value: 128 }));
    let mut pair = Pair::logged_in(config(), target);
    let command = Command::new(Lun::ZERO, Cdb::inquiry(255)).with_read(BytesMut::zeroed(255));
    assert_eq!(pair.execute(command).unwrap().data.len(), 32);
}

/// RD-08: if a target counts more Data-Ins than arrived, some were lost, and the command is an error.
#[test]
fn rd_08_parameter_data_that_were_lost_are_no_success() {
    let mut target = target_with(Fault::sending(Opcode::DataIn, 2, Effect::Swallow));
    target.data_in.pdu = Some(32);
    target.data_in.no_residual = true;
    let mut pair = Pair::logged_in(config(), target);
    let command = Command::new(Lun::ZERO, Cdb::inquiry(255)).with_read(BytesMut::zeroed(255));
    let error = pair.execute(command).unwrap_err();
    assert!(matches!(error, TaskError::DataMissing { .. }), "{error:?}");
}

/// RD-08: blocks of the medium do not contain their length, so a short READ without a residual is an error.
#[test]
fn rd_08_short_blocks_are_no_success() {
    let mut trace = Trace::logged_in();
    for command in [read(0, 2), Command::new(Lun::ZERO, Cdb::new(&[0xc1, 0, 0, 0, 0, 0]).unwrap())]
    {
        let itt = trace.submit(command.with_read(BytesMut::zeroed(1024)));
        expect!(trace, ScsiCommand);
        send!(trace, data_in { itt: itt.get(), data: vec![1; 512], last: false });
        send!(trace, scsi_response { itt: itt.get(), exp_data_sn: 1 });
        let missing = TaskError::DataMissing { expected: 1024, transferred: 512 };
        assert_eq!(trace.result(itt).unwrap_err(), missing);
    }
}

/// RD-10 and the appendix of faults: with a response code other than zero, the command is an error.
#[test]
fn rd_10_failed_service_response_is_never_good() {
    for code in [0x01, 0x80, 0xff] {
        let mut pair = Pair::logged_in(config(), target_with(Fault::failed_response(0, code)));
        let error = pair.execute(read(0, 8)).unwrap_err();
        assert_eq!(error, TaskError::TargetFailure(ServiceResponse(code)));
        assert!(pair.ended.is_none());
    }
}

/// RD-08, SEQ-22: a gap in DataSN means lost data, and ends the session.
#[test]
fn seq_22_gap_in_data_sn_ends_the_session() {
    let mut pair = Pair::logged_in(config(), target_with(Fault::data_sn_gap(1)));
    let error = pair.execute(read(0, 16)).unwrap_err();
    assert!(matches!(error, TaskError::Session { sent: true, .. }), "{error:?}");
    assert!(matches!(protocol_error(&pair), ProtocolError::DataIn { .. }));
}

/// RD-08, RD-09: if the last Data-In is missing, GOOD is an error, with ExpDataSN or without.
#[test]
fn rd_08_missing_tail_is_never_good() {
    for zero_exp_data_sn in [false, true] {
        let mut target = target_with(Fault::sending(Opcode::DataIn, 3, Effect::Swallow));
        target.data_in.zero_exp_data_sn = zero_exp_data_sn;
        let mut pair = Pair::logged_in(config(), target);
        let error = pair.execute(read(0, 16)).unwrap_err();
        assert_eq!(error, TaskError::DataMissing { expected: 8192, transferred: 6144 });
        assert!(pair.execute(read(0, 16)).is_ok(), "the session goes on");
    }
}

/// RD-06: data beyond the buffer or the declared length is never stored.
#[test]
fn rd_06_data_beyond_the_buffer_ends_the_session() {
    for (at, value) in [(40, 8190), (40, u32::MAX)] {
        let fault = Fault::sending(Opcode::DataIn, 0, Effect::SetWord { at, value });
        let mut pair = Pair::logged_in(config(), target_with(fault));
        assert!(pair.execute(read(0, 16)).is_err());
        assert!(matches!(protocol_error(&pair), ProtocolError::DataIn { .. }));
    }
    let mut small = config();
    small.offer = small.offer.with_max_recv_data_segment_length(512);
    let long = Effect::SetData(vec![0; 513].into());
    let mut pair = Pair::logged_in(small, target_with(Fault::sending(Opcode::DataIn, 0, long)));
    assert!(pair.execute(read(0, 1)).is_err());
    let error = ProtocolError::DataSegmentLength { len: 513, limit: 512 };
    assert_eq!(protocol_error(&pair), &error);
}

/// ERR-12: a length beyond the limit is refused as soon as the header has arrived, without the data.
#[test]
fn err_12_too_long_is_refused_by_the_header() {
    let mut trace = Trace::logged_in();
    trace.submit(read(0, 1));
    expect!(trace, ScsiCommand);
    let mut header = [0; 48];
    header[..8].copy_from_slice(&[0x25, 0x80, 0, 0, 0, 0xff, 0xff, 0xff]);
    trace.receive(header.to_vec().into());
    let limit = config().offer.max_recv_data_segment_length() as usize;
    let error = ProtocolError::DataSegmentLength { len: 0xff_ffff, limit };
    assert_eq!(*trace.failure(), SessionError::Protocol(error));
}

/// RD-07: offsets that decrease although data must be in order, and bytes that arrive twice, end the session.
#[test]
fn rd_07_repeated_bytes_end_the_session() {
    let back = Fault::sending(Opcode::DataIn, 1, Effect::SetWord { at: 40, value: 0 });
    let mut pair = Pair::logged_in(config(), target_with(back));
    assert!(pair.execute(read(0, 16)).is_err());
    assert!(matches!(protocol_error(&pair), ProtocolError::DataIn { .. }));
}

/// RD-16, SEQ-19: a Data-In for a write, or for no task, ends the session.
#[test]
fn rd_16_data_in_for_the_wrong_task_ends_the_session() {
    let fault = Fault::wrong_itt(Opcode::DataIn, 0, 0x00ab_c000);
    let mut pair = Pair::logged_in(config(), target_with(fault));
    assert!(pair.execute(read(0, 16)).is_err());
    assert!(matches!(protocol_error(&pair), ProtocolError::Task { .. }));
}

/// RD-04: the A bit has no meaning at ErrorRecoveryLevel 0.
#[test]
fn rd_04_acknowledge_bit_is_ignored() {
    let fault = Fault::sending(Opcode::DataIn, 0, Effect::SetByte { at: 1, value: 0x40 });
    let mut pair = Pair::logged_in(config(), target_with(fault));
    assert_eq!(pair.execute(read(0, 16)).unwrap().status, Status::GOOD);
}

/// RD-11: a response with both O and U is a protocol error.
#[test]
fn rd_11_overflow_with_underflow_is_a_protocol_error() {
    let fault = Fault::sending(Opcode::ScsiResponse, 0, Effect::SetByte { at: 1, value: 0x86 });
    let mut pair = Pair::logged_in(config(), target_with(fault));
    assert!(pair.execute(read(0, 16)).is_err());
    assert!(matches!(protocol_error(&pair), ProtocolError::Decode(_)));
}

/// RD-13, LAY-19: sense data is passed on as far as it is present: SenseLength may be longer than the data
/// segment, or missing.
#[test]
fn rd_13_sense_is_bounded_by_its_segment() {
    let beyond = || read(60000, 1);
    let mut pair = Pair::logged_in(config(), target_config(256));
    let done = pair.execute(beyond()).unwrap();
    assert_eq!(done.status, Status::CHECK_CONDITION);
    let sense = Sense::decode(&done.sense).unwrap();
    assert_eq!((sense.additional.asc, sense.additional.ascq), (0x21, 0x00));
    let cut = b"\0\x12\x70\0\x05\0\0\0\0\x0a\0\0";
    for (data, sense) in [(&b""[..], &b""[..]), (b"\0", b""), (cut, &cut[2..])] {
        let fault = Fault::sending(Opcode::ScsiResponse, 0, Effect::SetData(data.into()));
        let mut pair = Pair::logged_in(config(), target_with(fault));
        let done = pair.execute(beyond()).unwrap();
        assert_eq!((done.status, &done.sense[..]), (Status::CHECK_CONDITION, sense));
    }
    assert_eq!(Sense::decode(&cut[2..]).unwrap().key, SenseKey::IllegalRequest);
}

/// RD-15: an unknown status is passed to the caller unchanged.
#[test]
fn rd_15_unknown_status_is_passed_up() {
    for status in [0x08, 0x10, 0x18, 0x22, 0x28, 0x40, 0xfe] {
        let fault =
            Fault::sending(Opcode::ScsiResponse, 0, Effect::SetByte { at: 3, value: status });
        let mut pair = Pair::logged_in(config(), target_with(fault));
        assert_eq!(pair.execute(read(0, 4)).unwrap().status, Status(status));
    }
}

/// A read that exceeds the limit is sent when no other read is in flight, and reads after one that is held
/// back keep their order.
#[test]
fn a_read_limit_holds_reads_back_and_none_for_ever() {
    let mut trace = Trace::logged_in();
    trace.session.limit_reads(Cid(0), 3 * 512);
    let [first, second, third] =
        [(0, 2), (2, 1), (3, 4)].map(|(lba, n)| trace.submit(read(lba, n)));
    let write = trace.submit(write(9, vec![0; 512]));
    assert_eq!(expect!(trace, ScsiCommand).itt(), first.get());
    assert_eq!(expect!(trace, ScsiCommand).itt(), second.get());
    trace.silence();
    assert_eq!(trace.session.waiting_for(), Waiting::ReadLimit);
    for (itt, len) in [(first, 1024), (second, 512)] {
        trace.silence();
        trace.send(scsi_response().itt(itt.get()).underflow(len));
    }
    assert_eq!(expect!(trace, ScsiCommand).itt(), third.get());
    assert_eq!(expect!(trace, ScsiCommand).itt(), write.get());
    assert_eq!(trace.session.waiting_for(), Waiting::Answers);
}
