//! Tests of rules that no other topic covers: one test each, with the rule's id in the name.

use bytes::{Buf, BytesMut};
use iscsi_pdu::scsi::{Cdb, Lun, Status};
use iscsi_pdu::{Cid, Residual};
use iscsi_session::{Command, DigestOffer, ProtocolError, SessionError, SessionKind, TaskError};
use iscsi_testkit::crc32c::digest;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::NO_TAG;
use iscsi_testkit::pdus::{Template, data_in, r2t, scsi_response};
use iscsi_testkit::text::Pairs;
use iscsi_testkit::{expect, send};

use crate::pair::{config, pattern, read, write};
use crate::trace::Trace;

const CID: Cid = Cid(0);

/// Keys with which no data is sent unsolicited, and the longest data segment is not a multiple of four.
const SOLICITED: [(&str, &str); 3] =
    [("InitialR2T", "Yes"), ("ImmediateData", "No"), ("MaxRecvDataSegmentLength", "515")];

/// Returns a bidirectional command of `len` bytes each way.
fn both_ways(len: usize) -> Command {
    let cdb = Cdb::new(&[0x53, 0, 0, 0, 0, 0, 0, 0, 2, 0]).unwrap();
    Command::new(Lun::ZERO, cdb).with_read(BytesMut::zeroed(len)).with_write(pattern(len, 1))
}

/// Returns a write that waits for its R2Ts.
fn awaiting_r2t(len: usize) -> (Trace, iscsi_pdu::Itt) {
    let mut trace = Trace::with_answers(&SOLICITED);
    let itt = trace.submit(write(0, pattern(len, 1)));
    expect!(trace, ScsiCommand);
    (trace, itt)
}

/// TXT-29: a request without text is sent only if the target has more text to send.
#[test]
fn txt_29_no_empty_request_unasked() {
    let mut trace = Trace::new(config());
    assert!(!trace.login(&[]).data.is_empty());
    trace.silence();
    let mut discovery = config();
    discovery.kind = SessionKind::Discovery;
    let mut trace = Trace::established(discovery, &[]);
    trace.advance(std::time::Duration::from_secs(3600));
    trace.silence();
    trace.session.send_targets(trace.now).unwrap();
    let request = expect!(trace, TextRequest);
    assert!(!request.data.is_empty());
    send!(trace, text_response { itt: request.itt(), ttt: 1, last: false });
    let more = expect!(trace, TextRequest { ttt: 1 });
    assert!(more.data.is_empty());
    send!(trace, text_response { itt: request.itt() });
    trace.silence();
}

/// DIG-02, WR-22: the header digest covers the header with its additional segments, and is sent after them.
#[test]
fn dig_02_header_digest_covers_additional_headers() {
    let mut config = config();
    config.offer = config.offer.with_header_digest(DigestOffer::Required);
    let mut trace = Trace::established(config, &[("HeaderDigest", "CRC32C")]);
    let cdb: Vec<u8> = [0x7f, 0, 0, 0, 0, 0, 0, 24].into_iter().chain(1..=24).collect();
    trace.submit(Command::new(Lun::ZERO, Cdb::new(&cdb).unwrap()));
    let mut transmit = trace.session.poll_transmit(CID, trace.now).unwrap();
    let bytes = transmit.copy_to_bytes(transmit.remaining());
    // The additional segment has 4 bytes of length, type and a reserved byte, then the 16 bytes of the CDB
    // that do not fit.
    let (header, crc) = bytes.split_at(48 + 20);
    assert_eq!((header[4], &header[48..52], &header[52..]), (5, &[0, 17, 1, 0][..], &cdb[16..]));
    assert_eq!(crc, digest(&[header]));
}

/// WR-14: all Data-Outs of a sequence but the last have a multiple of four bytes.
#[test]
fn wr_14_data_out_before_the_last_is_a_multiple_of_four() {
    for unasked in ["Yes", "No"] {
        let mut answers = SOLICITED;
        answers[0].1 = unasked;
        let mut trace = Trace::with_answers(&answers);
        let itt = trace.submit(write(0, pattern(4608, 1)));
        expect!(trace, ScsiCommand);
        if unasked == "Yes" {
            send!(trace, r2t { itt: itt.get(), ttt: 1, desired_length: 4608 });
        }
        trace.pump();
        let parts: Vec<_> = std::iter::from_fn(|| trace.script.try_next()).collect();
        let (last, others) = parts.split_last().unwrap();
        assert!(last.is_final() && others.iter().all(|part| part.data.len() == 512));
        assert_eq!(others.len(), 8);
    }
}

