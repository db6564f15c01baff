//! Tests of links that do not respond for a time, and of second copies.

use super::*;

const STALL: (Duration, Duration) = (secs(3), secs(600));
/// When the initiator closes a stalled link.
const DEATH: Duration = secs(48);

/// Returns the longest time in which no request completed, and the longest time of a request.
fn longest(ended: &[Ended]) -> (Duration, Duration) {
    let (mut last, mut pause, mut wait) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    for Ended { time, at, .. } in ended {
        (pause, wait) = (pause.max(*at - last), wait.max(*time));
        last = *at;
    }
    (pause, wait)
}

/// Every request that the stalled link holds completes over the other link.
#[test]
fn what_is_stuck_goes_over_another_link() {
    let mut world = Links::new([link(10.0, 50), link(10.0, 50).stalling(secs(2), secs(600))]);
    for spec in [READ, WRITE] {
        let begun = world.now;
        assert!(failed(&world.run(1000, 64, spec)).is_empty());
        let (time, ideal) = (world.now - begun, seconds_at_full_rate(10.0, 1000));
        assert!(time.as_secs_f64() <= ideal * 1.2, "{time:?}, alone {ideal:.2} s");
    }
}

/// If the options disable hedging, each request waits for its own link.
#[test]
fn what_is_stuck_stays_if_the_options_say_so() {
    let mut hedge = HedgePolicy::default();
    (hedge.min_late, hedge.min_stuck) = (Duration::MAX, Duration::MAX);
    let limits = RequestLimits { hedge, retry_timeout: RETRY_TIMEOUT, ..limits() };
    let stalled = link(10.0, 50).stalling(secs(2), secs(600));
    let mut world = Links::with(limits, [link(10.0, 50), stalled]);
    assert!(failed(&world.run(1000, 64, READ)).is_empty());
    assert!(world.now >= secs(590), "{:?}", world.now);
}

/// A stalled link holds no more than its share of requests, so the other links continue. Its earlier rate
/// would make it the first choice of each request.
#[test]
fn a_stalled_link_does_not_stop_the_others_whatever_the_budget() {
    let budgets = [2, 4, 8, 16, 64].map(|megabytes| (1024, megabytes << 20));
    for (requests, bytes) in budgets.into_iter().chain([(2, 64 << 20), (8, 64 << 20)]) {
        for count in [2, 4] {
            let mut links: Vec<_> = (1..count).map(|_| link(10.0, 400)).collect();
            links.push(link(100.0, 200).stalling(STALL.0, STALL.1).dying(DEATH));
            let memory = Credit { bytes, requests };
            let depth = usize::try_from((bytes / LEN).min(requests.into())).unwrap() * 2;
            let mut world = Links::within(memory, links);
            let (pause, _) = longest(&world.run(60 * depth as u64, depth, READ));
            let what = format!("{requests} requests, {bytes} bytes, {count} links");
            assert!(pause < secs(10), "nothing for {pause:?}: {what}");
        }
    }
}

/// A stuck request gets memory for its second copy in turn, even if other requests always wait for memory.
#[test]
fn what_is_stuck_gets_its_turn_where_others_wait_for_memory() {
    let memory = Credit { bytes: 4 << 20, requests: 1024 };
    let mut world =
        Links::within(memory, [link(10.0, 50), link(10.0, 50).stalling(STALL.0, STALL.1)]);
    let (_, wait) = longest(&world.run(2000, 64, READ));
    assert!(wait < secs(20), "{wait:?}");
}

/// If the memory never has room for two copies, a stuck request does not wait for memory: all other requests
/// would wait for the end of its first copy.
#[test]
fn what_is_stuck_stops_no_other_where_there_is_no_room_for_it_twice() {
    for len in [2 * LEN, 2 * LEN + 1, 3 * LEN] {
        let memory = Credit { bytes: 4 * LEN, requests: 1024 };
        let stalled = link(10.0, 50).stalling(Duration::ZERO, secs(600));
        let mut world = Links::within(memory, [stalled, link(10.0, 50)]);
        world.call(1 << 32, RequestSpec { len, ..READ });
        let mut pause = Duration::ZERO;
        for number in 0..400 {
            let before = world.ended.len();
            world.call(number, RequestSpec { len: LEN / 4, ..READ });
            let begun = world.now;
            while world.ended[before..].iter().all(|ended| ended.number != number) {
                world.step();
            }
            pause = pause.max(world.now - begun);
        }
        let is_twice = 2 * len <= 4 * LEN;
        assert_eq!(world.ended.iter().any(|ended| ended.number == 1 << 32), is_twice);
        assert_eq!(world.hedged, u32::from(is_twice));
        assert!(pause < secs(1), "nothing for {pause:?}");
    }
}

/// If either of two copies may have been executed, the error of the request says so.
#[test]
fn an_error_says_that_one_of_two_copies_may_have_been_executed() {
    for is_first_unsent in [false, true] {
        let stalled = |dies| link(10.0, 10).stalling(Duration::ZERO, secs(600)).dying(dies);
        let mut links = [stalled(secs(20)), stalled(secs(21))];
        links[usize::from(!is_first_unsent)].sends = false;
        let mut world = Links::new(links);
        let ended = world.run(1, 1, READ);
        assert_eq!(world.hedged, 1);
        let lost = Failure::NotRetried { lost: LOST, why: "none is left" };
        assert_eq!(ended[0].result, Err(lost));
    }
}

/// A second copy that no port accepts is sent as soon as a port serves the unit.
#[test]
fn what_is_stuck_goes_over_a_port_as_soon_as_that_serves_the_unit() {
    for is_known in [false, true] {
        let mut standby = link(10.0, 10);
        standby.serves_from = secs(8);
        let mut world = Links::new([link(10.0, 10).stalling(secs(2), secs(600)), standby]);
        world.requests.set_follows_access(true);
        let port = |world: &mut Links, state| {
            let access = Access { state, preferred: false };
            world.requests.set_access([(PathId(1), access)], world.now());
            world.drain();
        };
        if is_known {
            port(&mut world, AccessState::Standby);
        }
        world.at(secs(9), Event::Wake);
        let mut numbers = 0..400;
        while world.ended.len() < 400 {
            while world.calls.len() < 16
                && let Some(number) = numbers.next()
            {
                world.call(number, READ);
            }
            let before = world.now;
            world.step();
            if before < secs(9) && world.now >= secs(9) {
                port(&mut world, AccessState::ActiveOptimized);
            }
        }
        let (pause, _) = longest(&world.ended);
        assert!((secs(6)..secs(9)).contains(&pause), "nothing for {pause:?}");
        assert!(world.carried(1) > 0);
    }
}
