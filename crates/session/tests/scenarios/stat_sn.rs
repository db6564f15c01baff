//! Tests of StatSNs that are out of order or used again (RFC 7143 §4.2.2.2): a PDU that arrives before an
//! earlier one waits for it, for a limited time.

use std::time::Duration;

use iscsi_pdu::scsi::{Cdb, Lun};
use iscsi_pdu::{Itt, StatSn};
use iscsi_session::{Command, Notice, Output, ProtocolError, SessionError, TaskError, Timer};
use iscsi_testkit::fault::{Effect, Fault};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::NO_TAG;
use iscsi_testkit::pdus::{
    Template, async_message, data_in, nop_in, reject, scsi_response, task_management_response,
    text_response,
};
use iscsi_testkit::{expect, send};

use crate::pair::{Pair, config, pattern, read, target_config, write};
use crate::trace::Trace;

const SECOND: Duration = Duration::from_secs(1);
/// The longest time that a gap may last.
const GAP: Duration = Duration::from_secs(5);

fn ready(trace: &mut Trace) -> u32 {
    trace.submit(Command::new(Lun::ZERO, Cdb::test_unit_ready())).get()
}

fn tag(itt: u32) -> Itt {
    Itt::new(itt).unwrap()
}

/// Returns the next StatSN of the target.
fn next(trace: &Trace) -> u32 {
    trace.script.numbers().stat_sn
}

/// Returns the ExpStatSN that the session sends in its next command.
fn acknowledged(trace: &mut Trace) -> u32 {
    ready(trace);
    expect!(trace, ScsiCommand).exp_stat_sn()
}

/// Checks that the session has ended because of a missing StatSN.
#[track_caller]
fn assert_lost(trace: &Trace, expected: u32, found: u32) {
    let (expected, found) = (StatSn::new(expected), StatSn::new(found));
    let error = ProtocolError::StatSn { expected, found };
    assert_eq!(*trace.failure(), SessionError::Protocol(error));
}

/// SEQ-13, SEQ-16: responses of every kind arrive, the first of them last. None is delivered before its turn,
/// ExpStatSN stays at the gap, and all early responses follow in order.
#[test]
fn seq_16_answers_out_of_order_wait_for_their_turn() {
    for together in [false, true] {
        let mut trace = Trace::logged_in();
        let (first, second) = (ready(&mut trace), ready(&mut trace));
        let read = trace.submit(read(0, 1)).get();
        (0..3).for_each(|_| drop(expect!(trace, ScsiCommand)));
        let ping = trace.session.ping(trace.now).unwrap().get();
        let list = trace.session.send_targets(trace.now).unwrap().get();
        expect!(trace, NopOut);
        expect!(trace, TextRequest);
        trace.outputs.clear();
        let base = next(&trace);
        let early: [Template; 5] = [
            data_in().itt(read).data(vec![7; 512]).status(0).stat_sn(base + 5),
            async_message().byte(36, 255).stat_sn(base + 4),
            scsi_response().itt(second).stat_sn(base + 1),
            text_response().itt(list).stat_sn(base + 3),
            nop_in().itt(ping).stat_sn(base + 2),
        ];
        for template in early {
            trace.script.send(template);
            if !together {
                trace.deliver();
                assert!(trace.completed.is_empty() && trace.outputs.is_empty());
                assert_eq!(acknowledged(&mut trace), base);
            }
        }
        send!(trace, scsi_response { itt: first, stat_sn: base });
        assert_eq!(trace.result(tag(read)).unwrap().data, vec![7; 512]);
        assert!(trace.result(tag(first)).is_ok() && trace.result(tag(second)).is_ok());
        assert!(matches!(trace.outputs[..], [Output::Ponged { .. }, Output::Discovered { .. }]));
        assert!(matches!(trace.notices[..], [Notice::AsyncMessage { .. }]));
        assert_eq!(acknowledged(&mut trace), base + 6);
        trace.script.set_stat_sn(base + 6);
        trace.advance(2 * GAP);
        trace.assert_usable();
    }
}

