//! Tests of second copies of late requests: when they are sent, the end of the other copy, and the use of
//! memory and of the traffic class.

use super::*;

/// A world with a stuck read. Memory is reserved for its second copy, its traffic class has admitted it, and
/// it waits for the path of another read.
struct Stuck {
    world: World,
    stuck: RequestId,
    other: RequestId,
}

impl Stuck {
    fn new() -> Self {
        let mut world = World::new(RequestLimits { is_shaped: true, ..limits() }, &[]);
        for path in [A, B] {
            let one = Credit { bytes: u64::MAX, requests: 1 };
            world.requests.add_path(path, one, world.now);
        }
        let [stuck, other] = [(); 2].map(|()| {
            let request = world.submit(READ);
            world.requests.charged(request, world.now);
            world.drain();
            request
        });
        let mut has_paid = false;
        while !has_paid {
            world.await_timer();
            for output in std::mem::take(&mut world.others) {
                if let Output::Reserve { request, waits, .. } = output {
                    let is_reserved = waits && request == stuck;
                    world.requests.reserved(request, is_reserved, world.now);
                }
            }
            world.drain();
            let charge = Output::Charge { request: stuck, len: LEN, is_hedge: true };
            has_paid = world.others.contains(&charge);
        }
        world.requests.charged(stuck, world.now);
        world.drain();
        world.others.clear();
        assert_eq!((world.attempts(stuck).len(), world.attempts(other).len()), (1, 1));
        Self { world, stuck, other }
    }

    fn end(&mut self, request: RequestId, end: End) {
        let (attempt, _) = self.world.attempts(request)[0];
        self.world.end(attempt, end);
    }

    fn given_back(&self) -> usize {
        let unreserve = Output::Unreserve(self.stuck);
        self.world.others.iter().filter(|output| **output == unreserve).count()
    }
}

#[test]
fn a_retry_in_place_leaves_the_second_copy_what_that_has_paid_for() {
    let mut it = Stuck::new();
    let (_, path) = it.world.only(it.stuck);
    it.end(it.stuck, End::Attention);
    assert_eq!(it.world.only(it.stuck).1, path);
    assert!(it.world.second_copies.is_empty(), "the retry takes the memory of the second copy");
    it.end(it.other, End::Good);
    let [_, (second, elsewhere)] = it.world.attempts(it.stuck)[..] else {
        panic!("no second copy")
    };
    assert!(elsewhere != path && it.world.second_copies == [second]);
    // The second copy is in flight.
    it.end(it.stuck, End::Attention);
    assert_eq!(it.world.attempts(it.stuck).len(), 2);
    assert_eq!(it.world.second_copies, [second]);
    let pays = |output: &Output<_>| {
        matches!(output, Output::Reserve { .. } | Output::Charge { .. } | Output::Unreserve(_))
    };
    assert!(!it.world.others.iter().any(pays), "{:?}", it.world.others);
    it.world.end(second, End::Good);
    assert!(it.world.succeeded(it.stuck));
}

#[test]
fn a_disk_that_refuses_gives_back_what_a_second_copy_has_paid_for() {
    let mut it = Stuck::new();
    it.world.requests.refuse(&"gone");
    it.world.drain();
    assert_eq!(it.given_back(), 1);
    it.end(it.other, End::Good);
    assert_eq!(it.world.attempts(it.stuck).len(), 1, "the second copy is sent without memory");
    it.end(it.stuck, End::Busy);
    assert_eq!(it.world.failure(it.stuck), Failure::Refused("gone"));
    assert_eq!(it.given_back(), 1, "it is given back twice");
}

/// Returns a world with a read that is late on the only path.
fn late_on_the_only_path() -> (World, RequestId) {
    let mut world = World::new(limits(), &[A]);
    let late = world.submit(READ);
    world.pass(MINUTE);
    assert_eq!((world.only(late).1, world.requests.poll_timeout()), (A, None));
    (world, late)
}

#[test]
fn what_is_late_on_the_only_path_is_hedged_when_another_one_joins() {
    let (mut world, late) = late_on_the_only_path();
    world.requests.add_path(B, CREDIT, world.now);
    world.drain();
    assert_eq!(world.others, [Output::TimerSet(late)]);
    world.await_timer();
    let [.., Output::Reserve { request, .. }] = world.others[..] else { panic!("no copy") };
    world.requests.reserved(request, true, world.now);
    world.drain();
    assert_eq!(world.attempts(late)[1].1, B);
}

/// No timer is set for a request on the only path.
#[test]
fn with_one_path_left_no_memory_is_reserved_for_a_second_copy() {
    let (mut world, late) = late_on_the_only_path();
    world.requests.add_path(B, CREDIT, world.now);
    world.requests.remove_lost_path(B, world.now);
    world.drain();
    world.pass(MINUTE);
    assert_eq!(world.others, [Output::TimerSet(late)]);
    assert_eq!(world.requests.poll_timeout(), None);
    // The request is hedged nevertheless when a path is added again.
    world.requests.add_path(B, CREDIT, world.now);
    world.drain();
    assert_eq!(world.others.len(), 2);
    assert_eq!(world.requests.timer(late), world.requests.poll_timeout());
}

