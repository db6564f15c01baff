use std::cmp::Reverse;
use std::collections::BinaryHeap;

use iscsi_pdu::scsi::AccessState;

use super::*;

const MEGABYTE: f64 = 1e6;
const LEN: u64 = 256 << 10;
const ANY: Requirements = Requirements { avoid: None, is_alone: false };
const ALONE: Requirements = Requirements { avoid: None, is_alone: true };

/// Returns the time from which the tests count.
#[expect(clippy::disallowed_methods, reason = "some time to count from")]
fn start() -> Instant {
    Instant::now()
}

/// The paths are sorted. Callers rely on this order, because they find a path by binary search.
#[test]
fn paths_in_use_and_closed_ones_are_in_the_order_of_their_numbers() {
    let mut selector = PathSelector::new(Credit::UNLIMITED, HedgePolicy::default());
    let ids = |numbers: [u32; 2]| numbers.map(PathId);
    [3, 1, 2, 0].into_iter().for_each(|id| selector.add(PathId(id), Credit::UNLIMITED));
    [3, 0].into_iter().for_each(|id| selector.close(PathId(id)));
    assert_eq!(
        (selector.in_use(start()), selector.closing()),
        (ids([1, 2]).into(), ids([0, 3]).into())
    );
}

/// A link that serves its requests one after the other, and delivers each response after the latency.
#[derive(Clone, Copy)]
struct Link {
    rate: f64,
    latency: Duration,
    /// When the link stops responding.
    dies: Option<Duration>,
}

fn link(rate: f64, millis: u64) -> Link {
    Link { rate, latency: Duration::from_millis(millis), dies: None }
}

struct Outcome {
    time: Duration,
    most_in_flight: u64,
    carried: Vec<u64>,
}

/// Moves `count` requests over the links, with up to `depth` of them waiting or in flight.
fn run(links: &[Link], count: u64, depth: u64, room: Credit) -> Outcome {
    let start = start();
    let mut selector = PathSelector::new(Credit::UNLIMITED, HedgePolicy::default());
    (0u32..).zip(links).for_each(|(id, _)| selector.add(PathId(id), room));
    let mut free_at = vec![start; links.len()];
    let mut carried = vec![0; links.len()];
    let mut events = BinaryHeap::new();
    let (mut now, mut left, mut waiting, mut most) = (start, count, 0, 0);
    let mut permits = Vec::new();
    let mut dead = vec![false; links.len()];
    loop {
        let in_flight = permits.iter().flatten().count() as u64;
        let more = left.min(depth.saturating_sub(in_flight + waiting));
        (left, waiting) = (left - more, waiting + more);
        while waiting > 0
            && let Some(id) = selector.pick(LEN, ANY, now)
        {
            waiting -= 1;
            let at = id.0 as usize;
            let permit = selector.take(id, LEN, ANY, waiting > 0, now).unwrap();
            let link = links[at];
            let served = free_at[at].max(now) + Duration::from_secs_f64(LEN as f64 / link.rate);
            free_at[at] = served;
            let answered = served + link.latency;
            let lives = link.dies.is_none_or(|dies| answered < start + dies);
            if lives {
                events.push(Reverse((answered, permits.len())));
            }
            permits.push(Some(permit));
        }
        let total: u64 = (0u32..).zip(links).map(|(id, _)| selector.in_flight(PathId(id))).sum();
        most = most.max(total);
        // When a link is found dead, its requests are sent again.
        let next = events.peek().map(|Reverse((at, _))| *at);
        for (at, (id, link)) in (0u32..).zip(links).enumerate() {
            let Some(dies) = link.dies.filter(|_| !dead[at]) else { continue };
            if next.is_none_or(|next| next > start + dies) {
                dead[at] = true;
                now = now.max(start + dies);
                selector.remove(PathId(id));
                for permit in &mut permits {
                    if permit.is_some_and(|permit: PathPermit| permit.path.0 as usize == at) {
                        *permit = None;
                        waiting += 1;
                    }
                }
            }
        }
        let Some(Reverse((at, number))) = events.pop() else {
            if waiting > 0 {
                continue;
            }
            break;
        };
        now = at;
        if let Some(permit) = permits[number].take() {
            selector.answered(&permit, now);
            carried[permit.path.0 as usize] += LEN;
        }
    }
    Outcome { time: now - start, most_in_flight: most, carried }
}

const ROOM: Credit = Credit { bytes: 8 << 20, requests: 64 };

fn seconds_at_full_rate(links: &[Link], count: u64) -> f64 {
    (count * LEN) as f64 / links.iter().map(|link| link.rate).sum::<f64>()
}

