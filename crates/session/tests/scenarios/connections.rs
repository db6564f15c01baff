//! Tests of two connections in one session (RFC 7143 §4.2.2, §4.2.5.1).

use std::time::Duration;

use bytes::{Buf, Bytes};
use iscsi_pdu::scsi::{Cdb, Lun};
use iscsi_pdu::{Cid, Itt, TaskFunction};
use iscsi_session::{Command, Output, ProtocolError, SessionError, SubmitError, TaskError};
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::fault::{Effect, Fault};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::Pdu;
use iscsi_testkit::pdus::{Numbers, Template, data_in, r2t};

use crate::pair::{Pair, config, pattern, read, target_config, write};

pub(crate) const SECOND: Cid = Cid(1);

pub(crate) fn target() -> TargetConfig {
    let mut target = target_config(256);
    target.keys.initial_r2t = true;
    target.keys.immediate_data = false;
    target
}

/// Returns a session with connections 0 and 1.
pub(crate) fn two_connections(target: TargetConfig) -> Pair {
    let mut config = config();
    config.offer = config.offer.with_max_connections(2);
    let mut pair = Pair::logged_in(config, target);
    pair.session.add_connection(SECOND, pair.now).unwrap();
    pair.drive();
    assert!(pair.session.negotiated_on(SECOND).is_some(), "{:?}", pair.ended);
    pair
}

/// Makes one connection send everything that it can; the other connections are not polled.
pub(crate) fn send_over(pair: &mut Pair, cid: Cid) {
    let link = pair.link(cid.0);
    while let Some(mut transmit) = pair.session.poll_transmit(cid, pair.now) {
        let bytes = transmit.copy_to_bytes(transmit.remaining());
        pair.target.receive(link, &bytes);
    }
}

/// Returns the PDUs of one kind that were sent over a connection.
pub(crate) fn received(pair: &Pair, cid: Cid, opcode: Opcode) -> Vec<Pdu> {
    let link = pair.link(cid.0);
    let fits = |(at, pdu): &&(_, Pdu)| *at == link && pdu.is(opcode);
    pair.target.received().iter().filter(fits).map(|(_, pdu)| pdu.clone()).collect()
}

pub(crate) fn inject(pair: &mut Pair, cid: Cid, template: Template) {
    let link = pair.link(cid.0);
    pair.target.inject(link, template.build(Numbers { stat_sn: 0, exp_cmd_sn: 0, max_cmd_sn: 0 }));
    pair.drive_receive();
}

/// Submits a command that the given connection sends.
pub(crate) fn submit_over(pair: &mut Pair, cid: Cid, command: Command) -> Itt {
    let itt = pair.submit(command);
    favouring(pair, cid, |pair| send_over(pair, cid));
    itt
}

/// Sets the limits so that one connection takes all waiting commands, while `send` runs.
pub(crate) fn favouring(pair: &mut Pair, cid: Cid, send: impl FnOnce(&mut Pair)) {
    for any in (0..8).map(Cid) {
        pair.session.limit_writes(any, if any == cid { 1 << 40 } else { 1 });
    }
    send(pair);
    for any in (0..8).map(Cid) {
        pair.session.limit_writes(any, u64::MAX);
    }
}

/// MC-I-01: the second login has the TSIH of the session, and continues its CmdSN.
#[test]
fn mc_i_01_login_of_a_second_connection() {
    let pair = two_connections(target());
    let [first, second] = [Cid(0), SECOND].map(|cid| received(&pair, cid, Opcode::LoginRequest));
    let (first, second) = (&first[0], &second[0]);
    assert_eq!((second.isid(), second.tsih()), (first.isid(), pair.session.tsih().0));
    assert_eq!((first.cid(), second.cid()), (0, 1));
    let logged_in = |output: &&Output| matches!(output, Output::LoggedIn { .. });
    assert_eq!(pair.outputs.iter().filter(logged_in).count(), 2);
    assert_eq!(pair.target.sessions(), 1);
    pair.assert_no_violations();
}

/// MC-I-01: the connections share CmdSN, and each has its own StatSN.
#[test]
fn mc_i_01_one_cmd_sn_and_a_stat_sn_each() {
    let mut pair = two_connections(target());
    let mut cmd_sns = Vec::new();
    for round in 0..12 {
        let cid = if round % 3 == 0 { SECOND } else { Cid(0) };
        let itt = submit_over(&mut pair, cid, read(round, 1));
        pair.drive();
        assert!(pair.completed[&itt].is_ok());
        cmd_sns.push(received(&pair, cid, Opcode::ScsiCommand).last().unwrap().cmd_sn());
    }
    assert!(cmd_sns.windows(2).all(|pair| pair[1] == pair[0] + 1));
    let last = |cid| received(&pair, cid, Opcode::ScsiCommand).last().unwrap().exp_stat_sn();
    assert_ne!(last(Cid(0)), last(SECOND));
    pair.assert_no_violations();
}

