//! Defines pauses between attempts.

use std::time::Duration;

use iscsi_multipath::reconnect;

use crate::options::range::MAX_TIME;

/// Pauses between attempts: each is twice as long as the previous one, up to a limit.
#[doc(alias("backoff", "retry", "pause"))]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BackOff {
    pub(crate) first_pause: Duration,
    pub(crate) max_pause: Duration,
}

impl BackOff {
    /// Creates pauses from `first_pause` up to `max_pause`, each 1 ms to 1 day. A value outside of the range
    /// counts as the nearest end of the range. A `max_pause` below `first_pause` counts as `first_pause`.
    #[must_use]
    pub fn new(first_pause: Duration, max_pause: Duration) -> Self {
        let first_pause = first_pause.clamp(Duration::from_millis(1), MAX_TIME);
        Self { first_pause, max_pause: max_pause.clamp(first_pause, MAX_TIME) }
    }

    /// Returns an iterator of the pauses.
    pub(crate) const fn pauses(self) -> reconnect::BackOff {
        reconnect::BackOff::new(self.first_pause, self.max_pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_within_their_range() {
        let tick = Duration::from_millis(1);
        for (first, max, expected) in [
            (Duration::MAX, tick, (MAX_TIME, MAX_TIME)),
            (Duration::ZERO, Duration::ZERO, (tick, tick)),
            (2 * tick, Duration::MAX, (2 * tick, MAX_TIME)),
        ] {
            let back_off = BackOff::new(first, max);
            assert_eq!((back_off.first_pause, back_off.max_pause), expected);
        }
    }
}
