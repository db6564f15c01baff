//! Limits the data in flight to what a link delivers within two round trips and a wait.
//!
//! ```text
//! bytes = rate x (2 round trips + wait)
//! ```
//! | for | the wait is | because |
//! |---|---|---|
//! | requests on one path of several | the time of an answer beyond the round trips; with the round trips 750 ms at most | one request is in flight and one waits for it; the end of a copy does not wait for a slow path |
//! | write data | 750 ms; with the round trips half of the target's time limit at most | a target closes a connection whose data is late (LIO: 3 seconds), and the real rate may be half of the estimate |
//!
//! Design: `docs/design/limits.md`.

use std::time::{Duration, Instant};

use crate::drain::DrainLimit;
use crate::link::estimator::{EstimatorWindow, LinkEstimator, RateSample};
use crate::link::tcp_info::TcpInfo;
use iscsi_rate::Rate;

/// Factor by which the data in flight may grow while the rate still rises, because TCP doubles its window in
/// each round trip (draft-ietf-ccwg-bbr, BBR.StartupCwndGain).
pub const STARTUP_GAIN: u64 = 2;
/// Number of round trips whose bytes may be in flight: of a request in flight, and of the one that waits for it; of write
/// data, those of the target's request (R2T) and of the data.
const ROUND_TRIPS: u32 = 2;
/// Longest time that requests or write data may wait beyond their round trips.
const MAX_WAIT: Duration = Duration::from_millis(750);
/// How long targets wait for data that they requested (LIO: 3 seconds).
const TARGET_PATIENCE: Duration = Duration::from_secs(3);
/// Smallest limit, bytes; a smaller one has no benefit. A write that is alone on the connection is sent
/// whatever its length.
const MIN_WRITE_LIMIT: u64 = 32 << 10;
/// Limit on a link that has not delivered [`PROOF`] bytes yet. The initial congestion window says nothing
/// about the link: at 64 kbit/s it suggests a far higher rate.
const UNPROVEN_WRITE_LIMIT: u64 = 64 << 10;
/// Bytes that a link must have delivered before its congestion window counts: ten segments, the initial
/// window (RFC 6928).
const PROOF: u64 = 14 << 10;
/// Below this round-trip time a link need not have delivered [`PROOF`] bytes: either it delivers the initial
/// window soon, or its round trip becomes longer than this.
const LOCAL: Duration = Duration::from_millis(2);
/// Ratio of BBR's window to what the link holds (draft-ietf-ccwg-bbr, BBR.DefaultCwndGain).
const BBR_WINDOW_GAIN: u64 = 2;

/// Returns the bytes that may be in flight on a link of this rate and round-trip time, if they may wait for
/// `wait` beyond the round trips.
///
/// ```
/// use std::time::Duration;
/// use iscsi_tuner::{inflight_limit, wait_for_write_data};
///
/// let round_trip = Duration::from_millis(100);
/// let wait = wait_for_write_data(round_trip);
/// assert_eq!(inflight_limit("80mbit".parse()?, round_trip, wait), 9_500_000);
/// # Ok::<(), iscsi_tuner::RateError>(())
/// ```
#[must_use]
pub fn inflight_limit(rate: Rate, round_trip: Duration, wait: Duration) -> u64 {
    rate.bytes_in(round_trip.saturating_mul(ROUND_TRIPS).saturating_add(wait))
}

/// Returns how long requests may wait on a path beyond their round trips, where answers take `answer_time` on
/// average. A path with slow answers may take more requests; otherwise it would get fewer and fewer.
#[must_use]
pub fn wait_for_answers(round_trip: Duration, answer_time: Duration) -> Duration {
    let trips = round_trip.saturating_mul(ROUND_TRIPS);
    let answers = answer_time.saturating_mul(ROUND_TRIPS);
    answers.saturating_sub(trips).min(MAX_WAIT.saturating_sub(trips))
}

