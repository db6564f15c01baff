//! How long the sessions of a path last, one after the other.

use std::time::Duration;

use tokio::time::Instant;

use crate::options::back_off::BackOff;
use crate::unit::retry::Pauses;

/// A session that ends sooner has not shown that it can last.
const LASTING: Duration = Duration::from_secs(10);

/// The life of a path's session, and how those before it ended.
///
/// A target that takes every login and ends each session soon after is not asked in a tight loop,
/// also where it names no time to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    since: Instant,
    /// Sessions in a row, up to the one before, that ended soon.
    quick_ends: u32,
}

impl Life {
    pub(crate) fn begin() -> Self {
        Self { since: Instant::now(), quick_ends: 0 }
    }

    /// The session has ended, by now: the least time to wait before the next, and how its life begins
    /// once it has come.
    pub(super) fn end(self, options: &BackOff) -> (Duration, impl FnOnce() -> Self) {
        let is_quick = self.since.elapsed() < LASTING;
        let quick_ends = if is_quick { self.quick_ends.saturating_add(1) } else { 0 };
        let after = |count| Pauses::new(options).after(count).next();
        let pause = quick_ends.checked_sub(1).map_or(Duration::ZERO, after);
        (pause, move || Self { quick_ends, ..Self::begin() })
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::options::Options;

    #[tokio::test(start_paused = true)]
    async fn sessions_that_do_not_last_are_not_opened_in_a_tight_loop() {
        let options = Options::default().advanced.retry_pauses;
        let mut life = Life::begin();
        let mut pauses = Vec::new();
        for _ in 0..9 {
            advance(Duration::from_secs(1)).await;
            let (pause, next) = life.end(&options);
            pauses.push(pause.as_millis());
            life = next();
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        advance(LASTING).await;
        assert_eq!(life.end(&options).0, Duration::ZERO);
    }
}
