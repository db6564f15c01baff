//! How much one flush should cover, learnt from how long flushes take.
//!
//! A target may keep gigabytes in a cache before a slow medium. A flush of all that takes minutes, in which some targets
//! answer nothing, also not their own pings: LIO then ends the session, and what was not flushed is written again. So a
//! flush begins with little, and the next covers as much as comes onto the medium in a part of the target's patience.
//!
//! Why it is so: `docs/design/slow-targets.md`.

use std::time::Duration;

/// How long a flush should take beyond what one of nothing takes. Twice as much is exposed, so one may take twice as long.
const LONG: Duration = Duration::from_millis(750);
/// What the first flush covers, bytes: on a medium of 3 MB/s it takes 700 ms.
const FIRST: u64 = 2 << 20;
/// The same of a unit that says that it has no volatile cache, so that a flush has nothing to do.
const FIRST_WITHOUT_CACHE: u64 = 64 << 20;
/// No flush should cover less, bytes: each takes a round trip.
const MIN: u64 = 256 << 10;
/// How much more, or less, the next flush covers at most than the last.
const MAX_STEP: u64 = 8;
/// After a loss a flush covers this part of what it would have covered.
const PART_AFTER_LOSS: u64 = 4;
/// The time between two flushes, as a multiple of what one takes, and at least.
const PAUSE_FACTOR: u32 = 5;
const MIN_PAUSE: Duration = Duration::from_millis(500);

/// How much the next flush should cover, and when it should begin.
#[derive(Debug)]
pub(crate) struct FlushPace {
    bytes: u64,
    max_bytes: u64,
    pause: Duration,
    max_pause: Duration,
    /// What a flush of nothing takes: a round trip, and what a target does in any case.
    of_nothing: Option<Duration>,
}

impl FlushPace {
    /// At most `max_bytes` a flush, and `max_pause` between two; `has_cache` is whether the destination has a volatile cache.
    pub(crate) fn new(max_bytes: u64, max_pause: Duration, has_cache: bool) -> Self {
        let pause = MIN_PAUSE.min(max_pause);
        let first = if has_cache { FIRST } else { FIRST_WITHOUT_CACHE };
        Self { bytes: first.min(max_bytes), max_bytes, pause, max_pause, of_nothing: None }
    }

    /// How many bytes the next flush covers, where none is due before.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How long writes wait for a flush after the last one.
    pub(crate) const fn pause(&self) -> Duration {
        self.pause
    }

    /// A flush has ended well that covered so many bytes.
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

    /// A flush has told that writes are lost, which may be because it took too long.
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

    /// What flushes cover, of a medium of that rate in bytes a second behind a link of a round trip of 100 ms, after
    /// one of nothing.
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

    /// Little that is flushed because of the time says little of what is too much.
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

    /// The round trip of its flush is not known: nothing was flushed before the first write.
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
