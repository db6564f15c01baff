//! Decides for how many answers of a session to wait, where many short answers follow each other.
//!
//! ```text
//! answers = min(answers within 200 us, a quarter of the requests in flight), rounded down to a power of two
//! ```
//! If a peer sends each answer separately, each answer wakes the session, which costs more than the answer
//! itself. Waiting for several answers costs no throughput while the peer is busy with the other requests.
//! Where the peer needs time for each answer, waiting does cost throughput, because the next requests are
//! sent later. So a trial compares both: some windows of 5 ms with waiting, some without. The better choice
//! is kept for a while.

use std::time::{Duration, Instant};

/// Length of a window; answers are counted per window.
const WINDOW: Duration = Duration::from_millis(5);
/// A window that took longer than this contained a pause, and is ignored.
const LONGEST_WINDOW: Duration = Duration::from_millis(15);
/// Windows of each kind in a trial.
const WINDOWS: u32 = 4;
/// Answers that arrive within this time may be waited for.
const MAX_WAIT: Duration = Duration::from_micros(200);
/// The session waits for at most one answer per this many requests in flight, so that the peer still has most
/// of the requests.
const REQUESTS_PER_ANSWER: usize = 4;
/// The number of answers is kept while it is at most this many times the newly computed number, because each
/// change costs a system call.
const SLACK: usize = 2;
/// A trial decides for waiting if the rate of answers with waiting is at least this share of the rate without
/// waiting.
const UNCHANGED: f64 = 0.95;
/// How long a verdict holds. A verdict against waiting holds twice as long each time it is repeated.
const HOLD: Duration = Duration::from_secs(1);
/// Longest time that a verdict against waiting holds.
const MAX_HOLD: Duration = Duration::from_secs(16);

/// Decides for how many answers of a session to wait before it processes them.
///
/// ```
/// use std::time::{Duration, Instant};
/// use iscsi_tuner::Coalescing;
///
/// let (mut coalescing, begun) = (Coalescing::default(), Instant::now());
/// // 100,000 answers a second, of 4 KiB each.
/// for milliseconds in 0..100 {
///     let answers = milliseconds * 100;
///     coalescing.observe(answers, answers * 4096, begun + Duration::from_millis(milliseconds));
/// }
/// assert_eq!(coalescing.low_water(32, 1), Some(8 * 4096));
/// assert_eq!(coalescing.low_water(2, 1), None);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Coalescing {
    /// Counters at the beginning of the current window.
    begun: Option<Counted>,
    /// Number of answers that arrived within [`MAX_WAIT`] on average in the last window, and the bytes of
    /// each.
    in_time: usize,
    bytes_per_answer: u64,
    waits: bool,
    /// Number of windows in which the session does not wait, because fewer bytes arrived than it waited for.
    rests: u8,
    /// Number of answers that the session last waited for.
    answers: usize,
    /// Results of the running trial: first without waiting, then with waiting.
    trial: [Tally; 2],
    /// End of the time for which the verdict of the last trial holds.
    holds_until: Option<Instant>,
    /// How long the next verdict holds if it is against waiting.
    hold: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    answers: u64,
    bytes: u64,
    at: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    windows: u32,
    answers: u64,
    time: Duration,
}