/// SEQ-16: a target that repeatedly sends responses 2 to 8 before response 1 is accepted.
#[test]
fn seq_16_eight_answers_in_a_wrong_order_at_a_time() {
    let mut trace = Trace::logged_in();
    for _ in 0..40 {
        let base = next(&trace);
        let tags: Vec<u32> = (0..8).map(|_| ready(&mut trace)).collect();
        tags.iter().for_each(|_| drop(expect!(trace, ScsiCommand)));
        for at in [1, 2, 3, 4, 5, 6, 7, 0] {
            trace.script.send(scsi_response().itt(tags[at as usize]).stat_sn(base + at));
        }
        trace.deliver();
        trace.script.set_stat_sn(base + 8);
        tags.into_iter().for_each(|itt| assert!(trace.result(tag(itt)).is_ok()));
    }
}

/// SEQ-16, SEQ-17: a missing status that does not arrive in time ends the session, and the early responses
/// have no effect.
#[test]
fn seq_16_a_gap_that_stays_ends_the_session() {
    let mut trace = Trace::without_pings();
    let (missing, early) = (ready(&mut trace), ready(&mut trace));
    (0..2).for_each(|_| drop(expect!(trace, ScsiCommand)));
    let base = next(&trace);
    send!(trace, scsi_response { itt: early, stat_sn: base + 1 });
    assert_eq!(trace.session.poll_timeout(), Some((trace.now + GAP, Timer::StatSn)));
    trace.advance(GAP - SECOND / 1000);
    assert_eq!(trace.ended, None);
    trace.advance(SECOND / 1000);
    assert_lost(&trace, base, base + 1);
    for itt in [missing, early] {
        assert!(matches!(trace.result(tag(itt)), Err(TaskError::Session { sent: true, .. })));
    }
}

/// SEQ-16: each gap has its own time, which starts when the previous gap is filled.
#[test]
fn seq_16_every_gap_has_its_own_time() {
    let mut trace = Trace::without_pings();
    let tags: Vec<u32> = (0..4).map(|_| ready(&mut trace)).collect();
    tags.iter().for_each(|_| drop(expect!(trace, ScsiCommand)));
    let base = next(&trace);
    send!(trace, scsi_response { itt: tags[3], stat_sn: base + 3 });
    send!(trace, scsi_response { itt: tags[1], stat_sn: base + 1 });
    trace.advance(GAP - SECOND);
    send!(trace, scsi_response { itt: tags[0], stat_sn: base });
    assert!(trace.result(tag(tags[1])).is_ok());
    trace.advance(GAP - SECOND);
    assert_eq!(trace.ended, None);
    trace.advance(SECOND);
    assert_lost(&trace, base + 2, base + 3);
}

/// SEQ-17: a StatSN that is too far ahead, and more PDUs than can be kept, end the session immediately.
#[test]
fn seq_17_disorder_is_bounded() {
    let mut trace = Trace::logged_in();
    let base = next(&trace);
    send!(trace, async_message { event: 255, stat_sn: base + 256 });
    assert_eq!(trace.ended, None);
    send!(trace, async_message { event: 255, stat_sn: base + 257 });
    assert_lost(&trace, base, base + 257);

    let mut trace = Trace::logged_in();
    let base = next(&trace);
    for _ in 0..256 {
        send!(trace, async_message { event: 255, stat_sn: base + 1 });
    }
    assert_eq!(trace.ended, None);
    send!(trace, async_message { event: 255, stat_sn: base + 1 });
    assert_lost(&trace, base, base + 1);

    let mut trace = Trace::logged_in();
    let base = next(&trace);
    for at in 1..=4 {
        send!(trace, async_message { event: 0, data: vec![0; 1 << 18], stat_sn: base + at });
        assert_eq!(trace.ended, None);
    }
    send!(trace, async_message { event: 0, data: vec![0], stat_sn: base + 5 });
    assert_lost(&trace, base, base + 5);
}

