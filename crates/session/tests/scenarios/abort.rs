//! Tests of the PDUs for a task that is aborted: which are sent, in which order, and how the target may
//! refuse (RFC 7143 §11.5.1).

use std::time::Duration;

use bytes::Buf;
use iscsi_pdu::scsi::{Lun, Status};
use iscsi_pdu::{Cid, Itt, TaskFunction};
use iscsi_session::{SessionError, TaskError, Timer};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdus::{r2t, reject};
use iscsi_testkit::{expect, send};

use crate::pair::{config, pattern, read, write};
use crate::trace::Trace;

const CID: Cid = Cid(0);

/// Longer than the time limit of a command, 60 s, and shorter than this limit and the one of its ABORT TASK
/// together.
const COMMAND_LIMIT: Duration = Duration::from_secs(61);

/// Reject reason: too many immediate commands (RFC 7143 §11.17.1).
const TOO_MANY_IMMEDIATE: u8 = 6;

/// Keys with which no data is sent unsolicited.
const SOLICITED: [(&str, &str); 2] = [("InitialR2T", "Yes"), ("ImmediateData", "No")];

/// Keys that allow a first burst of 4 MiB: more than is put in wire order in one turn.
const LONG_FIRST_BURST: [(&str, &str); 3] = [
    ("FirstBurstLength", "4194304"),
    ("MaxBurstLength", "4194304"),
    ("MaxRecvDataSegmentLength", "65536"),
];

/// The two ways in which the caller aborts a task: `abort`, and an ABORT TASK by `manage`.
const BY_WHOM: [fn(&mut Trace, Itt); 2] = [
    |trace, itt| {
        let _ = trace.session.abort(itt, trace.now);
    },
    |trace, itt| {
        let function = TaskFunction::AbortTask;
        trace.session.manage(function, Lun::ZERO, Some(itt), trace.now).unwrap();
    },
];

/// Takes `count` bytes from the connection, like a slow socket.
fn take(trace: &mut Trace, count: usize) {
    let mut transmit = trace.session.poll_transmit(CID, trace.now).unwrap();
    let bytes = transmit.copy_to_bytes(count);
    trace.script.receive(&bytes);
}

/// Returns all PDUs that the session has to send.
fn everything(trace: &mut Trace) -> Vec<iscsi_testkit::pdu::Pdu> {
    trace.pump();
    std::iter::from_fn(|| trace.script.try_next()).collect()
}

/// WR-20: the sequence of an R2T that has begun stops at the ABORT TASK. R2Ts that were not begun, or arrive
/// later, are not served.
#[test]
fn wr_20_no_data_out_follows_the_abort_of_its_task() {
    for abort in BY_WHOM {
        let mut trace = Trace::with_answers(&[&SOLICITED[..], &LONG_FIRST_BURST[..]].concat());
        let itt = trace.submit(write(0, pattern(6 << 20, 1)));
        let other = trace.submit(write(20_000, pattern(512, 2)));
        (0..2).for_each(|_| drop(expect!(trace, ScsiCommand)));
        for (sn, offset) in [(0, 0), (1, 4 << 20)] {
            trace.script.send(
                r2t()
                    .itt(itt.get())
                    .ttt(sn)
                    .r2t_sn(sn)
                    .buffer_offset(offset)
                    .desired_length(2 << 20),
            );
        }
        trace.deliver();
        take(&mut trace, 100_000);
        abort(&mut trace, itt);
        let sent = everything(&mut trace);
        let at = sent.iter().position(|pdu| pdu.is(Opcode::TaskManagementRequest)).unwrap();
        assert!(sent[..at].iter().all(|pdu| pdu.itt() == itt.get() && !pdu.is_final()));
        assert!(sent[at + 1..].is_empty(), "{:?}", &sent[at + 1..]);
        send!(trace, r2t { itt: itt.get(), ttt: 9, r2t_sn: 2, desired_length: 512 });
        trace.silence();
        // The data of other tasks is still sent.
        send!(trace, r2t { itt: other.get(), ttt: 4, desired_length: 512 });
        expect!(trace, DataOut { itt: other.get(), is_final: true });
        send!(trace, task_management_response { itt: sent[at].itt() });
        assert_eq!(trace.result(itt).unwrap_err(), TaskError::Aborted);
        trace.silence();
    }
}

