//! Tests of requests over simulated links to a unit, in virtual time.

mod faults;
mod hedges;
mod sharing;
mod suspects;

use std::collections::{BTreeMap, VecDeque};

use super::*;

pub(super) const LEN: u64 = 256 << 10;
const CREDIT: Credit = Credit { bytes: 8 << 20, requests: 64 };
/// Longer than any test takes, except the tests of the retry timeout.
const RETRY_TIMEOUT: Duration = Duration::from_secs(300);
const LOST: &str = "the session is lost";

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A link that serves its requests one after the other, and delivers each response after the latency. Times
/// count from the start.
#[derive(Clone, Debug)]
struct Link {
    bytes_per_second: f64,
    latency: Duration,
    free_at: Duration,
    /// When the link fails for good.
    dies: Option<Duration>,
    /// Requests that arrive within this interval complete only at the end of the interval.
    stalls: Option<(Duration, Duration)>,
    /// Whether requests in flight have left the initiator when the link dies.
    sends: bool,
    /// Until this time the port of the link is in standby.
    serves_from: Duration,
    is_lost: bool,
    carried: u64,
}

fn link(megabytes: f64, latency: u64) -> Link {
    Link {
        bytes_per_second: megabytes * 1e6,
        latency: millis(latency),
        free_at: Duration::ZERO,
        dies: None,
        stalls: None,
        sends: true,
        serves_from: Duration::ZERO,
        is_lost: false,
        carried: 0,
    }
}

impl Link {
    fn dying(self, at: Duration) -> Self {
        Self { dies: Some(at), ..self }
    }

    fn stalling(self, from: Duration, to: Duration) -> Self {
        Self { stalls: Some((from, to)), ..self }
    }

    /// Returns when the response to a request that arrives now is delivered.
    fn answers(&mut self, len: u64, now: Duration) -> Duration {
        let mut begins = self.free_at.max(now);
        if let Some((from, to)) = self.stalls
            && begins >= from
            && begins < to
        {
            begins = to;
        }
        self.free_at = begins + Duration::from_secs_f64(len as f64 / self.bytes_per_second);
        self.free_at + self.latency
    }
}

/// Responses of the unit to requests, over any link.
#[derive(Clone, Debug, Default)]
struct Unit {
    /// Numbers of requests that end the session.
    poison: Vec<u64>,
    /// Ends of every request, each with the time until which it applies, in order.
    refuses: Vec<(Duration, End)>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    End(AttemptId, End),
    /// The session is lost.
    Dies(PathId),
    /// A lost session has reconnected.
    Opens,
    /// Lets time pass.
    Wake,
}

/// A request as its caller sees it.
#[derive(Clone, Copy, Debug)]
struct Call {
    number: u64,
    spec: RequestSpec,
    begun: Duration,
    /// Index of the share of memory that the request holds.
    share: usize,
    /// Index of the share of memory that the second copy holds.
    hedge: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    path: PathId,
    len: u64,
    share: usize,
}

/// The memory limits, and the requests that wait for memory.
#[derive(Debug)]
struct Memory {
    left: Credit,
    /// The length of each share, and its number of holders.
    shares: Vec<(u64, u32)>,
    waiting: VecDeque<Wants>,
}

#[derive(Clone, Copy, Debug)]
enum Wants {
    Call(u64, RequestSpec, Duration),
    Hedge(RequestId, u64),
}

/// Result of a caller's request.
#[derive(Clone, Debug)]
struct Ended {
    number: u64,
    result: Result<(), Failure<&'static str>>,
    time: Duration,
    at: Duration,
}

struct Links {
    start: Instant,
    now: Duration,
    requests: Requests<&'static str>,
    links: BTreeMap<PathId, Link>,
    unit: Unit,
    /// Creates the link that replaces a lost one two seconds later. The argument is its number; `dies` counts
    /// from its opening.
    replacement: Option<fn(u32) -> Link>,
    events: BTreeMap<(Duration, u64), Event>,
    next: u64,
    memory: Memory,
    calls: BTreeMap<RequestId, Call>,
    sent: BTreeMap<AttemptId, Sent>,
    ended: Vec<Ended>,
    /// Number of times that each request was sent, by its number.
    tries: BTreeMap<u64, u32>,
    hedged: u32,
    drained: Vec<PathId>,
    losses: u32,
}