#[test]
fn unequal_links_finish_within_five_percent_of_the_sum_of_their_rates() {
    let cases: [&[Link]; 5] = [
        &[link(10.0 * MEGABYTE, 100), link(10.0 * MEGABYTE, 100)],
        &[link(20.0 * MEGABYTE, 20), link(MEGABYTE, 20)],
        &[link(30.0 * MEGABYTE, 10), link(10.0 * MEGABYTE, 10), link(2.0 * MEGABYTE, 200)],
        &[link(12.0 * MEGABYTE, 1); 16],
        &[
            link(1.0 * MEGABYTE, 5),
            link(2.0 * MEGABYTE, 50),
            link(4.0 * MEGABYTE, 100),
            link(8.0 * MEGABYTE, 30),
            link(16.0 * MEGABYTE, 80),
        ],
    ];
    for links in cases {
        for depth in [192, 1024] {
            let count = 4000;
            let outcome = run(links, count, depth, ROOM);
            let ideal = seconds_at_full_rate(links, count);
            let took = outcome.time.as_secs_f64();
            assert!(took <= ideal * 1.05, "{took:.2} s instead of {ideal:.2} s, depth {depth}");
            assert_eq!(outcome.carried.iter().sum::<u64>(), count * LEN);
        }
    }
}

#[test]
fn a_slow_link_holds_little() {
    let links = [link(50.0 * MEGABYTE, 50), link(0.5 * MEGABYTE, 50)];
    let outcome = run(&links, 4000, 256, ROOM);
    let ideal = seconds_at_full_rate(&links, 4000);
    let took = outcome.time.as_secs_f64();
    assert!(took <= ideal * 1.05, "{took:.2} s instead of {ideal:.2} s");
    assert!(outcome.carried[1] > 0);
}

#[test]
fn what_a_dead_link_had_goes_to_the_others() {
    let mut links = [link(10.0 * MEGABYTE, 50); 4];
    links[2].dies = Some(Duration::from_secs(5));
    let outcome = run(&links, 2000, 128, ROOM);
    assert_eq!(outcome.carried.iter().sum::<u64>(), 2000 * LEN);
    assert!(outcome.carried[2] < outcome.carried[1]);
}

#[test]
fn what_is_in_flight_stays_within_the_room() {
    let links = [link(10.0 * MEGABYTE, 100); 3];
    let room = Credit { bytes: 1 << 20, requests: 64 };
    assert!(run(&links, 1000, 4096, room).most_in_flight <= 3 << 20);
    let few = Credit { bytes: u64::MAX, requests: 2 };
    assert!(run(&links, 1000, 4096, few).most_in_flight <= 6 * LEN);
}

#[test]
fn one_request_goes_whatever_its_length() {
    let now = start();
    let mut selector = PathSelector::new(Credit::UNLIMITED, HedgePolicy::default());
    selector.add(PathId(0), Credit { bytes: 1000, requests: 0 });
    assert_eq!(selector.pick(1 << 30, ANY, now), Some(PathId(0)));
    selector.take(PathId(0), 1 << 30, ANY, false, now);
    assert_eq!(selector.pick(1, ANY, now), None);
    assert_eq!(selector.pick(1, Requirements { avoid: Some(PathId(0)), ..ANY }, now), None);
}

#[test]
fn a_path_that_closes_takes_nothing_more() {
    let now = start();
    let mut selector = PathSelector::new(Credit::UNLIMITED, HedgePolicy::default());
    selector.add(PathId(0), ROOM);
    selector.add(PathId(1), ROOM);
    selector.close(PathId(0));
    for _ in 0..4 {
        assert_eq!(selector.pick(LEN, ANY, now), Some(PathId(1)));
        selector.take(PathId(1), LEN, ANY, false, now);
    }
}

#[test]
fn where_the_unit_takes_no_requests_others_come_first() {
    let now = start();
    let mut selector = PathSelector::new(Credit::UNLIMITED, HedgePolicy::default());
    selector.add(PathId(0), ROOM);
    selector.add(PathId(1), ROOM);
    let permit = selector.take(PathId(0), LEN, ANY, true, now).unwrap();
    selector.hold_up(PathId(0), now);
    for _ in 0..4 {
        assert_eq!(selector.pick(LEN, ANY, now), Some(PathId(1)));
        selector.take(PathId(1), LEN, ANY, true, now);
    }
    assert_eq!(selector.pick(LEN, ANY, now + HOLD_UP), Some(PathId(0)));
    // If the unit has just refused requests over every path, no path comes last.
    selector.hold_up(PathId(1), now);
    assert_eq!(selector.pick(LEN, ANY, now), Some(PathId(0)));
    selector.answered(&permit, now);
    assert_eq!(selector.pick(LEN, ANY, now), Some(PathId(0)), "it takes requests again");
}

fn access(state: AccessState) -> Access {
    Access { state, preferred: false }
}

