//! How much write data a target may have to wait for: as much as the connection brings it in time.
//!
//! A target asks for the data of all writes that it knows of, and gives up on the connection when
//! an answer takes too long (LIO: 3 seconds). On a link of known rate the plan's queue would do;
//! what the rate is shows only while data flows. So the limit begins low and follows what is
//! acknowledged:
//!
//! ```text
//! in the first moments   START + 2 x all that was acknowledged    (grows with TCP's own start)
//! then                   START + rate x (1 s + 3 round trips)
//! ```
//! A link that is fast for its length never feels it: a write is under way for little more than its
//! round trips.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Enough for two short writes.
const START: u64 = 512 << 10;
/// Over how long the rate is taken.
const SPAN: Duration = Duration::from_millis(500);
/// Observations closer than this tell nothing new.
const GRAIN: Duration = Duration::from_millis(5);
/// How long data may wait, beside its round trips.
const PATIENCE: Duration = Duration::from_secs(1);
/// After so long without an observation a connection begins anew, as TCP does.
const IDLE: Duration = Duration::from_secs(1);

/// What was acknowledged lately.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When, and how much by then; the first one is at least [`SPAN`] old once there is one.
    history: VecDeque<(Instant, u64)>,
    /// How much was acknowledged when data began to flow.
    start: u64,
}

impl Pace {
    /// `acknowledged` bytes, since the connection began, have arrived by now.
    pub(crate) fn observe(&mut self, acknowledged: u64, now: Instant) {
        match self.history.back() {
            Some((last, _)) if now.saturating_duration_since(*last) < GRAIN => return,
            Some((last, _)) if now.saturating_duration_since(*last) < IDLE => {}
            Some(_) | None => {
                self.history.clear();
                self.start = acknowledged;
            }
        }
        self.history.push_back((now, acknowledged));
        while self.history.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) >= SPAN)
        {
            self.history.pop_front();
        }
    }

    /// The limit, bytes; none before anything was observed.
    pub(crate) fn limit(&self, round_trip: Duration) -> u64 {
        let (Some((first, before)), Some((last, after))) =
            (self.history.front(), self.history.back())
        else {
            return START;
        };
        let span = last.saturating_duration_since(*first);
        if span < SPAN {
            return START.saturating_add(after.saturating_sub(self.start).saturating_mul(2));
        }
        let wait = PATIENCE.saturating_add(round_trip.saturating_mul(3));
        let bytes = u128::from(after.saturating_sub(*before)) * wait.as_nanos() / span.as_nanos();
        START.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    /// Observes `total(seconds)` every 10 ms, for so long.
    fn watch(pace: &mut Pace, from: Instant, millis: u64, total: impl Fn(f64) -> f64) {
        for milli in (0..=millis).step_by(10) {
            let at = Duration::from_millis(milli);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "in range"
            )]
            pace.observe(total(at.as_secs_f64()) as u64, from + at);
        }
    }

    #[test]
    fn it_begins_low_and_grows_with_what_arrives() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        assert_eq!(pace.limit(RTT), START);
        pace.observe(1000, now);
        assert_eq!(pace.limit(RTT), START);
        pace.observe(1_001_000, now + RTT);
        assert_eq!(pace.limit(RTT), START + 2_000_000);
    }

    #[test]
    fn at_a_steady_rate_it_is_a_second_and_three_round_trips() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        watch(&mut pace, now, 3000, |seconds| seconds * 1e6);
        assert_eq!(pace.limit(RTT), START + 1_300_000);
    }

    /// Slow start doubles every round trip: the limit stays above what is in flight, twice.
    #[test]
    fn it_does_not_hold_up_slow_start() {
        for millis in [20, 50, 100, 200] {
            let rtt = Duration::from_millis(millis);
            let (mut pace, now) = (Pace::default(), Instant::now());
            let window = |seconds: f64| 14_480.0 * (seconds / rtt.as_secs_f64()).exp2();
            for rounds in 1..8 {
                let elapsed = rtt * rounds;
                let millis = u64::try_from(elapsed.as_millis()).unwrap();
                watch(&mut pace, now, millis, |seconds| window(seconds) - window(0.0));
                #[expect(clippy::cast_precision_loss, reason = "it is a test of a ratio")]
                let limit = pace.limit(rtt) as f64;
                assert!(limit >= 2.0 * window(elapsed.as_secs_f64()), "{rtt:?} {rounds}: {limit}");
                pace = Pace::default();
            }
        }
    }

    #[test]
    fn after_a_rest_it_begins_anew() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        watch(&mut pace, now, 3000, |seconds| seconds * 1e7);
        assert!(pace.limit(RTT) > 10 * START);
        pace.observe(30_000_000, now + Duration::from_secs(10));
        assert_eq!(pace.limit(RTT), START);
    }

    #[test]
    fn observations_too_close_are_left_out() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        pace.observe(0, now);
        pace.observe(1 << 20, now + GRAIN / 2);
        assert_eq!(pace.limit(RTT), START);
    }
}
