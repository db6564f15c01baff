//! Simulates clients that always have requests, in virtual time.
#![allow(dead_code, reason = "not every test needs all of it")]
#![allow(clippy::cast_precision_loss, reason = "shares are rounded numbers")]

use std::time::{Duration, Instant};

use iscsi_shaper::{Class, ClassId, RateLimit, Tree};

/// Parses a rate.
pub(crate) fn rate(text: &str) -> RateLimit {
    text.parse().unwrap()
}

/// Creates a class with the rate `of` and this ceil.
pub(crate) fn class(of: &str, ceil: &str) -> Class {
    Class::new(rate(of)).with_ceil(rate(ceil))
}

pub(crate) const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A client that sends requests of one length in a class, up to `depth` at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub(crate) class: ClassId,
    pub(crate) len: u64,
    /// Number of requests that the client keeps waiting; 0 while the client pauses.
    pub(crate) depth: usize,
}

/// A request that was granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) time: Duration,
    pub(crate) client: usize,
    pub(crate) bytes: u64,
}

pub(crate) struct Simulation {
    pub(crate) tree: Tree,
    pub(crate) begin: Instant,
    pub(crate) now: Instant,
    pub(crate) clients: Vec<Client>,
    /// The requests that wait, with the index of their client.
    pub(crate) waiting: Vec<(iscsi_shaper::Ticket, usize)>,
    pub(crate) sent: Vec<Sent>,
}

impl Simulation {
    #[expect(clippy::disallowed_methods, reason = "all times are counted from it")]
    pub(crate) fn new(root: Class) -> Self {
        let begin = Instant::now();
        Self {
            tree: Tree::new(root, begin).unwrap(),
            begin,
            now: begin,
            clients: Vec::new(),
            waiting: Vec::new(),
            sent: Vec::new(),
        }
    }

    /// Adds a class, and a client of it with four requests at a time.
    pub(crate) fn add(&mut self, parent: ClassId, class: Class, len: u64) -> ClassId {
        let class = self.tree.add(parent, class, self.now).unwrap();
        self.clients.push(Client { class, len, depth: 4 });
        class
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.now - self.begin
    }

    /// Lets the clients send for `time`. This never returns if requests pass without a limit: see
    /// `run_at_most`.
    pub(crate) fn run(&mut self, time: Duration) {
        self.run_at_most(time, usize::MAX);
    }

    /// Lets the clients send for `time`, or until `max` requests were granted.
    pub(crate) fn run_at_most(&mut self, time: Duration, max: usize) {
        let end = self.now + time;
        let max = self.sent.len().saturating_add(max);
        loop {
            self.fill();
            while self.sent.len() < max
                && let Some(grant) = self.tree.poll_grant(self.now)
            {
                let at = self.waiting.iter().position(|(ticket, _)| *ticket == grant.ticket);
                let (_, client) = self.waiting.swap_remove(at.expect("granted once"));
                self.sent.push(Sent { time: self.elapsed(), client, bytes: grant.bytes });
                self.fill();
            }
            match self.tree.poll_timeout() {
                Some(next) if next <= end && self.sent.len() < max => {
                    assert!(next > self.now, "what is ready is granted");
                    self.now = next;
                }
                _ => break,
            }
        }
        self.now = end;
    }

    /// Adds requests until each client has `depth` of them waiting.
    fn fill(&mut self) {
        for (at, client) in self.clients.iter().enumerate() {
            let waiting = self.waiting.iter().filter(|(_, of)| *of == at).count();
            for _ in waiting..client.depth {
                let ticket = self.tree.request(client.class, client.len, self.now);
                self.waiting.push((ticket, at));
            }
        }
    }

    /// Pauses a client, and cancels its waiting requests.
    pub(crate) fn pause(&mut self, client: usize) {
        self.clients[client].depth = 0;
        let (tree, now) = (&mut self.tree, self.now);
        self.waiting.retain(|(ticket, of)| *of != client || !tree.cancel(*ticket, now));
    }

    /// Returns the rate of each client since a time, in Mbit/s.
    pub(crate) fn rates_since(&self, since: Duration) -> Vec<f64> {
        let time = (self.elapsed() - since).as_secs_f64();
        (0..self.clients.len())
            .map(|client| {
                let of =
                    self.sent.iter().filter(|sent| sent.client == client && sent.time >= since);
                of.map(|sent| sent.bytes).sum::<u64>() as f64 * 8e-6 / time
            })
            .collect()
    }

    /// Returns the largest excess, in bytes: how much the selected clients have sent in any period beyond the
    /// bytes that `rate` brings in that period.
    pub(crate) fn excess(&self, rate: f64, is_of: impl Fn(usize) -> bool) -> f64 {
        let (mut level, mut max, mut last) = (0.0_f64, 0.0_f64, Duration::ZERO);
        for sent in self.sent.iter().filter(|sent| is_of(sent.client)) {
            let drained = (sent.time - last).as_secs_f64() * rate / 8.0;
            level = (level - drained).max(0.0) + sent.bytes as f64;
            last = sent.time;
            max = max.max(level);
        }
        max
    }
}

/// Asserts that each number differs from the expected one by at most a fraction `part` of it.
#[track_caller]
pub(crate) fn assert_near(found: &[f64], expected: &[f64], part: f64) {
    assert_eq!(found.len(), expected.len());
    let is_near = |(found, expected): (&f64, &f64)| (found - expected).abs() <= expected * part;
    assert!(found.iter().zip(expected).all(is_near), "{found:?} instead of {expected:?}");
}
