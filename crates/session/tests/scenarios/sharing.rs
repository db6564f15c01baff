//! Tests of the distribution of commands over several connections (RFC 7143 §4.2.2).

use std::time::Duration;

use iscsi_pdu::scsi::{Cdb, Lun};
use iscsi_pdu::{Cid, Itt};
use iscsi_session::{Command, Waiting};
use iscsi_testkit::opcode::Opcode;

use crate::connection_loss::several;
use crate::connections::{favouring, received, send_over, submit_over, target};
use crate::pair::{Pair, pattern, read, write};

const BLOCK: u64 = 512;

fn commands_on(pair: &Pair, cid: u16) -> usize {
    received(pair, Cid(cid), Opcode::ScsiCommand).len()
}

/// Returns the number of commands that each of `count` connections has sent.
fn spread(pair: &Pair, count: u16) -> Vec<usize> {
    (0..count).map(|cid| commands_on(pair, cid)).collect()
}

/// Returns a session whose target sends no responses until it is released.
fn held(count: u16) -> Pair {
    let mut pair = several(count, target());
    pair.target.hold();
    pair
}

/// Commands of every kind are distributed evenly, in whatever order the connections are polled.
#[test]
fn equal_connections_share_evenly() {
    for count in 1..=4 {
        for kind in 0..3 {
            for backwards in [false, true] {
                let mut pair = held(count);
                for n in 0..24 {
                    pair.submit(match kind {
                        0 => read(n, 1),
                        1 => write(n * 8, pattern(4096, 1)),
                        _ => Command::new(Lun::ZERO, Cdb::test_unit_ready()),
                    });
                }
                let order: Vec<_> = (0..count).collect();
                let order = if backwards { order.into_iter().rev().collect() } else { order };
                order.into_iter().for_each(|cid| send_over(&mut pair, Cid(cid)));
                let even = 24 / usize::from(count);
                assert_eq!(spread(&pair, count), vec![even; usize::from(count)]);
                pair.target.release();
                pair.drive();
                assert_eq!(pair.completed.len(), 24);
                pair.assert_no_violations();
            }
        }
    }
}

/// Shares are measured in load and not in commands: a connection with one large read gets none of the small
/// reads after it.
#[test]
fn large_commands_weigh_more() {
    let mut pair = held(2);
    submit_over(&mut pair, Cid(0), read(0, 200));
    for n in 0..16 {
        pair.submit(read(n, 1));
    }
    pair.drive();
    assert_eq!(spread(&pair, 2), [1, 16]);
}

/// With one command at a time, each is sent on the connection with the smallest load.
#[test]
fn next_command_goes_where_least_is_under_way() {
    let mut pair = held(3);
    for n in 0..30 {
        pair.submit(read(n, 1));
        pair.drive();
        let spread = spread(&pair, 3);
        let (most, least) = (spread.iter().max().unwrap(), spread.iter().min().unwrap());
        assert!(most - least <= 1, "{spread:?}");
    }
}

/// If more commands wait than the window allows, each connection still gets its share.
#[test]
fn shares_within_a_small_window() {
    let mut small = target();
    small.window = 4;
    let mut pair = several(4, small);
    for n in 0..64 {
        pair.submit(read(n, 1));
    }
    pair.drive();
    assert_eq!(pair.completed.len(), 64);
    let spread = spread(&pair, 4);
    assert!(spread.iter().all(|count| (8..=24).contains(count)), "{spread:?}");
    pair.assert_no_violations();
}

/// A connection whose socket is full does not delay the others, and gets its share later.
#[test]
fn blocked_connection_holds_nobody_back() {
    let mut target = target();
    target.keys.immediate_data = true;
    target.keys.max_recv_data_segment_length = Some(1 << 20);
    let mut pair = several(2, target);
    submit_over(&mut pair, Cid(1), read(0, 1));
    pair.drive();
    pair.submit(write(0, pattern(8 * 512, 1)));
    pair.submit(write(8, pattern(8 * 512, 1)));
    assert!(pair.session.poll_transmit(Cid(0), pair.now).is_some(), "its socket takes none of it");
    pair.blocked.push(Cid(0));
    let before = commands_on(&pair, 1);
    for n in 0..20 {
        pair.submit(read(100 + n, 1));
    }
    pair.drive();
    assert_eq!(commands_on(&pair, 1) - before, 21);
    assert_eq!(pair.completed.len(), 1, "the target keeps to the order of CmdSN");
    pair.blocked.clear();
    pair.drive();
    assert_eq!(pair.completed.len(), 1 + 22);
    pair.assert_no_violations();
}

