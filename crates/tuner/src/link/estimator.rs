//! Estimates the rate and the round-trip time of a link: the highest rate and the shortest round trip of the
//! recent past, as BBR measures a path (N. Cardwell et al., "BBR: Congestion-Based Congestion Control", 2016;
//! draft-ietf-ccwg-bbr §5.3 startup, §5.5 path model).
//!
//! ```text
//! answers of requests      ─┐
//! TCP's rate of delivery   ─┼─► rate samples ─► windowed maximum ─► rate ─► full pipe?
//! window by round trip     ─┘
//! answer times, TCP's RTT  ───► windowed minimum ─► round trip
//! ```
//! All sources share this filter. A rate that was measured while there was too little to send shows the
//! sender, not the link, and is ignored. BBR uses such a rate if it raises the maximum. Here it is ignored
//! then too: otherwise a burst that a token bucket admits would count as the link's rate.

use std::time::{Duration, Instant};

use iscsi_rate::Rate;

/// How long samples count: rates for `rate` or `round_trips` round trips, whichever is longer; round-trip
/// times for `round_trip`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EstimatorWindow {
    rate: Duration,
    round_trips: u32,
    round_trip: Duration,
}

/// The delivery rate over some time, whether the sender limited it, and the delivered bytes, which show where
/// a round ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RateSample {
    /// Bytes delivered, divided by the time.
    pub rate: Rate,
    /// Whether the sender had too little to send, so that it limited the rate.
    pub is_app_limited: bool,
    /// Bytes that had been delivered when the data of the sample was sent.
    pub prior_delivered: u64,
    /// Bytes delivered in total.
    pub delivered: u64,
}

/// Estimates a link's rate and round-trip time from samples.
///
/// Time is an argument and must not run backwards; if it does, samples count for longer.
///
/// ```
/// use std::time::{Duration, Instant};
/// use iscsi_tuner::{EstimatorWindow, LinkEstimator, RateSample};
///
/// let mut link = LinkEstimator::new(EstimatorWindow::PATH);
/// let (rate, now) = ("100mbit".parse()?, Instant::now());
/// link.observe_round_trip(Duration::from_millis(20), now);
/// link.observe_rate(&RateSample::new(rate), now);
/// assert_eq!((link.rate(), link.round_trip()), (Some(rate), Some(Duration::from_millis(20))));
/// # Ok::<(), iscsi_tuner::RateError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LinkEstimator {
    window: EstimatorWindow,
    rate: Windowed<Rate>,
    round_trip: Windowed<Duration>,
    startup: Startup,
}

/// The best sample of the current epoch and of the previous one. So each sample counts for at least one
/// epoch. A sample two epochs later replaces it (draft-ietf-ccwg-bbr, BBR.MaxBwFilter). With an epoch of
/// zero, only the latest sample counts.
#[derive(Clone, Copy, Debug)]
struct Windowed<T> {
    current: Option<T>,
    previous: Option<T>,
    since: Option<Instant>,
}

/// Detects whether the rate still rises, as it does while TCP opens its window (draft-ietf-ccwg-bbr, "Exiting
/// Startup Based on Rate Plateau").
#[derive(Clone, Copy, Debug, Default)]
struct Startup {
    /// The rate at its last growth (BBR.full_bw).
    full_rate: Option<Rate>,
    /// Rounds without growth (BBR.full_bw_count).
    flat_rounds: u32,
    /// End of the current round: the number of delivered bytes at which all data in flight at its beginning
    /// has been delivered (BBR.next_round_delivered).
    round_end: u64,
}

/// Rounds without growth after which the pipe is full.
const FULL_PIPE_ROUNDS: u32 = 3;
/// Growth that counts, in percent of the previous rate: a quarter more.
const GROWTH: u64 = 125;

impl EstimatorWindow {
    /// The window for one path of several, measured by the answers to its requests: rates count for a second
    /// or four answer times, whichever is longer, and the shortest answer time never expires. The reason:
    /// unlike BBR, nothing here empties the path's queue to measure again. If the shortest time expired, the
    /// estimator would take the queue for the path's length and allow more in flight, and the queue would
    /// grow.
    pub const PATH: Self =
        Self { rate: Duration::from_secs(1), round_trips: 4, round_trip: Duration::MAX };
    /// The window for a connection measured by TCP's delivery rate, which is read once a second: rates count
    /// for ten readings. A round-trip time counts as long as in Linux (`net.ipv4.tcp_min_rtt_wlen`).
    pub const CONNECTION: Self = Self {
        rate: Duration::from_secs(10),
        round_trips: 4,
        round_trip: Duration::from_secs(300),
    };
    /// The window for a connection measured by its congestion window, which follows the link by itself: only
    /// the latest window and round trip count, because after a pause or a timeout an earlier window says
    /// nothing.
    pub const CONGESTION_WINDOW: Self =
        Self { rate: Duration::ZERO, round_trips: 0, round_trip: Duration::ZERO };
}

impl RateSample {
    /// Creates a sample that the sender did not limit. The sample counts as a round, unless
    /// [`between`](Self::between) sets its bytes.
    #[must_use]
    pub const fn new(rate: Rate) -> Self {
        Self { rate, is_app_limited: false, prior_delivered: 0, delivered: 0 }
    }

