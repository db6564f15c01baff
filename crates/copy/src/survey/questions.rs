//! Decides whether extent queries save more time than they cost, how long each is, and how long reading waits
//! for the results.
//!
//! Time in which reading only waits for the result of a query is a debt. A result pays back the time that
//! reading its zeros would have taken. While the debt is small, reading waits. With a larger debt, it reads
//! unknown ranges, few at first, and one query at a time is sent for a range farther ahead, until a result
//! pays.
//!
//! Design: `docs/design/questions.md`.

use std::time::Duration;

use iscsi_block_device::{DeviceError, DeviceErrorKind};
use tokio::time::Instant;

/// Length of the first query, bytes.
const FIRST_WINDOW: u64 = 1 << 30;
/// Largest length of a query, bytes: a longer one saves nothing more.
const MAX_WINDOW: u64 = 1 << 44;
/// Smallest length of a query, bytes: a shorter one never saves more than it costs.
const MIN_WINDOW: u64 = 1 << 20;
/// If a result covers its whole query and has at most this number of extents, the next query is longer.
const FEW: usize = 16;
/// If a result has at least this number of extents, the next query is shorter.
const MANY: usize = 1024;
/// Largest number of concurrent queries.
const AT_ONCE: usize = 4;
/// Largest debt, the time that waiting for results has cost and their zeros have not saved, at which reading
/// still waits.
const GRACE: Duration = Duration::from_millis(250);
/// Rate of reading before it is measured, as bytes and time: 1 Gbit/s.
const DEFAULT_RATE: (u64, Duration) = (125_000_000, Duration::from_secs(1));
/// Duration of reading over which the rate is measured.
const RATE_SPAN: Duration = Duration::from_secs(2);
/// Shortest duration of reading that gives a rate.
const MIN_RATE_SPAN: Duration = Duration::from_millis(100);
/// Smallest distance from the reads to a query ahead of the reads, bytes, while queries cost more time than they
/// save.
const MIN_AHEAD: u64 = 4 << 20;
/// Largest distance from the reads to a query ahead of the reads, bytes, while queries cost more time than they
/// save.
const MAX_AHEAD: u64 = 256 << 20;

/// State of reading while queries are in flight.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Pace {
    /// Reading can do nothing before a result arrives.
    Starved,
    /// Reading runs, or waits for something else than a result.
    Going,
    /// Reading is paused.
    Paused,
}

/// The result of a query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// Time from the query to its result.
    pub(crate) took: Duration,
    /// Length of the queried range, bytes.
    pub(crate) asked: u64,
    /// Bytes that the result covers.
    pub(crate) covered: u64,
    /// Number of extents in the result.
    pub(crate) extents: usize,
    /// Bytes that need not be read because of the result.
    pub(crate) spared: u64,
}

/// The extent queries to one device.
#[derive(Debug)]
pub(crate) struct Questions {
    under_way: usize,
    /// Whether a query was answered before.
    is_answered: bool,
    /// Whether no further query is sent.
    is_refused: bool,
    window: u64,
    /// Distance from the reads to the next query ahead of the reads, bytes, while queries cost more time than
    /// they save.
    ahead: u64,
    /// Whether a query ahead of the reads is in flight.
    is_ahead: bool,
    /// The debt: time for which reading waited, and that results have not paid back.
    owed: Duration,
    /// Mean time from a query to its result.
    took: Duration,
    /// Bytes that were read recently, for the rate.
    bytes: u64,
    /// Time in which the recently read bytes were read, for the rate.
    time: Duration,
    /// State of reading, and when it began.
    since: Option<(Instant, Pace)>,
    /// Largest number of reads in flight whose ranges are unknown.
    blind: usize,
}

impl Questions {
    pub(crate) const fn new() -> Self {
        Self {
            under_way: 0,
            is_answered: false,
            is_refused: false,
            window: FIRST_WINDOW,
            ahead: MIN_AHEAD,
            is_ahead: false,
            owed: Duration::ZERO,
            took: Duration::ZERO,
            bytes: 0,
            time: Duration::ZERO,
            since: None,
            blind: 1,
        }
    }

    /// Creates the state of a device that is never queried: all of it counts as data.
    pub(crate) const fn none() -> Self {
        Self { is_refused: true, ..Self::new() }
    }