impl Links {
    fn new(links: impl IntoIterator<Item = Link>) -> Self {
        Self::within(Credit { bytes: 64 << 20, requests: 1024 }, links)
    }

    fn within(memory: Credit, links: impl IntoIterator<Item = Link>) -> Self {
        let limits = RequestLimits { total: memory, retry_timeout: RETRY_TIMEOUT, ..limits() };
        Self::with(limits, links)
    }

    fn with(limits: RequestLimits, links: impl IntoIterator<Item = Link>) -> Self {
        let memory = Memory { left: limits.total, shares: Vec::new(), waiting: VecDeque::new() };
        let mut world = Self {
            start: start(),
            now: Duration::ZERO,
            requests: Requests::new(limits),
            links: BTreeMap::new(),
            unit: Unit::default(),
            replacement: None,
            events: BTreeMap::new(),
            next: 0,
            memory,
            calls: BTreeMap::new(),
            sent: BTreeMap::new(),
            ended: Vec::new(),
            tries: BTreeMap::new(),
            hedged: 0,
            drained: Vec::new(),
            losses: 0,
        };
        links.into_iter().for_each(|link| world.open(link));
        world
    }

    fn now(&self) -> Instant {
        self.start + self.now
    }

    fn open(&mut self, link: Link) {
        let path = PathId(u32::try_from(self.links.len()).unwrap());
        if let Some(dies) = link.dies {
            self.at(dies, Event::Dies(path));
        }
        self.links.insert(path, link);
        self.requests.add_path(path, CREDIT, self.now());
        self.drain();
    }

    fn at(&mut self, time: Duration, event: Event) {
        self.next += 1;
        self.events.insert((time.max(self.now), self.next), event);
    }

    fn call(&mut self, number: u64, spec: RequestSpec) {
        self.memory.waiting.push_back(Wants::Call(number, spec, self.now));
        self.grant();
    }

    /// Assigns memory to the waiting requests, in their order.
    fn grant(&mut self) {
        while let Some(first) = self.memory.waiting.front().copied() {
            let len = match first {
                Wants::Call(_, spec, _) => spec.len,
                Wants::Hedge(_, len) => len,
            };
            let Some(share) = self.memory.take(len) else { break };
            self.memory.waiting.pop_front();
            self.requests.set_backlog(!self.memory.waiting.is_empty());
            match first {
                Wants::Call(number, spec, begun) => {
                    let can_double = self.memory.can_hold(2, spec.len, self.requests_total());
                    let spec = RequestSpec { can_double, ..spec };
                    let request = self.requests.submit(spec, self.now());
                    self.calls.insert(request, Call { number, spec, begun, share, hedge: None });
                }
                Wants::Hedge(request, _) => self.reserved(request, Some(share)),
            }
            self.drain();
        }
        self.requests.set_backlog(!self.memory.waiting.is_empty());
    }

    fn requests_total(&self) -> Credit {
        self.requests.limits.total
    }

    fn reserved(&mut self, request: RequestId, share: Option<usize>) {
        match self.calls.get_mut(&request) {
            Some(call) => call.hedge = share,
            None => share.into_iter().for_each(|share| self.memory.give_back(share)),
        }
        self.requests.reserved(request, share.is_some(), self.now());
    }

    fn drain(&mut self) {
        while let Some(output) = self.requests.poll_output() {
            match output {
                Output::Send { request, attempt, path, is_hedge, .. } => {
                    self.send(request, attempt, path, is_hedge);
                }
                Output::Completed { request, result, .. } => self.complete(request, result),
                Output::Reserve { request, len, waits } => self.reserve(request, len, waits),
                Output::Unreserve(request) => self.unreserve(request),
                Output::PathDrained(path) => self.drained.push(path),
                Output::Abort { attempt, .. } => {
                    // The target responds to an abort after the latency of the link.
                    let latency =
                        self.sent.get(&attempt).and_then(|sent| self.links.get(&sent.path));
                    let at = latency.map(|link| self.now + link.latency);
                    at.into_iter().for_each(|at| self.at(at, Event::End(attempt, End::NoAnswer)));
                }
                Output::Charge { .. }
                | Output::Prepare(_)
                | Output::Choose(_)
                | Output::Retried(_)
                | Output::PortRefused(..)
                | Output::PortNeeded
                | Output::PathSetAside(..)
                | Output::Report(..)
                | Output::TimerSet(_) => {}
            }
        }
        let due = self.requests.poll_timeout();
        assert!(due.is_none_or(|due| due > self.now()), "a timer that is due stays");
    }

