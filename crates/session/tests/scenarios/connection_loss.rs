//! Tests of one connection of several that fails in full feature phase: the effect on the session and on its
//! requests (RFC 7143 §7.1, §11.14).

use std::time::Duration;

use bytes::Buf;
use iscsi_pdu::scsi::{Lun, Status};
use iscsi_pdu::{Cid, Itt, TaskFunction};
use iscsi_session::{Output, SessionError, SubmitError, TaskError, Timer, TransportError};
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::fault::{Effect, Fault};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::Pdu;

use crate::connections::{
    SECOND, favouring, received, send_over, submit_over, target, two_connections,
};
use crate::pair::{Pair, config, pattern, read, target_config, write};

pub(crate) const FIRST: Cid = Cid(0);
pub(crate) const THIRD: Cid = Cid(2);

/// Returns the error that the rig reports when it breaks a connection.
pub(crate) fn reset() -> SessionError {
    SessionError::Transport(TransportError::Io("reset".into()))
}

pub(crate) fn lost(sent: bool) -> TaskError {
    TaskError::ConnectionLost { cause: reset(), sent }
}

/// Returns a session with `count` connections.
pub(crate) fn several(count: u16, target: TargetConfig) -> Pair {
    let mut config = config();
    config.offer = config.offer.with_max_connections(8);
    let mut pair = Pair::logged_in(config, target);
    for cid in 1..count {
        pair.session.add_connection(Cid(cid), pair.now).unwrap();
    }
    pair.drive();
    assert_eq!(pair.target.live_connections().len(), usize::from(count));
    pair
}

/// Submits commands, and drops everything that the given connection sends for them.
fn submit_into_the_void(
    pair: &mut Pair,
    cid: Cid,
    commands: Vec<iscsi_session::Command>,
) -> Vec<Itt> {
    let tags = commands.into_iter().map(|command| pair.submit(command)).collect();
    favouring(pair, cid, |pair| {
        while let Some(mut transmit) = pair.session.poll_transmit(cid, pair.now) {
            transmit.advance(transmit.remaining());
        }
    });
    tags
}

/// Returns the only logout request that was sent over a connection.
#[track_caller]
pub(crate) fn only_logout(pair: &Pair, cid: Cid) -> Pdu {
    match &received(pair, cid, Opcode::LogoutRequest)[..] {
        [request] => request.clone(),
        other => panic!("{other:?}"),
    }
}

/// Returns the error with which a command has ended.
#[track_caller]
pub(crate) fn failure(pair: &Pair, itt: Itt) -> TaskError {
    pair.completed[&itt].as_ref().unwrap_err().clone()
}

/// MC-I-04: the other connection continues; an immediate Logout with reason 1 has the CID of the failed one;
/// at its response the tasks of the failed connection end, whether or not the target had noticed the failure.
#[test]
fn mc_i_04_other_connection_keeps_going() {
    for half_open in [false, true] {
        let mut pair = two_connections(target());
        pair.target.hold();
        let tags = [FIRST, SECOND].map(|cid| submit_over(&mut pair, cid, read(0, 4)));
        pair.half_open = half_open;
        pair.break_connection(SECOND);
        pair.drive_receive();
        assert_eq!(*pair.only_loss(SECOND), reset());
        assert_eq!(pair.disconnects, [(SECOND, true)]);
        assert!(pair.completed.is_empty(), "the target has not given it up");

        pair.drive();
        let request = only_logout(&pair, FIRST);
        assert!(request.immediate());
        assert_eq!((request.function(), request.cid()), (1, 1));
        assert_eq!(failure(&pair, tags[1]), lost(true));
        assert!(!pair.completed.contains_key(&tags[0]));
        assert_eq!(pair.target.active_tasks(), 1);

        pair.target.release();
        pair.drive();
        assert!(pair.completed[&tags[0]].is_ok());
        pair.assert_usable();
        pair.assert_no_violations();
    }
}