/// Neither a flush nor a request that must be alone on its path is hedged.
#[test]
fn a_path_that_joins_sets_no_timer_for_what_is_not_hedged() {
    let mut world = World::new(limits(), &[A]);
    let flush = world.submit(RequestSpec::FLUSH);
    world.requests.prepared(flush, false, world.now);
    world.requests.choose(flush, A, world.now);
    world.drain();
    world.only(flush);
    world.others.clear();
    world.requests.add_path(B, CREDIT, world.now);
    world.drain();
    assert_eq!((world.requests.timer(flush), &world.others[..]), (None, &[][..]));
}

#[test]
fn a_late_read_is_hedged_where_a_path_is_idle() {
    let mut world = World::new(limits(), &[A, B]);
    world.measure(millis(20));
    let request = world.submit(READ);
    let (first, path) = world.only(request);
    assert_eq!(world.await_timer(), millis(100));
    assert!(matches!(world.others[..], [Output::Reserve { waits: false, .. }]));
    world.requests.reserved(request, true, world.now);
    world.drain();
    let attempts = world.attempts(request);
    assert!(attempts.len() == 2 && attempts[1].1 != path);
    world.end(attempts[1].0, End::Good);
    assert_eq!(world.results[&request], Ok(attempts[1].0));
    assert!(world.aborted.is_empty(), "the other copy of a read runs to its end");
    world.end(first, End::Good);
    assert!(world.requests.poll_timeout().is_none());
    assert!(!world.requests.paths().has_requests());
}

/// A request that was late while its path was the only one is hedged when there is another path again.
#[test]
fn a_late_request_is_hedged_over_a_path_that_comes_later() {
    let mut world = World::new(limits(), &[A, B]);
    world.measure(millis(20));
    let request = world.submit(WRITE);
    let (_, path) = world.only(request);
    let other = if path == A { B } else { A };
    world.lose_path(other, &[]);
    world.pass(Duration::from_secs(5));
    assert_eq!(world.attempts(request).len(), 1);
    let again = PathId(2);
    world.add(again);
    world.pass(Duration::from_secs(5));
    assert_eq!(
        world.attempts(request).iter().map(|(_, path)| *path).collect::<Vec<_>>(),
        [path, again]
    );
}

#[test]
fn the_other_copy_of_a_write_is_aborted_and_keeps_its_place_until_it_ends() {
    let mut world = World::new(limits(), &[A, B]);
    world.measure(millis(20));
    let request = world.submit(WRITE);
    let (first, path) = world.only(request);
    world.await_timer();
    let second = world.attempts(request)[1].0;
    world.end(second, End::Good);
    assert!(world.succeeded(request));
    assert_eq!(world.aborted, [first]);
    assert!(world.requests.paths().in_flight(path) > 0);
    world.end(first, End::NoAnswer);
    assert_eq!(world.requests.paths().in_flight(path), 0);
}

#[test]
fn a_stuck_request_waits_for_a_path_and_the_first_answer_ends_the_wait() {
    let mut world = World::new(limits(), &[]);
    let one = Credit { bytes: u64::MAX, requests: 1 };
    for path in [A, B] {
        world.requests.add_path(path, one, world.now);
    }
    world.measure(millis(20));
    let [stuck, other] = [(); 2].map(|()| world.submit(WRITE));
    world.pass(Duration::from_secs(3));
    assert_eq!(world.attempts(stuck).len(), 1, "the other path has no credit");
    let (attempt, _) = world.only(stuck);
    let (other_attempt, _) = world.only(other);
    world.end(attempt, End::Good);
    assert!(world.succeeded(stuck));
    assert!(world.attempts(stuck).is_empty(), "nothing is sent for a request that has ended");
    // The other request is stuck as well. Its second copy takes the path that has become free.
    assert_eq!(world.attempts(other).len(), 2);
    world.end(other_attempt, End::Good);
    assert_eq!(world.aborted.len(), 1);
}

/// The first copy fails while the second one waits for a path. The request pauses, and takes no second place
/// meanwhile.
#[test]
fn a_request_that_pauses_is_not_hedged() {
    let mut world = World::new(limits(), &[]);
    let one = Credit { bytes: u64::MAX, requests: 1 };
    for path in [A, B] {
        world.requests.add_path(path, one, world.now);
    }
    let [stuck, other] = [(); 2].map(|()| world.submit(WRITE));
    world.pass(Duration::from_secs(20));
    let (attempt, path) = world.only(stuck);
    let (other_attempt, _) = world.only(other);
    world.end(attempt, End::TimedOut);
    world.end(other_attempt, End::Good);
    assert!(world.attempts(stuck).is_empty(), "it pauses");
    world.await_timer();
    let (attempt, _) = world.only(stuck);
    world.end(attempt, End::Good);
    assert!(world.succeeded(stuck) && world.succeeded(other));
    for path in [path, A, B] {
        assert_eq!(world.requests.paths().in_flight(path), 0, "a place is kept for nothing");
    }
}

#[test]
fn one_of_two_copies_may_be_lost() {
    let mut world = World::new(limits(), &[A, B]);
    world.measure(millis(20));
    let request = world.submit(WRITE);
    let (_, path) = world.only(request);
    world.await_timer();
    assert_eq!(world.attempts(request).len(), 2);
    world.lose_path(path, &[]);
    let (left, _) = world.only(request);
    assert!(!world.results.contains_key(&request));
    world.end(left, End::Good);
    assert!(world.succeeded(request));
}
