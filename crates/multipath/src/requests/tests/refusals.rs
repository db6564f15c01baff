//! Tests of requests that the unit refuses for a time, or refuses through one port.

use super::*;

/// QRK-40: a request to a unit that is busy for long is retried after pauses.
#[test]
fn a_busy_unit_is_waited_for_as_long_as_the_disk_waits() {
    let mut world = World::new(limits(), &[A]);
    let request = world.submit(READ);
    let begun = world.now;
    while !world.results.contains_key(&request) {
        let (attempt, _) = world.only(request);
        world.end(attempt, End::Busy);
        if !world.results.contains_key(&request) {
            world.await_timer();
        }
    }
    let waited = world.now - begun;
    assert!(waited <= MINUTE && waited + millis(1000) > MINUTE, "{waited:?}");
    assert_eq!(world.failure(request), Failure::Attempt("an end"));
}

#[test]
fn a_request_that_pauses_keeps_its_place() {
    let mut world = World::new(limits(), &[]);
    let one = Credit { bytes: u64::MAX, requests: 1 };
    world.requests.add_path(A, one, world.now);
    let first = world.submit(READ);
    let second = world.submit(READ);
    let (attempt, _) = world.only(first);
    world.end(attempt, End::Busy);
    assert!(world.attempts(second).is_empty(), "it would only be refused as well");
    world.await_timer();
    assert_eq!(world.attempts(first).len(), 1, "who has waited goes first");
}

/// One path does not respond, and the unit has just refused a request over the other path. The other path
/// takes requests again after a second, without any other event.
#[test]
fn requests_take_a_path_again_when_it_is_not_held_up_any_more() {
    let mut world = World::new(limits(), &[]);
    let one = Credit { bytes: u64::MAX, requests: 1 };
    for path in [A, B] {
        world.requests.add_path(path, one, world.now);
    }
    let [stuck, refused, waiting] = [(); 3].map(|()| world.submit(READ));
    let (attempt, path) = world.only(refused);
    world.end(attempt, End::Busy);
    world.requests.cancel(refused, world.now);
    world.drain();
    assert!(world.attempts(waiting).is_empty());
    world.pass(Duration::from_secs(1));
    assert_eq!(world.only(waiting).1, path);
    assert_ne!(world.only(stuck).1, path);
}

#[test]
fn a_port_that_refuses_is_left_for_one_that_serves() {
    let mut world = World::new(limits(), &[A, B]);
    world.requests.set_follows_access(true);
    world.requests.set_discovers_ports(true);
    let request = world.submit(READ);
    let (attempt, path) = world.only(request);
    world.end(attempt, End::Port(AccessState::Standby));
    let (attempt, other) = world.only(request);
    assert_ne!(other, path);
    let standby = Access::of_state(AccessState::Standby);
    assert!(world.others.contains(&Output::PortRefused(path, standby)));
    world.end(attempt, End::Port(AccessState::Standby));
    assert!(world.in_flight.is_empty(), "none serves the unit");
    assert!(world.others.contains(&Output::PortNeeded));
    // A port that has changed its state may accept the request immediately.
    world.requests.set_access([(path, Access::UNKNOWN)], world.now);
    world.drain();
    assert_eq!(world.only(request).1, path);
}

/// If one request shows that a port has changed its state, the pauses of the other requests end.
#[test]
fn a_port_that_refuses_one_request_ends_the_pauses_of_the_others() {
    let mut world = World::new(limits(), &[A]);
    world.requests.set_follows_access(true);
    let early = world.submit(READ);
    let (attempt, _) = world.only(early);
    world.end(attempt, End::Port(AccessState::Transitioning));
    world.pass(millis(5));
    let late = world.submit(READ);
    let (attempt, _) = world.only(late);
    world.end(attempt, End::Port(AccessState::Transitioning));
    while world.attempts(early).is_empty() {
        world.await_timer();
    }
    assert!(world.attempts(late).is_empty(), "it pauses");
    let (attempt, _) = world.only(early);
    world.end(attempt, End::Port(AccessState::Standby));
    assert_eq!(world.attempts(late).len(), 1);
}

/// Refuses `request` until it fails, and returns how long that took.
fn refuse_until_it_fails(world: &mut World, request: RequestId) -> Duration {
    let begun = world.now;
    while !world.results.contains_key(&request) {
        match world.attempts(request)[..] {
            [(attempt, _)] => world.end(attempt, End::Busy),
            _ => _ = world.await_timer(),
        }
    }
    assert_eq!(world.failure(request), Failure::Attempt("an end"));
    world.now - begun
}

/// Requests that wait behind each other share one time limit: otherwise the last of many would wait as long
/// as all earlier ones together.
#[test]
fn the_time_limit_of_retries_counts_from_the_request_while_the_unit_takes_none() {
    let mut world = World::new(limits(), &[]);
    world.requests.add_path(A, Credit { bytes: u64::MAX, requests: 1 }, world.now);
    let [first, second] = [(); 2].map(|()| world.submit(READ));
    // The caller of the third request waits for memory until the first request has failed.
    let asked = world.now;
    let most = world.requests.limits.retry_timeout;
    let time = refuse_until_it_fails(&mut world, first);
    assert!(time <= most && time > most / 2, "{time:?}");
    assert!(refuse_until_it_fails(&mut world, second) < most / 10);
    let third = world.requests.submit_held(READ, asked);
    world.requests.admitted(third, world.now);
    world.drain();
    assert!(refuse_until_it_fails(&mut world, third) < most / 10);
    // A new request has the whole time limit.
    let fourth = world.submit(READ);
    assert!(refuse_until_it_fails(&mut world, fourth) > most / 2);
    // If the unit accepts other requests meanwhile, the unit did not cause the wait.
    let taken = world.submit(READ);
    let (attempt, _) = world.only(taken);
    world.end(attempt, End::Good);
    let fifth = world.requests.submit_held(READ, asked);
    world.requests.admitted(fifth, world.now);
    world.drain();
    assert!(refuse_until_it_fails(&mut world, fifth) > most / 2);
}
