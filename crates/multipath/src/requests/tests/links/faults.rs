//! Tests of links that are lost, and of units that refuse requests for a time.

use super::*;

#[test]
fn a_link_that_dies_costs_no_request() {
    let links = [link(10.0, 50), link(20.0, 50).dying(secs(3)), link(10.0, 50)];
    let mut world = Links::new(links);
    assert!(failed(&world.run(2000, 100, READ)).is_empty());
    assert!(world.losses == 1 && world.total_carried() >= 2000 * LEN);
}

#[test]
fn without_a_link_requests_fail_once_each() {
    let dying = || link(10.0, 50).dying(secs(1));
    let mut world = Links::new([dying(), dying()]);
    let ended = world.run(500, 50, READ);
    let failed = failed(&ended).len() as u64;
    assert_eq!(world.total_carried() + failed * LEN, 500 * LEN);
    assert!(failed > 0 && world.total_carried() > 0);
}

#[test]
fn requests_wait_for_the_next_link() {
    let mut world = Links::new([link(10.0, 50).dying(secs(1))]);
    world.replacement = Some(|_| link(10.0, 50));
    assert!(failed(&world.run(500, 50, READ)).is_empty());
    assert!(world.now > secs(3));
}

fn refusing(links: usize, until: Duration, end: End) -> Links {
    let mut world = Links::new(vec![link(50.0, 10); links]);
    world.unit.refuses = vec![(until, end)];
    world
}

/// A request to a busy unit is retried after pauses, not constantly.
#[test]
fn what_passes_within_minutes_is_waited_for() {
    let changing = End::Port(AccessState::Transitioning);
    for end in [End::Busy, End::TaskAborted, End::TimedOut, End::BecomingReady, changing] {
        let mut world = refusing(2, secs(240), end);
        assert!(failed(&world.run(100, 10, READ)).is_empty(), "{end:?}");
        // Ten requests are retried at a time, each about once a second.
        let tries: u32 = world.tries.values().sum();
        assert!((2000..4000).contains(&tries), "{tries} tries after {end:?}");
    }
}

#[test]
fn retries_end_after_their_time() {
    let mut world = refusing(1, secs(3600), End::Busy);
    let ended = world.run(1, 1, READ);
    assert_eq!(ended[0].result, Err(Failure::Attempt("an end")));
    assert!(ended[0].time <= RETRY_TIMEOUT && ended[0].time >= RETRY_TIMEOUT.mul_f64(0.99));
    // After ABORTED COMMAND the time limit is shorter, because the command itself may be the cause.
    let mut world = refusing(1, secs(3600), End::AbortedCommand);
    let ended = world.run(1, 1, READ);
    assert!(ended[0].result.is_err() && ended[0].time < secs(6));
}

/// Each reason for a pause has its own time limit. After a loss of the session, the time limits begin again.
#[test]
fn the_time_of_retries_begins_again_with_another_reason_and_another_session() {
    let mut world = refusing(1, secs(6), End::Busy);
    world.unit.refuses.push((secs(9), End::AbortedCommand));
    assert!(failed(&world.run(1, 1, READ)).is_empty());
    let mut world = refusing(1, secs(400), End::Busy);
    world.replacement = Some(|_| link(50.0, 10));
    world.call(0, READ);
    while world.now < secs(200) || world.sent.is_empty() {
        world.step();
    }
    world.lose_path(PathId(0));
    while world.ended.is_empty() {
        world.step();
    }
    assert!(failed(&world.ended).is_empty());
    // With alternating reasons, the retry timeout still limits the total time.
    let mut world = Links::new([link(50.0, 10)]);
    let end = |second| if second % 2 == 0 { End::Busy } else { End::AbortedCommand };
    world.unit.refuses = (1..3600).map(|second| (secs(second), end(second))).collect();
    let ended = world.run(1, 1, READ);
    assert!(ended[0].result.is_err() && ended[0].time <= RETRY_TIMEOUT);
}

/// A pausing request is retried as soon as a port has changed its state.
#[test]
fn a_change_of_a_port_ends_a_pause() {
    let mut world = refusing(1, secs(3600), End::Busy);
    world.call(0, READ);
    for state in [AccessState::Standby, AccessState::ActiveOptimized] {
        // The request is refused for ten seconds, so that its pauses grow. Then one of them is in progress.
        let until = world.now + secs(10);
        while world.now < until || !world.sent.is_empty() {
            world.step();
        }
        let (before, tries) = (world.now, world.tries[&0]);
        world.requests.set_access([(PathId(0), Access { state, preferred: false })], world.now());
        world.drain();
        assert_eq!((world.now, world.tries[&0]), (before, tries + 1), "{state}");
    }
}

/// An attempt that may have been executed is reported as such, even if the unit is busy afterwards.
#[test]
fn an_attempt_in_doubt_is_not_hidden_by_a_unit_that_is_busy_since() {
    let mut world = Links::new([link(0.1, 10).dying(millis(10))]);
    world.replacement = Some(|_| link(50.0, 10));
    world.call(0, READ);
    world.step();
    world.unit.refuses = vec![(secs(3600), End::Busy)];
    while world.ended.is_empty() {
        world.step();
    }
    assert_eq!(world.ended[0].result, Err(Failure::Attempt(LOST)));
}