/// MC-I-01, SEQ-04: all kinds of requests work over both connections, with bytes split into pieces.
#[test]
fn mc_i_01_traffic_over_both_connections() {
    let mut pair = two_connections(target());
    pair.cut = crate::pair::Cut::Every(100);
    let data = pattern(8 * 512, 5);
    let tags: Vec<_> = (0..16)
        .map(|n| {
            let cid = Cid((n % 2) as u16);
            submit_over(&mut pair, cid, write(n * 8, data.clone()))
        })
        .collect();
    pair.drive();
    assert!(tags.iter().all(|itt| pair.completed[itt].is_ok()));
    for n in 0..16 {
        assert!(pair.target.disk(0).unwrap().holds(n * 8 * 512, &data));
    }
    pair.assert_no_violations();
}

/// MC-I-02, SEQ-09: an older window that arrives later, over the other connection, is ignored.
#[test]
fn mc_i_02_older_window_over_the_other_connection() {
    let mut target = target();
    for at in [28, 32] {
        let old = Effect::SetWord { at, value: 1 };
        target.faults.push(Fault::sending(Opcode::DataIn, 0, old).on_connection(1));
    }
    let mut pair = two_connections(target);
    for lba in 0..4 {
        submit_over(&mut pair, Cid(0), read(lba, 1));
        pair.drive();
    }
    let before = (pair.session.exp_cmd_sn(), pair.session.window());
    let itt = submit_over(&mut pair, SECOND, read(9, 1));
    pair.drive();
    assert!(pair.completed[&itt].is_ok());
    assert_eq!(pair.session.exp_cmd_sn(), before.0);
    assert_eq!(pair.session.window(), before.1 - 1);
    pair.execute(read(10, 1)).unwrap();
    pair.assert_no_violations();
}

/// MC-I-03: PDUs of the target on another connection than the one of their task are an error.
#[test]
fn mc_i_03_pdus_on_the_wrong_connection() {
    for reads in [false, true] {
        let mut pair = two_connections(target());
        pair.target.hold();
        let command = if reads { read(0, 1) } else { write(0, pattern(512, 1)) };
        let itt = submit_over(&mut pair, SECOND, command);
        let stray = if reads {
            data_in().itt(itt.get()).data(vec![1; 512]).status(0)
        } else {
            r2t().itt(itt.get()).ttt(3).desired_length(512)
        };
        inject(&mut pair, Cid(0), stray);
        let expected = |error: &SessionError| {
            matches!(error, SessionError::Protocol(ProtocolError::Task { .. }))
        };
        assert!(matches!(&pair.ended, Some(Err(error)) if expected(error)), "{:?}", pair.ended);
        assert!(matches!(pair.completed[&itt], Err(TaskError::Session { sent: true, .. })));
    }
}

/// MC-I-03, WR-13: Data-Outs are sent on the connection of their command.
#[test]
fn mc_i_03_data_out_stays_on_the_connection_of_its_command() {
    let mut pair = two_connections(target());
    for cid in [Cid(0), SECOND] {
        let data = pattern(64 * 512, u64::from(cid.0));
        let itt = submit_over(&mut pair, cid, write(0, data.clone()));
        pair.drive();
        assert!(pair.completed[&itt].is_ok());
        let parts = received(&pair, cid, Opcode::DataOut);
        assert_eq!(parts.iter().map(|pdu| pdu.data.len()).sum::<usize>(), data.len());
    }
    pair.assert_no_violations();
}

/// TMF-04: ABORT TASK is sent on the connection of its task.
#[test]
fn tmf_04_abort_on_the_connection_of_the_task() {
    for cid in [Cid(0), SECOND] {
        let mut pair = two_connections(target());
        pair.target.hold();
        let itt = submit_over(&mut pair, cid, read(0, 1));
        pair.session.abort(itt, pair.now);
        pair.drive();
        assert_eq!(*pair.completed[&itt].as_ref().unwrap_err(), TaskError::Aborted);
        assert_eq!(received(&pair, cid, Opcode::TaskManagementRequest).len(), 1);
        pair.assert_no_violations();
    }
}

