//! How much write data a target takes within its own patience.
//!
//! A target may be slower than the link to it: then what is under way lies in its socket, behind what it writes just
//! now, and its timers run: LIO gives up on a connection that does not bring what it has asked for within 3 seconds. So
//! no more is under way than it takes within a part of that:
//!
//! ```text
//! time in the target = bytes outstanding, on average / bytes concluded in a second        (Little's law)
//! ```
//!
//! Why it is so: `docs/design/slow-targets.md`.

use std::time::{Duration, Instant};

/// How long write data may take from the first PDU of its command to the answer, beside the round trips: a flush may
/// take as long again before it, and both together half of LIO's patience.
const LONG: Duration = Duration::from_millis(600);
/// The longest time between two readings while a request is outstanding.
const REST: Duration = Duration::from_secs(3);
/// The round trips of a write whose data is asked for twice.
const ROUND_TRIPS: u32 = 4;
/// What is outstanding at first, bytes: two writes of the usual length.
const FIRST: u64 = 2 << 20;
/// How much more may be outstanding at most than before.
const MAX_STEP: u64 = 4;
/// Less helps no target, bytes.
const MIN: u64 = 64 << 10;

/// The write data that may be outstanding on a connection, by the time that the target takes for it.
#[derive(Clone, Copy, Debug)]
pub struct DrainLimit {
    bytes: u64,
    span: Option<Span>,
}

/// A time in which it is seen how long the target takes.
#[derive(Clone, Copy, Debug)]
struct Span {
    begun: Instant,
    /// Bytes concluded by then.
    before: u64,
    /// Bytes outstanding multiplied by nanoseconds, up to the last look.
    area: u128,
    last: Instant,
    /// Bytes outstanding at the last look.
    outstanding: u64,
}

impl Default for DrainLimit {
    fn default() -> Self {
        Self { bytes: FIRST, span: None }
    }
}

impl DrainLimit {
    /// The limit of a further connection to a target that others find slow: a part of theirs, since it takes no more in
    /// sum over more connections.
    pub const fn share(&mut self, others: u64) {
        if others < self.bytes {
            self.bytes = if others / 2 < MIN { MIN } else { others / 2 };
        }
    }

    /// The limit, if the target is so slow that it is less than each connection begins with: then further connections
    /// do not make it faster.
    #[must_use]
    pub const fn of_slow_target(&self) -> Option<u64> {
        if self.bytes < FIRST { Some(self.bytes) } else { None }
    }

    /// Bytes that may be outstanding.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes in what is outstanding now, what the target has concluded since the connection began, bytes, and the
    /// round-trip time. To be called several times a second while something is outstanding.
    pub fn observe(
        &mut self,
        outstanding: u64,
        concluded: u64,
        round_trip: Duration,
        now: Instant,
    ) {
        let fresh = Span { begun: now, before: concluded, area: 0, last: now, outstanding };
        let last = self.span.map(|span| now.saturating_duration_since(span.last));
        // What was outstanding in between is not known.
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
        // Nothing was outstanding for a while, or nothing was: that tells nothing.
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

    /// A target that takes `rate` bytes a second, with as much outstanding as may be and is wanted. Gives back the limit
    /// after each tick.
    fn limits(rate: u64, wanted: u64, ticks: usize, limit: &mut DrainLimit) -> Vec<u64> {
        let (start, mut concluded) = (Instant::now(), 0);
        let tick = |count| {
            let now = start + TICK * u32::try_from(count).unwrap();
            let outstanding = limit.bytes().min(wanted);
            // A fast target has concluded all of it, as often as it was outstanding.
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

    /// What it takes in about half a second is outstanding, and at least what is sensible.
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
        // When it has become fast again, it gets more.
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

    /// A target that stops for a while costs a part of the limit, not all of it.
    #[test]
    fn a_pause_halves_it_once_in_a_while() {
        let mut limit = DrainLimit { bytes: 64 << 20, span: None };
        let stopped = limits(0, u64::MAX, 50, &mut limit);
        assert_eq!(stopped[49], 4 << 20, "{stopped:?}");
    }
}