/// LGO-05, RFC 7143 §11.14.5: if the target does not have the connection any more, it terminated the tasks
/// when the state of the connection timed out. So the tasks end as after a successful logout.
#[test]
fn lgo_05_no_such_connection_is_as_good_as_closed() {
    let mut target = target();
    target.logout_response = 1;
    let mut pair = two_connections(target);
    pair.target.hold();
    let tags = [FIRST, SECOND].map(|cid| submit_over(&mut pair, cid, read(0, 4)));
    pair.half_open = true;
    pair.break_connection(SECOND);
    pair.drive();
    assert_eq!(failure(&pair, tags[1]), lost(true));
    assert!(!pair.completed.contains_key(&tags[0]));
    pair.target.release();
    pair.drive();
    assert!(pair.completed[&tags[0]].is_ok());
    pair.assert_usable();
}

/// MC-I-04: the first connection of the session can fail like any other, and its CID can be used again.
#[test]
fn mc_i_04_first_connection_lost_and_replaced() {
    let mut pair = two_connections(target());
    pair.break_connection(FIRST);
    assert_eq!(pair.session.add_connection(FIRST, pair.now), Err(SubmitError::Full));
    pair.drive();
    assert_eq!(pair.session.negotiated_on(FIRST), None);
    assert!(pair.session.negotiated().is_some());
    pair.assert_usable();
    pair.session.add_connection(FIRST, pair.now).unwrap();
    pair.drive();
    pair.break_connection(SECOND);
    pair.drive();
    assert_eq!(pair.lost().len(), 2);
    assert_eq!(only_logout(&pair, FIRST).cid(), 1);
    pair.assert_usable();
    pair.assert_no_violations();
}

/// MC-I-04, RFC 7143 §7.2.1: commands that the target never received start over on the other connection with
/// their CmdSN, so none of them fails, and none is executed twice.
#[test]
fn mc_i_04_commands_that_never_arrived_start_over() {
    for half_open in [false, true] {
        let mut pair = two_connections(target());
        pair.half_open = half_open;
        let data = pattern(8 * 512, 3);
        let commands = vec![write(0, data.clone()), read(50, 3), write(20, data.clone())];
        let void = submit_into_the_void(&mut pair, SECOND, commands);
        let behind = submit_over(&mut pair, FIRST, read(70, 1));
        pair.drive();
        assert!(!pair.completed.contains_key(&behind), "it waits for the ones before");
        pair.break_connection(SECOND);
        pair.drive();
        for itt in void.iter().chain([&behind]) {
            assert_eq!(pair.completed[itt].as_ref().unwrap().status, Status::GOOD);
        }
        let commands = pair.target.commands();
        let numbers: Vec<_> = commands.iter().map(|command| command.cmd_sn).collect();
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
        assert_eq!(commands.iter().map(|c| c.itt).collect::<Vec<_>>()[..3], void_tags(&void));
        let sent = received(&pair, FIRST, Opcode::ScsiCommand);
        let again: Vec<_> = sent[sent.len() - 3..].iter().map(Pdu::itt).collect();
        assert_eq!(again, void_tags(&void), "in their old order");
        let disk = pair.target.disk(0).unwrap();
        assert!(disk.holds(0, &data) && disk.holds(20 * 512, &data));
        pair.assert_usable();
        pair.assert_no_violations();
    }
}

/// RFC 7143 §4.2.2.1: the target executes nothing after a missing CmdSN. So writes in flight on a connection
/// do not end before the command that starts over is sent there, and no limit of the connection may hold that
/// command back.
#[test]
fn what_starts_over_is_held_back_by_no_limit_for_writes() {
    let mut pair = two_connections(target());
    let void = submit_into_the_void(&mut pair, SECOND, vec![write(0, pattern(512, 3))]);
    let behind = submit_over(&mut pair, FIRST, write(1, pattern(512, 4)));
    pair.session.limit_writes(FIRST, 512);
    pair.break_connection(SECOND);
    pair.drive();
    assert!([void[0], behind].iter().all(|itt| pair.completed[itt].is_ok()));
    pair.assert_usable();
    pair.assert_no_violations();
}

/// A command that starts over is sent even if the window is closed, because the window opens only with the
/// missing CmdSN, and even if the remaining connections have equal loads.
#[test]
fn what_starts_over_is_shared_out_beyond_the_window() {
    for under_way in [0, 1] {
        let mut target = target();
        target.window = 1 + 2 * under_way;
        let mut pair = several(3, target);
        let void = submit_into_the_void(&mut pair, FIRST, vec![read(0, 1)]);
        let mut tags = void;
        for _ in 0..under_way {
            tags.extend([SECOND, THIRD].map(|cid| submit_over(&mut pair, cid, read(1, 1))));
        }
        assert_eq!(pair.session.window(), 0);
        pair.break_connection(FIRST);
        pair.drive();
        assert!(tags.iter().all(|itt| pair.completed[itt].is_ok()));
        pair.assert_usable();
        pair.assert_no_violations();
    }
}

