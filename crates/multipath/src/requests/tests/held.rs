//! Requests that wait for the blocks that they change.

use super::*;

#[test]
fn a_request_that_waits_for_its_blocks_takes_no_path_before_they_are_free() {
    let mut world = World::new(limits(), &[A]);
    let [first, refused, cancelled] =
        [(); 3].map(|()| world.requests.submit_held(WRITE, world.now));
    world.drain();
    assert!(world.in_flight.is_empty() && !world.requests.has_queue());
    world.requests.admitted(first, world.now);
    world.requests.admitted(first, world.now);
    world.requests.cancel(cancelled, world.now);
    world.requests.admitted(cancelled, world.now);
    world.drain();
    let (attempt, _) = world.only(first);
    assert_eq!(world.in_flight.len(), 1);
    world.requests.refuse(&"gone");
    let late = world.requests.submit_held(WRITE, world.now);
    for request in [refused, late] {
        world.requests.admitted(request, world.now);
    }
    world.drain();
    for request in [refused, late] {
        assert_eq!(world.failure(request), Failure::Refused("gone"));
    }
    world.end(attempt, End::Good);
    assert!(world.succeeded(first) && world.in_flight.is_empty());
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

/// Otherwise each of many requests would wait for as long as all before it together.
#[test]
fn the_time_limit_of_retries_counts_from_the_request_while_the_unit_takes_none() {
    let mut world = World::new(limits(), &[]);
    world.requests.add_path(A, Credit { bytes: u64::MAX, requests: 1 }, world.now);
    let [first, second] = [(); 2].map(|()| world.submit(READ));
    // Its caller waits for memory until the first one has failed.
    let asked = world.now;
    let most = world.requests.limits.retry_timeout;
    let time = refuse_until_it_fails(&mut world, first);
    assert!(time <= most && time > most / 2, "{time:?}");
    assert!(refuse_until_it_fails(&mut world, second) < most / 10);
    let third = world.requests.submit_held(READ, asked);
    world.requests.admitted(third, world.now);
    world.drain();
    assert!(refuse_until_it_fails(&mut world, third) < most / 10);
    // One that is asked for now has the whole time.
    let fourth = world.submit(READ);
    assert!(refuse_until_it_fails(&mut world, fourth) > most / 2);
    // Where the unit takes others meanwhile, it was not the unit that was waited for.
    let taken = world.submit(READ);
    let (attempt, _) = world.only(taken);
    world.end(attempt, End::Good);
    let fifth = world.requests.submit_held(READ, asked);
    world.requests.admitted(fifth, world.now);
    world.drain();
    assert!(refuse_until_it_fails(&mut world, fifth) > most / 2);
}
