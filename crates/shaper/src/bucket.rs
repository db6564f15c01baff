//! A token bucket: decides when requests may pass at a rate.

use std::time::{Duration, Instant};

use crate::rate_limit::RateLimit;

/// Tokens per byte. A token is 10^-9 bit, so a rate in bits per second brings a whole number of tokens in each
/// nanosecond, and nothing is ever rounded.
const TOKENS_A_BYTE: i128 = 8_000_000_000;

/// Tokens of a class for its guaranteed rate, or for its ceil. They come with time, up to a depth, and each byte
/// that passes consumes some.
///
/// If there is no debt, a request of any length may pass. It may leave a debt, and later requests wait until the
/// debt is paid. So in any period, at most rate x period + depth + one request passes, and in addition the tokens
/// that [`fill_beyond`](Self::fill_beyond) has kept beyond the depth.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    rate: RateLimit,
    /// Tokens of the full bucket.
    full: i128,
    /// Tokens in the bucket; negative for a debt.
    tokens: i128,
    /// Time up to which `tokens` includes the tokens that have come.
    counted: Instant,
    /// Earliest time at which a request may pass if no other one passes before; `None` for never. It is
    /// computed from the debt and the rate, so it stays the same while tokens are added.
    ready: Option<Instant>,
}

impl Bucket {
    /// Creates a full bucket of `depth` bytes.
    pub(crate) fn new(rate: RateLimit, depth: u64, now: Instant) -> Self {
        let full = tokens(depth);
        let mut bucket = Self { rate, full, tokens: full, counted: now, ready: None };
        bucket.foresee();
        bucket
    }

    /// Adds the tokens that have come until `now`, up to the depth.
    pub(crate) fn fill(&mut self, now: Instant) {
        self.fill_beyond(now, RateLimit::Zero);
    }

    /// Adds the tokens that have come until `now`, up to the depth. Tokens that came at the rate `rate` are
    /// kept beyond the depth as well, because the class could not spend them.
    pub(crate) fn fill_beyond(&mut self, now: Instant, rate: RateLimit) {
        let time = now.saturating_duration_since(self.counted);
        if time.is_zero() {
            return;
        }
        self.counted = now;
        let after = |rate| self.tokens.saturating_add(gain(rate, time));
        let within =
            if self.tokens < self.full { after(self.rate).min(self.full) } else { self.tokens };
        self.tokens = within.max(after(rate));
    }

    /// Returns whether a request may pass at `now`, or at the time of the last [`fill`](Self::fill) if that is
    /// later.
    pub(crate) fn is_ready(&self, now: Instant) -> bool {
        self.ready.is_some_and(|ready| ready <= now.max(self.counted))
    }

    /// Returns when a request may pass, which may be in the past; `None` for never.
    pub(crate) const fn ready_at(&self) -> Option<Instant> {
        self.ready
    }

    /// Computes `ready` again. Call this after a change of the tokens other than by [`fill`](Self::fill).
    fn foresee(&mut self) {
        self.ready = match self.rate {
            RateLimit::Zero => None,
            RateLimit::Limited(rate) if self.tokens < 0 => {
                let time = self.tokens.unsigned_abs().div_ceil(rate.bits_per_second().into());
                let time = u64::try_from(time).map(Duration::from_nanos).ok();
                time.and_then(|time| self.counted.checked_add(time))
            }
            RateLimit::Limited(_) | RateLimit::Unlimited => Some(self.counted),
        };
    }

    /// Takes the tokens of a request of `bytes` bytes. With [`RateLimit::Zero`] or [`RateLimit::Unlimited`], no
    /// tokens are counted.
    pub(crate) fn charge(&mut self, bytes: u64) {
        if matches!(self.rate, RateLimit::Limited(_)) {
            self.tokens = self.tokens.saturating_sub(tokens(bytes));
            self.foresee();
        }
    }

    /// Puts back the tokens of `bytes` bytes that were charged and have not passed.
    pub(crate) fn refund(&mut self, bytes: u64) {
        if matches!(self.rate, RateLimit::Limited(_)) && self.tokens < self.full {
            self.tokens = self.tokens.saturating_add(tokens(bytes)).min(self.full);
            self.foresee();
        }
    }

    /// Sets another rate and depth. Saved tokens are kept up to the new depth. If a lower rate takes the place of
    /// a higher one, a debt is reduced in the same proportion, so that paying it takes no longer than before. A
    /// bucket that was unlimited has no debt and becomes full.
    pub(crate) fn change(&mut self, rate: RateLimit, depth: u64, now: Instant) {
        self.fill(now);
        let was = std::mem::replace(&mut self.rate, rate);
        self.full = tokens(depth);
        self.tokens = match (was, rate) {
            (RateLimit::Unlimited, _) => self.full,
            (RateLimit::Limited(old), RateLimit::Limited(new)) if self.tokens < 0 && new < old => {
                let (old, new) = (old.bits_per_second().into(), new.bits_per_second().into());
                scaled(self.tokens, new, old)
            }
            _ => self.tokens.min(self.full),
        };
        self.foresee();
    }
}

/// Returns `tokens` x `new` / `old`.
fn scaled(tokens: i128, new: i128, old: i128) -> i128 {
    tokens.checked_mul(new).map_or_else(|| tokens / old * new, |product| product / old)
}

