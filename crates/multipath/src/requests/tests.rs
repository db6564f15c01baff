//! Tests of the outputs that follow from inputs, in virtual time.

mod hedging;
mod links;
mod refusals;

use std::collections::BTreeMap;
use std::time::Duration;

use iscsi_pdu::scsi::AccessState;

use super::*;
use crate::access::Access;
use crate::paths::hedge::HedgePolicy;
use crate::reconnect::BackOff;

const LEN: u64 = 64 << 10;
const MINUTE: Duration = Duration::from_secs(60);
const A: PathId = PathId(0);
const B: PathId = PathId(1);
const CREDIT: Credit = Credit { bytes: 8 << 20, requests: 64 };

const READ: RequestSpec = RequestSpec {
    len: LEN,
    writes: false,
    is_plain: true,
    can_shorten: true,
    can_double: true,
    route: Route::Credit,
};
const WRITE: RequestSpec = RequestSpec { writes: true, ..READ };

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn limits() -> RequestLimits {
    RequestLimits {
        total: CREDIT,
        retry_timeout: MINUTE,
        aborted_timeout: Duration::from_secs(5),
        pauses: BackOff::new(millis(10), Duration::from_secs(1)),
        max_attentions: 8,
        hedge: HedgePolicy::default(),
        is_shaped: false,
    }
}

/// Returns the time from which the tests count.
#[expect(clippy::disallowed_methods, reason = "some time to count from")]
fn start() -> Instant {
    Instant::now()
}

/// The requests, and a caller that records every output.
struct World {
    requests: Requests<&'static str>,
    now: Instant,
    /// Attempts that were sent and have not ended.
    in_flight: Vec<(AttemptId, PathId, RequestId)>,
    /// Attempts that were sent as second copies.
    second_copies: Vec<AttemptId>,
    aborted: Vec<AttemptId>,
    results: BTreeMap<RequestId, Result<AttemptId, Failure<&'static str>>>,
    /// Other outputs since they were last read.
    others: Vec<Output<&'static str>>,
}

impl World {
    fn new(limits: RequestLimits, paths: &[PathId]) -> Self {
        let mut world = Self {
            requests: Requests::new(limits),
            now: start(),
            in_flight: Vec::new(),
            second_copies: Vec::new(),
            aborted: Vec::new(),
            results: BTreeMap::new(),
            others: Vec::new(),
        };
        for path in paths {
            world.requests.add_path(*path, CREDIT, world.now);
        }
        world
    }

    fn drain(&mut self) {
        while let Some(output) = self.requests.poll_output() {
            if let Output::Send { request, attempt, path, is_hedge, .. } = output {
                self.in_flight.push((attempt, path, request));
                self.second_copies.extend(is_hedge.then_some(attempt));
            } else if let Output::Abort { attempt, .. } = output {
                self.aborted.push(attempt);
            } else if let Output::Completed { request, result, .. } = output {
                let before = self.results.insert(request, result);
                assert!(before.is_none(), "{request:?} ends twice");
            } else {
                self.others.push(output);
            }
        }
        let next = self.requests.poll_timeout();
        assert!(next.is_none_or(|next| next > self.now), "a timer that is due stays");
    }

    fn submit(&mut self, spec: RequestSpec) -> RequestId {
        let request = self.requests.submit(spec, self.now);
        self.drain();
        request
    }

    /// Returns the attempts of a request in flight, in the order in which they were sent.
    fn attempts(&self, request: RequestId) -> Vec<(AttemptId, PathId)> {
        let own = self.in_flight.iter().filter(|(_, _, of)| *of == request);
        own.map(|(attempt, path, _)| (*attempt, *path)).collect()
    }

    fn only(&self, request: RequestId) -> (AttemptId, PathId) {
        let attempts = self.attempts(request);
        assert_eq!(attempts.len(), 1, "{attempts:?}");
        attempts[0]
    }

    fn end(&mut self, attempt: AttemptId, end: End) {
        let access = if let End::Port(state) = end { Some(Access::of_state(state)) } else { None };
        let error = (end != End::Good).then_some("an end");
        let may_have_executed =
            matches!(end, End::TimedOut | End::SessionLost | End::ConnectionLost);
        self.in_flight.retain(|(other, _, _)| *other != attempt);
        self.requests.ended(
            attempt,
            AttemptEnd { end, access, error, may_have_executed },
            self.now,
        );
        self.drain();
    }