impl Tally {
    fn rate(self) -> f64 {
        self.answers as f64 / self.time.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

impl Coalescing {
    /// Takes the number of answered requests and of received bytes, both since the session began.
    pub fn observe(&mut self, answers: u64, bytes: u64, now: Instant) {
        let begun = *self.begun.get_or_insert(Counted { answers, bytes, at: now });
        let time = now.saturating_duration_since(begun.at);
        if time < WINDOW {
            return;
        }
        self.begun = Some(Counted { answers, bytes, at: now });
        self.rests = self.rests.saturating_sub(1);
        let answers = answers.saturating_sub(begun.answers);
        let in_time = u128::from(answers) * MAX_WAIT.as_nanos() / time.as_nanos();
        self.in_time = usize::try_from(in_time).unwrap_or(usize::MAX);
        self.bytes_per_answer = bytes.saturating_sub(begun.bytes) / answers.max(1);
        if time <= LONGEST_WINDOW && self.in_time >= 2 {
            self.judge(answers, time, now);
        }
    }

    /// Reports that fewer bytes than awaited arrived within a millisecond. The lengths of the answers differ,
    /// so that their mean is no guide. So the session does not wait again before a whole window has passed.
    pub const fn waited_in_vain(&mut self) {
        self.rests = 2;
    }

    /// Returns the bytes to wait for on each of `connections` connections, while `under_way` requests are in
    /// flight on all of them together. `None` means not to wait.
    pub fn low_water(&mut self, under_way: usize, connections: usize) -> Option<u64> {
        if !self.waits || self.rests > 0 {
            return None;
        }
        let connections = connections.max(1);
        let most = self.in_time.min(under_way / REQUESTS_PER_ANSWER) / connections;
        let limit = (self.in_time.saturating_mul(SLACK))
            .min(under_way / REQUESTS_PER_ANSWER * SLACK)
            / connections;
        let goal = most.checked_ilog2().map_or(1, |log| 1 << log);
        if goal > self.answers || self.answers > limit {
            self.answers = goal;
        }
        (self.answers > 1).then(|| (self.answers as u64).saturating_mul(self.bytes_per_answer))
    }

    fn judge(&mut self, answers: u64, time: Duration, now: Instant) {
        if self.holds_until.is_some_and(|until| now < until) {
            return;
        }
        if self.holds_until.take().is_some() {
            self.trial = [Tally::default(); 2];
            self.waits = false;
            return;
        }
        let [without, with] = &mut self.trial;
        let tally = if self.waits { &mut *with } else { &mut *without };
        tally.windows += 1;
        tally.answers = tally.answers.saturating_add(answers);
        tally.time += time;
        if with.windows < WINDOWS {
            self.waits = !self.waits;
            return;
        }
        self.waits = with.rate() >= without.rate() * UNCHANGED;
        let hold = if self.waits { HOLD } else { self.hold.unwrap_or(HOLD) };
        self.hold = (!self.waits).then(|| (hold * 2).min(MAX_HOLD));
        self.holds_until = now.checked_add(hold);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer with 32 requests in flight, and its counters so far.
    struct Load {
        coalescing: Coalescing,
        now: Instant,
        answers: u64,
        bytes: u64,
    }

    impl Load {
        fn new() -> Self {
            Self { coalescing: Coalescing::default(), now: Instant::now(), answers: 0, bytes: 0 }
        }

        /// Runs for `time` with answers of `size` bytes. `per_ms` returns the rate, which depends on whether the
        /// session waits for answers.
        fn run(&mut self, time: Duration, size: u64, per_ms: impl Fn(bool) -> u64) {
            let end = self.now + time;
            while self.now < end {
                let waits = self.low_water().is_some();
                self.now += Duration::from_millis(1);
                self.answers += per_ms(waits);
                self.bytes += per_ms(waits) * size;
                self.coalescing.observe(self.answers, self.bytes, self.now);
            }
        }

        fn low_water(&mut self) -> Option<u64> {
            self.coalescing.low_water(32, 1)
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_busy_peers_answers_are_waited_for() {
        let mut load = Load::new();
        load.run(SECOND / 10, 4144, |_| 80);
        assert_eq!(load.low_water(), Some(8 * 4144));
        // The order of these cases matters: a number is kept while it is at most twice the newly computed one.
        for (under_way, connections, answers) in [
            (16, 1, 8),
            (15, 1, 2),
            (31, 1, 4),
            (32, 1, 8),
            (1000, 1, 16),
            (4, 1, 0),
            (7, 1, 0),
            (8, 1, 2),
            (4, 1, 2),
            (3, 1, 0),
            (32, 2, 4),
            (8, 8, 0),
            (32, 0, 8),
            (0, 1, 0),
        ] {
            let bytes = (answers > 0).then_some(answers * 4144);
            let told = load.coalescing.low_water(under_way, connections);
            assert_eq!(told, bytes, "{under_way} over {connections}");
        }
    }

    #[test]
    fn answers_that_come_seldom_are_not() {
        let mut load = Load::new();
        load.run(SECOND, 65_584, |_| 9);
        assert_eq!(load.low_water(), None);
        load.run(SECOND / 10, 65_584, |_| 80);
        assert!(load.low_water().is_some());
        load.run(SECOND / 50, 65_584, |_| 1);
        assert_eq!(load.low_water(), None, "and at once when fewer come");
        load.run(SECOND / 50, 48, |_| 20);
        assert_eq!(load.low_water(), Some(4 * 48), "as long as the verdict holds");
    }

    /// This peer reaches its rate only with all requests in flight, so waiting makes it slower, and must end.
    #[test]
    fn a_peer_that_takes_its_time_is_not_kept_waiting() {
        let mut load = Load::new();
        let slower = |waits| if waits { 70 } else { 80 };
        let mut waited = 0;
        for _ in 0..2000 {
            load.run(SECOND / 100, 4144, slower);
            waited += u32::from(load.low_water().is_some());
        }
        assert_eq!(load.low_water(), None);
        assert!((1..=20).contains(&waited), "{waited} of 2000 looks");
    }

    #[test]
    fn it_is_tried_again() {
        let mut load = Load::new();
        load.run(SECOND / 10, 4144, |waits| if waits { 70 } else { 80 });
        assert_eq!(load.low_water(), None);
        load.run(2 * SECOND, 4144, |_| 80);
        assert!(load.low_water().is_some());
        load.run(2 * SECOND, 4144, |waits| if waits { 70 } else { 80 });
        assert_eq!(load.low_water(), None);
    }

    #[test]
    fn who_has_waited_in_vain_waits_no_more_for_a_window() {
        let mut load = Load::new();
        load.run(SECOND / 10, 4144, |_| 80);
        assert!(load.low_water().is_some());
        load.coalescing.waited_in_vain();
        assert_eq!(load.low_water(), None);
        load.run(WINDOW, 4144, |_| 80);
        assert_eq!(load.low_water(), None);
        load.run(WINDOW, 4144, |_| 80);
        assert!(load.low_water().is_some());
    }

    /// A window with a pause says nothing about the peer, so it does not count in a trial.
    #[test]
    fn a_rest_is_no_window_of_a_trial() {
        let mut load = Load::new();
        for _ in 0..100 {
            load.run(WINDOW / 5 * 4, 4144, |_| 80);
            load.now += 4 * WINDOW;
        }
        assert!(load.coalescing.trial.iter().all(|tally| tally.time <= LONGEST_WINDOW * WINDOWS));
    }

    #[test]
    fn nothing_overflows() {
        let (mut coalescing, begun) = (Coalescing::default(), Instant::now());
        for n in 0..1000 {
            let answers = if n % 2 == 0 { u64::MAX } else { 0 };
            coalescing.observe(answers, answers, begun + WINDOW * n);
            let _any = coalescing.low_water(usize::MAX, usize::MAX);
            let _any = coalescing.low_water(usize::MAX, 1);
        }
    }
}