    /// Returns whether one more query may be sent.
    pub(crate) const fn has_room(&self) -> bool {
        let most = if self.is_answered && self.pays() { AT_ONCE } else { 1 };
        !self.is_refused && self.under_way < most
    }

    pub(crate) const fn are_under_way(&self) -> bool {
        self.under_way > 0
    }

    /// Returns the length of the next query, bytes.
    pub(crate) const fn window(&self) -> u64 {
        self.window
    }

    /// Returns the distance from the first unknown byte to the beginning of the next query, bytes.
    pub(crate) fn skip(&self) -> u64 {
        if self.pays() {
            return 0;
        }
        // Twice the distance that reading covers until the result arrives.
        let (bytes, time) = self.rate();
        let meanwhile = u128::from(bytes) * 2 * self.took.as_nanos() / time.as_nanos().max(1);
        self.ahead.max(u64::try_from(meanwhile).unwrap_or(MAX_AHEAD)).min(MAX_AHEAD)
    }

    /// Returns whether one more read of an unknown range may begin; `reading` such reads are in flight.
    pub(crate) const fn allow_blind(&self, reading: usize) -> bool {
        self.is_refused || !self.pays() && reading < self.blind
    }

    const fn pays(&self) -> bool {
        self.owed.as_nanos() <= GRACE.as_nanos()
    }

    /// Returns the rate of reading as bytes and time.
    fn rate(&self) -> (u64, Duration) {
        if self.time < MIN_RATE_SPAN { DEFAULT_RATE } else { (self.bytes, self.time) }
    }