    fn lose_path(&mut self, path: PathId, unsent: &[AttemptId]) {
        let is_there = |(_, of, _): &(AttemptId, PathId, RequestId)| *of == path;
        let lost: Vec<_> = self.in_flight.extract_if(.., |it| is_there(it)).collect();
        self.requests.remove_lost_path(path, self.now);
        for (attempt, _, _) in lost {
            let may_have_executed = !unsent.contains(&attempt);
            let end = End::SessionLost;
            let end = AttemptEnd { end, access: None, error: Some("lost"), may_have_executed };
            self.requests.ended(attempt, end, self.now);
        }
        self.drain();
    }

    fn add(&mut self, path: PathId) {
        self.requests.add_path(path, CREDIT, self.now);
        self.drain();
    }

    /// Advances the time to the next timer, and returns how much time has passed.
    fn await_timer(&mut self) -> Duration {
        let next = self.requests.poll_timeout().expect("a timer");
        let passed = next - self.now;
        self.now = next;
        self.requests.handle_timeout(self.now);
        self.drain();
        passed
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.requests.poll_timeout().is_some_and(|next| next <= end) {
            self.await_timer();
        }
        self.now = end;
        self.requests.handle_timeout(self.now);
        self.drain();
    }

    fn failure(&self, request: RequestId) -> Failure<&'static str> {
        self.results[&request].clone().expect_err("it succeeded")
    }

    fn succeeded(&self, request: RequestId) -> bool {
        self.results.get(&request).is_some_and(Result::is_ok)
    }

    /// Completes some requests on each path after `time`, so that the round-trip time of each path is
    /// measured.
    fn measure(&mut self, time: Duration) {
        for _ in 0..4 {
            let requests = [(); 2].map(|()| self.submit(READ));
            self.now += time;
            for request in requests {
                let (attempt, _) = self.only(request);
                self.end(attempt, End::Good);
            }
        }
        self.others.clear();
    }
}

#[test]
fn a_request_takes_the_path_with_credit_and_ends_with_its_answer() {
    let mut world = World::new(limits(), &[A]);
    let request = world.submit(READ);
    let (attempt, path) = world.only(request);
    assert_eq!(path, A);
    world.end(attempt, End::Good);
    assert_eq!(world.results[&request], Ok(attempt));
    assert!(world.requests.poll_timeout().is_none() && world.others.is_empty());
}

#[test]
fn what_waits_goes_in_its_order_when_credit_comes_back() {
    let small = Credit { bytes: LEN, requests: 64 };
    let mut world = World::new(limits(), &[]);
    world.requests.add_path(A, small, world.now);
    world.requests.set_credit(A, Credit { bytes: LEN, requests: 1 }, world.now);
    let requests: Vec<_> = (0..4).map(|_| world.submit(READ)).collect();
    for request in requests {
        let (attempt, _) = world.only(request);
        assert_eq!(world.in_flight.len(), 1);
        world.end(attempt, End::Good);
        assert!(world.succeeded(request));
    }
}

#[test]
fn the_end_of_an_attempt_counts_once() {
    let mut world = World::new(limits(), &[A]);
    let request = world.submit(WRITE);
    let (attempt, _) = world.only(request);
    world.end(attempt, End::Good);
    world.end(attempt, End::Good);
    world.end(attempt, End::Refused);
    let next = world.submit(WRITE);
    world.end(attempt, End::Good);
    assert!(world.succeeded(request) && !world.results.contains_key(&next));
}

#[test]
fn a_unit_attention_costs_another_attempt_on_the_same_path() {
    let mut world = World::new(limits(), &[A, B]);
    let request = world.submit(READ);
    let (_, path) = world.only(request);
    for _ in 0..8 {
        let (attempt, again) = world.only(request);
        assert_eq!(again, path);
        world.end(attempt, End::Attention);
    }
    let (attempt, _) = world.only(request);
    world.end(attempt, End::Attention);
    assert_eq!(world.failure(request), Failure::Attempt("an end"));
}

/// The unit reports several unit attentions, and is busy in between. The limit on unit attentions counts
/// from the last pause, so the request succeeds.
#[test]
fn unit_attentions_count_from_the_last_pause() {
    let mut world = World::new(limits(), &[A]);
    let request = world.submit(READ);
    for _ in 0..3 {
        for _ in 0..8 {
            let (attempt, _) = world.only(request);
            world.end(attempt, End::Attention);
        }
        let (attempt, _) = world.only(request);
        world.end(attempt, End::Busy);
        world.await_timer();
    }
    let (attempt, _) = world.only(request);
    world.end(attempt, End::Good);
    assert!(world.succeeded(request));
}

#[test]
fn a_lost_path_leaves_its_requests_to_the_other_one() {
    let mut world = World::new(limits(), &[A, B]);
    let requests: Vec<_> = (0..6).map(|_| world.submit(WRITE)).collect();
    world.lose_path(A, &[]);
    for request in requests {
        let (attempt, path) = world.only(request);
        assert_eq!(path, B);
        world.end(attempt, End::Good);
        assert!(world.succeeded(request));
    }
}

