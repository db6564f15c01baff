//! Whether a question of which bytes hold data is worth its time, how far it goes, and how long reading waits for
//! its answer.
//!
//! While reading has nothing to do but to wait for an answer, the time is owed; an answer pays back the time that the
//! zeros in it would have taken to be read. As long as little is owed, reading waits. Then it goes on where nothing is
//! known, gently at first, and one question at a time looks farther ahead, until an answer pays.
//!
//! Why it is so: `docs/design/questions.md`.

use std::time::Duration;

use iscsi_block_device::{DeviceError, DeviceErrorKind};
use tokio::time::Instant;

/// The first question is for so many bytes.
const FIRST_WINDOW: u64 = 1 << 30;
/// A longer question than this tells nothing more.
const MAX_WINDOW: u64 = 1 << 44;
/// A shorter one saves less than it costs anywhere.
const MIN_WINDOW: u64 = 1 << 20;
/// The next question is longer if the answer was whole with so few extents, and shorter if it had so many.
const FEW: usize = 16;
const MANY: usize = 1024;
/// So many questions are under way at once.
const AT_ONCE: usize = 4;
/// So much may be owed.
const GRACE: Duration = Duration::from_millis(250);
/// What reading brings until it is known, bytes in a second: 1 Gbit/s.
const DEFAULT_RATE: (u64, Duration) = (125_000_000, Duration::from_secs(1));
/// The rate is that of about so much time of reading, and of no less than the other.
const RATE_SPAN: Duration = Duration::from_secs(2);
const MIN_RATE_SPAN: Duration = Duration::from_millis(100);
/// A question looks at least so far ahead where asking does not pay, and at most so far, bytes.
const MIN_AHEAD: u64 = 4 << 20;
const MAX_AHEAD: u64 = 256 << 20;

/// What reading does meanwhile.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Pace {
    /// It has nothing to do before an answer comes.
    Starved,
    /// It reads, or something else holds it up.
    Going,
    /// It shall not.
    Paused,
}

/// How a question was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// How long it took.
    pub(crate) took: Duration,
    /// How many bytes it was about, and about how many of them the answer is.
    pub(crate) asked: u64,
    pub(crate) covered: u64,
    /// The extents in it.
    pub(crate) extents: usize,
    /// Bytes that need not be read because of it.
    pub(crate) spared: u64,
}

/// The questions to one device.
#[derive(Debug)]
pub(crate) struct Questions {
    under_way: usize,
    /// One was answered.
    is_answered: bool,
    /// Nothing is asked any more.
    is_refused: bool,
    window: u64,
    /// How far ahead of what is read the next one looks, where asking does not pay; one that does so is under way.
    ahead: u64,
    is_ahead: bool,
    /// What is owed.
    owed: Duration,
    /// How long an answer takes.
    took: Duration,
    /// What reading brought of late, in which time.
    bytes: u64,
    time: Duration,
    /// What reading has done since then.
    since: Option<(Instant, Pace)>,
    /// So many reads may be under way where nothing is known.
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

    /// Those of a device that is asked nothing: all of it counts as data.
    pub(crate) const fn none() -> Self {
        Self { is_refused: true, ..Self::new() }
    }

    /// Whether one more may be asked.
    pub(crate) const fn has_room(&self) -> bool {
        let most = if self.is_answered && self.pays() { AT_ONCE } else { 1 };
        !self.is_refused && self.under_way < most
    }

    pub(crate) const fn are_under_way(&self) -> bool {
        self.under_way > 0
    }

    /// How many bytes the next one is about.
    pub(crate) const fn window(&self) -> u64 {
        self.window
    }

    /// How far behind the first byte of which nothing is known the next one begins.
    pub(crate) fn skip(&self) -> u64 {
        if self.pays() {
            return 0;
        }
        // As far as reading comes until the answer is there, and as far again.
        let (bytes, time) = self.rate();
        let meanwhile = u128::from(bytes) * 2 * self.took.as_nanos() / time.as_nanos().max(1);
        self.ahead.max(u64::try_from(meanwhile).unwrap_or(MAX_AHEAD)).min(MAX_AHEAD)
    }

    /// Whether one more read may begin where nothing is known, beside those that are there already.
    pub(crate) const fn allow_blind(&self, reading: usize) -> bool {
        self.is_refused || !self.pays() && reading < self.blind
    }

    const fn pays(&self) -> bool {
        self.owed.as_nanos() <= GRACE.as_nanos()
    }

    /// What reading brings, and in which time.
    fn rate(&self) -> (u64, Duration) {
        if self.time < MIN_RATE_SPAN { DEFAULT_RATE } else { (self.bytes, self.time) }
    }

    /// How long so many bytes would be read.
    fn time_of(&self, bytes: u64) -> Duration {
        let (read, time) = self.rate();
        let nanos = u128::from(bytes) * time.as_nanos() / u128::from(read.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// From now on reading does this.
    pub(crate) fn note(&mut self, now: Instant, pace: Pace) {
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

    /// A read has brought so many bytes; whether it began where nothing was known.
    pub(crate) fn read(&mut self, bytes: u64, is_blind: bool) {
        if !matches!(self.since, Some((_, Pace::Starved))) {
            self.bytes += bytes;
        }
        if is_blind && !self.pays() {
            self.blind = self.blind.saturating_add(1);
        }
    }

    /// A question goes out.
    pub(crate) const fn begin(&mut self) {
        self.under_way += 1;
        self.is_ahead = !self.pays();
    }

    /// It was answered.
    pub(crate) fn end(&mut self, answer: Answer) {
        self.under_way -= 1;
        self.is_answered = true;
        self.took = if self.took.is_zero() { answer.took } else { (self.took + answer.took) / 2 };
        let is_whole = answer.covered >= answer.asked;
        self.window = match answer.extents {
            0..=FEW if is_whole => (self.window * 4).min(MAX_WINDOW),
            MANY.. => self.window / 4,
            _ if is_whole => self.window,
            // Where it ended the next begins: it would be asked for the same again.
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

    /// It was not answered.
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

    /// Questions of which so much is owed.
    fn owing(millis: u32) -> (Questions, Instant) {
        let (mut questions, now) = (Questions::new(), Instant::now());
        questions.note(now, Pace::Starved);
        let now = now + millis * MILLI;
        questions.note(now, Pace::Going);
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
        questions.note(now, Pace::Starved);
        questions.note(now + 50 * MILLI, Pace::Going);
        assert!(questions.allow_blind(0) && !questions.allow_blind(1));
        assert_eq!(questions.skip(), MIN_AHEAD);
        questions.begin();
        assert!(!questions.has_room(), "one looks ahead");
        // 64 KiB at 1 Gbit/s are half a millisecond.
        questions.end(answer(1 << 20, 1 << 17, 2, 1 << 16));
        assert!(questions.allow_blind(0));
        assert_eq!(questions.skip(), 2 * MIN_AHEAD, "the next looks farther");
        questions.begin();
        questions.end(answer(1 << 20, 1 << 20, 1, 16 << 20));
        assert!(!questions.allow_blind(0));
        assert_eq!(questions.skip(), 0);
    }

    /// The same answers pay on a link that is slow.
    #[test]
    fn what_is_saved_goes_by_the_rate_of_reading() {
        for (rate, pays) in [(1 << 20, true), (100 << 20, false)] {
            let (mut questions, now) = owing(300);
            questions.read(rate, true);
            questions.note(now + 1000 * MILLI, Pace::Going);
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
        questions.note(now, Pace::Paused);
        questions.note(now + 10_000 * MILLI, Pace::Going);
        questions.note(now + 20_000 * MILLI, Pace::Going);
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