fn void_tags(tags: &[Itt]) -> Vec<u32> {
    tags.iter().map(|itt| itt.get()).collect()
}

/// A write that starts over uses the parameters of its new connection from its first byte.
#[test]
fn write_starts_over_on_other_terms() {
    let mut target = target_config(8192);
    target.keys.initial_r2t = false;
    target.keys.max_recv_data_segment_length = Some(4 << 20);
    target.keys.first_burst_length = 4 << 20;
    target.keys.max_burst_length = 4 << 20;
    let mut pair = several(1, target);
    pair.target.config_mut().keys.max_recv_data_segment_length = Some(4096);
    pair.session.add_connection(SECOND, pair.now).unwrap();
    pair.drive();
    pair.target.config_mut().keys.max_recv_data_segment_length = Some(4 << 20);
    let data = pattern(3 << 20, 5);
    let itt = pair.submit(write(0, data.clone()));
    favouring(&mut pair, SECOND, |pair| {
        assert!(pair.session.poll_transmit(SECOND, pair.now).is_some());
    });
    pair.break_connection(SECOND);
    pair.drive();
    assert!(pair.completed[&itt].is_ok());
    assert!(pair.target.disk(0).unwrap().holds(0, &data));
    assert_eq!(received(&pair, FIRST, Opcode::DataOut), [], "all of it went with the command");
    pair.assert_no_violations();
}

/// Commands without a CmdSN are not affected by the loss: they are sent over the other connection.
#[test]
fn commands_not_in_wire_order_go_elsewhere() {
    let mut target = target();
    target.window = 1;
    let mut pair = two_connections(target);
    pair.target.hold();
    let sent = submit_over(&mut pair, SECOND, read(0, 1));
    let waiting = [1, 2, 3].map(|lba| pair.submit(read(lba, 1)));
    send_over(&mut pair, SECOND);
    pair.break_connection(SECOND);
    pair.target.release();
    pair.drive();
    assert_eq!(failure(&pair, sent), lost(true));
    assert!(waiting.iter().all(|itt| pair.completed[itt].is_ok()));
    pair.assert_no_violations();
}

/// A command that was aborted and never arrived leaves a gap in CmdSN, which an ABORT TASK fills over the
/// other connection, after the logout (RFC 7143 §11.5.1).
#[test]
fn hole_of_an_aborted_command_is_filled() {
    for before_the_loss in [false, true] {
        let mut pair = two_connections(target());
        let itt = submit_into_the_void(&mut pair, SECOND, vec![read(0, 1)])[0];
        let behind = submit_over(&mut pair, FIRST, read(1, 1));
        if before_the_loss {
            pair.session.abort(itt, pair.now);
        }
        pair.break_connection(SECOND);
        pair.session.abort(itt, pair.now);
        assert!(!pair.completed.contains_key(&itt));
        pair.drive();
        assert_eq!(failure(&pair, itt), TaskError::Aborted);
        assert!(pair.completed[&behind].is_ok());
        let aborts = received(&pair, FIRST, Opcode::TaskManagementRequest);
        let [abort] = &aborts[..] else { panic!("{aborts:?}") };
        let number = received(&pair, FIRST, Opcode::ScsiCommand).last().unwrap().cmd_sn() - 1;
        assert_eq!((abort.referenced_tag(), abort.ref_cmd_sn()), (itt.get(), number));
        pair.assert_usable();
        pair.assert_no_violations();
    }
}

/// A command that starts over and is aborted before it is sent again leaves a gap in CmdSN, which an ABORT
/// TASK fills.
#[test]
fn hole_of_a_command_that_does_not_start_over_after_all() {
    let mut pair = two_connections(target());
    let itt = submit_into_the_void(&mut pair, SECOND, vec![read(0, 1)])[0];
    pair.break_connection(SECOND);
    pair.blocked.push(FIRST);
    pair.drive();
    send_over(&mut pair, FIRST);
    pair.drive_receive();
    pair.session.abort(itt, pair.now);
    pair.blocked.clear();
    pair.drive();
    assert_eq!(failure(&pair, itt), TaskError::Aborted);
    assert_eq!(received(&pair, FIRST, Opcode::TaskManagementRequest).len(), 1);
    pair.assert_usable();
    pair.assert_no_violations();
}