/// A connection that is silent with commands in flight, while bytes move on another one, gets no new
/// commands, however many wait; when bytes move on it again, it gets new commands.
#[test]
fn silent_connection_gets_nothing_new() {
    let mut pair = several(2, target());
    pair.target.hold();
    let stuck = submit_over(&mut pair, Cid(0), read(0, 1));
    pair.now += Duration::from_millis(1100);
    for n in 0..20 {
        submit_over(&mut pair, Cid(1), read(n, 1));
    }
    for n in 0..40 {
        pair.submit(read(n, 1));
    }
    pair.drive();
    assert_eq!(spread(&pair, 2), [1, 60]);
    pair.target.release();
    pair.drive();
    assert!(pair.completed[&stuck].is_ok());
    for n in 0..40 {
        pair.submit(read(n, 1));
    }
    pair.drive();
    assert_eq!(spread(&pair, 2), [21, 80]);
}

/// Each connection has a separate limit for write data in flight, and is sent writes up to its own limit.
#[test]
fn limits_are_those_of_each_connection() {
    let mut pair = held(2);
    pair.session.limit_writes(Cid(0), 2 * BLOCK);
    pair.session.limit_writes(Cid(1), 6 * BLOCK);
    let tags: Vec<Itt> = (0..12).map(|n| pair.submit(write(n, pattern(512, 1)))).collect();
    assert!(!pair.session.is_holding_back());
    pair.drive();
    assert_eq!(spread(&pair, 2), [2, 6]);
    assert!(pair.session.is_holding_back());
    assert_eq!(pair.session.waiting_for(), Waiting::WriteLimit);
    pair.session.limit_writes(Cid(0), 3 * BLOCK);
    assert!(!pair.session.is_holding_back());
    pair.drive();
    assert_eq!(spread(&pair, 2), [3, 6]);
    pair.target.release();
    pair.drive();
    assert!(tags.iter().all(|itt| pair.completed[itt].is_ok()));
    pair.assert_no_violations();
}

/// If the connection with the smallest load is at its limit, a write is sent on a connection with a higher
/// load, in the same round of polls.
#[test]
fn connection_at_its_limit_is_not_waited_for() {
    let mut pair = held(2);
    submit_over(&mut pair, Cid(0), read(0, 200));
    submit_over(&mut pair, Cid(1), write(0, pattern(512, 1)));
    pair.session.limit_writes(Cid(0), BLOCK);
    pair.session.limit_writes(Cid(1), BLOCK);
    pair.submit(write(1, pattern(512, 1)));
    for cid in [Cid(0), Cid(1)] {
        send_over(&mut pair, cid);
    }
    assert_eq!(spread(&pair, 2), [2, 1]);
}

/// With a limit of zero, one write at a time is still sent on each connection.
#[test]
fn one_write_is_never_held_back() {
    let mut pair = held(2);
    pair.session.limit_writes(Cid(0), 0);
    pair.session.limit_writes(Cid(1), 0);
    pair.session.limit_writes(Cid(9), 0);
    for n in 0..6 {
        pair.submit(write(n, pattern(512, 1)));
    }
    pair.drive();
    assert_eq!(spread(&pair, 2), [1, 1]);
    pair.target.release();
    pair.drive();
    assert_eq!(pair.completed.len(), 6);
}

/// RFC 7143 §4.2.5.1: all requests of a text exchange are sent on one connection.
#[test]
fn text_exchange_stays_on_its_connection() {
    let mut target = target();
    target.discovery.split = Some(7);
    let mut pair = several(3, target);
    pair.session.send_targets(pair.now).unwrap();
    favouring(&mut pair, Cid(2), |pair| send_over(pair, Cid(2)));
    for n in 0..10 {
        pair.submit(read(n, 1));
    }
    pair.drive();
    let text: Vec<_> =
        (0..3).map(|cid| received(&pair, Cid(cid), Opcode::TextRequest).len()).collect();
    assert!(text.iter().sum::<usize>() > 3);
    assert_eq!(text.iter().filter(|count| **count > 0).count(), 1, "{text:?}");
    assert_eq!(pair.completed.len(), 10);
    pair.assert_no_violations();
}