/// Returns how long write data may wait beyond its round trips: half of the target's time limit, less two
/// round trips, and at most 750 ms. Only half is used, because slow start notices a lower rate one round trip
/// late: the real rate may be half of the estimate, and all data then takes twice as long. The target's time
/// limit runs from its R2T, one round trip after the command; that leaves a round trip for a lost segment.
#[must_use]
pub fn wait_for_write_data(round_trip: Duration) -> Duration {
    let trips = round_trip.saturating_mul(ROUND_TRIPS);
    (TARGET_PATIENCE / 2).saturating_sub(trips).min(MAX_WAIT)
}

/// Limits the write data of a connection in flight to what reaches the target in time.
///
/// A target requests the data of all writes that it has received. On a link of known rate the planned queue
/// would be a sufficient limit. Otherwise TCP finds the rate, and the limit follows it: a congestion window
/// is delivered in each round trip. That is true while the window grows, after a pause or a timeout, and
/// where a queue makes the round trip longer. So only the latest reading counts.
///
/// A fast, short link is not limited, because a write is in flight for little more than its round trips.
/// There is also no limit where it would exceed the largest number of bytes in flight. Several such
/// connections then share equally, whatever their current round-trip times are.
#[derive(Clone, Copy, Debug)]
pub struct WriteLimit {
    link: LinkEstimator,
    is_proven: bool,
    drain: DrainLimit,
}

impl Default for WriteLimit {
    fn default() -> Self {
        Self {
            link: LinkEstimator::new(EstimatorWindow::CONGESTION_WINDOW),
            is_proven: false,
            drain: DrainLimit::default(),
        }
    }
}

impl WriteLimit {
    /// Takes a reading of the connection. A reading without congestion window or round-trip time removes the
    /// limit by the link.
    pub fn observe(&mut self, info: &TcpInfo, now: Instant) {
        let round_trip = info.min_rtt.or(info.smoothed_rtt);
        let (Some(rate), Some(round_trip)) = (info.window_rate(), round_trip) else {
            self.link = Self::default().link;
            return;
        };
        self.is_proven |=
            round_trip < LOCAL || info.bytes_acknowledged.is_none_or(|bytes| bytes >= PROOF);
        self.link.observe_round_trip(round_trip, now);
        self.link.observe_rate(&RateSample::new(rate), now);
    }

    /// Takes the write data outstanding, and the write data that the target has completed since the connection
    /// began, both in bytes.
    pub fn observe_target(&mut self, outstanding: u64, concluded: u64, now: Instant) {
        let round_trip = self.link.round_trip().unwrap_or_default();
        self.drain.observe(outstanding, concluded, round_trip, now);
    }

    /// Lowers the limit to a share of the limit that other connections to the same target have measured: see
    /// [`DrainLimit::share`].
    pub const fn share(&mut self, others: u64) {
        self.drain.share(others);
    }

    /// Returns the limit by the target alone if the target is slow, otherwise `None`: see
    /// [`DrainLimit::of_slow_target`].
    #[must_use]
    pub const fn of_slow_target(&self) -> Option<u64> {
        self.drain.of_slow_target()
    }

    /// Returns the limit, bytes; `None` where the limit is not below `max`, the largest number of bytes in
    /// flight. `copes_with_loss` is whether the congestion control is BBR, whose window is twice what the link
    /// holds.
    #[must_use]
    pub fn bytes(&self, copes_with_loss: bool, max: u64) -> Option<u64> {
        let of_link = self.of_link(copes_with_loss).unwrap_or(u64::MAX);
        let bytes = of_link.min(self.drain.bytes()).max(MIN_WRITE_LIMIT);
        Some(bytes).filter(|limit| *limit < max)
    }

    /// Returns the limit by the link, bytes; `None` if the kernel has not reported the congestion window.
    fn of_link(&self, copes_with_loss: bool) -> Option<u64> {
        let (rate, round_trip) = (self.link.rate()?, self.link.round_trip()?);
        let bytes = inflight_limit(rate, round_trip, wait_for_write_data(round_trip));
        let bytes = if copes_with_loss { bytes / BBR_WINDOW_GAIN } else { bytes };
        Some(if self.is_proven { bytes } else { bytes.min(UNPROVEN_WRITE_LIMIT) })
    }

