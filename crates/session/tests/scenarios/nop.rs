//! Tests of pings in both directions (RFC 7143 §11.18, §11.19).

use std::time::Duration;

use bytes::Buf;
use iscsi_pdu::Cid;
use iscsi_pdu::scsi::{Cdb, Lun};
use iscsi_session::{Command, Notice, Output, ProtocolError, SessionError, Timer};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::NO_TAG;
use iscsi_testkit::pdus::nop_in;
use iscsi_testkit::{expect, send};

use crate::pair::{Pair, config, pattern, read, target_config, write};
use crate::trace::{Trace, wire_lun};

const CID: Cid = Cid(0);
const SECOND: Duration = Duration::from_secs(1);

/// NOP-01, UNH FFP 15.1, QRK-14, QRK-24, LAY-17, QRK-03, and the appendix of faults: the response to a ping
/// has its tag and LUN; zero is a valid tag.
#[test]
fn nop_01_ping_is_answered_with_its_tag_and_lun() {
    for (ttt, lun) in [(0, 0), (0, wire_lun(9)), (0xabba_abba, wire_lun(255)), (NO_TAG - 1, 0)] {
        let mut trace = Trace::logged_in();
        send!(trace, nop_in { ttt: ttt, lun: lun });
        let next = trace.script.numbers();
        let answer = expect!(
            trace,
            NopOut {
                itt: NO_TAG,
                ttt: ttt,
                lun: lun,
                immediate: true,
                is_final: true,
                cmd_sn: next.exp_cmd_sn,
                exp_stat_sn: next.stat_sn,
            }
        );
        assert!(answer.data.is_empty());
        trace.silence();
        trace.assert_usable();
    }
}

/// NOP-01, peers' fault 24: the response to a ping is sent before everything else that waits to be sent.
#[test]
fn nop_01_answer_does_not_wait_behind_data() {
    let mut pair = Pair::logged_in(config(), target_config(65_536));
    pair.submit(write(0, pattern(16 << 20, 1)));
    let link = pair.link(0);
    let first = pair.session.poll_transmit(Cid(0), pair.now).unwrap().copy_to_bytes(4096);
    pair.target.receive(link, &first);
    pair.target.ping(link, 0);
    pair.drive_receive();
    let mut rest = 0;
    while !pair.target.received().iter().any(|(_, pdu)| pdu.is(Opcode::NopOut)) {
        let mut transmit = pair.session.poll_transmit(Cid(0), pair.now).unwrap();
        let bytes = transmit.copy_to_bytes(transmit.remaining());
        rest += bytes.len();
        pair.target.receive(link, &bytes);
    }
    assert!(rest < 8 << 20, "it waited behind {rest} bytes");
    pair.drive();
    pair.assert_no_violations();
}

/// If a target keeps pinging and reads no responses, the memory use of the session stays limited.
#[test]
fn answers_that_nobody_reads_are_bounded() {
    let mut trace = Trace::without_pings();
    let mut pings = 0;
    while trace.ended.is_none() {
        pings += 1;
        assert!(pings < 1 << 17, "{pings} answers wait");
        trace.script.send(nop_in().ttt(pings));
        trace.deliver();
    }
    let unread = ProtocolError::Unread { limit: 1 << 16 };
    assert_eq!(trace.ended, Some(Err(unread.into())));
}

/// NOP-02: a NOP-In without a tag gets no response.
#[test]
fn nop_02_no_answer_without_a_tag() {
    let mut trace = Trace::logged_in();
    send!(trace, nop_in { ttt: NO_TAG, lun: wire_lun(1) });
    trace.silence();
    trace.assert_usable();
}

/// NOP-03, NOP-08, UNH FFP 15.2, SEQ-26, QRK-03: after silence the session sends an immediate ping, which
/// acknowledges what has arrived. The response consumes a StatSN, and nothing more is sent.
#[test]
fn nop_03_ping_after_silence() {
    let mut trace = Trace::logged_in();
    let message = send!(trace, async_message { event: 255 });
    let cmd_sn = trace.script.numbers().exp_cmd_sn;
    for round in 0..3 {
        trace.advance(14 * SECOND);
        trace.silence();
        trace.advance(SECOND);
        let exp_stat_sn = message.stat_sn() + 1 + round;
        let ping = expect!(
            trace,
            NopOut {
                ttt: NO_TAG,
                lun: 0,
                immediate: true,
                cmd_sn: cmd_sn,
                exp_stat_sn: exp_stat_sn,
            }
        );
        assert_ne!(ping.itt(), NO_TAG);
        trace.silence();
        send!(trace, nop_in { itt: ping.itt(), stat_sn: exp_stat_sn });
    }
    assert_eq!(trace.ended, None);
}