/// WR-20: the data of a write that is given up is sent as long as the target requests it, and the ABORT TASK
/// follows the last data.
#[test]
fn wr_20_the_abort_of_a_write_that_is_given_up_follows_its_data() {
    for ends_by_itself in [true, false] {
        let mut trace = Trace::with_answers(&SOLICITED);
        let data = pattern(2048, 1);
        let itt = trace.submit(write(0, data.clone()));
        expect!(trace, ScsiCommand);
        assert!(trace.session.give_up(itt, trace.now));
        trace.silence();
        for sn in 0..2 {
            let offset = sn * 1024;
            let ask = r2t().itt(itt.get()).ttt(sn).r2t_sn(sn).buffer_offset(offset);
            trace.send(ask.desired_length(1024));
            if sn == 0 {
                let part = expect!(trace, DataOut { ttt: sn, buffer_offset: offset });
                assert_eq!(part.data, data[..1024]);
                trace.silence();
                if ends_by_itself {
                    break;
                }
            }
        }
        if ends_by_itself {
            // The target needs no more data, so nothing is left to abort.
            send!(trace, scsi_response { itt: itt.get(), status: 0x08 });
            assert_eq!(trace.result(itt).unwrap().status, Status::BUSY);
        } else {
            let part = expect!(trace, DataOut { ttt: 1, buffer_offset: 1024, is_final: true });
            assert_eq!(part.data, data[1024..]);
            let abort = expect!(trace, TaskManagementRequest { referenced_tag: itt.get() });
            send!(trace, task_management_response { itt: abort.itt() });
            assert_eq!(trace.result(itt).unwrap_err(), TaskError::Aborted);
        }
        trace.silence();
        trace.assert_usable();
    }
}

/// TMF-15: if the target requests no data of a write that was given up, the ABORT TASK is sent anyway, and
/// data that the target requests later is not sent.
#[test]
fn tmf_15_a_write_that_is_given_up_does_not_wait_for_ever() {
    let mut config = config();
    config.timeouts = config.timeouts.with_nop_interval(None);
    let mut trace = Trace::established(config, &SOLICITED);
    let itt = trace.submit(write(0, pattern(1024, 1)));
    expect!(trace, ScsiCommand);
    trace.session.give_up(itt, trace.now);
    trace.silence();
    trace.advance(Duration::from_secs(11));
    let abort = expect!(trace, TaskManagementRequest { referenced_tag: itt.get() });
    send!(trace, r2t { itt: itt.get(), ttt: 7, desired_length: 1024 });
    trace.silence();
    send!(trace, task_management_response { itt: abort.itt() });
    assert_eq!(trace.result(itt).unwrap_err(), TaskError::Aborted);
    trace.assert_usable();
}

/// TMF-06: a command that is not a write, or has sent all of its data, is aborted immediately.
#[test]
fn tmf_06_without_data_to_come_nothing_is_waited_for() {
    let mut trace = Trace::with_answers(&[]);
    for command in [read(0, 1), write(0, pattern(512, 1))] {
        let itt = trace.submit(command);
        expect!(trace, ScsiCommand);
        trace.session.give_up(itt, trace.now);
        let abort = expect!(trace, TaskManagementRequest { referenced_tag: itt.get() });
        send!(trace, task_management_response { itt: abort.itt() });
        assert_eq!(trace.result(itt).unwrap_err(), TaskError::Aborted);
    }
    trace.assert_usable();
}

/// WR-05, WR-20: a first burst is sent completely, and the ABORT TASK of its task follows.
#[test]
fn wr_20_abort_follows_the_first_burst() {
    for abort in BY_WHOM {
        let mut trace = Trace::with_answers(&LONG_FIRST_BURST);
        let itt = trace.submit(write(0, pattern(6 << 20, 1)));
        take(&mut trace, 100_000);
        abort(&mut trace, itt);
        trace.session.ping(trace.now).unwrap();
        let mut sent = everything(&mut trace);
        let abort = sent.pop().unwrap();
        assert!(abort.is(Opcode::TaskManagementRequest), "{abort:?}");
        let ping = sent.iter().position(|pdu| pdu.is(Opcode::NopOut)).unwrap();
        assert!(ping < sent.len() - 1, "a ping does not wait for the burst");
        let data: Vec<_> = sent.iter().filter(|pdu| pdu.itt() == itt.get()).collect();
        assert_eq!(data.iter().map(|pdu| pdu.data.len()).sum::<usize>(), 4 << 20);
        assert_eq!(data.iter().rposition(|pdu| pdu.is_final()), Some(data.len() - 1));
        send!(trace, task_management_response { itt: abort.itt() });
        trace.assert_usable();
    }
}

