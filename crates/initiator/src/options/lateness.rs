//! When a request counts as late, so that it is sent over another session as well.

use std::time::Duration;

use iscsi_multipath::paths::hedge::HedgePolicy;

use crate::options::range::MAX_TIME;
use crate::options::setters::setters;

/// Options for late requests: when a [`Disk`](crate::Disk) sends a request over a second session as
/// well. Values outside of their range count as the nearest end.
///
/// A request is late when another session would most likely have answered it by now. It is stuck
/// when it takes longer than nearly every other request on its own session did. A late request is
/// sent again over a session that is idle, a stuck one over any session that has room. Both times
/// are measured; the fields here are their lower limits. Large values keep requests where they are.
#[doc(alias("hedging", "failover", "timeout"))]
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct LatenessOptions {
    /// Time before which no request is late, 1 ms to 1 day.
    pub min_late: Duration,
    /// Time before which no request is stuck, 1 ms to 1 day.
    pub min_stuck: Duration,
    /// A request is stuck after this many times the time that nearly every other request on its
    /// session takes, 1 to 1000.
    pub stuck_factor: u32,
    /// Time after which a request is late, or stuck, while no session has answered anything yet to
    /// measure, 1 ms to 1 day.
    pub unknown: Duration,
}

impl Default for LatenessOptions {
    /// Defaults to 100 ms, 1 s, a factor of 2, and 5 s.
    fn default() -> Self {
        Self {
            min_late: Duration::from_millis(100),
            min_stuck: Duration::from_secs(1),
            stuck_factor: 2,
            unknown: Duration::from_secs(5),
        }
    }
}

impl LatenessOptions {
    setters! {
        with_min_late(min_late: Duration),
        with_min_stuck(min_stuck: Duration),
        with_stuck_factor(stuck_factor: u32),
        with_unknown(unknown: Duration),
    }

    /// All values within their ranges.
    pub(crate) fn in_range(&self) -> Self {
        let time = |time: Duration| time.clamp(Duration::from_millis(1), MAX_TIME);
        Self {
            min_late: time(self.min_late),
            min_stuck: time(self.min_stuck),
            stuck_factor: self.stuck_factor.clamp(1, 1000),
            unknown: time(self.unknown),
        }
    }
}

impl From<&LatenessOptions> for HedgePolicy {
    fn from(options: &LatenessOptions) -> Self {
        let LatenessOptions { min_late, min_stuck, stuck_factor, unknown } = options.in_range();
        Self { min_late, min_stuck, stuck_factor, unknown }
    }
}
