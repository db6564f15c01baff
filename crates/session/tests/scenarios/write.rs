//! Tests of writes: immediate, unsolicited and solicited data (RFC 7143 §4.2.5.2).

use crate::pair::{BLOCK, Pair, config, pattern, read, target_config, write};
use crate::trace::Trace;
use iscsi_pdu::Cid;
use iscsi_pdu::scsi::Status;
use iscsi_session::Waiting;
use iscsi_testkit::expect;
use iscsi_testkit::pdus::scsi_response;

/// WR-03..06, WR-11, WR-12, KEY-13, QRK-26: every mode of the first burst, with all relations between the
/// lengths, writes all data.
#[test]
fn wr_03_every_mode_and_length_moves_every_byte() {
    let lens = [BLOCK, 2 * BLOCK, 3 * BLOCK, 128 * BLOCK, 129 * BLOCK, 2048 * BLOCK];
    for initial_r2t in [false, true] {
        for immediate_data in [false, true] {
            for first_burst in [512, 1000, 65536] {
                for mrdsl in [512, 515, 8192] {
                    let mut target = target_config(4096);
                    target.record = false;
                    target.keys.initial_r2t = initial_r2t;
                    target.keys.immediate_data = immediate_data;
                    target.keys.first_burst_length = first_burst;
                    target.keys.max_recv_data_segment_length = Some(mrdsl);
                    let mut pair = Pair::logged_in(config(), target);
                    for (seed, len) in lens.into_iter().enumerate() {
                        let data = pattern(len, seed as u64);
                        let done = pair.execute(write(5, data.clone())).unwrap();
                        assert_eq!(done.status, Status::GOOD);
                        assert!(pair.target.disk(0).unwrap().holds(5 * BLOCK as u64, &data));
                        let back = pair.execute(read(5, (len / BLOCK) as u16)).unwrap();
                        assert_eq!(back.data, data);
                    }
                    pair.assert_no_violations();
                }
            }
        }
    }
}

/// With a limit on write data, writes wait until others have ended, and keep their order.
#[test]
fn a_write_limit_holds_writes_back() {
    let mut trace = Trace::logged_in();
    trace.session.limit_writes(Cid(0), 3 * BLOCK as u64);
    let [first, second, third] = [0, 1, 2].map(|at| trace.submit(write(at, pattern(2 * BLOCK, 1))));
    assert_eq!(expect!(trace, ScsiCommand).itt(), first.get());
    trace.silence();
    assert!(trace.session.is_holding_back());

    trace.send(scsi_response().itt(first.get()));
    assert_eq!(expect!(trace, ScsiCommand).itt(), second.get());
    trace.silence();

    trace.session.limit_writes(Cid(0), 4 * BLOCK as u64);
    assert_eq!(expect!(trace, ScsiCommand).itt(), third.get());
    assert!(!trace.session.is_holding_back());
}

/// A write that exceeds the limit is sent when no other write is in flight.
#[test]
fn a_write_limit_holds_no_write_back_for_ever() {
    let mut trace = Trace::logged_in();
    trace.session.limit_writes(Cid(0), 0);
    let [first, second] = [0, 1].map(|at| trace.submit(write(at, pattern(BLOCK, 1))));
    expect!(trace, ScsiCommand);
    trace.silence();
    trace.send(scsi_response().itt(first.get()));
    assert_eq!(expect!(trace, ScsiCommand).itt(), second.get());
    assert_eq!(trace.session.waiting_for(), Waiting::Answers);
}

/// Commands keep their order: a command after a write that is held back waits too.
#[test]
fn a_write_limit_keeps_the_order() {
    let mut trace = Trace::logged_in();
    trace.session.limit_writes(Cid(0), 0);
    let first = trace.submit(write(0, pattern(BLOCK, 1)));
    let second = trace.submit(write(1, pattern(BLOCK, 1)));
    let third = trace.submit(read(0, 1));
    expect!(trace, ScsiCommand);
    trace.silence();
    assert_eq!(trace.session.waiting_for(), Waiting::WriteLimit);
    trace.send(scsi_response().itt(first.get()));
    assert_eq!(expect!(trace, ScsiCommand).itt(), second.get());
    assert_eq!(expect!(trace, ScsiCommand).itt(), third.get());
}

/// If a target may have only one R2T outstanding, data that it cannot request yet do not count as
/// outstanding.
#[test]
fn a_write_limit_counts_what_may_be_asked_for_at_once() {
    let keys = [("FirstBurstLength", "512"), ("MaxBurstLength", "1024")];
    let mut trace = Trace::with_answers(&[&keys[..], &[("MaxOutstandingR2T", "1")]].concat());
    trace.session.limit_writes(Cid(0), 2 * (512 + 1024));
    for at in [0, 100, 200] {
        trace.submit(write(at, pattern(64 * BLOCK, 1)));
    }
    expect!(trace, ScsiCommand);
    expect!(trace, ScsiCommand);
    trace.silence();
}