    /// Sets whether the sender had too little to send.
    #[must_use]
    pub const fn app_limited(mut self, is_app_limited: bool) -> Self {
        self.is_app_limited = is_app_limited;
        self
    }

    /// Sets the bytes that had been delivered when the sample's data was sent, and the bytes delivered in
    /// total. A round ends when the data in flight at its beginning has been delivered.
    #[must_use]
    pub const fn between(mut self, prior_delivered: u64, delivered: u64) -> Self {
        (self.prior_delivered, self.delivered) = (prior_delivered, delivered);
        self
    }
}

impl LinkEstimator {
    /// Creates an estimator without any sample.
    #[must_use]
    pub const fn new(window: EstimatorWindow) -> Self {
        let startup = Startup { full_rate: None, flat_rounds: 0, round_end: 0 };
        Self { window, rate: Windowed::NEW, round_trip: Windowed::NEW, startup }
    }

    /// Adds a rate sample; a rate that the sender has limited is ignored.
    pub fn observe_rate(&mut self, sample: &RateSample, now: Instant) {
        if sample.is_app_limited {
            return;
        }
        let trips = self.round_trip().unwrap_or_default().saturating_mul(self.window.round_trips);
        self.rate.observe(sample.rate, now, self.window.rate.max(trips), Ord::max);
        if let Some(max) = self.rate() {
            self.startup.observe(max, sample);
        }
    }

    /// Adds a round-trip time.
    pub fn observe_round_trip(&mut self, time: Duration, now: Instant) {
        self.round_trip.observe(time, now, self.window.round_trip, Ord::min);
    }

    /// Returns the link's rate; `None` before the first sample that the sender did not limit.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        self.rate.best(Ord::max)
    }

    /// Returns the link's round-trip time without queues: the shortest sample of the window. `None` before
    /// the first sample.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        self.round_trip.best(Ord::min)
    }

    /// Returns whether the rate has stopped rising: it has not grown by a quarter in three rounds. Unlike in
    /// BBR, a rate that grows again restarts the startup, because nothing else here probes for capacity that
    /// other flows have released.
    #[must_use]
    pub const fn is_pipe_full(&self) -> bool {
        self.startup.flat_rounds >= FULL_PIPE_ROUNDS
    }
}

impl<T: Copy> Windowed<T> {
    const NEW: Self = Self { current: None, previous: None, since: None };

    fn observe(&mut self, sample: T, now: Instant, epoch: Duration, better: fn(T, T) -> T) {
        let since = *self.since.get_or_insert(now);
        // With an endless epoch no sample expires, so the time does not matter.
        if epoch < Duration::MAX {
            let age = now.saturating_duration_since(since);
            if age >= epoch {
                self.previous = self.current.filter(|_| age < epoch.saturating_mul(2));
                (self.current, self.since) = (None, Some(now));
            }
        }
        self.current = Some(self.current.map_or(sample, |current| better(current, sample)));
    }

    fn best(&self, better: fn(T, T) -> T) -> Option<T> {
        match (self.current, self.previous) {
            (Some(current), Some(previous)) => Some(better(current, previous)),
            (current, previous) => current.or(previous),
        }
    }
}

impl Startup {
    fn observe(&mut self, rate: Rate, sample: &RateSample) {
        if sample.prior_delivered < self.round_end {
            return;
        }
        self.round_end = sample.delivered;
        if self.full_rate.is_none_or(|full| has_grown(full, rate)) {
            (self.full_rate, self.flat_rounds) = (Some(rate), 0);
        } else {
            self.flat_rounds = self.flat_rounds.saturating_add(1);
        }
    }
}

