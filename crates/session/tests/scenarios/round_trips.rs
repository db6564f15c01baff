//! Tests of the number of round trips before the first data: no more than the protocol needs.

use iscsi_pdu::scsi::{Cdb, Lun};
use iscsi_session::Command;
use iscsi_testkit::opcode::Opcode;

use crate::pair::{BLOCK, Pair, config, pattern, target_config, write};

/// Number of queries that a disk first sends to a unit, all concurrently.
const QUESTIONS: usize = 9;

impl Pair {
    /// Delivers everything that the session can send, and everything that the target sends in response.
    fn round_trip(&mut self) {
        while self.drain_outputs() || self.carry_to_target() {}
        while self.carry_to_session() || self.drain_outputs() {}
    }

    /// Returns the number of round trips until all `commands` so far have completed.
    fn until_answered(&mut self, commands: usize) -> usize {
        let trips = (0..64).take_while(|_| {
            let waits = self.completed.len() < commands;
            if waits {
                self.round_trip();
            }
            waits
        });
        trips.count()
    }
}

/// Submits the queries before the login, and returns the number of round trips from the transport connection
/// to the last response.
fn trips_to_the_answers(window: u32) -> (Pair, usize) {
    let mut target = target_config(1024);
    target.window = window;
    let mut pair = Pair::new(config(), target);
    for _ in 0..QUESTIONS {
        let mut question = Command::new(Lun::ZERO, Cdb::inquiry(96));
        question.read = Some(bytes::BytesMut::zeroed(96).into());
        pair.session.submit(question, pair.now).unwrap();
    }
    // The first response is that of the login. A window of one opens with the first response after it.
    pair.round_trip();
    assert!(pair.session.negotiated().is_some(), "one round trip for the login");
    let first = if window == 1 {
        pair.round_trip();
        assert_eq!(pair.completed.len(), 1, "the window takes one question");
        pair.target.set_window(64);
        1
    } else {
        0
    };
    // The new window arrives with the next response.
    let rest = pair.until_answered(QUESTIONS);
    (pair, 1 + first + rest)
}

#[test]
fn login_and_questions_take_one_round_trip_each() {
    let (_, trips) = trips_to_the_answers(64);
    assert_eq!(trips, 2);
}

/// With a target like LIO, whose window opens with the first response after the login, at most four round
/// trips are needed.
#[test]
fn a_window_that_opens_late_costs_what_it_must() {
    let (_, trips) = trips_to_the_answers(1);
    assert!(trips <= 4, "{trips}");
}

#[test]
fn data_goes_out_right_behind_the_answers() {
    let (mut pair, _) = trips_to_the_answers(64);
    let data = pattern(8 * BLOCK, 3);
    pair.session.submit(write(0, data.clone()), pair.now).unwrap();
    while pair.carry_to_target() {}
    let carried = pair.target.received().iter().filter(|(_, pdu)| {
        pdu.opcode() == Some(Opcode::ScsiCommand) && pdu.data.len() == data.len()
    });
    assert_eq!(carried.count(), 1, "the command carries its data with it");
}

/// An added connection, and another session, also log in within one round trip.
#[test]
fn an_added_connection_logs_in_in_one_round_trip() {
    let mut wished = config();
    wished.offer = wished.offer.with_max_connections(2);
    let mut target = target_config(64);
    target.keys.max_connections = 2;
    let mut pair = Pair::logged_in(wished, target);
    pair.session.add_connection(iscsi_pdu::Cid(1), pair.now).unwrap();
    pair.round_trip();
    assert!(pair.session.negotiated_on(iscsi_pdu::Cid(1)).is_some());
}
