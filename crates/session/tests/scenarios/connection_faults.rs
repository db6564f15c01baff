//! Tests of failures that end one connection of several, and of failures that end the session (RFC 7143
//! §7.7-7.9).

use std::time::Duration;

use bytes::{Buf, BytesMut};
use iscsi_pdu::TaskFunction;
use iscsi_pdu::scsi::Lun;
use iscsi_session::{DigestOffer, ProtocolError, SessionError, TaskError, Timer};
use iscsi_testkit::fault::{Effect, Fault};
use iscsi_testkit::opcode::Opcode;

use crate::connection_loss::{FIRST, failure, only_logout};
use crate::connections::{SECOND, send_over, submit_over, target, two_connections};
use crate::pair::{Pair, config, pattern, read, write};

type Expected = fn(&ProtocolError) -> bool;

/// NOP-07: silence on one connection ends only that connection.
#[test]
fn nop_07_silent_connection_is_lost() {
    let mut pair = two_connections(target());
    pair.target.hold();
    let itt = submit_over(&mut pair, SECOND, read(0, 1));
    pair.blocked.push(SECOND);
    pair.advance(Duration::from_secs(46));
    assert_eq!(*pair.only_loss(SECOND), SessionError::TimedOut(Timer::NopResponse));
    assert!(matches!(failure(&pair, itt), TaskError::ConnectionLost { sent: true, .. }));
    pair.target.release();
    pair.assert_usable();
    pair.assert_no_violations();
}

/// DIG-07, DIG-08, SEQ-16, SEQ-17: damage and gaps end only the connection on which they occur.
#[test]
fn damage_and_gaps_concern_one_connection() {
    let cases: [(Effect, Expected); 4] = [
        (Effect::CorruptHeaderDigest, |error| *error == ProtocolError::HeaderDigest),
        (Effect::CorruptDataDigest, |error| matches!(error, ProtocolError::DataDigest { .. })),
        (Effect::SkipStatSn(1), |error| matches!(error, ProtocolError::StatSn { .. })),
        (Effect::AddWord { at: 36, value: 1 }, |error| {
            matches!(error, ProtocolError::DataIn { .. })
        }),
    ];
    for (effect, expected) in cases {
        let mut target = target();
        target.faults.push(Fault::sending(Opcode::DataIn, 0, effect).on_connection(1));
        let mut config = config();
        config.offer = config
            .offer
            .with_max_connections(2)
            .with_header_digest(DigestOffer::Required)
            .with_data_digest(DigestOffer::Required);
        let mut pair = Pair::logged_in(config, target);
        pair.session.add_connection(SECOND, pair.now).unwrap();
        pair.drive();
        let itt = submit_over(&mut pair, SECOND, read(0, 1));
        let other = submit_over(&mut pair, FIRST, read(0, 1));
        pair.drive();
        // The gap has a short time in which it may be filled.
        pair.advance(Duration::from_secs(5));
        let SessionError::Protocol(why) = pair.only_loss(SECOND) else { panic!() };
        assert!(expected(why), "{why:?}");
        assert!(matches!(failure(&pair, itt), TaskError::ConnectionLost { sent: true, .. }));
        assert!(pair.completed[&other].is_ok());
        pair.assert_usable();
        pair.assert_no_violations();
    }
}

/// If a task ends while its data segment arrives, the segment is discarded and its digest is not checked, so
/// the connection does not fail.
#[test]
fn segment_whose_task_ends_on_its_way_is_intact() {
    let mut config = config();
    config.offer = config.offer.with_max_connections(2).with_data_digest(DigestOffer::Required);
    let mut pair = Pair::logged_in(config, target());
    pair.session.add_connection(SECOND, pair.now).unwrap();
    pair.drive();
    let itt = submit_over(&mut pair, SECOND, read(0, 4));
    let mut first = BytesMut::from(&pair.target.transmit(pair.link(1))[..]);
    let mut rest = first.split_off(first.len() / 2);
    while first.has_remaining() {
        pair.deliver(SECOND, &mut first);
    }
    pair.session.manage(TaskFunction::LogicalUnitReset, Lun::ZERO, None, pair.now).unwrap();
    send_over(&mut pair, FIRST);
    pair.drive_receive();
    assert_eq!(failure(&pair, itt), TaskError::Aborted);
    while rest.has_remaining() {
        pair.deliver(SECOND, &mut rest);
    }
    pair.drive();
    assert_eq!(pair.lost(), []);
    let next = submit_over(&mut pair, SECOND, read(0, 4));
    pair.drive();
    assert!(pair.completed[&next].is_ok());
    pair.assert_usable();
    pair.assert_no_violations();
}

/// ERR-01: a malformed PDU ends the session with all its connections (RFC 7143 §7.7).
#[test]
fn err_01_format_error_ends_the_session() {
    let mut target = target();
    let nonsense = Effect::SetByte { at: 0, value: 0x3e };
    target.faults.push(Fault::sending(Opcode::DataIn, 0, nonsense).on_connection(1));
    let mut pair = two_connections(target);
    submit_over(&mut pair, SECOND, read(0, 1));
    pair.drive();
    assert!(matches!(pair.ended, Some(Err(SessionError::Protocol(ProtocolError::Decode(_))))));
    assert_eq!(pair.lost(), []);
}

/// ASY-04: the target reports, over either connection, that it has dropped one of them.
#[test]
fn asy_04_one_of_two_connections_dropped() {
    for over in [FIRST, SECOND] {
        let mut pair = two_connections(target());
        pair.target.hold();
        let itt = submit_over(&mut pair, SECOND, read(0, 1));
        let link = pair.link(over.0);
        pair.target.async_message(link, 2, [1, 7, 9]);
        pair.drive();
        let cause = SessionError::DroppedByTarget { time2wait: 7, time2retain: 9 };
        assert_eq!(*pair.only_loss(SECOND), cause);
        assert_eq!(failure(&pair, itt), TaskError::ConnectionLost { cause, sent: true });
        assert_eq!(only_logout(&pair, FIRST).cid(), 1);
        pair.target.release();
        pair.assert_usable();
        pair.assert_no_violations();
    }
}

/// A connection fails in the middle of a write's data. The write ends with an error, because the target has
/// received it; commands after it on the connection start over.
#[test]
fn data_cut_in_the_middle() {
    let mut target = target();
    target.keys.initial_r2t = false;
    target.keys.immediate_data = true;
    let login = 700;
    for cut in (login..login + 6000).step_by(97) {
        let mut target = target.clone();
        target.faults.push(Fault::cut_after_received(cut).on_connection(1));
        let mut pair = two_connections(target);
        let data = pattern(8 * 512, cut);
        let tags = [0, 20, 40].map(|lba| submit_over(&mut pair, SECOND, write(lba, data.clone())));
        pair.drive();
        let good = |itt| pair.completed[itt].is_ok();
        for (itt, lba) in tags.iter().zip([0, 20, 40]) {
            let there = pair.target.disk(0).unwrap().holds(lba * 512, &data);
            assert!(!good(itt) || there, "GOOD for what is not there, cut at {cut}");
        }
        assert!(tags.iter().filter(|itt| !good(itt)).count() <= 1, "cut at {cut}");
        pair.assert_usable();
        pair.assert_no_violations();
    }
}
