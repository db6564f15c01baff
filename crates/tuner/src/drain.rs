//! Limits outstanding write data to what a target completes within its own time limit.
//!
//! A target may be slower than the link to it. Then data in flight waits in the target's socket, behind the
//! data that it is writing, while the target's timers run: LIO closes a connection on which requested data
//! does not arrive within 3 seconds. So the data in flight is limited to what the target completes within a
//! part of that time:
//!
//! ```text
//! time in the target = average bytes outstanding / bytes completed per second        (Little's law)
//! ```
//!
//! Design: `docs/design/slow-targets.md`.

use std::time::{Duration, Instant};

/// Time limit from the first PDU of a write to its answer, without the round trips. A flush before the write
/// may take as long: the flush and the write together stay within half of LIO's 3 seconds.
const LONG: Duration = Duration::from_millis(600);
/// Longest time between two readings of one span. A longer gap begins a new span.
const REST: Duration = Duration::from_secs(3);
/// Round trips of a write whose data the target requests twice.
const ROUND_TRIPS: u32 = 4;
/// Initial limit, bytes: two writes of the usual length.
const FIRST: u64 = 2 << 20;
/// Largest factor by which the limit grows in one step.
const MAX_STEP: u64 = 4;
/// Smallest limit, bytes: a smaller one helps no target.
const MIN: u64 = 64 << 10;

/// Limit of the write data outstanding on a connection, from the time that the target takes to complete it.
#[derive(Clone, Copy, Debug)]
pub struct DrainLimit {
    bytes: u64,
    span: Option<Span>,
}

/// Time over which the rate of the target is measured.
#[derive(Clone, Copy, Debug)]
struct Span {
    begun: Instant,
    /// Bytes that the target had completed before the span began.
    before: u64,
    /// Bytes outstanding multiplied by nanoseconds, summed up to the last reading.
    area: u128,
    last: Instant,
    /// Bytes outstanding at the last reading.
    outstanding: u64,
}

impl Default for DrainLimit {
    fn default() -> Self {
        Self { bytes: FIRST, span: None }
    }
}

impl DrainLimit {
    /// Lowers the limit of a new connection to a target that other connections found slow, to half of their
    /// limit `others`, because more connections do not make the target faster.
    pub const fn share(&mut self, others: u64) {
        if others < self.bytes {
            self.bytes = if others / 2 < MIN { MIN } else { others / 2 };
        }
    }

    /// Returns the limit if the target is slow, that is, if the limit is below the initial one; otherwise
    /// `None`.
    #[must_use]
    pub const fn of_slow_target(&self) -> Option<u64> {
        if self.bytes < FIRST { Some(self.bytes) } else { None }
    }