/// TMF-15: the time limit of the response to an ABORT TASK starts at the last Data-Out of the first burst for
/// which the ABORT TASK waits. So a slow link does not end the session, but a target that reads nothing does.
#[test]
fn tmf_15_abort_behind_a_first_burst_has_its_time() {
    for slow in [true, false] {
        let mut config = config();
        config.timeouts = config.timeouts.with_nop_interval(None);
        let mut trace = Trace::established(config, &LONG_FIRST_BURST);
        let itt = trace.submit(write(0, pattern(6 << 20, 1)));
        take(&mut trace, 100_000);
        trace.session.abort(itt, trace.now);
        if !slow {
            // The driver takes more bytes, and the socket accepts none of them.
            trace.now += Duration::from_secs(11);
            trace.session.handle_timeout(trace.now);
            trace.pump();
            assert_eq!(*trace.failure(), SessionError::TimedOut(Timer::TaskManagement));
            continue;
        }
        for _ in 0..4 {
            take(&mut trace, 900_000);
            trace.now += Duration::from_secs(9);
            trace.session.handle_timeout(trace.now);
        }
        let sent = everything(&mut trace);
        assert!(sent.last().unwrap().is(Opcode::TaskManagementRequest), "{:?}", trace.ended);
    }
}

/// TMF-11: a task that the target refuses to abort continues where it stopped: every R2T is served, once.
#[test]
fn tmf_11_refused_abort_lets_the_data_go_on() {
    for abort in BY_WHOM {
        for rejects in [false, true] {
            let mut trace = Trace::with_answers(&SOLICITED);
            let data = pattern(2048, 1);
            let itt = trace.submit(write(0, data.clone()));
            expect!(trace, ScsiCommand);
            abort(&mut trace, itt);
            let request = expect!(trace, TaskManagementRequest { referenced_tag: itt.get() });
            for sn in 0..2 {
                let offset = sn * 1024;
                send!(
                    trace,
                    r2t {
                        itt: itt.get(),
                        ttt: sn,
                        r2t_sn: sn,
                        buffer_offset: offset,
                        desired_length: 1024
                    }
                );
            }
            trace.silence();
            if rejects {
                trace.send(reject(&request).response(5));
            } else {
                send!(trace, task_management_response { itt: request.itt(), response: 5 });
            }
            for sn in 0..2 {
                let part = expect!(trace, DataOut { ttt: sn, buffer_offset: sn * 1024 });
                assert_eq!(part.data, data[sn as usize * 1024..][..1024]);
            }
            trace.silence();
            send!(trace, scsi_response { itt: itt.get() });
            assert_eq!(trace.result(itt).unwrap().status, Status::GOOD);
            trace.assert_usable();
        }
    }
}

/// RD-08, WR-21: GOOD is an error for a write whose data was held back because of its ABORT TASK.
#[test]
fn wr_21_good_without_the_data_held_back_is_no_success() {
    let mut trace = Trace::with_answers(&SOLICITED);
    let itt = trace.submit(write(0, pattern(1024, 1)));
    expect!(trace, ScsiCommand);
    trace.session.abort(itt, trace.now);
    let abort = expect!(trace, TaskManagementRequest);
    send!(trace, r2t { itt: itt.get(), ttt: 7, desired_length: 1024 });
    send!(trace, scsi_response { itt: itt.get() });
    let missing = TaskError::DataMissing { expected: 1024, transferred: 0 };
    assert_eq!(trace.result(itt).unwrap_err(), missing);
    send!(trace, task_management_response { itt: abort.itt(), response: 1 });
    trace.assert_usable();
}

