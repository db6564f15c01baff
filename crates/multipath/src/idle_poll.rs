//! Polls the unit while the disk is idle.
//!
//! A unit reports a change only with the next command of each session (SAM-5 §5.14), so an idle disk would
//! receive no report. To receive reports, an idle disk sends one TEST UNIT READY per interval over one
//! session.

use std::time::{Duration, Instant};

use crate::ids::PathId;

/// Schedule of the polls. `N` numbers the commands of a session.
#[derive(Debug)]
pub struct IdlePoll<N> {
    /// Time between two polls of the unit; `None` if the unit is not polled.
    interval: Option<Duration>,
    next: Instant,
    /// The next command of each session at the last call of `check_due`. While these are the same, no command
    /// was sent.
    seen: Vec<(PathId, N)>,
    is_in_flight: bool,
}

impl<N: PartialEq> IdlePoll<N> {
    /// Creates the schedule of a disk that is not idle yet.
    #[must_use]
    pub fn new(interval: Option<Duration>, now: Instant) -> Self {
        let next = now + interval.unwrap_or_default();
        Self { interval, next, seen: Vec::new(), is_in_flight: false }
    }

    /// Returns when to call [`check_due`](Self::check_due); `None` while a poll is in flight.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.interval.filter(|_| !self.is_in_flight).map(|_| self.next)
    }

    /// Returns whether to poll the unit now: if no command was sent over any session for an interval. `next`
    /// is the next command of each session, `is_quiet` whether nothing is in flight.
    pub fn check_due(&mut self, next: Vec<(PathId, N)>, is_quiet: bool, now: Instant) -> bool {
        let Some(interval) = self.interval.filter(|_| !self.is_in_flight && now >= self.next)
        else {
            return false;
        };
        self.next = now + interval;
        let before = std::mem::replace(&mut self.seen, next);
        before == self.seen && is_quiet
    }

    /// Notes that a poll has begun.
    pub const fn begin(&mut self) {
        self.is_in_flight = true;
    }

    /// Notes that a poll has ended. `next` is the next command of each session after the poll, so that the
    /// poll itself does not count as a command of the disk.
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
        assert!(!poll.check_due(next(7), true, begun), "it is not time");
        let mut now = begun + INTERVAL;
        assert_eq!(poll.poll_timeout(), Some(now));
        assert!(!poll.check_due(next(7), true, now), "it is not known what was sent before");
        now += INTERVAL;
        assert!(!poll.check_due(next(8), true, now), "a command was sent");
        now += INTERVAL;
        assert!(!poll.check_due(next(8), false, now), "one is in flight");
        now += INTERVAL;
        assert!(poll.check_due(next(8), true, now));
        poll.begin();
        assert_eq!(poll.poll_timeout(), None);
        assert!(!poll.check_due(next(9), true, now + INTERVAL), "one question at a time");
        poll.end(next(9), now);
        now += INTERVAL;
        assert_eq!(poll.poll_timeout(), Some(now));
        assert!(poll.check_due(next(9), true, now), "the question itself is no work");
        let never = IdlePoll::<u64>::new(None, begun);
        assert_eq!(never.poll_timeout(), None);
    }
}