/// TMF-10: a reset over the other connection ends commands of the lost connection that had arrived before the
/// reset. A command that never arrived is sent again, with the same CmdSN.
#[test]
fn tmf_10_reset_before_the_cleanup() {
    for arrives in [true, false] {
        let mut pair = two_connections(target());
        let itt = if arrives {
            pair.target.hold();
            submit_over(&mut pair, SECOND, read(0, 1))
        } else {
            submit_into_the_void(&mut pair, SECOND, vec![read(0, 1)])[0]
        };
        let function = TaskFunction::LogicalUnitReset;
        pair.session.manage(function, Lun::ZERO, None, pair.now).unwrap();
        send_over(&mut pair, FIRST);
        pair.drive_receive();
        assert_eq!(pair.completed.contains_key(&itt), arrives);
        pair.break_connection(SECOND);
        pair.target.release();
        pair.drive();
        assert_eq!(pair.completed[&itt].as_ref().err(), arrives.then_some(&TaskError::Aborted));
        pair.assert_usable();
        pair.assert_no_violations();
    }
}

/// TMF-04: a command of a failed connection is not aborted over another one before the logout. Its time limit
/// has no effect until then either.
#[test]
fn tmf_04_no_abort_elsewhere_before_the_logout() {
    let mut pair = two_connections(target());
    pair.target.hold();
    let command = read(0, 1).with_timeout(Duration::from_secs(1));
    let timed = submit_over(&mut pair, SECOND, command);
    let aborted = submit_over(&mut pair, SECOND, read(1, 1));
    pair.break_connection(SECOND);
    pair.blocked.push(FIRST);
    pair.session.abort(aborted, pair.now);
    pair.advance(Duration::from_secs(2));
    assert!(pair.completed.is_empty(), "{:?}", pair.completed);
    pair.blocked.clear();
    pair.drive();
    assert_eq!(failure(&pair, timed), TaskError::TimedOut);
    assert_eq!(failure(&pair, aborted), TaskError::Aborted);
    assert_eq!(received(&pair, FIRST, Opcode::TaskManagementRequest), []);
    pair.target.release();
    pair.assert_usable();
    pair.assert_no_violations();
}

/// If a reset over the other connection has ended a command of a lost connection, the command waits for the
/// logout, even if its time limit ends meanwhile.
#[test]
fn tmf_10_what_a_reset_has_ended_waits_for_the_logout_beyond_its_time() {
    let mut pair = two_connections(target());
    pair.target.hold();
    let command = read(0, 1).with_timeout(Duration::from_secs(1));
    let timed = submit_over(&mut pair, SECOND, command);
    let function = TaskFunction::LogicalUnitReset;
    let reset = pair.session.manage(function, Lun::ZERO, None, pair.now).unwrap();
    send_over(&mut pair, FIRST);
    pair.break_connection(SECOND);
    pair.blocked.push(FIRST);
    pair.drive_receive();
    let is_answer =
        |output: &Output| matches!(output, Output::Managed { itt, .. } if *itt == reset);
    assert!(pair.outputs.iter().any(is_answer), "{:?}", pair.outputs);
    pair.advance(Duration::from_secs(2));
    assert!(pair.completed.is_empty(), "{:?}", pair.completed);
    pair.blocked.clear();
    pair.target.release();
    pair.drive();
    assert_eq!(failure(&pair, timed), TaskError::Aborted);
    pair.assert_usable();
    pair.assert_no_violations();
}

/// If the target refuses to close the CID, the state of its tasks is unknown, and the session ends with the
/// error of the connection.
#[test]
fn cleanup_that_fails_ends_the_session() {
    for code in [2, 3, 0xff] {
        let mut target = target();
        target.logout_response = code;
        let mut pair = two_connections(target);
        pair.target.hold();
        let tags = [FIRST, SECOND].map(|cid| submit_over(&mut pair, cid, read(0, 1)));
        pair.half_open = true;
        pair.break_connection(SECOND);
        pair.drive();
        assert_eq!(pair.ended, Some(Err(reset())));
        assert_eq!(pair.disconnects, [(SECOND, true), (FIRST, true)]);
        for itt in tags {
            assert_eq!(failure(&pair, itt), TaskError::Session { cause: reset(), sent: true });
        }
        pair.assert_no_violations();
    }
}