/// Submits a write on a connection, and returns its bytes, which the test delivers later.
fn submit_late(pair: &mut Pair, cid: Cid, command: Command) -> (Itt, Vec<Bytes>) {
    let itt = pair.submit(command);
    let mut late = Vec::new();
    favouring(pair, cid, |pair| late = take(pair, cid));
    (itt, late)
}

/// Takes the bytes that a connection has to send, without delivering them to the target.
fn take(pair: &mut Pair, cid: Cid) -> Vec<Bytes> {
    let mut late = Vec::new();
    while let Some(mut transmit) = pair.session.poll_transmit(cid, pair.now) {
        late.push(transmit.copy_to_bytes(transmit.remaining()));
    }
    late
}

/// TMF-04: a command waits at the target for an earlier command of another connection, and is aborted. A
/// target that does not find the waiting command executes it later, so the command does not end before its
/// own response.
#[test]
fn tmf_04_abort_of_a_command_that_waits_for_its_turn() {
    for is_found in [true, false] {
        let mut target = target();
        target.early_tasks_unknown = !is_found;
        let mut pair = two_connections(target);
        let data = [3, 4].map(|seed| pattern(512, seed));
        let (first, late) = submit_late(&mut pair, SECOND, write(3, data[0].clone()));
        let second = submit_over(&mut pair, Cid(0), write(4, data[1].clone()));
        pair.session.abort(second, pair.now);
        send_over(&mut pair, Cid(0));
        pair.drive_receive();
        assert_eq!(pair.completed.contains_key(&second), is_found);
        let link = pair.link(SECOND.0);
        late.iter().for_each(|bytes| pair.target.receive(link, bytes));
        pair.drive();
        assert!(pair.completed[&first].is_ok());
        assert_eq!(pair.completed[&second].is_ok(), !is_found);
        assert_eq!(pair.target.disk(0).unwrap().holds(4 * 512, &data[1]), !is_found);
        pair.assert_usable();
        pair.assert_no_violations();
    }
}

/// TMF-10: commands that were sent before a reset over another connection may arrive after the reset. They
/// are executed then, and so are commands of the reset's connection that wait for them: none of these
/// commands ends before its own response.
#[test]
fn tmf_10_a_reset_overtakes_a_write_of_another_connection() {
    let mut pair = two_connections(target());
    let data = [3, 4].map(|seed| pattern(512, seed));
    let (first, late) = submit_late(&mut pair, SECOND, write(3, data[0].clone()));
    let second = submit_over(&mut pair, Cid(0), write(4, data[1].clone()));
    let function = TaskFunction::LogicalUnitReset;
    let reset = pair.session.manage(function, Lun::ZERO, None, pair.now).unwrap();
    send_over(&mut pair, Cid(0));
    pair.drive_receive();
    let is_answered =
        |output: &Output| matches!(output, Output::Managed { itt, .. } if *itt == reset);
    assert!(pair.outputs.iter().any(is_answered));
    assert!(pair.completed.is_empty(), "{:?}", pair.completed);
    let link = pair.link(SECOND.0);
    late.iter().for_each(|bytes| pair.target.receive(link, bytes));
    pair.drive();
    assert!([first, second].iter().all(|itt| pair.completed[itt].is_ok()));
    assert!(pair.target.disk(0).unwrap().holds(3 * 512, &data.concat()));
    pair.assert_no_violations();
}

/// TMF-16: a command that is sent after a reset over another connection may arrive before the reset. Targets
/// end such a command too, without a status, so it is aborted soon.
#[test]
fn tmf_16_a_command_that_overtakes_a_reset_is_aborted_soon() {
    let mut pair = two_connections(target());
    pair.target.hold();
    let function = TaskFunction::LogicalUnitReset;
    let reset = pair.session.manage(function, Lun::ZERO, None, pair.now).unwrap();
    let late = take(&mut pair, Cid(0));
    assert!(!late.is_empty());
    let flush = Command::new(Lun::ZERO, Cdb::synchronize_cache_10(0, 0));
    let flush = submit_over(&mut pair, SECOND, flush);
    assert_eq!(received(&pair, SECOND, Opcode::ScsiCommand).len(), 1);
    let link = pair.link(0);
    late.iter().for_each(|bytes| pair.target.receive(link, bytes));
    pair.drive();
    let is_answered =
        |output: &Output| matches!(output, Output::Managed { itt, .. } if *itt == reset);
    assert!(pair.outputs.iter().any(is_answered));
    pair.target.release();
    pair.drive();
    assert!(pair.completed.is_empty(), "{:?}", pair.completed);
    pair.advance(Duration::from_secs(11));
    pair.drive();
    assert_eq!(pair.completed[&flush].as_ref().unwrap_err(), &TaskError::TimedOut);
    pair.assert_no_violations();
}