/// Returns the tokens that come in a time.
fn gain(rate: RateLimit, time: Duration) -> i128 {
    let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let rate = rate.bits_per_second().unwrap_or(0);
    // The product of the highest rate and the longest time is within the range of `i128`.
    i128::try_from(u128::from(time) * u128::from(rate)).unwrap_or(i128::MAX)
}

fn tokens(bytes: u64) -> i128 {
    i128::from(bytes) * TOKENS_A_BYTE
}

#[cfg(test)]
mod tests {
    use iscsi_rate::Rate;

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "all times are counted from it")]
    fn start() -> Instant {
        Instant::now()
    }

    fn rate(text: &str) -> RateLimit {
        text.parse().unwrap()
    }

    /// At 1 kbit/s a millionth of a bit comes each nanosecond. Tokens that are counted at irregular intervals are
    /// not rounded.
    #[test]
    fn nothing_is_rounded_however_often_it_is_counted() {
        let begin = start();
        let mut bucket = Bucket::new(rate("1kbit"), 0, begin);
        bucket.charge(125 * 3600);
        let mut now = begin;
        while now < begin + Duration::from_secs(3600) {
            assert!(!bucket.is_ready(bucket.counted));
            now += Duration::from_nanos(1_234_567);
            bucket.fill(now.min(begin + Duration::from_secs(3600)));
        }
        assert!(bucket.is_ready(bucket.counted));
        assert_eq!(bucket.tokens, 0);
    }

    #[test]
    fn very_small_and_very_large_numbers_are_counted() {
        let begin = start();
        let mut bucket = Bucket::new(Rate::MAX.into(), u64::MAX, begin);
        for _ in 0..4 {
            bucket.charge(u64::MAX);
        }
        let ready = bucket.ready_at().unwrap();
        let seconds = (ready - begin).as_secs();
        // The time of 3 x 2^64 bytes at 1 Tbit/s: the full bucket pays for one of the four requests.
        assert_eq!(seconds, 442_721_857);
        bucket.fill(ready);
        assert!(bucket.is_ready(bucket.counted));
        bucket.fill(begin);
        assert!(bucket.is_ready(bucket.counted), "time does not go back");

        let mut bucket = Bucket::new(Rate::MIN.into(), 0, begin);
        bucket.charge(1);
        assert_eq!(bucket.ready_at(), Some(begin + Duration::from_millis(8)));
        bucket.charge(u64::MAX);
        assert_eq!(bucket.ready_at(), None, "in more than 500 years");
    }

    #[test]
    fn tokens_keep_within_the_depth() {
        let begin = start();
        let mut bucket = Bucket::new(rate("8mbit"), 1000, begin);
        bucket.fill(begin + Duration::from_secs(9));
        bucket.charge(1001);
        assert!(!bucket.is_ready(bucket.counted));
        assert_eq!(
            bucket.ready_at(),
            Some(begin + Duration::from_secs(9) + Duration::from_micros(1))
        );
        bucket.refund(5000);
        assert_eq!(bucket.tokens, tokens(1000));
    }

    #[test]
    fn what_could_not_be_spent_stays_beyond_the_depth() {
        let begin = start();
        let mut bucket = Bucket::new(rate("8mbit"), 0, begin);
        let second = Duration::from_secs(1);
        bucket.fill_beyond(begin + second, rate("8mbit"));
        bucket.fill(begin + 2 * second);
        assert_eq!(bucket.tokens, tokens(1_000_000));
        bucket.refund(1);
        assert_eq!(bucket.tokens, tokens(1_000_000));

        let mut bucket = Bucket::new(rate("8mbit"), 400_000, begin);
        bucket.charge(400_000);
        bucket.fill_beyond(begin + second, rate("2mbit"));
        assert_eq!(bucket.tokens, tokens(400_000), "the slower rate has not filled it");
        bucket.fill_beyond(begin + 2 * second, rate("2mbit"));
        assert_eq!(bucket.tokens, tokens(650_000));
    }

    #[test]
    fn a_change_of_the_rate_keeps_the_tokens_within_the_new_bounds() {
        let begin = start();
        let mut bucket = Bucket::new(rate("8mbit"), 1000, begin);
        bucket.change(rate("4mbit"), 500, begin);
        assert_eq!(bucket.tokens, tokens(500));
        bucket.change(rate("8mbit"), 1000, begin);
        assert_eq!(bucket.tokens, tokens(500), "nothing is given");

        bucket.charge(500 + 1_000_000);
        bucket.change(rate("1kbit"), 0, begin);
        assert_eq!(bucket.ready_at(), Some(begin + Duration::from_secs(1)), "as at 8 Mbit/s");
        bucket.change(rate("2kbit"), 0, begin);
        assert_eq!(bucket.ready_at(), Some(begin + Duration::from_millis(500)));
        bucket.change(RateLimit::Unlimited, 0, begin);
        assert!(bucket.is_ready(bucket.counted));
        bucket.charge(u64::MAX);
        bucket.change(rate("8mbit"), 7, begin);
        assert_eq!(bucket.tokens, tokens(7), "an unlimited class owes nothing");
    }

    #[test]
    fn a_rate_of_nothing_brings_nothing() {
        let begin = start();
        let mut bucket = Bucket::new(RateLimit::Zero, 1000, begin);
        bucket.fill(begin + Duration::from_secs(1));
        assert!(!bucket.is_ready(bucket.counted));
        assert_eq!(bucket.ready_at(), None);
    }
}