/// WR-15, QRK-44: an R2T that requests no data, more than there is, has no tag, or is for a read or for no
/// task, is an error, and no byte is sent for it.
#[test]
fn wr_15_impossible_r2t_is_an_error() {
    let good = |itt: u32| r2t().itt(itt).ttt(1).desired_length(1024);
    let spoils: [fn(Template) -> Template; 7] = [
        |r2t| r2t.desired_length(0),
        |r2t| r2t.desired_length(1025),
        |r2t| r2t.buffer_offset(1),
        |r2t| r2t.buffer_offset(u32::MAX),
        |r2t| r2t.buffer_offset(u32::MAX - 1023).desired_length(u32::MAX),
        |r2t| r2t.ttt(NO_TAG),
        |r2t| r2t.itt(0x0fff_ffff),
    ];
    for spoil in spoils {
        let (mut trace, itt) = awaiting_r2t(1024);
        trace.send(spoil(good(itt.get())));
        assert!(matches!(trace.failure(), SessionError::Protocol(_)));
        trace.silence();
    }
    let mut trace = Trace::logged_in();
    let itt = trace.submit(read(0, 2));
    expect!(trace, ScsiCommand);
    trace.send(good(itt.get()));
    assert!(matches!(trace.failure(), SessionError::Protocol(ProtocolError::Task { .. })));
}

/// WR-16, QRK-44: an R2T for more than MaxBurstLength is served in full.
#[test]
fn wr_16_long_r2t_is_served_whole() {
    let mut answers = SOLICITED.to_vec();
    answers.extend([("MaxBurstLength", "1024"), ("FirstBurstLength", "512")]);
    let mut trace = Trace::with_answers(&answers);
    let data = pattern(4096, 1);
    let itt = trace.submit(write(0, data.clone()));
    expect!(trace, ScsiCommand);
    send!(trace, r2t { itt: itt.get(), ttt: 1, desired_length: 4096 });
    let parts: Vec<_> = (0..8).map(|_| trace.expect(Opcode::DataOut)).collect();
    assert_eq!(parts.iter().flat_map(|part| part.data.to_vec()).collect::<Vec<_>>(), data);
    assert!(parts[7].is_final() && parts[..7].iter().all(|part| !part.is_final()));
    send!(trace, scsi_response { itt: itt.get() });
    assert_eq!(trace.result(itt).unwrap().status, Status::GOOD);
}

/// WR-21: a status in the middle of a burst ends the write: the PDU that has begun is finished, and the rest
/// of the burst is not sent.
#[test]
fn wr_21_early_status_ends_the_burst() {
    let (mut trace, itt) = awaiting_r2t(8192);
    trace.script.send(r2t().itt(itt.get()).ttt(1).desired_length(8192));
    trace.deliver();
    let mut transmit = trace.session.poll_transmit(CID, trace.now).unwrap();
    // The bytes are one whole PDU of 48 and 512 bytes, and part of the second.
    let bytes = transmit.copy_to_bytes(560 + 100);
    trace.script.receive(&bytes);
    trace.script.send(scsi_response().itt(itt.get()).status(2));
    trace.deliver();
    assert_eq!(trace.result(itt).unwrap().status, Status::CHECK_CONDITION);
    for _ in 0..2 {
        expect!(trace, DataOut { is_final: false });
    }
    trace.silence();
    trace.assert_usable();
}

/// WR-25: residuals for a length that does not fit the CDB are passed to the caller as the target reports them.
#[test]
fn wr_25_residuals_of_a_write_go_up() {
    for (answer, residual) in [
        (scsi_response().underflow(512), Residual::Underflow(512)),
        (scsi_response().overflow(512), Residual::Overflow(512)),
        (scsi_response().status(2).underflow(1024), Residual::Underflow(1024)),
    ] {
        let mut trace = Trace::logged_in();
        let itt = trace.submit(write(0, pattern(1024, 1)));
        expect!(trace, ScsiCommand { edtl: 1024 });
        let answer = trace.send(answer.itt(itt.get()));
        let done = trace.result(itt).unwrap();
        assert_eq!((done.status.0, done.residual), (answer.header[3], residual));
        trace.assert_usable();
    }
}

/// RD-14: the residuals of both halves of a bidirectional command are in its SCSI Response. A status in the
/// last Data-In has only one residual, so it reports that all bytes of the other half were transferred.
#[test]
fn rd_14_status_of_a_bidirectional_command() {
    for (landed, in_data, good) in
        [(1024, false, true), (512, false, true), (1024, true, true), (512, true, false)]
    {
        let mut trace = Trace::logged_in();
        let itt = trace.submit(both_ways(1024));
        let command = expect!(trace, ScsiCommand { edtl: 1024, writes: true });
        assert_eq!((command.ahs[2], command.ahs.len()), (2, 8));
        let data = data_in().itt(itt.get()).data(vec![1; landed]);
        if in_data {
            trace.send(data.status(0));
        } else {
            trace.send(data);
            let left = 1024 - landed as u32;
            let answer = scsi_response().itt(itt.get()).flag(0x08, left > 0).word(40, left);
            trace.send(answer);
        }
        match trace.result(itt) {
            Ok(done) => assert_eq!((good, done.data.len()), (true, landed)),
            Err(error) => assert!(!good && matches!(error, TaskError::DataMissing { .. })),
        }
    }
}

