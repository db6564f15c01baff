//! When a request is hedged: sent over a second path as well, so that the first answer counts.

use std::time::Duration;

/// Limits of hedging. A request is late when another path would most likely have answered it by now;
/// then an idle path may take it as well. It is stuck when it takes longer than nearly every other
/// request on its path; then any path that has room takes it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct HedgePolicy {
    /// Time before which no request is late.
    pub min_late: Duration,
    /// Time before which no request is stuck.
    pub min_stuck: Duration,
    /// A request is stuck after this many times the time that nearly every other request takes.
    pub stuck_factor: u32,
    /// Time after which a request is late, or stuck, while nothing was measured.
    pub unknown: Duration,
}

impl Default for HedgePolicy {
    /// 100 ms, 1 s, a factor of 2, and 5 s.
    fn default() -> Self {
        Self {
            min_late: Duration::from_millis(100),
            min_stuck: Duration::from_secs(1),
            stuck_factor: 2,
            unknown: Duration::from_secs(5),
        }
    }
}

impl HedgePolicy {
    /// Returns when a request is late, if the best other path answers nearly every request within
    /// `other`.
    pub fn late(&self, other: Option<Duration>) -> Duration {
        other.map_or(self.unknown, |other| other.max(self.min_late))
    }

    /// Returns when a request is stuck on a path that answers nearly every request within `usual`.
    pub fn stuck(&self, usual: Option<Duration>) -> Duration {
        let limit = |usual: Duration| usual.saturating_mul(self.stuck_factor).max(self.min_stuck);
        usual.map_or(self.unknown, limit)
    }

    /// Returns the time before which no request is stuck, on whatever path.
    pub fn least_stuck(&self) -> Duration {
        self.min_stuck.min(self.unknown)
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
        let patient = HedgePolicy { stuck_factor: 4, ..policy };
        assert_eq!(patient.stuck(Some(millis(900))), millis(3600));
    }
}