const fn has_grown(from: Rate, to: Rate) -> bool {
    to.bits_per_second() * 100 >= from.bits_per_second() * GROWTH
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mbit(rate: u64) -> Rate {
        Rate::from_bits_per_second(rate * 1_000_000).unwrap()
    }

    /// A window of a second or four round trips for rates, and of ten seconds for round-trip times.
    const WINDOW: EstimatorWindow = EstimatorWindow {
        rate: Duration::from_secs(1),
        round_trips: 4,
        round_trip: Duration::from_secs(10),
    };

    const FREE: bool = false;
    const APP_LIMITED: bool = true;

    /// A sample: milliseconds since the beginning, Mbit/s, and whether the sender had too little to send; then
    /// the estimated rate after the sample, Mbit/s.
    type Row = (u64, u64, bool, Option<u64>);

    /// Runs cases: each has a name, the round trip in milliseconds, and the samples.
    fn check(cases: &[(&str, u64, &[Row])]) {
        for (name, round_trip, rows) in cases {
            let start = Instant::now();
            let mut link = LinkEstimator::new(WINDOW);
            link.observe_round_trip(Duration::from_millis(*round_trip), start);
            for (at, rate, is_app_limited, expected) in *rows {
                let sample = RateSample::new(mbit(*rate)).app_limited(*is_app_limited);
                link.observe_rate(&sample, start + Duration::from_millis(*at));
                assert_eq!(link.rate(), expected.map(mbit), "{name}, at {at} ms");
            }
        }
    }

    #[test]
    fn the_rate_is_the_highest_of_the_window() {
        check(&[
            ("a rise counts at once", 1, &[(0, 10, FREE, Some(10)), (10, 30, FREE, Some(30))]),
            (
                "a fall counts after the window",
                1,
                &[
                    (0, 100, FREE, Some(100)),
                    (500, 20, FREE, Some(100)),
                    (1000, 20, FREE, Some(100)),
                    (1999, 20, FREE, Some(100)),
                    (2000, 20, FREE, Some(20)),
                ],
            ),
            (
                "what is less does not push out what is more",
                1,
                &[(0, 100, FREE, Some(100)), (100, 1, FREE, Some(100)), (200, 99, FREE, Some(100))],
            ),
            (
                "what was before a rest of two windows does not count",
                1,
                &[
                    (0, 100, FREE, Some(100)),
                    (1999, 20, FREE, Some(100)),
                    (3999, 10, FREE, Some(10)),
                ],
            ),
            (
                "a link that is long has a long window",
                1000,
                &[
                    (0, 100, FREE, Some(100)),
                    (4000, 20, FREE, Some(100)),
                    (7999, 20, FREE, Some(100)),
                    (8000, 20, FREE, Some(20)),
                ],
            ),
        ]);
    }

    #[test]
    fn too_little_to_send_shows_no_link() {
        check(&[
            (
                "there is no rate yet",
                1,
                &[
                    (0, 10, APP_LIMITED, None),
                    (10, 50, APP_LIMITED, None),
                    (20, 40, FREE, Some(40)),
                ],
            ),
            (
                "what is more does not count either",
                1,
                &[(0, 10, FREE, Some(10)), (10, 30, APP_LIMITED, Some(10))],
            ),
            (
                "what is less counts never",
                1,
                &[
                    (0, 100, FREE, Some(100)),
                    (5000, 10, APP_LIMITED, Some(100)),
                    (9000, 10, APP_LIMITED, Some(100)),
                    (9500, 60, FREE, Some(60)),
                ],
            ),
        ]);
    }

    #[test]
    fn the_round_trip_is_the_shortest_of_the_window() {
        // Each line: seconds, milliseconds of the sample, milliseconds of the estimate.
        let rows =
            [(0, 50, 50), (1, 20, 20), (5, 90, 20), (10, 80, 20), (19, 90, 20), (20, 90, 80)];
        let start = Instant::now();
        let mut link = LinkEstimator::new(WINDOW);
        assert_eq!(link.round_trip(), None);
        for (at, sample, expected) in rows {
            let sample = Duration::from_millis(sample);
            link.observe_round_trip(sample, start + Duration::from_secs(at));
            assert_eq!(link.round_trip(), Some(Duration::from_millis(expected)), "at {at} s");
        }
        let mut path = LinkEstimator::new(EstimatorWindow::PATH);
        for (at, sample, _) in rows {
            let at = start + Duration::from_secs(at * 3600);
            path.observe_round_trip(Duration::from_millis(sample), at);
        }
        assert_eq!(path.round_trip(), Some(Duration::from_millis(20)), "a path has no window");
    }

    /// Each line: the rates of successive rounds, and whether the pipe is full after them.
    #[test]
    fn the_pipe_is_full_after_three_rounds_without_a_quarter_more() {
        let rows: [(&[u64], bool); 8] = [
            (&[], false),
            (&[10, 20, 40, 80, 160], false),
            (&[80, 90, 95], false),
            (&[80, 90, 95, 99], true),
            (&[80, 90, 95, 100], false),
            (&[80, 90, 95, 100, 100, 100, 100], true),
            (&[80, 20, 20, 20], true),
            (&[80, 80, 80, 80, 100], false),
        ];
        for (rates, expected) in rows {
            let start = Instant::now();
            let mut link = LinkEstimator::new(WINDOW);
            for (round, rate) in (0..).zip(rates) {
                let sample = RateSample::new(mbit(*rate)).between(round * 1000, (round + 1) * 1000);
                link.observe_rate(&sample, start);
            }
            assert_eq!(link.is_pipe_full(), expected, "{rates:?}");
        }
    }

    /// A round lasts until the data in flight at its beginning is delivered, however many samples arrive in
    /// it.
    #[test]
    fn samples_of_one_round_count_once() {
        let start = Instant::now();
        let mut link = LinkEstimator::new(WINDOW);
        for delivered in 1..100 {
            link.observe_rate(&RateSample::new(mbit(10)).between(0, delivered), start);
        }
        assert!(!link.is_pipe_full());
        for delivered in [100, 200, 300] {
            let sample = RateSample::new(mbit(10)).between(delivered, delivered + 100);
            link.observe_rate(&sample.app_limited(true), start);
            assert!(!link.is_pipe_full(), "a sender with little to send fills no pipe");
        }
        for delivered in [100, 200, 300] {
            let sample = RateSample::new(mbit(10)).between(delivered, delivered + 100);
            link.observe_rate(&sample, start);
        }
        assert!(link.is_pipe_full());
    }
}