    /// Returns the bytes that may be outstanding.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes the bytes outstanding, the bytes that the target has completed since the connection began, and
    /// the round-trip time. Call it several times a second while requests are outstanding.
    pub fn observe(
        &mut self,
        outstanding: u64,
        concluded: u64,
        round_trip: Duration,
        now: Instant,
    ) {
        let fresh = Span { begun: now, before: concluded, area: 0, last: now, outstanding };
        let last = self.span.map(|span| now.saturating_duration_since(span.last));
        // At the first reading, or after a long gap, the bytes that were outstanding before are not known.
        let Some(since) = last.filter(|since| *since < REST) else {
            self.span = Some(fresh);
            return;
        };
        let span = self.span.get_or_insert(fresh);
        span.area += u128::from(span.outstanding) * since.as_nanos();
        (span.last, span.outstanding) = (now, outstanding);
        let done = u128::from(concluded.saturating_sub(span.before));
        let time = now.saturating_duration_since(span.begun).as_nanos();
        let long = LONG.saturating_add(round_trip.saturating_mul(ROUND_TRIPS)).as_nanos();
        let is_long = time >= long;
        if done < u128::from(self.bytes) && !is_long {
            return;
        }
        // The limit rises only if it was in use, which `mean`, the average of the bytes outstanding, shows.
        let mean = span.area / time.max(1);
        let latency = (span.area / done.max(1)).max(1);
        if latency > long {
            if is_long {
                let fits = u64::try_from(done * long / time).unwrap_or(u64::MAX);
                self.bytes = fits.clamp(self.bytes / 2, self.bytes).max(MIN);
            }
        } else if mean >= u128::from(self.bytes / 2) {
            let room = u64::try_from(long / latency).unwrap_or(u64::MAX);
            self.bytes = self.bytes.saturating_mul((room / 2 * 2).clamp(1, MAX_STEP));
        }
        self.span = Some(fresh);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(50);

    /// Simulates a target that takes `rate` bytes a second, with up to `wanted` bytes outstanding. Returns
    /// the limit after each tick.
    fn limits(rate: u64, wanted: u64, ticks: usize, limit: &mut DrainLimit) -> Vec<u64> {
        let (start, mut concluded) = (Instant::now(), 0);
        let tick = |count| {
            let now = start + TICK * u32::try_from(count).unwrap();
            let outstanding = limit.bytes().min(wanted);
            // `concluded` may grow by more than `outstanding`: a fast target completes several rounds of
            // writes within a tick.
            concluded += rate / 20;
            limit.observe(outstanding, concluded, Duration::ZERO, now);
            limit.bytes()
        };
        (0..ticks).map(tick).collect()
    }

    #[test]
    fn a_fast_target_has_no_limit_soon() {
        let limits = limits(1_000_000_000, u64::MAX, 10, &mut DrainLimit::default());
        assert!(limits[9] >= 64 << 20, "{limits:?}");
    }

    /// The limit is what the target completes in about half a second, and at least `MIN`.
    #[test]
    fn a_slow_target_gets_what_it_takes_in_time() {
        for rate in [200_000, 500_000, 3_000_000, 30_000_000] {
            let limits = limits(rate, u64::MAX, 400, &mut DrainLimit::default());
            let settled = limits.split_at(200).1;
            for bytes in settled {
                let seconds = *bytes as f64 / rate as f64;
                assert!((0.2..0.9).contains(&seconds), "{rate}: {bytes}");
            }
        }
        let mut slow = DrainLimit::default();
        assert_eq!(limits(1000, u64::MAX, 400, &mut slow)[399], MIN);
        // If the target becomes fast again, the limit rises again.
        assert!(limits(1_000_000_000, u64::MAX, 20, &mut slow)[19] >= 64 << 20);
    }

    /// With few bytes outstanding the limit is not in use, so it does not change.
    #[test]
    fn what_is_not_used_does_not_change() {
        let mut limit = DrainLimit::default();
        assert_eq!(limits(1_000_000, 64 << 10, 200, &mut limit)[199], FIRST);
        let rest = Instant::now() + Duration::from_secs(3600);
        limit.observe(0, 0, Duration::ZERO, rest);
        assert_eq!(limit.bytes(), FIRST);
    }

    #[test]
    fn a_further_connection_to_a_slow_target_begins_with_less() {
        let mut slow = DrainLimit::default();
        limits(1_000_000, u64::MAX, 400, &mut slow);
        let mut further = DrainLimit::default();
        assert_eq!(further.of_slow_target(), None);
        further.share(slow.of_slow_target().unwrap());
        assert_eq!(further.bytes(), slow.bytes() / 2);
        further.share(u64::MAX);
        assert_eq!(further.bytes(), slow.bytes() / 2);
        further.share(1);
        assert_eq!(further.bytes(), MIN);
    }

    /// A target stops for 2.5 seconds. The limit is halved once per `LONG`, four times, and does not fall to
    /// its minimum.
    #[test]
    fn a_pause_halves_it_once_in_a_while() {
        let mut limit = DrainLimit { bytes: 64 << 20, span: None };
        let stopped = limits(0, u64::MAX, 50, &mut limit);
        assert_eq!(stopped[49], 4 << 20, "{stopped:?}");
    }
}
