//! When the unit of an idle disk is asked whether it has something to report.
//!
//! A unit reports a change at the next command of each session and not before (SAM-5 §5.14), so an idle disk receives no
//! report. One TEST UNIT READY for each interval, over one session, is such a command.

use std::time::{Duration, Instant};

use crate::ids::PathId;

/// The times of the questions. `N` numbers the commands of a session.
#[derive(Debug)]
pub struct IdlePoll<N> {
    /// `None` asks never.
    interval: Option<Duration>,
    next: Instant,
    /// The next command of each session at the last look: while it is the next one, none was sent.
    seen: Vec<(PathId, N)>,
    is_in_flight: bool,
}

impl<N: PartialEq> IdlePoll<N> {
    /// Creates the times of a disk that is not idle yet.
    #[must_use]
    pub fn new(interval: Option<Duration>, now: Instant) -> Self {
        let next = now + interval.unwrap_or_default();
        Self { interval, next, seen: Vec::new(), is_in_flight: false }
    }

    /// Returns when to look whether the disk is idle: never while a question is in flight.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.interval.filter(|_| !self.is_in_flight).map(|_| self.next)
    }

    /// Takes in the next command of each session, and whether nothing is in flight. Returns whether to ask the unit now, which is
    /// so if no command was sent over any session for an interval.
    pub fn look(&mut self, next: Vec<(PathId, N)>, is_quiet: bool, now: Instant) -> bool {
        let Some(interval) = self.interval.filter(|_| !self.is_in_flight && now >= self.next)
        else {
            return false;
        };
        self.next = now + interval;
        let before = std::mem::replace(&mut self.seen, next);
        before == self.seen && is_quiet
    }

    /// Begins a question.
    pub const fn begin(&mut self) {
        self.is_in_flight = true;
    }

    /// Ends a question. What it has sent is no work of the disk, so `next` is the next command of each session by now.
    pub fn end(&mut self, next: Vec<(PathId, N)>, now: Instant) {
        self.is_in_flight = false;
        self.next = now + self.interval.unwrap_or_default();
        self.seen = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(10);

    #[test]
    #[expect(clippy::disallowed_methods, reason = "some time to count from")]
    fn a_unit_is_asked_after_an_interval_without_a_command() {
        let begun = Instant::now();
        let mut poll = IdlePoll::new(Some(INTERVAL), begun);
        let next = |command: u64| vec![(PathId(0), command)];
        assert!(!poll.look(next(7), true, begun), "it is not time");
        let mut now = begun + INTERVAL;
        assert_eq!(poll.poll_timeout(), Some(now));
        assert!(!poll.look(next(7), true, now), "it is not known what was sent before");
        now += INTERVAL;
        assert!(!poll.look(next(8), true, now), "a command was sent");
        now += INTERVAL;
        assert!(!poll.look(next(8), false, now), "one is in flight");
        now += INTERVAL;
        assert!(poll.look(next(8), true, now));
        poll.begin();
        assert_eq!(poll.poll_timeout(), None);
        assert!(!poll.look(next(9), true, now + INTERVAL), "one question at a time");
        poll.end(next(9), now);
        now += INTERVAL;
        assert_eq!(poll.poll_timeout(), Some(now));
        assert!(poll.look(next(9), true, now), "the question itself is no work");
        let never = IdlePoll::<u64>::new(None, begun);
        assert_eq!(never.poll_timeout(), None);
    }
}
