//! Limits the rate at which a copy moves bytes.

use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Longest idle time, caused by a pause or a busy machine, whose unused bytes may be sent later, above the
/// rate.
const STALL: Duration = Duration::from_millis(200);
/// Longest delay of a request, nanoseconds, so that no time overflows: 100 years.
const MAX_DEBT: u128 = 100 * 365 * 24 * 3600 * 1_000_000_000;

/// The rate limit of one kind of request. A request costs its bytes divided by the rate, as time. It may
/// begin when this time has passed for all requests before it, so that a request of any length is sent as a
/// whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateLimit {
    /// Bytes per second; `None` means no limit.
    rate: Option<u64>,
    /// Time at which the cost of all requests that have begun has passed.
    paid_at: Instant,
}

/// The rate limits of reads and of writes: the same rate, applied to each separately.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateLimits {
    pub(crate) reads: RateLimit,
    pub(crate) writes: RateLimit,
}

impl RateLimit {
    pub(crate) fn new(now: Instant) -> Self {
        Self { rate: None, paid_at: now }
    }

    /// Changes the rate. The remaining delay becomes shorter at a higher rate, but not longer at a lower rate,
    /// which applies to later requests only.
    pub(crate) fn set(&mut self, rate: Option<u64>, now: Instant) {
        if rate == self.rate {
            return;
        }
        let debt = self.paid_at.saturating_duration_since(now);
        let debt = match (self.rate, rate) {
            (Some(old), Some(new)) => {
                let bytes = debt.as_nanos().saturating_mul(u128::from(old));
                debt.min(nanoseconds(bytes / u128::from(new.max(1))))
            }
            (None, _) | (_, None) => Duration::ZERO,
        };
        (self.rate, self.paid_at) = (rate, now + debt);
    }

    /// Returns whether a request may begin at `now`.
    pub(crate) fn is_open(&self, now: Instant) -> bool {
        self.rate.is_none() || self.paid_at <= now
    }

    /// Returns when the next request may begin; `None` if it may begin immediately.
    pub(crate) fn opens(&self, now: Instant) -> Option<Instant> {
        (!self.is_open(now)).then_some(self.paid_at)
    }

    /// Adds the cost of a request that begins.
    pub(crate) fn pay(&mut self, bytes: u64, now: Instant) {
        let Some(rate) = self.rate else { return };
        let time = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
        let earliest = now.checked_sub(STALL).unwrap_or(now);
        self.paid_at = self.paid_at.max(earliest) + nanoseconds(time);
    }
}

impl RateLimits {
    pub(crate) fn new(now: Instant) -> Self {
        Self { reads: RateLimit::new(now), writes: RateLimit::new(now) }
    }

    /// Changes the rate of both reads and writes.
    pub(crate) fn set(&mut self, rate: Option<u64>, now: Instant) {
        self.reads.set(rate, now);
        self.writes.set(rate, now);
    }

    /// Returns the earliest time at which a delayed read or write may begin; `None` if none is delayed.
    pub(crate) fn opens(&self, now: Instant) -> Option<Instant> {
        [self.reads, self.writes].iter().filter_map(|limit| limit.opens(now)).min()
    }
}

fn nanoseconds(count: u128) -> Duration {
    Duration::from_nanos(u64::try_from(count.min(MAX_DEBT)).unwrap_or(u64::MAX))
}

/// Waits until a time; without one, for ever.
pub(crate) async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limit(rate: u64) -> (RateLimit, Instant) {
        let now = Instant::now();
        let mut limit = RateLimit::new(now);
        limit.set(Some(rate), now);
        (limit, now)
    }

    #[test]
    fn a_request_of_any_length_passes_whole_and_the_next_one_waits_until_it_is_paid() {
        let (mut limit, now) = limit(1000);
        assert!(limit.is_open(now));
        limit.pay(5000, now);
        assert_eq!(limit.opens(now), Some(now + 5 * SECOND));
        assert!(!limit.is_open(now + 5 * SECOND - Duration::from_nanos(1)));
        assert_eq!(limit.opens(now + 5 * SECOND), None);
    }

    #[test]
    fn what_a_busy_machine_has_missed_is_made_up_for_and_no_more() {
        let (mut limit, now) = limit(1000);
        let late = now + Duration::from_millis(150);
        limit.pay(1000, late);
        assert_eq!(limit.opens(late), Some(now + SECOND));
        let later = now + 60 * SECOND;
        limit.pay(1000, later);
        assert_eq!(limit.opens(later), Some(later + SECOND - STALL));
    }

    #[test]
    fn another_rate_counts_from_now_on_and_never_puts_off_what_was_due() {
        let (mut limit, now) = limit(1000);
        limit.pay(10_000, now);
        limit.set(Some(2000), now + 2 * SECOND);
        assert_eq!(limit.opens(now), Some(now + 6 * SECOND), "8000 bytes are left");
        limit.set(Some(1), now + 2 * SECOND);
        assert_eq!(limit.opens(now), Some(now + 6 * SECOND));
        limit.set(None, now + 2 * SECOND);
        assert!(limit.is_open(now + 2 * SECOND));
        limit.set(Some(1000), now + 2 * SECOND);
        assert!(limit.is_open(now + 2 * SECOND), "nothing of before is owed");
    }

    #[test]
    fn no_rate_is_so_low_that_a_time_overflows() {
        let (mut limit, now) = limit(0);
        for _ in 0..3 {
            limit.pay(u64::MAX, now);
        }
        assert!(!limit.is_open(now + 1_000_000 * SECOND));
        limit.set(Some(u64::MAX), now);
        assert!(limit.is_open(now + SECOND));
    }
}