/// REJ-02, TMF-11: the target rejects the session's own ABORT TASK. The command that the caller aborted may
/// still end by itself within its time limit; otherwise the session ends.
#[test]
fn rej_02_rejected_abort_leaves_the_task_with_a_time_limit() {
    for reason in [1, 4, 5, 0x0a, 0xff] {
        for answers in [true, false] {
            let mut trace = Trace::without_pings();
            let itt = trace.submit(read(0, 1));
            expect!(trace, ScsiCommand);
            trace.session.abort(itt, trace.now);
            let abort = expect!(trace, TaskManagementRequest);
            trace.send(reject(&abort).response(reason));
            assert!(trace.ended.is_none() && trace.completed.is_empty());
            // A response to the rejected ABORT TASK is ignored as late.
            send!(trace, task_management_response { itt: abort.itt(), response: 5 });
            if answers {
                send!(trace, data_in { itt: itt.get(), data: vec![1; 512], status: 0 });
                assert!(trace.result(itt).is_ok());
                trace.assert_usable();
                continue;
            }
            trace.advance(COMMAND_LIMIT);
            let again = expect!(trace, TaskManagementRequest { referenced_tag: itt.get() });
            assert_ne!(again.itt(), abort.itt());
            trace.send(reject(&again).response(reason));
            assert_eq!(*trace.failure(), SessionError::AbortRefused);
            assert!(trace.result(itt).is_err());
        }
    }
}

/// REJ-02, TMF-15: no caller waits for a command that timed out, so a rejected abort of it ends the session.
#[test]
fn rej_02_rejected_abort_of_a_command_that_timed_out_ends_the_session() {
    let mut trace = Trace::without_pings();
    let itt = trace.submit(read(0, 1));
    expect!(trace, ScsiCommand);
    trace.advance(COMMAND_LIMIT);
    let abort = expect!(trace, TaskManagementRequest);
    trace.send(reject(&abort).response(5));
    assert_eq!(*trace.failure(), SessionError::AbortRefused);
    assert!(matches!(trace.result(itt), Err(TaskError::Session { sent: true, .. })));
}

/// TMF-06, TMF-15: commands that time out together are aborted together: one turn sends all of their ABORT
/// TASKs, and one time limit is enough for all.
#[test]
fn tmf_06_aborts_of_many_commands_go_out_together() {
    const COMMANDS: usize = 64;
    let mut trace = Trace::without_pings();
    let tags: Vec<Itt> = (0..64).map(|lba| trace.submit(read(lba, 1))).collect();
    tags.iter().for_each(|_| drop(expect!(trace, ScsiCommand)));
    trace.advance(COMMAND_LIMIT);
    let aborts = everything(&mut trace);
    assert_eq!(aborts.len(), COMMANDS);
    for (abort, itt) in aborts.iter().zip(&tags) {
        assert!(abort.is(Opcode::TaskManagementRequest) && abort.referenced_tag() == itt.get());
    }
    for (abort, itt) in aborts.iter().zip(&tags).rev() {
        send!(trace, task_management_response { itt: abort.itt() });
        assert_eq!(trace.result(*itt).unwrap_err(), TaskError::TimedOut);
    }
    trace.assert_usable();
}

/// TMF-06: with as many outstanding commands as a session may have, and no responses, each command can be
/// aborted.
#[test]
fn tmf_06_every_outstanding_command_can_be_aborted() {
    const MAX_TASKS: u32 = 4096;
    let mut config = config();
    config.max_tasks = MAX_TASKS as usize;
    config.timeouts = config.timeouts.with_nop_interval(None);
    let mut trace = Trace::new(config);
    trace.script.set_window(2 * MAX_TASKS);
    trace.login(&[]);
    let tags: Vec<Itt> = (0..MAX_TASKS).map(|lba| trace.submit(read(lba, 1))).collect();
    assert_eq!(everything(&mut trace).len(), tags.len());
    trace.advance(COMMAND_LIMIT);
    let sent = everything(&mut trace);
    let aborts = sent.iter().filter(|pdu| pdu.is(Opcode::TaskManagementRequest));
    assert!(aborts.map(|abort| abort.referenced_tag()).eq(tags.iter().map(|itt| itt.get())));
    assert!(trace.ended.is_none());
}