/// NOP-03: the result of the caller's ping is its round-trip time.
#[test]
fn nop_03_ping_of_the_caller_is_timed() {
    let mut trace = Trace::logged_in();
    let tag = trace.session.ping(trace.now).unwrap();
    expect!(trace, NopOut { itt: tag.get(), ttt: NO_TAG, lun: 0 });
    trace.advance(SECOND / 4);
    send!(trace, nop_in { itt: tag.get() });
    let answered = |output: &Output| matches!(output, Output::Ponged { itt, result: Ok(time) } if *itt == tag && *time == SECOND / 4);
    assert!(trace.outputs.iter().any(answered));
}

/// NOP-03, SEQ-19: a response to a ping that was never sent is an error.
#[test]
fn nop_03_answer_to_no_ping_ends_the_session() {
    let mut trace = Trace::logged_in();
    let itt = trace.submit(read(0, 1));
    expect!(trace, ScsiCommand);
    send!(trace, nop_in { itt: itt.get() });
    assert!(matches!(trace.failure(), SessionError::Protocol(_)));
}

/// NOP-04: a ping of the target consumes no StatSN; a StatSN that is ahead shows that a PDU was lost.
#[test]
fn nop_04_ping_shows_the_next_stat_sn() {
    let mut trace = Trace::logged_in();
    let next = trace.script.numbers().stat_sn;
    for ttt in [NO_TAG, 1, NO_TAG] {
        send!(trace, nop_in { ttt: ttt, stat_sn: next });
    }
    expect!(trace, NopOut { exp_stat_sn: next });
    trace.assert_usable();
    send!(trace, nop_in { stat_sn: next + 2 });
    trace.advance(5 * SECOND);
    assert!(matches!(trace.failure(), SessionError::Protocol(_)));
}

/// NOP-05: a NOP-In with both tags is a format error; data without a tag are ignored.
#[test]
fn nop_05_both_tags_are_a_format_error() {
    let mut trace = Trace::logged_in();
    send!(trace, nop_in { ttt: 3, data: vec![7; 100] });
    let answer = expect!(trace, NopOut { ttt: 3 });
    assert!(answer.data.is_empty());
    trace.assert_usable();
    let ping = trace.session.ping(trace.now).unwrap();
    expect!(trace, NopOut);
    send!(trace, nop_in { itt: ping.get(), ttt: 3 });
    assert!(matches!(trace.failure(), SessionError::Protocol(_)));
}

/// NOP-06: the data that the target returns are not compared.
#[test]
fn nop_06_echoed_data_is_ignored() {
    let mut trace = Trace::logged_in();
    let ping = trace.session.ping(trace.now).unwrap();
    expect!(trace, NopOut);
    send!(trace, nop_in { itt: ping.get(), data: vec![7; 4096] });
    assert!(trace.outputs.iter().any(|output| matches!(output, Output::Ponged { .. })));
    trace.assert_usable();
}

/// NOP-07, ERR-13: if nothing arrives after a ping within the time limit, the connection ends.
#[test]
fn nop_07_silence_after_a_ping_ends_the_session() {
    let mut trace = Trace::logged_in();
    let itt = trace.submit(read(0, 1).with_timeout(3600 * SECOND));
    expect!(trace, ScsiCommand);
    trace.advance(15 * SECOND);
    expect!(trace, NopOut);
    trace.advance(29 * SECOND);
    assert_eq!(trace.ended, None);
    trace.advance(SECOND);
    assert_eq!(*trace.failure(), SessionError::TimedOut(Timer::NopResponse));
    assert!(trace.result(itt).is_err());
}

/// NOP-07: any PDU of the target shows that it is alive, with or without an outstanding ping.
#[test]
fn nop_07_any_pdu_is_a_sign_of_life() {
    let mut trace = Trace::logged_in();
    for _ in 0..10 {
        trace.advance(10 * SECOND);
        send!(trace, nop_in {});
    }
    trace.silence();
    trace.advance(15 * SECOND);
    expect!(trace, NopOut);
    for _ in 0..10 {
        trace.advance(20 * SECOND);
        send!(trace, nop_in {});
    }
    trace.silence();
    assert_eq!(trace.ended, None);
}

/// NOP-07, QRK-39, QRK-43: a long command does not change the pings: they continue while it is in flight.
#[test]
fn nop_07_pings_go_on_beside_a_long_command() {
    let mut trace = Trace::logged_in();
    let itt = trace.submit(read(0, 1).with_timeout(3600 * SECOND));
    expect!(trace, ScsiCommand);
    for _ in 0..20 {
        trace.advance(15 * SECOND);
        let ping = expect!(trace, NopOut);
        send!(trace, nop_in { itt: ping.itt() });
    }
    send!(trace, data_in { itt: itt.get(), data: vec![1; 512], status: 0 });
    assert!(trace.result(itt).is_ok());
}