/// LGO-08: the session ends if the logout of the connection gets no response, or a Reject.
#[test]
fn cleanup_without_an_answer_ends_the_session() {
    let mut target = target();
    target.faults.push(Fault::receiving(Opcode::LogoutRequest, 0, Effect::Swallow));
    let mut pair = two_connections(target);
    pair.break_connection(SECOND);
    pair.advance(Duration::from_millis(4900));
    assert_eq!(pair.ended, None);
    assert_eq!(pair.session.poll_timeout().unwrap().1, Timer::Logout);
    pair.advance(Duration::from_millis(200));
    assert_eq!(pair.ended, Some(Err(reset())));
}

/// If the connection that was to send the logout fails as well, a third one sends it.
#[test]
fn cleanup_moves_on_when_its_connection_fails() {
    for sent in [false, true] {
        let mut pair = several(3, target());
        pair.target.hold();
        let tags = [FIRST, SECOND, THIRD].map(|cid| submit_over(&mut pair, cid, read(0, 1)));
        pair.break_connection(THIRD);
        if sent {
            // The request is lost on the connection that sends the next command.
            submit_into_the_void(&mut pair, FIRST, vec![]);
        }
        pair.break_connection(FIRST);
        pair.drive();
        let closed = received(&pair, SECOND, Opcode::LogoutRequest);
        let mut closed: Vec<_> = closed.iter().map(Pdu::cid).collect();
        closed.sort_unstable();
        assert_eq!(closed, [FIRST.0, THIRD.0]);
        assert_eq!([0, 2].map(|at| failure(&pair, tags[at])), [lost(true), lost(true)]);
        assert!(!pair.completed.contains_key(&tags[1]));
        pair.target.release();
        pair.drive();
        assert!(pair.completed[&tags[1]].is_ok());
        pair.assert_usable();
        pair.assert_no_violations();
    }
}

/// Pings, management requests and text requests that were sent end with the connection; a request that was
/// not sent is sent over another one.
#[test]
fn other_requests_of_a_lost_connection() {
    let mut pair = two_connections(target());
    pair.target.hold();
    let write = submit_over(&mut pair, FIRST, write(0, pattern(512, 1)));
    let text = pair.session.send_targets(pair.now).unwrap();
    submit_into_the_void(&mut pair, SECOND, vec![]);
    let ping = pair.session.ping(pair.now).unwrap();
    let function = TaskFunction::LogicalUnitReset;
    let reset_sent = pair.session.manage(function, Lun::ZERO, None, pair.now).unwrap();
    submit_into_the_void(&mut pair, SECOND, vec![]);
    let query = TaskFunction::QueryTaskSet;
    let unsent = pair.session.manage(query, Lun::ZERO, None, pair.now).unwrap();
    pair.break_connection(SECOND);
    pair.drive();
    let ended = |tag: Itt| {
        pair.outputs.iter().find_map(|output| match output {
            Output::Ponged { itt, result } if *itt == tag => Some(result.clone().err()),
            Output::Discovered { itt, result } if *itt == tag => Some(result.clone().err()),
            Output::Managed { itt, result } if *itt == tag => Some(result.clone().err()),
            _ => None,
        })
    };
    for tag in [text, ping, reset_sent] {
        assert_eq!(ended(tag), Some(Some(lost(true))));
    }
    assert_eq!(ended(unsent), Some(None));
    let sent = received(&pair, FIRST, Opcode::TaskManagementRequest);
    let functions: Vec<_> = sent.iter().map(Pdu::function).collect();
    assert_eq!(functions.iter().filter(|function| **function == 5).count(), 0, "no second reset");
    pair.target.release();
    pair.drive();
    assert!(pair.completed[&write].is_ok());
    pair.assert_usable();
    pair.assert_no_violations();
}