#[test]
fn requests_go_to_the_best_ports_and_to_no_others() {
    let now = start();
    let mut selector = selector(3);
    selector.set_access(PathId(0), access(AccessState::ActiveNonOptimized));
    selector.set_access(PathId(1), access(AccessState::Standby));
    for _ in 0..100 {
        let Some(id) = selector.pick(LEN, ANY, now) else { break };
        assert_eq!(id, PathId(2), "also when it has no room");
        selector.take(id, LEN, ANY, true, now).unwrap();
    }
    assert_eq!(selector.idle(PathId(2), now), None, "a duplicate costs the array as much");
    let elsewhere = Requirements { avoid: Some(PathId(2)), ..ANY };
    assert_eq!(selector.pick(LEN, elsewhere, now), Some(PathId(0)));
    assert!(selector.others_serve(PathId(2), now) && selector.in_use(now).contains(&PathId(2)));
    selector.set_access(PathId(2), access(AccessState::Unavailable));
    assert_eq!(selector.pick(LEN, ANY, now), Some(PathId(0)));
    selector.set_access(PathId(0), access(AccessState::Offline));
    assert_eq!(selector.pick(LEN, ANY, now), Some(PathId(1)), "somebody has to try");
    assert!(!selector.others_serve(PathId(1), now));
}

#[test]
fn a_path_that_does_not_answer_comes_last_until_it_does() {
    let start = start();
    let mut selector = selector(2);
    selector.set_access(PathId(1), access(AccessState::ActiveNonOptimized));
    let first = selector.take(PathId(0), LEN, ANY, true, start).unwrap();
    let second = selector.take(PathId(0), LEN, ANY, true, start).unwrap();
    let answered = start + Duration::from_millis(100);
    selector.answered(&first, answered);
    let silent = answered + HedgePolicy::default().min_stuck;
    assert_eq!(selector.pick(LEN, ANY, silent - Duration::from_millis(1)), Some(PathId(0)));
    assert!(selector.is_silent(PathId(0), silent));
    assert_eq!(selector.pick(LEN, ANY, silent), Some(PathId(1)));
    assert!(!selector.others_serve(PathId(1), silent), "it does not answer");
    selector.answered(&second, silent);
    assert_eq!(selector.pick(LEN, ANY, silent + Duration::from_secs(9)), Some(PathId(0)));
}

/// An answer of another path shows that the unit and this host work, so that the silence of a path is the fault of its
/// own link or port. An answer from before the silence shows nothing, nor does one of a port that does not serve
/// the unit.
#[test]
fn an_answer_of_another_path_counts_only_if_it_comes_during_the_silence() {
    let (start, [silent, other]) = (start(), [PathId(0), PathId(1)]);
    let stuck = HedgePolicy::default().min_stuck;
    let mut selector = selector(2);
    let _unanswered = selector.take(silent, LEN, ANY, true, start).unwrap();
    let answers_at = |selector: &mut PathSelector, at| {
        let permit = selector.take(other, LEN, ANY, true, at).unwrap();
        selector.answered(&permit, at);
    };
    answers_at(&mut selector, start + stuck / 2);
    assert!(!selector.answers_beside(other, silent, start + 9 * stuck), "it came too early");
    answers_at(&mut selector, start + 2 * stuck);
    assert!(selector.answers_beside(other, silent, start + 9 * stuck));
    assert!(
        !selector.answers_beside(silent, other, start + 9 * stuck),
        "nothing is in flight there"
    );
    assert!(!selector.answers_beside(PathId(7), silent, start + 9 * stuck), "it is gone");
    selector.set_access(other, access(AccessState::Standby));
    assert!(!selector.answers_beside(other, silent, start + 9 * stuck), "it serves nothing");
}

/// Creates a selector of `count` equal paths.
fn selector(count: u32) -> PathSelector {
    let mut selector = PathSelector::new(Credit::UNLIMITED, HedgePolicy::default());
    (0..count).for_each(|id| selector.add(PathId(id), ROOM));
    selector
}

#[test]
fn a_request_that_wants_to_be_alone_is() {
    let now = start();
    let mut selector = PathSelector::new(Credit::UNLIMITED, HedgePolicy::default());
    selector.add(PathId(0), ROOM);
    let permit = selector.take(PathId(0), LEN, ANY, true, now).unwrap();
    assert_eq!(selector.pick(LEN, ALONE, now), None);
    selector.reserve(now);
    assert_eq!(selector.pick(LEN, ANY, now), None, "or it would wait for ever");
    selector.answered(&permit, now);
    assert_eq!(selector.pick(LEN, ALONE, now), Some(PathId(0)));
    let alone = selector.take(PathId(0), LEN, ALONE, true, now).unwrap();
    selector.unreserve();
    assert!(selector.is_alone(PathId(0)));
    assert_eq!(selector.pick(LEN, ANY, now), None);
    selector.release(&alone);
    assert_eq!(selector.pick(LEN, ANY, now), Some(PathId(0)));
}

#[test]
fn a_caller_that_asks_little_does_not_make_a_path_look_slow() {
    let start = start();
    let mut selector = PathSelector::new(Credit::UNLIMITED, HedgePolicy::default());
    selector.add(PathId(0), ROOM);
    for n in 0..100 {
        let now = start + Duration::from_millis(n * 100);
        let permit = selector.take(PathId(0), 4096, ANY, false, now).unwrap();
        selector.answered(&permit, now + Duration::from_millis(100));
    }
    let fits = (0..).take_while(|_| {
        let id = selector.pick(LEN, ANY, start);
        id.is_some_and(|id| selector.take(id, LEN, ANY, true, start).is_some())
    });
    assert_eq!(fits.count(), 16);
}