    /// Returns the best length of a write, bytes, a multiple of 4 KiB: one write is on the link while another
    /// one is answered. Returns `None` where the link needs no limit. The arguments are those of
    /// [`bytes`](Self::bytes).
    #[must_use]
    pub fn longest_write(&self, copes_with_loss: bool, max: u64) -> Option<u64> {
        const PAGE: u64 = 4 << 10;
        let limit = self.of_link(copes_with_loss).filter(|limit| *limit < max)?;
        Some((limit / 2 / PAGE * PAGE).max(MIN_WRITE_LIMIT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(window: u32, rtt_millis: u64, min_rtt_millis: u64) -> TcpInfo {
        TcpInfo {
            congestion_window: Some(window),
            send_mss: Some(1448),
            smoothed_rtt: Some(Duration::from_millis(rtt_millis)),
            min_rtt: Some(Duration::from_millis(min_rtt_millis)),
            ..TcpInfo::default()
        }
    }

    fn write_limit(info: &TcpInfo, copes_with_loss: bool, max: u64) -> Option<u64> {
        let mut limit = WriteLimit::default();
        limit.observe(info, Instant::now());
        limit.of_link(copes_with_loss).filter(|limit| *limit < max)
    }

    /// Each line of the table has four times in milliseconds: the round trip, the mean answer time, the
    /// expected wait for answers, and the expected wait for write data.
    #[test]
    fn the_wait_is_what_answers_take_or_what_a_target_puts_up_with() {
        let millis = Duration::from_millis;
        for (round_trip, answer_time, for_answers, for_data) in [
            (0, 0, 0, 750),
            (10, 10, 0, 750),
            (10, 100, 180, 750),
            (10, 1000, 730, 750),
            (100, 1000, 550, 750),
            (375, 1000, 0, 750),
            (450, 1000, 0, 600),
            (800, 1000, 0, 0),
        ] {
            let answers = wait_for_answers(millis(round_trip), millis(answer_time));
            let data = wait_for_write_data(millis(round_trip));
            assert_eq!((answers, data), (millis(for_answers), millis(for_data)), "{round_trip} ms");
        }
        assert_eq!(wait_for_answers(Duration::MAX, Duration::MAX), Duration::ZERO);
        assert_eq!(inflight_limit(Rate::MAX, Duration::MAX, Duration::MAX), u64::MAX);
    }

    #[test]
    fn the_latest_window_alone_counts() {
        const HOUR: u64 = 3_600_000;
        let start = Instant::now();
        let mut limit = WriteLimit::default();
        // Each line has the time of a reading, the congestion window in segments, the round trip, and the
        // smallest round trip. The times are in milliseconds.
        for (at, window, rtt, min_rtt) in [
            (0, 100, 100, 100),
            (50, 4000, 100, 100),
            // After a timeout the kernel has a smaller window, and the limit follows immediately.
            (60, 100, 100, 100),
            (60, 200, 150, 120),
            (100, 4000, 20, 20),
            // The kernel lowers the window during a pause, and the limit follows immediately.
            (HOUR, 10, 100, 100),
            (HOUR + 1, 100, 100, 100),
        ] {
            let info = info(window, rtt, min_rtt);
            limit.observe(&info, start + Duration::from_millis(at));
            let alone = write_limit(&info, false, u64::MAX);
            assert_eq!(limit.of_link(false), alone, "{window} segments at {at} ms");
        }
        limit.observe(&TcpInfo::default(), start + Duration::from_millis(HOUR + 2));
        assert_eq!(limit.of_link(false), None);
    }

    /// A write longer than its first burst takes two round trips, and the plan keeps half as much again in
    /// flight: three congestion windows. The limit must allow that during slow start.
    #[test]
    fn it_never_holds_up_slow_start() {
        for rtt in [4, 20, 100, 200] {
            for doublings in 0..12 {
                let window = 10 << doublings;
                let limit = write_limit(&info(window, rtt, rtt), false, u64::MAX).unwrap();
                assert!(limit >= 3 * u64::from(window) * 1448, "{rtt} ms, {window}: {limit}");
            }
        }
    }

    /// A queue before the link makes window and round trip grow by the same factor, so the limit stays.
    #[test]
    fn a_queue_does_not_raise_it() {
        let empty = write_limit(&info(10, 100, 100), false, u64::MAX).unwrap();
        assert_eq!(write_limit(&info(100, 1000, 100), false, u64::MAX), Some(empty));
    }

    #[test]
    fn on_a_slow_link_it_is_what_the_link_brings_in_time() {
        // 5 Mbit/s: 43 segments in 100 ms.
        let limit = write_limit(&info(43, 100, 100), false, u64::MAX).unwrap();
        let millis = limit * 8 / 5_000;
        assert!((500..3000).contains(&millis), "{limit}");
    }

    /// The data arrives in time even at half of the estimated rate and with a lost segment.
    #[test]
    fn on_a_far_link_it_is_in_time_for_the_target() {
        for rtt in [100, 200, 375, 450, 600] {
            let info = info(4000, rtt, rtt);
            let rate = info.window_rate().unwrap().bits_per_second() as f64 / 8.0;
            let limit = write_limit(&info, false, u64::MAX).unwrap() as f64;
            let round_trip = rtt as f64 / 1e3;
            assert!(limit >= rate * 2.0 * round_trip, "{rtt} ms: two round trips fill the link");
            let awaited = 2.0 * limit / rate - round_trip;
            assert!(awaited + round_trip < 3.01, "{rtt} ms: {awaited} s");
        }
    }

    #[test]
    fn what_cannot_be_reached_is_no_limit() {
        let mut limit = WriteLimit::default();
        limit.observe(&info(43, 100, 100), Instant::now());
        let bytes = limit.bytes(false, u64::MAX).unwrap();
        assert_eq!(limit.bytes(false, bytes), None);
        assert_eq!(limit.bytes(false, bytes + 1), Some(bytes));
    }

    /// At 64 kbit/s and 100 ms, requested data arrives in time, before and after the link is measured.
    #[test]
    fn the_slowest_link_brings_in_time_what_is_asked_for() {
        let mut limit = WriteLimit::default();
        let mut first = info(10, 100, 100);
        first.bytes_acknowledged = Some(600);
        limit.observe(&first, Instant::now());
        assert_eq!(limit.bytes(false, u64::MAX), Some(UNPROVEN_WRITE_LIMIT));
        // Ten segments queue before the link.
        let mut later = info(10, 1800, 100);
        later.bytes_acknowledged = Some(PROOF);
        limit.observe(&later, Instant::now());
        assert_eq!(limit.bytes(false, u64::MAX), Some(MIN_WRITE_LIMIT));
        assert_eq!(limit.longest_write(false, u64::MAX), Some(32 << 10));
        let mut fast = WriteLimit::default();
        fast.observe(&info(4000, 100, 100), Instant::now());
        assert!(fast.longest_write(false, u64::MAX) > Some(16 << 20));
        assert_eq!(fast.longest_write(false, 16 << 20), None);
    }

    /// A slow target limits the outstanding data in the same way as a slow link.
    #[test]
    fn a_slow_target_limits_a_fast_link() {
        let mut limit = WriteLimit::default();
        let start = Instant::now();
        for tick in 0..200u32 {
            let now = start + Duration::from_millis(50) * tick;
            limit.observe(&info(4000, 1, 1), now);
            let outstanding = limit.bytes(false, u64::MAX).unwrap();
            limit.observe_target(outstanding, u64::from(tick) * 50_000, now);
        }
        let bytes = limit.bytes(false, u64::MAX).unwrap();
        assert!((200_000..900_000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn of_a_window_twice_as_large_half_counts() {
        let [doubled, plain] = [true, false]
            .map(|doubles| write_limit(&info(4000, 100, 100), doubles, u64::MAX).unwrap());
        assert_eq!(doubled, plain / 2);
    }

    #[test]
    fn without_a_word_of_the_kernel_there_is_none() {
        assert_eq!(write_limit(&TcpInfo::default(), false, u64::MAX), None);
        assert_eq!(write_limit(&info(10, 0, 0), false, u64::MAX), None);
    }
}
