//! When the target is asked again for its portals.

use std::time::Duration;

use tokio::time::Instant;

/// Time between two questions while sessions are lost.
const INTERVAL: Duration = Duration::from_secs(10);

/// Whether a question is under way, and when the last one was answered.
#[derive(Debug, Default)]
pub(super) struct DiscoveryPace {
    is_under_way: bool,
    last: Option<Instant>,
}

impl DiscoveryPace {
    /// A question has been answered now.
    pub(super) fn after_one() -> Self {
        Self { is_under_way: false, last: Some(Instant::now()) }
    }

    /// Says whether it is time for a question, which is under way then.
    pub(super) fn begin(&mut self) -> bool {
        let is_time = self.last.is_none_or(|last| last.elapsed() >= INTERVAL);
        let begins = is_time && !self.is_under_way;
        self.is_under_way |= begins;
        begins
    }
}
