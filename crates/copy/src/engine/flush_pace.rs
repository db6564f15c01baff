//! Decides how much data one flush should cover, from the time that earlier flushes took.
//!
//! A target may hold gigabytes in a cache in front of a slow medium. A flush of all that takes minutes,
//! during which some targets respond to nothing, not even to their own pings. LIO then closes the session,
//! and all unflushed data is written again. So the first flush covers little, and each later one covers as
//! much as reaches the medium in a part of the target's time limit.
//!
//! Design: `docs/design/slow-targets.md`.

use std::time::Duration;

/// Time that a flush should take beyond the time of an empty flush. When a flush begins, up to twice the
/// planned bytes may be unflushed, so it may take twice as long.
const LONG: Duration = Duration::from_millis(750);
/// Bytes that the first flush covers: on a medium of 3 MB/s it takes 700 ms.
const FIRST: u64 = 2 << 20;
/// Bytes that the first flush covers on a unit that reports no volatile cache, whose flush has nothing to do.
const FIRST_WITHOUT_CACHE: u64 = 64 << 20;
/// Smallest coverage of a flush, bytes: each flush takes a round trip.
const MIN: u64 = 256 << 10;
/// Largest factor between the coverages of two consecutive flushes.
const MAX_STEP: u64 = 8;
/// Divisor of the coverage after a loss.
const PART_AFTER_LOSS: u64 = 4;
/// Time between two flushes, as a multiple of the duration of the last flush.
const PAUSE_FACTOR: u32 = 5;
/// Shortest time between two flushes.
const MIN_PAUSE: Duration = Duration::from_millis(500);

/// How much the next flush should cover, and when it should begin.
#[derive(Debug)]
pub(crate) struct FlushPace {
    bytes: u64,
    max_bytes: u64,
    pause: Duration,
    max_pause: Duration,
    /// Time of an empty flush: a round trip, and the fixed cost of the target.
    of_nothing: Option<Duration>,
}

impl FlushPace {
    /// Creates the pace of at most `max_bytes` per flush, and at most `max_pause` between two flushes.
    /// `has_cache`: whether the destination has a volatile cache.
    pub(crate) fn new(max_bytes: u64, max_pause: Duration, has_cache: bool) -> Self {
        let pause = MIN_PAUSE.min(max_pause);
        let first = if has_cache { FIRST } else { FIRST_WITHOUT_CACHE };
        Self { bytes: first.min(max_bytes), max_bytes, pause, max_pause, of_nothing: None }
    }

    /// Returns the number of unflushed bytes at which the next flush is due, unless the pause has passed
    /// before.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the longest time that written data waits for the next flush to begin.
    pub(crate) const fn pause(&self) -> Duration {
        self.pause
    }

    /// Adjusts coverage and pause after a successful flush that covered `covered` bytes.
    pub(crate) fn ended(&mut self, covered: u64, took: Duration) {
        self.pause = took.saturating_mul(PAUSE_FACTOR).max(MIN_PAUSE).min(self.max_pause);
        if covered == 0 {
            self.of_nothing = Some(self.of_nothing.map_or(took, |shortest| shortest.min(took)));
            return;
        }
        let own = took.saturating_sub(self.of_nothing.unwrap_or_default());
        let fits = u128::from(covered) * LONG.as_nanos() / own.as_nanos().max(1);
        let fits = u64::try_from(fits).unwrap_or(u64::MAX);
        let fits = fits.clamp(self.bytes / MAX_STEP, self.bytes.saturating_mul(MAX_STEP));
        let least = if own > LONG { MIN } else { self.bytes };
        self.bytes = fits.max(least).min(self.max_bytes);
    }

    /// Reduces the coverage after a flush that reported lost writes, perhaps because it took too long.
    pub(crate) fn lost(&mut self) {
        self.bytes = (self.bytes / PART_AFTER_LOSS).max(MIN).min(self.max_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 1 << 30;
    const MINUTE: Duration = Duration::from_secs(60);
    const ROUND_TRIP: Duration = Duration::from_millis(100);

    /// Returns the coverages of flushes over a link with a round trip of 100 ms, on a medium that takes
    /// `rate` bytes a second, after an empty flush.
    fn covered(rate: f64) -> Vec<u64> {
        let mut pace = FlushPace::new(MAX, MINUTE, true);
        pace.ended(0, ROUND_TRIP);
        let flush = |_| {
            let bytes = pace.bytes();
            pace.ended(bytes, ROUND_TRIP + Duration::from_secs_f64(bytes as f64 / rate));
            bytes
        };
        (0..8).map(flush).collect()
    }

    #[test]
    fn on_a_fast_medium_flushes_soon_cover_all_that_one_may() {
        assert_eq!(covered(8e9)[..4], [FIRST, 16 << 20, 128 << 20, MAX]);
    }

    #[test]
    fn on_a_slow_medium_no_flush_takes_long() {
        for rate in [0.8e6, 3e6, 20e6, 100e6] {
            for bytes in covered(rate).split_off(2) {
                let seconds = bytes as f64 / rate;
                assert!((0.4..1.1).contains(&seconds), "{rate} bytes/s: {bytes} take {seconds} s");
            }
        }
    }

    #[test]
    fn what_takes_long_or_loses_writes_covers_less_the_next_time() {
        let mut pace = FlushPace::new(MAX, MINUTE, true);
        pace.ended(0, Duration::ZERO);
        pace.ended(FIRST, 2 * LONG);
        assert_eq!(pace.bytes(), FIRST / 2);
        pace.lost();
        assert_eq!(pace.bytes(), MIN);
        pace.ended(MIN, MINUTE);
        assert_eq!(pace.bytes(), MIN);
        assert_eq!(pace.pause(), MINUTE);
    }

    /// A flush that was due by time and covers little does not show how much a flush can cover, so the
    /// coverage stays.
    #[test]
    fn a_short_flush_of_little_takes_nothing_back() {
        let mut pace = FlushPace::new(MAX, MINUTE, true);
        pace.ended(0, ROUND_TRIP);
        for _ in 0..4 {
            pace.ended(pace.bytes(), ROUND_TRIP);
        }
        assert_eq!(pace.bytes(), MAX);
        pace.ended(4096, ROUND_TRIP + LONG);
        assert_eq!(pace.bytes(), MAX);
    }

    /// The time of an empty flush is unknown, because nothing was flushed before the first write. Round trips
    /// must not reduce the coverage nevertheless.
    #[test]
    fn a_unit_without_a_cache_is_not_held_back_by_its_round_trips() {
        let mut pace = FlushPace::new(MAX, MINUTE, false);
        for _ in 0..4 {
            pace.ended(1 << 20, 2 * ROUND_TRIP);
            assert!(pace.bytes() >= FIRST_WITHOUT_CACHE);
        }
        pace.ended(FIRST_WITHOUT_CACHE, MINUTE);
        assert!(pace.bytes() < FIRST_WITHOUT_CACHE, "it has one after all");
    }

    #[test]
    fn the_callers_limits_hold() {
        let mut pace = FlushPace::new(4096, Duration::ZERO, true);
        pace.ended(4096, Duration::ZERO);
        pace.ended(4096, MINUTE);
        assert_eq!((pace.bytes(), pace.pause()), (4096, Duration::ZERO));
        pace.lost();
        assert_eq!(pace.bytes(), 4096);
    }
}