    fn reserve(&mut self, request: RequestId, len: u64, waits: bool) {
        if waits {
            self.memory.waiting.push_back(Wants::Hedge(request, len));
            return self.grant();
        }
        let is_free = self.memory.waiting.is_empty();
        let share = if is_free { self.memory.take(len) } else { None };
        self.reserved(request, share);
    }

    fn unreserve(&mut self, request: RequestId) {
        let is_of = |wants: &Wants| matches!(wants, Wants::Hedge(of, _) if *of == request);
        self.memory.waiting.retain(|wants| !is_of(wants));
        let share = self.calls.get_mut(&request).and_then(|call| call.hedge.take());
        share.into_iter().for_each(|share| self.memory.give_back(share));
    }

    fn send(&mut self, request: RequestId, attempt: AttemptId, path: PathId, is_hedge: bool) {
        let now = self.now;
        let call = self.calls.get_mut(&request).expect("a request that was submitted");
        let (number, len) = (call.number, call.spec.len);
        *self.tries.entry(number).or_default() += 1;
        self.hedged += u32::from(is_hedge);
        let share = if is_hedge && !call.spec.writes {
            call.hedge.take().expect("the memory of a second copy")
        } else {
            call.share
        };
        self.memory.hold(share);
        if is_hedge && !call.spec.writes {
            // From here on, only the attempt holds the reserved memory.
            self.memory.give_back(share);
        }
        self.sent.insert(attempt, Sent { path, len, share });
        let link = self.links.get_mut(&path).expect("a path that was opened");
        if link.dies.is_some_and(|dies| dies <= now) {
            return;
        }
        let refusal = self.unit.refuses.iter().find(|(until, _)| now < *until);
        if now < link.serves_from {
            let at = now + link.latency;
            self.at(at, Event::End(attempt, End::Port(AccessState::Standby)));
        } else if let Some((_, end)) = refusal.copied() {
            let at = now + millis(20);
            self.at(at, Event::End(attempt, end));
        } else if self.unit.poison.contains(&number) {
            self.at(now + millis(20), Event::Dies(path));
        } else {
            let at = link.answers(len, now);
            self.at(at, Event::End(attempt, End::Good));
        }
    }

    fn complete(&mut self, request: RequestId, result: Result<AttemptId, Failure<&'static str>>) {
        let Some(call) = self.calls.remove(&request) else { panic!("{request:?} ends twice") };
        self.memory.give_back(call.share);
        call.hedge.into_iter().for_each(|share| self.memory.give_back(share));
        let is_of = |wants: &Wants| matches!(wants, Wants::Hedge(of, _) if *of == request);
        self.memory.waiting.retain(|wants| !is_of(wants));
        let (number, time, at) = (call.number, self.now - call.begun, self.now);
        self.ended.push(Ended { number, result: result.map(drop), time, at });
    }

