//! Whether a flush may take long, by what earlier ones have taken.
//!
//! LIO carries out SYNCHRONIZE CACHE in the thread that reads the connection. The data of writes that it has asked for
//! lies in the socket meanwhile, and after 3 seconds it ends the session for them. So a flush that may take long gets a
//! path of its own.

use std::time::Duration;

/// A flush that takes no longer, beside its round trip, keeps no write waiting for long.
const SHORT: Duration = Duration::from_millis(300);
/// So much is flushed in a short time by any medium, bytes, as far as nothing else was seen.
const UNPROVEN: u64 = 4 << 20;
/// How much more a flush may cover than one that took short.
const STEP: u64 = 2;

/// Tracks how much the flushes of a disk cover and how long they take.
#[derive(Debug, Default)]
pub(super) struct FlushWatch {
    /// All that had been written when the last flush began, bytes.
    written: u64,
    /// The most that a flush has covered that took short, bytes.
    proven: u64,
    /// The last flush that covered anything took long.
    is_slow: bool,
}

impl FlushWatch {
    /// What a flush covers that begins when so much has been written in all, bytes.
    pub(super) const fn covered(&self, written: u64) -> u64 {
        written.saturating_sub(self.written)
    }

    /// Whether the last flush that covered anything took long.
    pub(super) const fn is_slow(&self) -> bool {
        self.is_slow
    }

    /// Whether a flush that covers so many bytes may take long.
    pub(super) fn may_be_long(&self, covered: u64) -> bool {
        covered > 0 && (self.is_slow || covered > self.proven.saturating_mul(STEP).max(UNPROVEN))
    }

    /// A flush has ended well that covered so many bytes, and took this time beyond its round trip. So much was written
    /// when it began.
    pub(super) fn ended(&mut self, written: u64, covered: u64, took: Duration) {
        self.written = self.written.max(written);
        if covered == 0 {
            return;
        }
        self.is_slow = took > SHORT;
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
        let mut watch = FlushWatch::default();
        assert!(!watch.may_be_long(0) && !watch.may_be_long(4 * MIB) && watch.may_be_long(5 * MIB));
        watch.ended(16 * MIB, 16 * MIB, INSTANT);
        assert!(!watch.may_be_long(32 * MIB) && watch.may_be_long(33 * MIB));
        assert_eq!(watch.covered(20 * MIB), 4 * MIB);
        // A flush of nothing says nothing.
        watch.ended(16 * MIB, 0, Duration::from_secs(9));
        assert!(!watch.may_be_long(32 * MIB));
    }

    /// A cache has taken the first bytes, and the medium behind it is slow.
    #[test]
    fn behind_a_slow_flush_each_may_take_long_until_one_is_short() {
        let mut watch = FlushWatch::default();
        watch.ended(6 * MIB, 6 * MIB, INSTANT);
        watch.ended(18 * MIB, 12 * MIB, 2 * SHORT);
        assert!(watch.is_slow() && watch.may_be_long(1) && !watch.may_be_long(0));
        watch.ended(19 * MIB, MIB, SHORT);
        assert!(!watch.is_slow() && !watch.may_be_long(12 * MIB) && watch.may_be_long(13 * MIB));
    }
}