/// REJ-03, NOP-07: a target that rejects the session's ping is alive, and is pinged again.
#[test]
fn nop_07_refused_ping_is_a_sign_of_life() {
    let mut trace = Trace::logged_in();
    for _ in 0..4 {
        trace.advance(15 * SECOND);
        let ping = expect!(trace, NopOut);
        trace.send(iscsi_testkit::pdus::reject(&ping).response(5));
    }
    trace.advance(10 * SECOND);
    assert_eq!(trace.ended, None);
}

/// NOP-08, SEQ-07: pings of both sides are sent while the window is closed.
#[test]
fn nop_08_pings_pass_a_closed_window() {
    let mut trace = Trace::with_closed_window();
    let waits = trace.submit(read(0, 1));
    let command = trace.submit(read(1, 1));
    send!(trace, nop_in { ttt: 1 });
    expect!(trace, NopOut { itt: NO_TAG, ttt: 1 });
    let ping = trace.session.ping(trace.now).unwrap();
    expect!(trace, NopOut { itt: ping.get(), immediate: true });
    trace.silence();
    trace.script.set_window(2);
    send!(trace, nop_in { itt: ping.get() });
    for itt in [waits, command] {
        expect!(trace, ScsiCommand { itt: itt.get() });
    }
}

/// Peers' fault 11: after an idle hour the session still works.
#[test]
fn idle_session_lives_on() {
    let mut pair = Pair::logged_in(config(), target_config(256));
    pair.advance(3600 * SECOND);
    assert_eq!(pair.ended, None);
    pair.execute(read(0, 1)).unwrap();
    assert!(pair.target.received().iter().filter(|(_, pdu)| pdu.is(Opcode::NopOut)).count() > 200);
    pair.assert_no_violations();
}

/// Returns the notice about a busy target since the last call, if there is one.
fn busy(trace: &mut Trace) -> Option<(&'static str, Duration)> {
    let mut told = None;
    trace.drain();
    for notice in trace.notices.drain(..) {
        if let Notice::Busy { operation, silence, .. } = notice {
            told = Some((operation, silence));
        }
    }
    told
}

/// NOP-07: a target that has a command, and whose host acknowledges everything, is busy with the command: it
/// is pinged again, and the time limit of the command applies.
#[test]
fn nop_07_a_busy_target_has_the_time_of_its_command() {
    let mut trace = Trace::logged_in();
    let itt = trace.submit(Command::new(Lun::ZERO, Cdb::synchronize_cache_16(0, 0)));
    expect!(trace, ScsiCommand);
    // The time limit of a flush is ten times that of other commands.
    for round in 1..=13 {
        trace.advance(15 * SECOND);
        expect!(trace, NopOut);
        trace.advance(29 * SECOND);
        trace.session.host_acknowledges(CID, trace.now);
        trace.advance(Duration::ZERO);
        assert!(busy(&mut trace).is_none(), "too early");
        trace.now += SECOND;
        assert!(trace.session.is_sign_of_life_overdue(CID, trace.now));
        trace.session.host_acknowledges(CID, trace.now);
        trace.advance(Duration::ZERO);
        assert_eq!(busy(&mut trace), Some(("SYNCHRONIZE CACHE (16)", 45 * SECOND * round)));
        assert_eq!(trace.ended, None);
    }
    trace.advance(15 * SECOND);
    expect!(trace, TaskManagementRequest);
    trace.advance(10 * SECOND);
    assert_eq!(*trace.failure(), SessionError::TimedOut(Timer::TaskManagement));
    assert!(trace.result(itt).is_err());
}

/// NOP-07, ERR-13: without a command, acknowledgements of the host do not show that the target is alive.
#[test]
fn nop_07_an_idle_target_that_is_silent_is_gone() {
    let mut trace = Trace::logged_in();
    trace.advance(15 * SECOND);
    expect!(trace, NopOut);
    trace.now += 30 * SECOND;
    trace.session.host_acknowledges(CID, trace.now);
    trace.advance(Duration::ZERO);
    assert_eq!(*trace.failure(), SessionError::TimedOut(Timer::NopResponse));
}

/// NOP-03: a ping carries as much data as the target accepts in one PDU, and the target returns them.
#[test]
fn nop_03_data_of_a_ping_come_back() {
    for (len, sent) in [(0, 0), (1, 1), (4097, 4097), (8192, 8192), (10_000, 8192)] {
        let mut target = target_config(16);
        target.keys.max_recv_data_segment_length = Some(8192);
        let mut pair = Pair::logged_in(config(), target);
        let data = pattern(len, 3);
        let tag = pair.session.ping_with(data.clone().into(), pair.now).unwrap();
        pair.drive();
        let pings = pair.target.received().iter().filter(|(_, pdu)| pdu.is(Opcode::NopOut));
        let told: Vec<_> = pings.map(|(_, pdu)| pdu.data.clone()).collect();
        assert_eq!(told, [data[..sent].to_vec()]);
        let answered = |output: &Output| matches!(output, Output::Ponged { itt, result: Ok(_) } if *itt == tag);
        assert!(pair.outputs.iter().any(answered));
    }
}