/// NOP-04: a ping that shows a gap gets a response; the session ends only if the gap is not filled in time.
#[test]
fn nop_04_a_ping_before_the_answer_it_follows() {
    let mut trace = Trace::without_pings();
    let itt = ready(&mut trace);
    expect!(trace, ScsiCommand);
    let base = next(&trace);
    send!(trace, nop_in { ttt: 1, stat_sn: base + 1 });
    expect!(trace, NopOut { itt: NO_TAG, ttt: 1, exp_stat_sn: base });
    trace.advance(GAP - SECOND);
    send!(trace, scsi_response { itt: itt, stat_sn: base });
    assert!(trace.result(tag(itt)).is_ok());
    assert_eq!(trace.session.poll_timeout(), None);
    send!(trace, nop_in { ttt: 2, stat_sn: base + 3 });
    trace.advance(GAP);
    assert_lost(&trace, base + 1, base + 3);
}

/// SEQ-16, RFC 7143 §11.6.1: "task does not exist" means that the status was sent before; if the status
/// arrives later, it is still delivered.
#[test]
fn seq_16_task_management_does_not_overtake_a_status() {
    let mut trace = Trace::logged_in();
    let itt = trace.submit(write(0, pattern(512, 1)));
    expect!(trace, ScsiCommand);
    trace.session.abort(itt, trace.now);
    let abort = expect!(trace, TaskManagementRequest);
    let base = next(&trace);
    trace.send(task_management_response().itt(abort.itt()).response(1).stat_sn(base + 1));
    assert!(trace.completed.is_empty());
    send!(trace, scsi_response { itt: itt.get(), stat_sn: base });
    assert!(trace.result(itt).is_ok());
    trace.script.set_stat_sn(base + 2);
    trace.assert_usable();
}

/// SEQ-18: an early response that arrives twice, and once more in its turn, is delivered once.
#[test]
fn seq_18_repeated_early_answer_is_delivered_once() {
    let mut trace = Trace::logged_in();
    let (first, early) = (ready(&mut trace), ready(&mut trace));
    (0..2).for_each(|_| drop(expect!(trace, ScsiCommand)));
    let base = next(&trace);
    (0..2).for_each(|_| drop(send!(trace, scsi_response { itt: early, stat_sn: base + 1 })));
    send!(trace, scsi_response { itt: first, stat_sn: base });
    send!(trace, scsi_response { itt: early, stat_sn: base + 1 });
    assert!(trace.result(tag(first)).is_ok() && trace.result(tag(early)).is_ok());
    assert!(trace.notices.is_empty());
    trace.script.set_stat_sn(base + 2);
    trace.assert_usable();
}

