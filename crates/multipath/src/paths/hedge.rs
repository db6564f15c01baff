//! Time limits of hedging: a late request is also sent over a second path, and the first result is used.

use std::time::Duration;

/// Time after which a request is hedged while no round-trip time is measured.
const UNKNOWN: Duration = Duration::from_secs(5);
/// A request is stuck after this multiple of the time within which nearly every other request on its path
/// completes.
const STUCK_FACTOR: u32 = 2;

/// Time limits of hedging. A request is late when another path would most likely have completed it by now;
/// then it is also sent over an idle path, if there is one. A request is stuck when it takes much longer than
/// nearly every other request on its path; then it is also sent over any path that has credit.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct HedgePolicy {
    /// Minimum time after which a request is late.
    pub min_late: Duration,
    /// Minimum time after which a request is stuck.
    pub min_stuck: Duration,
}

impl Default for HedgePolicy {
    /// Returns 100 ms and 1 s.
    fn default() -> Self {
        Self { min_late: Duration::from_millis(100), min_stuck: Duration::from_secs(1) }
    }
}

impl HedgePolicy {
    /// Returns the time after which a request is late, if the best other path completes nearly every request
    /// within `other`.
    pub fn late(&self, other: Option<Duration>) -> Duration {
        other.unwrap_or(UNKNOWN).max(self.min_late)
    }

    /// Returns the time after which a request is stuck on a path that completes nearly every request within
    /// `usual`.
    pub fn stuck(&self, usual: Option<Duration>) -> Duration {
        usual.map_or(UNKNOWN, |usual| usual.saturating_mul(STUCK_FACTOR)).max(self.min_stuck)
    }

    /// Returns the minimum time after which a request is stuck on any path.
    pub const fn least_stuck(&self) -> Duration {
        self.min_stuck
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_follow_what_is_measured() {
        let policy = HedgePolicy::default();
        let millis = Duration::from_millis;
        assert_eq!(policy.late(None), millis(5000));
        assert_eq!(policy.late(Some(millis(10))), millis(100));
        assert_eq!(policy.late(Some(millis(400))), millis(400));
        assert_eq!(policy.stuck(None), millis(5000));
        assert_eq!(policy.stuck(Some(millis(10))), millis(1000));
        assert_eq!(policy.stuck(Some(millis(900))), millis(1800));
    }

    /// With large limits no request is hedged, even while no round-trip time is measured.
    #[test]
    fn no_request_is_hedged_before_its_limits() {
        let hour = Duration::from_secs(3600);
        let policy = HedgePolicy { min_late: hour, min_stuck: 2 * hour };
        for measured in [None, Some(Duration::ZERO), Some(Duration::from_secs(9))] {
            assert_eq!((policy.late(measured), policy.stuck(measured)), (hour, 2 * hour));
        }
    }
}
