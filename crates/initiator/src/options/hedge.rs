//! Defines options for hedged requests, which are also sent over a second session.

use std::time::Duration;

use iscsi_multipath::paths::hedge::HedgePolicy;

use crate::options::range::MAX_TIME;

/// Options for hedged requests: when a [`Disk`](crate::Disk) also sends a request over a second session. A
/// value outside of its range counts as the nearest end of the range.
///
/// A request is late when another session would most likely have answered it already. A request is stuck when
/// it takes much longer than nearly every other request on its own session. A late request is sent again over
/// a session that is idle, a stuck request over any session that has room. The times after which a request is
/// late or stuck are measured; the values here are lower limits of these times. To avoid hedged requests, set
/// large values.
#[doc(alias("hedging", "failover", "timeout"))]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HedgeOptions {
    pub(crate) min_late: Duration,
    pub(crate) min_stuck: Duration,
}

impl Default for HedgeOptions {
    fn default() -> Self {
        let HedgePolicy { min_late, min_stuck } = HedgePolicy::default();
        Self { min_late, min_stuck }
    }
}

impl HedgeOptions {
    /// Sets the earliest time after which a request is late, 1 ms to 1 day, 100 ms by default.
    #[must_use]
    pub const fn with_min_late(mut self, min_late: Duration) -> Self {
        self.min_late = min_late;
        self
    }

    /// Sets the earliest time after which a request is stuck, 1 ms to 1 day, 1 s by default.
    #[must_use]
    pub const fn with_min_stuck(mut self, min_stuck: Duration) -> Self {
        self.min_stuck = min_stuck;
        self
    }

    /// Returns all values within their ranges.
    pub(crate) fn in_range(self) -> Self {
        let time = |time: Duration| time.clamp(Duration::from_millis(1), MAX_TIME);
        Self { min_late: time(self.min_late), min_stuck: time(self.min_stuck) }
    }
}

impl From<HedgeOptions> for HedgePolicy {
    fn from(options: HedgeOptions) -> Self {
        let HedgeOptions { min_late, min_stuck } = options.in_range();
        Self { min_late, min_stuck }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_counts_as_the_end_of_the_range() {
        let tick = Duration::from_millis(1);
        let zero = HedgeOptions::default()
            .with_min_late(Duration::ZERO)
            .with_min_stuck(Duration::ZERO)
            .in_range();
        assert_eq!((zero.min_late, zero.min_stuck), (tick, tick));
        let ever = zero.with_min_late(Duration::MAX).with_min_stuck(Duration::MAX).in_range();
        assert_eq!((ever.min_late, ever.min_stuck), (MAX_TIME, MAX_TIME));
        assert_eq!(HedgeOptions::default().in_range(), HedgeOptions::default());
    }
}