    /// Returns how long reading `bytes` bytes takes.
    fn time_of(&self, bytes: u64) -> Duration {
        let (read, time) = self.rate();
        let nanos = u128::from(bytes) * time.as_nanos() / u128::from(read.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Records the state of reading from `now` on.
    pub(crate) fn set_pace(&mut self, now: Instant, pace: Pace) {
        if let Some((since, before)) = self.since.replace((now, pace)) {
            let passed = now.saturating_duration_since(since);
            match before {
                Pace::Starved => self.owed += passed,
                Pace::Going => self.time += passed,
                Pace::Paused => {}
            }
        }
        if self.time > RATE_SPAN {
            (self.bytes, self.time) = (self.bytes / 2, self.time / 2);
        }
    }

    /// Counts a read of `bytes` bytes. `is_blind`: it was unknown if its range holds data.
    pub(crate) fn read(&mut self, bytes: u64, is_blind: bool) {
        if !matches!(self.since, Some((_, Pace::Starved))) {
            self.bytes += bytes;
        }
        if is_blind && !self.pays() {
            self.blind = self.blind.saturating_add(1);
        }
    }

    /// Counts a query that is sent.
    pub(crate) const fn begin(&mut self) {
        self.under_way += 1;
        self.is_ahead = !self.pays();
    }

    /// Takes the result of a query: adjusts the debt, and the length of the next query.
    pub(crate) fn end(&mut self, answer: Answer) {
        self.under_way -= 1;
        self.is_answered = true;
        self.took = if self.took.is_zero() { answer.took } else { (self.took + answer.took) / 2 };
        let is_whole = answer.covered >= answer.asked;
        self.window = match answer.extents {
            0..=FEW if is_whole => (self.window * 4).min(MAX_WINDOW),
            MANY.. => self.window / 4,
            _ if is_whole => self.window,
            // The result covers only a part of the query. The next query begins where the result ends, and a
            // longer one would be answered only in part again.
            _ => self.window.min(answer.covered.saturating_mul(2)),
        };
        self.window = self.window.max(MIN_WINDOW);
        let saved = self.time_of(answer.spared);
        self.owed = self.owed.saturating_sub(saved);
        if self.pays() {
            (self.ahead, self.blind) = (MIN_AHEAD, 1);
        } else if self.is_ahead && saved < answer.took {
            self.ahead = (self.ahead * 2).min(MAX_AHEAD);
        }
    }

    /// Takes the failure of a query. A device that does not support the query is not queried again.
    pub(crate) fn fail(&mut self, error: &DeviceError, took: Duration, asked: u64) {
        let kind = error.kind();
        self.is_refused |=
            matches!(kind, DeviceErrorKind::Unsupported | DeviceErrorKind::InvalidInput);
        self.end(Answer { took, asked, covered: asked, extents: 1, spared: 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn answer(asked: u64, covered: u64, extents: usize, spared: u64) -> Answer {
        Answer { took: 10 * MILLI, asked, covered, extents, spared }
    }

    /// Returns queries with a debt of `millis` milliseconds.
    fn owing(millis: u32) -> (Questions, Instant) {
        let (mut questions, now) = (Questions::new(), Instant::now());
        questions.set_pace(now, Pace::Starved);
        let now = now + millis * MILLI;
        questions.set_pace(now, Pace::Going);
        (questions, now)
    }

    #[test]
    fn one_question_goes_first_and_then_several() {
        let mut questions = Questions::new();
        assert!(questions.has_room());
        questions.begin();
        assert!(!questions.has_room());
        questions.end(answer(FIRST_WINDOW, FIRST_WINDOW, 1, 0));
        for _ in 0..AT_ONCE {
            assert!(questions.has_room());
            questions.begin();
        }
        assert!(!questions.has_room());
    }

    #[test]
    fn a_question_is_as_long_as_answers_are() {
        for (covered, extents, window) in [
            (FIRST_WINDOW, 1, 4 * FIRST_WINDOW),
            (FIRST_WINDOW, 100, FIRST_WINDOW),
            (8 << 20, 1, 16 << 20),
            (FIRST_WINDOW, 2000, FIRST_WINDOW / 4),
            (512, 1, MIN_WINDOW),
        ] {
            let mut questions = Questions::new();
            questions.begin();
            questions.end(answer(FIRST_WINDOW, covered, extents, 0));
            assert_eq!(questions.window(), window, "{covered} {extents}");
        }
    }

    #[test]
    fn reading_waits_for_answers_that_spare_it_more() {
        let (mut questions, now) = owing(250);
        assert!(!questions.allow_blind(0) && questions.skip() == 0);
        questions.set_pace(now, Pace::Starved);
        questions.set_pace(now + 50 * MILLI, Pace::Going);
        assert!(questions.allow_blind(0) && !questions.allow_blind(1));
        assert_eq!(questions.skip(), MIN_AHEAD);
        questions.begin();
        assert!(!questions.has_room(), "one looks ahead");
        // Reading 64 KiB at 1 Gbit/s takes half a millisecond.
        questions.end(answer(1 << 20, 1 << 17, 2, 1 << 16));
        assert!(questions.allow_blind(0));
        assert_eq!(questions.skip(), 2 * MIN_AHEAD, "the next looks farther");
        questions.begin();
        questions.end(answer(1 << 20, 1 << 20, 1, 16 << 20));
        assert!(!questions.allow_blind(0));
        assert_eq!(questions.skip(), 0);
    }

    /// A result that costs more time than it saves on a fast link saves more than it costs on a slow link.
    #[test]
    fn what_is_saved_goes_by_the_rate_of_reading() {
        for (rate, pays) in [(1 << 20, true), (100 << 20, false)] {
            let (mut questions, now) = owing(300);
            questions.read(rate, true);
            questions.set_pace(now + 1000 * MILLI, Pace::Going);
            questions.begin();
            questions.end(answer(1 << 20, 1 << 17, 2, 1 << 16));
            assert_eq!(!questions.allow_blind(0), pays, "{rate} bytes a second");
        }
    }

    #[test]
    fn where_nothing_is_known_reading_begins_gently() {
        let (mut questions, _) = owing(300);
        for most in [1, 2, 3, 4] {
            assert!(questions.allow_blind(most - 1) && !questions.allow_blind(most));
            questions.read(4096, true);
        }
    }

    #[test]
    fn time_in_which_reading_shall_not_go_on_is_not_owed() {
        let (mut questions, now) = owing(0);
        questions.set_pace(now, Pace::Paused);
        questions.set_pace(now + 10_000 * MILLI, Pace::Going);
        questions.set_pace(now + 20_000 * MILLI, Pace::Going);
        assert!(!questions.allow_blind(0));
    }

    #[test]
    fn who_refuses_is_asked_once_and_who_fails_again() {
        let mut questions = Questions::new();
        questions.begin();
        questions.fail(&DeviceErrorKind::Busy.into(), MILLI, FIRST_WINDOW);
        assert!(questions.has_room() && !questions.allow_blind(0));
        questions.begin();
        questions.fail(&DeviceErrorKind::Unsupported.into(), MILLI, FIRST_WINDOW);
        assert!(!questions.has_room() && questions.allow_blind(1000));
    }
}
