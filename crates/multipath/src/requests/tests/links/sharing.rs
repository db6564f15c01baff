//! Tests of requests that share links.

use super::*;

#[test]
fn unequal_links_finish_within_five_percent_of_the_sum_of_their_rates() {
    let links = [(30.0, 10), (10.0, 100), (2.0, 50), (0.5, 20)];
    let mut world = Links::new(links.map(|(megabytes, millis)| link(megabytes, millis)));
    assert!(failed(&world.run(4000, 200, READ)).is_empty());
    let ideal = seconds_at_full_rate(42.5, 4000);
    assert!(world.now.as_secs_f64() <= ideal * 1.05, "{:?}, not {ideal:.2} s", world.now);
    assert!((0..4).all(|at| world.carried(at) > 0));
}

/// Each cancelled request releases its memory and its place on the path, so later requests complete.
#[test]
fn a_cancelled_request_gives_its_place_back() {
    let mut world = Links::new([link(0.1, 50)]);
    for _ in 0..100 {
        (0..3).for_each(|number| world.call(number, WRITE));
        let calls: Vec<_> = world.calls.keys().copied().collect();
        for request in calls {
            world.requests.cancel(request, world.now());
            let call = world.calls.remove(&request).unwrap();
            world.memory.give_back(call.share);
            world.drain();
        }
    }
    assert!(failed(&world.run(3, 3, READ)).is_empty());
}

#[test]
fn a_closed_path_finishes_what_it_has() {
    let mut world = Links::new([link(10.0, 50), link(10.0, 50)]);
    (0..64).for_each(|number| world.call(number, READ));
    while world.now < secs(1) && !world.calls.is_empty() {
        world.step();
    }
    (64..128).for_each(|number| world.call(number, READ));
    world.requests.close_path(PathId(1));
    world.drain();
    while world.drained.is_empty() {
        world.step();
    }
    let carried = world.carried(1);
    assert!(carried > 0);
    assert!(failed(&world.run(500, 64, READ)).is_empty());
    assert_eq!(world.carried(1), carried);
}

#[test]
fn requests_go_to_the_best_ports_and_to_no_path_that_is_closed() {
    let mut world = Links::new([(); 4].map(|()| link(10.0, 10)));
    let spare = Access { state: AccessState::ActiveNonOptimized, preferred: false };
    world.requests.set_access([(PathId(3), spare)], world.now());
    world.requests.close_path(PathId(2));
    world.drain();
    assert!(failed(&world.run(500, 64, READ)).is_empty());
    assert!(world.carried(0) > 0 && world.carried(1) > 0);
    assert_eq!((world.carried(2), world.carried(3)), (0, 0));
}

#[test]
fn a_closed_path_stays_when_the_last_other_one_is_lost() {
    let mut world = Links::new([link(10.0, 10).dying(millis(30)), link(10.0, 10)]);
    (0..8).for_each(|number| world.call(number, READ));
    world.requests.close_path(PathId(1));
    world.drain();
    assert!(failed(&world.run(100, 8, READ)).is_empty());
    assert!(!world.requests.paths().is_closing(PathId(1)));
}

/// Requests that one port refuses are sent over another port, and the first port is tried again from time to
/// time.
#[test]
fn another_path_carries_what_one_does_not_take() {
    let mut world = Links::new([link(50.0, 20), link(50.0, 20)]);
    world.links.get_mut(&PathId(0)).unwrap().serves_from = secs(200);
    let ended = world.run(2000, 2000, READ);
    assert!(failed(&ended).is_empty());
    assert!(world.now < secs(20), "{:?} for ten seconds of work", world.now);
    let tries: u32 = world.tries.values().sum();
    assert!(tries < 2000 + 64 * 24, "{tries}");
}