/// SEQ-12, SEQ-13: a target that repeats the StatSN of the login and counts from there, or never counts, is
/// accepted, and one notice reports it. ExpStatSN never decreases.
#[test]
fn seq_12_stat_sn_of_the_login_is_used_again() {
    for counts in [true, false] {
        let mut trace = Trace::logged_in();
        let login = next(&trace).wrapping_sub(1);
        for round in 0..4 {
            let stat_sn = login + if counts { round } else { 0 };
            trace.script.set_stat_sn(stat_sn);
            send!(trace, nop_in { ttt: 5 });
            let reply = expect!(trace, NopOut { ttt: 5 });
            let itt = trace.submit(read(0, 1));
            expect!(trace, ScsiCommand);
            match round {
                0 => trace.send(data_in().itt(itt.get()).data(vec![7; 512]).status(0)),
                _ => trace.send(scsi_response().itt(itt.get()).underflow(512)),
            };
            assert!(trace.result(itt).is_ok());
            let acknowledged = if counts { login + round.max(1) } else { login + 1 };
            assert_eq!(reply.exp_stat_sn(), acknowledged);
        }
        let told = |notice: &&Notice| matches!(notice, Notice::RepeatedStatSn { .. });
        assert_eq!(trace.notices.iter().filter(told).count(), 1);
        let tag = trace.session.ping(trace.now).unwrap();
        expect!(trace, NopOut { itt: tag.get() });
        send!(trace, nop_in { itt: tag.get(), stat_sn: login });
        assert!(matches!(trace.outputs[..], [.., Output::Ponged { result: Ok(_), .. }]));
        trace.session.ping(trace.now).unwrap();
        let refused = expect!(trace, NopOut);
        trace.script.set_stat_sn(login);
        trace.send(reject(&refused).response(4));
        let failed = |output: &Output| matches!(output, Output::Ponged { result: Err(_), .. });
        assert!(trace.outputs.last().is_some_and(failed));
        trace.session.logout(trace.now);
        let logout = expect!(trace, LogoutRequest);
        send!(trace, logout_response { itt: logout.itt(), stat_sn: login });
        assert_eq!(trace.ended, Some(Ok(())));
    }
}

/// SEQ-18: a response with an old StatSN is not accepted for a task that has ended, nor in a text exchange
/// that has continued.
#[test]
fn seq_18_old_number_counts_once_for_each_task() {
    let mut trace = Trace::logged_in();
    let login = next(&trace).wrapping_sub(1);
    let itt = ready(&mut trace);
    expect!(trace, ScsiCommand);
    (0..2).for_each(|_| drop(send!(trace, scsi_response { itt: itt, stat_sn: login })));
    assert!(trace.result(tag(itt)).is_ok());
    let list = trace.session.send_targets(trace.now).unwrap().get();
    expect!(trace, TextRequest);
    let part = || text_response().itt(list).ttt(9).last(false).stat_sn(login + 1);
    trace.send(part().text(&[("TargetName", "iqn.2026-01.org.example:disk")]));
    expect!(trace, TextRequest { ttt: 9 });
    trace.send(part().text(&[("TargetName", "iqn.2026-01.org.example:disk")]));
    trace.silence();
    send!(trace, text_response { itt: list, stat_sn: login + 2 });
    let [.., Output::Discovered { result: Ok(text), .. }] = &trace.outputs[..] else {
        panic!("{:?}", trace.outputs)
    };
    assert_eq!(text.iter().filter(|byte| **byte == 0).count(), 1);
    trace.assert_usable();
}

/// SEQ-16: reads and writes move every byte, even if some responses arrive late, together with the data or
/// separately.
#[test]
fn seq_16_reads_and_writes_survive_disorder() {
    for separate_status in [false, true] {
        let mut target = target_config(1024);
        target.data_in.separate_status = separate_status;
        for (nth, more) in [(0, 7), (3, 1), (4, 2), (10, 12), (11, 1), (12, 3)] {
            target.faults.push(Fault::sending(Opcode::ScsiResponse, nth, Effect::Behind(more)));
            if !separate_status {
                target.faults.push(Fault::sending(Opcode::DataIn, nth, Effect::Behind(more)));
            }
        }
        let mut pair = Pair::logged_in(config(), target);
        let data = |at: u32| pattern(4 * 512, u64::from(at) + 1);
        let writes: Vec<_> = (0..32).map(|at| pair.submit(write(at * 4, data(at)))).collect();
        let blanks: Vec<_> = (32..64).map(|at| pair.submit(read(at * 4, 4))).collect();
        pair.drive();
        let mut ended = [writes, blanks].concat().into_iter();
        assert!(ended.all(|itt| pair.completed[&itt].is_ok()));
        for at in 0..32 {
            assert_eq!(pair.execute(read(at * 4, 4)).unwrap().data, data(at));
        }
        pair.assert_no_violations();
    }
}
