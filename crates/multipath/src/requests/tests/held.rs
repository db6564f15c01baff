//! Tests of requests that wait for their ranges.

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