/// SEQ-24: Data-Ins and R2Ts of a bidirectional command share one counter.
#[test]
fn seq_24_data_in_and_r2t_are_counted_together() {
    for shared in [true, false] {
        let mut trace = Trace::with_answers(&SOLICITED);
        let itt = trace.submit(both_ways(1024));
        expect!(trace, ScsiCommand);
        trace.send(data_in().itt(itt.get()).data(vec![1; 512]).last(false));
        trace.send(r2t().itt(itt.get()).ttt(1).r2t_sn(1).desired_length(512));
        expect!(trace, DataOut { is_final: true });
        let data_sn = if shared { 2 } else { 1 };
        let last = data_in().itt(itt.get()).data(vec![1; 512]).buffer_offset(512);
        trace.send(last.data_sn(data_sn));
        if !shared {
            let error = trace.failure();
            assert!(matches!(error, SessionError::Protocol(ProtocolError::DataIn { .. })));
            continue;
        }
        trace.send(r2t().itt(itt.get()).ttt(2).r2t_sn(3).buffer_offset(512).desired_length(512));
        expect!(trace, DataOut { is_final: true });
        send!(trace, scsi_response { itt: itt.get(), exp_data_sn: 4 });
        assert_eq!(trace.result(itt).unwrap().data.len(), 1024);
    }
}

/// ERR-04, LOG-20: only implemented features are proposed: ErrorRecoveryLevel 0, no other task reporting, no
/// markers. If a target answers with more, the login fails.
#[test]
fn err_04_only_what_is_built_is_announced() {
    let mut trace = Trace::new(config());
    let said = Pairs::split(&trace.login(&[]).data).unwrap();
    assert_eq!(said.get("ErrorRecoveryLevel"), Some("0"));
    for key in ["TaskReporting", "IFMarker", "OFMarker", "iSCSIProtocolLevel"] {
        assert_eq!(said.get(key), None);
    }
    assert_eq!(trace.session.negotiated().unwrap().error_recovery_level, 0);
    let mut trace = Trace::new(config());
    trace.login(&[("ErrorRecoveryLevel", "1")]);
    assert!(matches!(trace.failure(), SessionError::Login(_)));
}

/// WR-18: an R2T that arrives twice is served once.
#[test]
fn wr_18_repeated_r2t_is_ignored() {
    let (mut trace, itt) = awaiting_r2t(1024);
    for round in [0, 0, 1, 0, 1] {
        let offset = 512 * round;
        let r2t = r2t().itt(itt.get()).ttt(round).r2t_sn(round);
        trace.script.send(r2t.buffer_offset(offset).desired_length(512));
    }
    trace.deliver();
    expect!(trace, DataOut { ttt: 0, buffer_offset: 0 });
    expect!(trace, DataOut { ttt: 1, buffer_offset: 512 });
    trace.silence();
    send!(trace, scsi_response { itt: itt.get() });
    assert_eq!(trace.result(itt).unwrap().status, Status::GOOD);
}

/// QRK-32: a sequence of Data-Ins longer than MaxBurstLength, with F only at its end, is accepted.
#[test]
fn qrk_32_data_in_beyond_max_burst_length() {
    let limits = [("MaxBurstLength", "512"), ("FirstBurstLength", "512")];
    let mut trace = Trace::with_answers(&limits);
    let itt = trace.submit(read(0, 4));
    expect!(trace, ScsiCommand);
    let part =
        |at: u32| data_in().itt(itt.get()).data(vec![1; 512]).data_sn(at).buffer_offset(512 * at);
    for at in 0..3 {
        trace.send(part(at).last(false));
    }
    trace.send(part(3).status(0));
    assert_eq!(trace.result(itt).unwrap().data, vec![1; 2048]);
}

/// PL2-03: the status qualifier of a response is passed on with the status.
#[test]
fn pl2_03_status_qualifier_is_passed_on() {
    let mut trace = Trace::logged_in();
    let itt = trace.submit(read(0, 1));
    expect!(trace, ScsiCommand);
    trace.send(scsi_response().itt(itt.get()).status(0x28).word(8, 0xc00a_0000));
    let done = trace.result(itt).unwrap();
    assert_eq!((done.status, done.status_qualifier), (Status::TASK_SET_FULL, 0xc00a));
}