/// The path is lost while a command is in flight that then ends with a unit attention. The request is not
/// retried over the lost path; it is sent over the next path.
#[test]
fn nothing_is_retried_over_a_path_that_is_lost() {
    let mut world = World::new(limits(), &[A]);
    let request = world.submit(WRITE);
    let (attempt, _) = world.only(request);
    world.requests.remove_lost_path(A, world.now);
    world.drain();
    world.end(attempt, End::Attention);
    assert!(world.in_flight.is_empty());
    world.add(B);
    assert_eq!(world.only(request).1, B);
}

#[test]
fn requests_wait_for_the_next_path_or_are_refused() {
    let mut world = World::new(limits(), &[A]);
    let [sent, unsent] = [(); 2].map(|()| world.submit(WRITE));
    let (unsent_attempt, _) = world.only(unsent);
    world.lose_path(A, &[unsent_attempt]);
    assert!(world.in_flight.is_empty() && world.results.is_empty());
    world.requests.refuse(&"gone");
    world.drain();
    assert_eq!(world.failure(sent), Failure::NotRetried { lost: "lost", why: "gone" });
    assert_eq!(world.failure(unsent), Failure::Refused("gone"));
    let late = world.submit(READ);
    assert_eq!(world.failure(late), Failure::Refused("gone"));
    world.add(B);
    let request = world.submit(READ);
    assert_eq!(world.only(request).1, B);
}

#[test]
fn a_request_that_ends_its_sessions_is_found_out() {
    let mut world = World::new(limits(), &[A]);
    let poison = world.submit(WRITE);
    let mut innocent = world.submit(READ);
    let mut path = A;
    let mut losses = 0;
    while !world.results.contains_key(&poison) {
        losses += 1;
        assert!(losses < 50);
        let is_there = !world.attempts(poison).is_empty();
        if is_there {
            world.lose_path(path, &[]);
            path = PathId(path.0 + 1);
            world.add(path);
        } else {
            // The request that ends sessions waits until nothing else is in flight.
            let (attempt, _) = world.only(innocent);
            world.end(attempt, End::Good);
            innocent = world.submit(READ);
        }
    }
    assert!(matches!(world.failure(poison), Failure::EndsSessions { times: 5, cause: "lost" }));
    let alone = world.others.iter().filter(|it| matches!(it, Output::Report(_, Report::SentAlone)));
    assert!(alone.count() >= 1);
}

#[test]
fn a_cancelled_request_is_aborted_and_answers_nobody() {
    let mut world = World::new(limits(), &[A]);
    let request = world.submit(WRITE);
    let (attempt, _) = world.only(request);
    world.requests.cancel(request, world.now);
    world.drain();
    assert_eq!(world.aborted, [attempt]);
    world.end(attempt, End::Good);
    assert!(world.results.is_empty() && !world.requests.paths().has_requests());
    let pausing = world.submit(WRITE);
    let (attempt, _) = world.only(pausing);
    world.end(attempt, End::Busy);
    world.requests.cancel(pausing, world.now);
    world.drain();
    assert!(world.requests.poll_timeout().is_none() && !world.requests.paths().has_requests());
}

#[test]
fn a_closed_path_drains_and_takes_nothing() {
    let mut world = World::new(limits(), &[A, B]);
    let requests: Vec<_> = (0..4).map(|_| world.submit(READ)).collect();
    world.requests.close_path(A);
    world.drain();
    let later = world.submit(READ);
    assert_eq!(world.only(later).1, B);
    for request in requests {
        let (attempt, _) = world.only(request);
        world.end(attempt, End::Good);
    }
    assert!(world.others.contains(&Output::PathDrained(A)));
}

#[test]
fn each_attempt_waits_for_the_class() {
    let mut world = World::new(RequestLimits { is_shaped: true, ..limits() }, &[A]);
    let request = world.submit(READ);
    assert!(matches!(world.others[..], [Output::Charge { len: LEN, .. }]));
    world.requests.charged(request, world.now);
    world.drain();
    let (attempt, _) = world.only(request);
    world.end(attempt, End::Busy);
    world.await_timer();
    assert!(world.in_flight.is_empty());
    // The time that the request waited for its traffic class does not count as time in which the unit
    // refuses it.
    world.pass(MINUTE * 2);
    world.requests.charged(request, world.now);
    world.drain();
    let (attempt, _) = world.only(request);
    world.end(attempt, End::Busy);
    assert!(world.results.is_empty());
}

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