/// TMF-11: a command that was aborted on a lost connection and never arrived leaves a gap in CmdSN. If the
/// target refuses to fill the gap, the session ends, because no later command would be executed.
#[test]
fn refused_filling_of_a_gap_ends_the_session() {
    let refusal = [
        Effect::SetByte { at: 2, value: 5 },
        // Subtracts 1 from ExpCmdSN, so that the gap stays.
        Effect::AddWord { at: 28, value: u32::MAX },
    ];
    for effects in [&refusal[..0], &refusal[..]] {
        let mut target = target();
        for effect in effects {
            let opcode = Opcode::TaskManagementResponse;
            target.faults.push(Fault::sending(opcode, 0, effect.clone()));
        }
        let mut pair = two_connections(target);
        let tags = submit_into_the_void(&mut pair, SECOND, vec![read(0, 1)]);
        pair.session.abort(tags[0], pair.now);
        pair.break_connection(SECOND);
        pair.drive();
        assert!(failure(&pair, tags[0]) == TaskError::Aborted);
        let refused = SessionError::AbortRefused;
        assert_eq!(pair.ended, (!effects.is_empty()).then_some(Err(refused)));
    }
}

/// The time limit of a request that was sent over a lost connection does not end the session during the clean-up.
#[test]
fn time_limits_during_a_cleanup() {
    let mut target = target();
    target.silent_task_management = true;
    let mut pair = two_connections(target);
    submit_over(&mut pair, FIRST, read(0, 1));
    pair.target.hold();
    submit_over(&mut pair, FIRST, read(0, 1));
    let function = TaskFunction::LogicalUnitReset;
    pair.session.manage(function, Lun::new(0).unwrap(), None, pair.now).unwrap();
    pair.drive();
    assert_eq!(received(&pair, SECOND, Opcode::TaskManagementRequest).len(), 1);
    pair.advance(Duration::from_millis(9500));
    pair.blocked.push(FIRST);
    pair.break_connection(SECOND);
    pair.advance(Duration::from_secs(2));
    assert_eq!(pair.ended, None);
    pair.blocked.clear();
    pair.drive();
    assert!(pair.outputs.iter().any(|output| matches!(output, Output::Managed { result: Err(error), .. } if *error == lost(true))));
    pair.target.release();
    pair.assert_usable();
}

/// The caller's ABORT TASK for a command of a lost connection ends with the command.
#[test]
fn management_of_a_task_on_a_lost_connection() {
    let mut pair = two_connections(target());
    pair.target.hold();
    let itt = submit_over(&mut pair, SECOND, read(0, 1));
    pair.break_connection(SECOND);
    let function = TaskFunction::AbortTask;
    let abort = pair.session.manage(function, Lun::ZERO, Some(itt), pair.now).unwrap();
    pair.drive();
    let managed = |output: &Output| {
        matches!(output, Output::Managed { itt, result: Err(error) }
            if *itt == abort && *error == lost(false))
    };
    assert!(pair.outputs.iter().any(managed));
    assert_eq!(received(&pair, FIRST, Opcode::TaskManagementRequest), []);
    pair.assert_no_violations();
}

/// A logout of the session waits for the clean-up, because tasks depend on the clean-up.
#[test]
fn logout_of_the_session_during_a_cleanup() {
    let mut pair = two_connections(target());
    let itt = submit_into_the_void(&mut pair, SECOND, vec![read(0, 1)])[0];
    pair.break_connection(SECOND);
    pair.session.logout(pair.now);
    pair.drive();
    assert!(pair.completed[&itt].is_ok(), "it started over");
    assert_eq!(pair.ended, Some(Ok(())));
    let reasons: Vec<_> =
        pair.target.received().iter().filter(|(_, pdu)| pdu.is(Opcode::LogoutRequest)).collect();
    let reasons: Vec<_> = reasons.iter().map(|(_, pdu)| pdu.function()).collect();
    assert_eq!(reasons, [1, 0]);
    pair.assert_no_violations();
}

/// If neither the clean-up nor the logout of the session gets a response, the logout still ends the session
/// without an error.
#[test]
fn logout_of_the_session_and_no_answer_at_all() {
    let mut target = target();
    for nth in 0..2 {
        target.faults.push(Fault::receiving(Opcode::LogoutRequest, nth, Effect::Swallow));
    }
    let mut pair = two_connections(target);
    pair.break_connection(SECOND);
    pair.drive();
    pair.session.logout(pair.now);
    pair.advance(Duration::from_secs(6));
    assert_eq!(pair.ended, Some(Ok(())));
}
