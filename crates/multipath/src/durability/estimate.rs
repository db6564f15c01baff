//! Estimates whether a flush may take long, by earlier flushes.

use std::time::Duration;

/// Maximum duration of a short flush, without its round trip. A short flush keeps no write waiting for long.
const SHORT: Duration = Duration::from_millis(300);
/// Number of bytes that any medium is expected to flush in a short time, before a longer flush was measured.
const UNPROVEN: u64 = 4 << 20;
/// Factor by which a flush may exceed the bytes of an earlier short flush and still count as short.
const STEP: u64 = 2;
/// A flush with a longer estimate may exceed the ping timer of the target. The timer of LIO is 30 s; this limit
/// is lower because the estimate is rough.
const VERY_LONG: Duration = Duration::from_secs(10);
/// Number of bytes whose flush may exceed [`VERY_LONG`] while the rate of the medium is unknown: a memory card
/// writes 6 MB/s.
const MUCH: u64 = 64 << 20;

/// Estimates the duration of a flush, from the bytes that earlier flushes covered and their durations.
///
/// LIO executes SYNCHRONIZE CACHE in the thread that reads the connection. Meanwhile the data of writes that
/// it has requested stay in the socket, and after 3 seconds LIO ends the session because of them. So a flush
/// that may take long gets a path without other requests. If a flush takes longer than LIO's ping timer, LIO
/// ends the session of the flush, because it does not read the response to its ping. Then another session
/// that has received no report of a reset must confirm that no write was lost.
#[derive(Clone, Debug, Default)]
pub struct FlushEstimate {
    /// Total bytes written when the last flush began.
    written: u64,
    /// Maximum bytes that a short flush has covered.
    proven: u64,
    /// Whether the last flush that covered any bytes took long.
    is_slow: bool,
    /// Rate of the last flush, in bytes per second.
    rate: u64,
}

impl FlushEstimate {
    /// Returns the number of bytes that a flush covers if it begins now. `written` is the total of all writes
    /// so far, in bytes.
    pub const fn covered(&self, written: u64) -> u64 {
        written.saturating_sub(self.written)
    }

    /// Returns whether the last flush that covered any bytes took long.
    pub const fn is_slow(&self) -> bool {
        self.is_slow
    }

    /// Returns whether a flush of `covered` bytes may take long.
    pub fn may_be_long(&self, covered: u64) -> bool {
        covered > 0 && (self.is_slow || covered > self.proven.saturating_mul(STEP).max(UNPROVEN))
    }

    /// Returns whether a flush of `covered` bytes may take so long that the target ends its session.
    pub fn may_be_very_long(&self, covered: u64) -> bool {
        let seconds = VERY_LONG.as_secs();
        let limit = match self.is_slow {
            true => self.rate.saturating_mul(seconds),
            false => self.proven.saturating_mul(seconds).max(MUCH),
        };
        covered > limit
    }

    /// Records a flush of `covered` bytes that ended with GOOD and took `took` beyond its round trip. `written`
    /// is the total of all writes when it began, in bytes.
    pub fn on_end(&mut self, written: u64, covered: u64, took: Duration) {
        self.written = self.written.max(written);
        if covered == 0 {
            return;
        }
        self.is_slow = took > SHORT;
        self.rate =
            u64::try_from(u128::from(covered) * 1000 / took.as_millis().max(1)).unwrap_or(u64::MAX);
        self.proven = match self.is_slow {
            true => self.proven.min(covered / STEP),
            false => self.proven.max(covered),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const INSTANT: Duration = Duration::from_millis(1);

    #[test]
    fn what_no_flush_has_covered_in_a_short_time_may_take_long() {
        let mut estimate = FlushEstimate::default();
        assert!(!estimate.may_be_long(0) && !estimate.may_be_long(4 * MIB));
        assert!(estimate.may_be_long(5 * MIB));
        estimate.on_end(16 * MIB, 16 * MIB, INSTANT);
        assert!(!estimate.may_be_long(32 * MIB) && estimate.may_be_long(33 * MIB));
        assert_eq!(estimate.covered(20 * MIB), 4 * MIB);
        // A flush that covers no bytes does not change the estimate.
        estimate.on_end(16 * MIB, 0, Duration::from_secs(9));
        assert!(!estimate.may_be_long(32 * MIB));
    }

    #[test]
    fn the_rate_of_the_last_flush_says_what_may_take_very_long() {
        let mut estimate = FlushEstimate::default();
        assert!(!estimate.may_be_very_long(MUCH) && estimate.may_be_very_long(MUCH + 1));
        estimate.on_end(2 * MIB, 2 * MIB, Duration::from_secs(1));
        assert!(!estimate.may_be_very_long(20 * MIB) && estimate.may_be_very_long(21 * MIB));
        estimate.on_end(1 << 30, 128 * MIB, INSTANT);
        assert!(!estimate.may_be_very_long(1 << 30) && estimate.may_be_very_long(2 << 30));
    }

    /// After a slow flush, each flush may take long until one is short: a cache absorbs the first bytes
    /// quickly, although the medium is slow.
    #[test]
    fn behind_a_slow_flush_each_may_take_long_until_one_is_short() {
        let mut estimate = FlushEstimate::default();
        estimate.on_end(6 * MIB, 6 * MIB, INSTANT);
        estimate.on_end(18 * MIB, 12 * MIB, 2 * SHORT);
        assert!(estimate.is_slow() && estimate.may_be_long(1) && !estimate.may_be_long(0));
        estimate.on_end(19 * MIB, MIB, SHORT);
        assert!(!estimate.is_slow() && !estimate.may_be_long(12 * MIB));
        assert!(estimate.may_be_long(13 * MIB));
    }
}