/// REJ-04, TMF-15: if a target accepts only one immediate function at a time (RFC 7143 §4.2.2.1), it receives
/// the ABORT TASKs one by one: each refused request is sent again, with the same tag, when the response to
/// another one has arrived.
#[test]
fn rej_04_aborts_that_are_too_many_at_once_come_again() {
    let mut trace = Trace::without_pings();
    let tags: Vec<Itt> = (0..5).map(|lba| trace.submit(read(lba, 1))).collect();
    tags.iter().for_each(|_| drop(expect!(trace, ScsiCommand)));
    trace.advance(COMMAND_LIMIT);
    let aborts = everything(&mut trace);
    for refused in &aborts[1..] {
        trace.send(reject(refused).response(TOO_MANY_IMMEDIATE));
    }
    trace.silence();
    send!(trace, task_management_response { itt: aborts[0].itt() });
    for refused in &aborts[1..] {
        // The time limit of each request starts when the request is sent again.
        trace.advance(Duration::from_secs(9));
        let again = expect!(
            trace,
            TaskManagementRequest { itt: refused.itt(), referenced_tag: refused.referenced_tag() }
        );
        trace.silence();
        send!(trace, task_management_response { itt: again.itt() });
    }
    for itt in tags {
        assert_eq!(trace.result(itt).unwrap_err(), TaskError::TimedOut);
    }
    trace.assert_usable();
}

/// REJ-04: if the target has no other function outstanding, "too many immediate commands" is a refusal like
/// any other.
#[test]
fn rej_04_too_many_without_another_is_a_refusal() {
    let mut trace = Trace::without_pings();
    let tags = [0, 1].map(|lba| trace.submit(read(lba, 1)));
    tags.iter().for_each(|_| drop(expect!(trace, ScsiCommand)));
    trace.advance(COMMAND_LIMIT);
    let aborts = everything(&mut trace);
    trace.send(reject(&aborts[0]).response(TOO_MANY_IMMEDIATE));
    assert!(trace.ended.is_none());
    trace.send(reject(&aborts[1]).response(TOO_MANY_IMMEDIATE));
    assert_eq!(*trace.failure(), SessionError::AbortRefused);
}

/// WR-20, SEQ-19: an R2T that arrives once or twice after the status of its write is ignored, also while
/// another write is in flight. An R2T with a tag that was never assigned is an error.
#[test]
fn wr_20_r2t_after_the_response_is_ignored() {
    let mut trace = Trace::with_answers(&SOLICITED);
    let itt = trace.submit(write(0, pattern(512, 1)));
    expect!(trace, ScsiCommand);
    send!(trace, scsi_response { itt: itt.get(), status: 8 });
    assert_eq!(trace.result(itt).unwrap().status, Status::BUSY);
    for _ in 0..2 {
        send!(trace, r2t { itt: itt.get(), ttt: 1, desired_length: 512 });
        trace.silence();
        trace.assert_usable();
    }
    let live = trace.submit(write(0, pattern(512, 2)));
    expect!(trace, ScsiCommand);
    send!(trace, r2t { itt: itt.get(), ttt: 1, desired_length: 512 });
    trace.silence();
    send!(trace, r2t { itt: live.get() + (1 << 20), ttt: 1, desired_length: 512 });
    assert!(matches!(trace.failure(), SessionError::Protocol(_)));
}

/// A command that waits for the window can be withdrawn without sending anything; a command that is in wire
/// order continues.
#[test]
fn what_waits_for_the_window_can_be_taken_back() {
    let mut trace = Trace::with_window(1);
    let (sent, waiting) = (trace.submit(read(0, 1)), trace.submit(read(1, 1)));
    expect!(trace, ScsiCommand { itt: sent.get() });
    for itt in [sent, waiting] {
        trace.session.withdraw(itt, trace.now);
    }
    assert!(everything(&mut trace).is_empty());
    assert_eq!(trace.result(waiting).unwrap_err(), TaskError::Withdrawn);
    send!(trace, data_in { itt: sent.get(), data: vec![1; 512], status: 0 });
    assert!(trace.result(sent).is_ok());
    trace.assert_usable();
}