    /// Handles the next event or timer.
    fn step(&mut self) {
        let timer = self.requests.poll_timeout().map(|at| at - self.start);
        let event = self.events.first_key_value().map(|((at, _), _)| *at);
        let Some(at) = [timer, event].into_iter().flatten().min() else {
            panic!("nothing comes any more: {:?}", self.calls)
        };
        self.now = at;
        if event == Some(at) {
            let (_, event) = self.events.pop_first().expect("an event");
            self.handle(event);
        } else {
            self.requests.handle_timeout(self.now());
        }
        self.drain();
        self.grant();
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::End(attempt, end) => self.end(attempt, end),
            Event::Dies(path) => self.lose_path(path),
            Event::Opens => {
                let number = u32::try_from(self.links.len()).unwrap();
                let link = self.replacement.map(|replacement| replacement(number));
                if let Some(link) = link {
                    let dies = link.dies.map(|life| self.now + life);
                    self.open(Link { dies, ..link });
                }
            }
            Event::Wake => {}
        }
    }

    fn end(&mut self, attempt: AttemptId, end: End) {
        let Some(sent) = self.sent.remove(&attempt) else { return };
        self.memory.give_back(sent.share);
        if end == End::Good {
            let link = self.links.get_mut(&sent.path);
            link.into_iter().for_each(|link| link.carried += sent.len);
        }
        let access = if let End::Port(state) = end { Some(Access::of_state(state)) } else { None };
        let error = (end != End::Good).then_some("an end");
        let end = AttemptEnd { end, access, error, may_have_executed: end == End::TimedOut };
        self.requests.ended(attempt, end, self.now());
    }

    fn lose_path(&mut self, path: PathId) {
        let link = self.links.get_mut(&path).expect("a path that was opened");
        if link.is_lost {
            return;
        }
        link.is_lost = true;
        let sends = link.sends;
        self.losses += 1;
        let lost: Vec<_> =
            self.sent.iter().filter(|(_, sent)| sent.path == path).map(|(id, _)| *id).collect();
        for attempt in &lost {
            let sent = self.sent.remove(attempt).expect("it was sent");
            self.memory.give_back(sent.share);
        }
        let now = self.now();
        self.requests.remove_lost_path(path, now);
        for attempt in lost {
            let end = End::SessionLost;
            let end = AttemptEnd { end, access: None, error: Some(LOST), may_have_executed: sends };
            self.requests.ended(attempt, end, now);
        }
        if self.replacement.is_some() {
            self.at(self.now + secs(2), Event::Opens);
        } else if self.links.values().all(|link| link.is_lost) {
            self.requests.refuse(&"none is left");
        }
    }

    /// Sends `count` requests, up to `depth` of them concurrently, and returns their results.
    fn run(&mut self, count: u64, depth: usize, spec: RequestSpec) -> Vec<Ended> {
        self.ended.clear();
        let mut numbers = 0..count;
        while (self.ended.len() as u64) < count {
            while self.calls.len() + self.memory.calls() < depth
                && let Some(number) = numbers.next()
            {
                self.call(number, spec);
            }
            if (self.ended.len() as u64) < count {
                self.step();
            }
        }
        std::mem::take(&mut self.ended)
    }

    fn carried(&self, link: u32) -> u64 {
        self.links[&PathId(link)].carried
    }

    fn total_carried(&self) -> u64 {
        self.links.values().map(|link| link.carried).sum()
    }
}

impl Memory {
    fn take(&mut self, len: u64) -> Option<usize> {
        if self.left.requests == 0 || self.left.bytes < len {
            return None;
        }
        self.left.requests -= 1;
        self.left.bytes -= len;
        self.shares.push((len, 1));
        Some(self.shares.len() - 1)
    }

    fn hold(&mut self, share: usize) {
        self.shares[share].1 += 1;
    }

    fn give_back(&mut self, share: usize) {
        let (len, holders) = &mut self.shares[share];
        *holders -= 1;
        if *holders == 0 {
            self.left.requests += 1;
            self.left.bytes += *len;
        }
    }

    fn can_hold(&self, count: u64, len: u64, total: Credit) -> bool {
        count * len <= total.bytes && u64::from(total.requests) >= count
    }

    fn calls(&self) -> usize {
        self.waiting.iter().filter(|wants| matches!(wants, Wants::Call(..))).count()
    }
}

/// Returns the requests that failed.
fn failed(ended: &[Ended]) -> Vec<&Ended> {
    ended.iter().filter(|ended| ended.result.is_err()).collect()
}

fn seconds_at_full_rate(megabytes: f64, count: u64) -> f64 {
    (count * LEN) as f64 / (megabytes * 1e6)
}

const READ: RequestSpec = RequestSpec { len: LEN, ..super::READ };
const WRITE: RequestSpec = RequestSpec { len: LEN, ..super::WRITE };