/// MC-I-05, LGO-01: the logout of a session follows all of its tasks, and ends all its connections.
#[test]
fn mc_i_05_logout_ends_both_connections() {
    let mut pair = two_connections(target());
    pair.target.hold();
    let itt = submit_over(&mut pair, SECOND, read(0, 1));
    pair.session.logout(pair.now);
    pair.drive();
    assert_eq!(pair.ended, None);
    pair.target.release();
    pair.drive();
    assert!(pair.completed[&itt].is_ok());
    assert_eq!(pair.ended, Some(Ok(())));
    assert_eq!(pair.target.sessions(), 0);
    pair.assert_no_violations();
}

/// MC-I-05, LGO-01: after the logout no connection sends anything, not even a ping.
#[test]
fn mc_i_05_silence_on_both_connections_after_a_logout() {
    let mut target = target();
    target.faults.push(Fault::receiving(Opcode::LogoutRequest, 0, Effect::Swallow));
    let mut pair = two_connections(target);
    pair.session.logout(pair.now);
    pair.drive();
    for cid in [Cid(0), SECOND] {
        let link = pair.link(cid.0);
        pair.target.ping(link, 0);
        pair.drive();
        assert_eq!(received(&pair, cid, Opcode::NopOut), []);
    }
    assert_eq!(pair.ended, None);
}

/// UNH FFP 14.2: if the target requests a logout on one connection, the logout may end the whole session.
#[test]
fn unh_14_2_async_logout_on_one_of_two_connections() {
    let mut pair = two_connections(target());
    let link = pair.link(1);
    pair.target.async_message(link, 1, [0, 0, 5]);
    pair.drive();
    assert_eq!(pair.ended, Some(Err(SessionError::LogoutRequested)));
    pair.assert_no_violations();
}

/// ASY-05: the request for a negotiation is answered on its own connection, whatever text exchange another
/// connection has.
#[test]
fn asy_05_negotiation_request_is_answered_where_it_came() {
    for exchanges in [false, true] {
        let mut pair = two_connections(target());
        if exchanges {
            pair.target.hold();
            pair.session.send_targets(pair.now).unwrap();
            send_over(&mut pair, Cid(0));
        }
        let link = pair.link(1);
        pair.target.async_message(link, 4, [0, 0, 3]);
        pair.drive();
        assert_eq!(received(&pair, SECOND, Opcode::TextRequest).len(), 1);
        pair.target.release();
        pair.assert_usable();
        pair.assert_no_violations();
    }
}

/// ERR-06: the session fails with its last connection.
#[test]
fn the_last_lost_connection_ends_the_session() {
    let mut pair = two_connections(target());
    pair.target.hold();
    let tags = [Cid(0), SECOND].map(|cid| submit_over(&mut pair, cid, read(0, 1)));
    for cid in [SECOND, Cid(0)] {
        assert_eq!(pair.ended, None);
        pair.break_connection(cid);
    }
    pair.drive();
    assert!(matches!(pair.ended, Some(Err(SessionError::Transport(_)))));
    let lost = |itt| matches!(&pair.completed[itt], Err(TaskError::Session { sent: true, .. }));
    assert!(tags.iter().all(lost));
    pair.assert_no_violations();
}

/// MC-I-08, KEY-06: a connection cannot be added beyond MaxConnections, with a CID in use, or before the
/// first login.
#[test]
fn mc_i_08_no_more_connections_than_agreed() {
    let mut alone = target();
    alone.keys.max_connections = 1;
    let mut config = config();
    config.offer = config.offer.with_max_connections(8);
    let mut pair = Pair::new(config, alone);
    assert_eq!(pair.session.add_connection(SECOND, pair.now), Err(SubmitError::Closed));
    pair.drive();
    assert_eq!(pair.session.negotiated().unwrap().max_connections, 1);
    assert_eq!(pair.session.add_connection(SECOND, pair.now), Err(SubmitError::Full));
    let mut pair = two_connections(target());
    for cid in [Cid(0), SECOND, Cid(2)] {
        assert_eq!(pair.session.add_connection(cid, pair.now), Err(SubmitError::Full));
    }
    pair.drive();
    assert_eq!(pair.connects, 2);
}

/// NOP-07: each connection is pinged separately.
#[test]
fn each_connection_is_pinged() {
    let mut pair = two_connections(target());
    pair.advance(Duration::from_secs(16));
    for cid in [Cid(0), SECOND] {
        assert_eq!(received(&pair, cid, Opcode::NopOut).len(), 1);
    }
    pair.assert_no_violations();
}
