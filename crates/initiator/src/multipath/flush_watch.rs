//! Whether a flush may take long, by what earlier ones have taken.
//!
//! LIO carries out SYNCHRONIZE CACHE in the thread that reads the connection. The data of writes that it has asked for
//! lies in the socket meanwhile, and after 3 seconds it ends the session for them. So a flush that may take long gets a
//! path of its own. A flush that takes longer than LIO's ping timer ends its session, since LIO does not read the answer to the
//! ping. Then another session is needed that has seen no reset: it proves that no write was lost.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

/// A flush that takes no longer, beside its round trip, keeps no write waiting for long.
const SHORT: Duration = Duration::from_millis(300);
/// So much is flushed in a short time by any medium, bytes, as far as nothing else was seen.
const UNPROVEN: u64 = 4 << 20;
/// How much more a flush may cover than one that took short.
const STEP: u64 = 2;
/// A flush with a longer estimate may exceed the target's ping timer. LIO's is 30 s, and the estimate is rough.
const VERY_LONG: Duration = Duration::from_secs(10);
/// The same limit in bytes while the rate of the medium is unknown: a memory card writes 6 MB/s.
const MUCH: u64 = 64 << 20;

/// Tracks how much the flushes of a disk cover and how long they take.
#[derive(Debug, Default)]
pub(super) struct FlushWatch {
    /// All that had been written when the last flush began, bytes.
    written: u64,
    /// The most that a flush has covered that took short, bytes.
    proven: u64,
    /// The last flush that covered anything took long.
    is_slow: bool,
    /// Rate of the last flush, bytes per second.
    rate: u64,
    /// Whether a flush waits for a second session.
    wants_session: bool,
    /// Notified when a path is added, or when no further session will be opened.
    news: Arc<Notify>,
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

    /// Whether a flush of `covered` bytes may take so long that the target ends its session.
    pub(super) fn may_be_very_long(&self, covered: u64) -> bool {
        let seconds = VERY_LONG.as_secs();
        let limit = match self.is_slow {
            true => self.rate.saturating_mul(seconds),
            false => self.proven.saturating_mul(seconds).max(MUCH),
        };
        covered > limit
    }

    pub(super) const fn wants_session(&self) -> bool {
        self.wants_session
    }

    pub(super) const fn set_wants_session(&mut self, wants: bool) {
        self.wants_session = wants;
    }

    /// Notified when a path is added, or when no further session will be opened.
    pub(super) fn news(&self) -> Arc<Notify> {
        Arc::clone(&self.news)
    }

    pub(super) fn path_was_added(&self) {
        self.news.notify_waiters();
    }

    /// No further session will be opened.
    pub(super) fn none_comes(&mut self) {
        self.wants_session = false;
        self.news.notify_waiters();
    }

    /// A flush has ended well that covered so many bytes, and took this time beyond its round trip. So much was written
    /// when it began.
    pub(super) fn ended(&mut self, written: u64, covered: u64, took: Duration) {
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
        let mut watch = FlushWatch::default();
        assert!(!watch.may_be_long(0) && !watch.may_be_long(4 * MIB) && watch.may_be_long(5 * MIB));
        watch.ended(16 * MIB, 16 * MIB, INSTANT);
        assert!(!watch.may_be_long(32 * MIB) && watch.may_be_long(33 * MIB));
        assert_eq!(watch.covered(20 * MIB), 4 * MIB);
        // A flush of nothing says nothing.
        watch.ended(16 * MIB, 0, Duration::from_secs(9));
        assert!(!watch.may_be_long(32 * MIB));
    }

    #[test]
    fn what_may_take_very_long_is_told_by_the_rate_of_the_last_flush() {
        let mut watch = FlushWatch::default();
        assert!(!watch.may_be_very_long(MUCH) && watch.may_be_very_long(MUCH + 1));
        watch.ended(2 * MIB, 2 * MIB, Duration::from_secs(1));
        assert!(!watch.may_be_very_long(20 * MIB) && watch.may_be_very_long(21 * MIB));
        watch.ended(1 << 30, 128 * MIB, INSTANT);
        assert!(!watch.may_be_very_long(1 << 30) && watch.may_be_very_long(2 << 30));
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
