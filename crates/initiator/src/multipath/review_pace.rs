//! When the paths of a disk are reviewed.

use std::time::Duration;

use tokio::time::Instant;

use crate::driver::measure::tuner;

/// Time between two reviews of the paths.
pub(super) const INTERVAL: Duration = Duration::from_millis(250);
/// The same where little goes over a single short path, of which nothing new is measured sooner. With 1,000 disks in a process
/// a review finds nothing of its disk in a cache of the processor.
pub(super) const RARE_INTERVAL: Duration =
    tuner::POLL_INTERVAL.saturating_mul(tuner::INTERVALS_PER_READING);
/// After so many reviews at which nothing had moved, the next request is waited for.
const MAX_IDLE: u32 = 4;

/// When the last review was due, and what it has found.
#[derive(Debug, Default)]
pub(super) struct ReviewPace {
    last: Option<Instant>,
    /// Little had moved, over a single short path.
    is_rare: bool,
    /// Reviews in a row at which nothing more had moved.
    idle: u32,
}

impl ReviewPace {
    /// When the next review is due: the first at once, and none while nothing has moved for a while. `are_steady` says whether
    /// no session is lost, or on its way: what is to be done about those waits for no rare review.
    pub(super) fn next(&self, are_steady: bool) -> Option<Instant> {
        let interval = if self.is_rare && are_steady { RARE_INTERVAL } else { INTERVAL };
        let next = self.last.map_or_else(Instant::now, |last| last + interval);
        self.is_awake().then_some(next)
    }

    /// Whether there are reviews.
    pub(super) const fn is_awake(&self) -> bool {
        self.idle < MAX_IDLE
    }

    /// A review is due now.
    pub(super) fn begin(&mut self) {
        self.last = Some(Instant::now());
    }

    /// There is work, or something has happened.
    pub(super) const fn wake(&mut self) {
        self.idle = 0;
    }

    /// Something has moved since the last review; over a single short path, and little.
    pub(super) const fn moved(&mut self, is_rare: bool) {
        (self.is_rare, self.idle) = (is_rare, 0);
    }

    /// Nothing has moved; says whether there are no reviews from now on. Where requests wait, there are.
    pub(super) fn rested(&mut self, has_requests: bool) -> bool {
        let was_awake = self.is_awake();
        self.is_rare = false;
        self.idle += u32::from(!has_requests);
        was_awake && !self.is_awake()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So long after a review the next one is due.
    fn pause(pace: &mut ReviewPace, are_steady: bool) -> Option<Duration> {
        pace.begin();
        pace.next(are_steady).map(|next| next - Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_short_path_that_moves_little_is_reviewed_seldom_while_its_sessions_are_steady()
     {
        let mut pace = ReviewPace::default();
        assert_eq!(pace.next(true), Some(Instant::now()), "the first one is at once");
        assert_eq!(pause(&mut pace, true), Some(INTERVAL));
        pace.moved(true);
        assert_eq!(pause(&mut pace, true), Some(RARE_INTERVAL));
        assert_eq!(pause(&mut pace, false), Some(INTERVAL));
        pace.moved(false);
        assert_eq!(pause(&mut pace, true), Some(INTERVAL));
    }

    #[tokio::test(start_paused = true)]
    async fn where_nothing_moves_reviews_end_until_there_is_work() {
        let mut pace = ReviewPace::default();
        pace.moved(true);
        let ended = [(); MAX_IDLE as usize].map(|()| {
            assert_eq!(pace.next(true).is_some(), pace.is_awake());
            pace.rested(false)
        });
        assert_eq!(ended, [false, false, false, true]);
        assert_eq!(pace.next(true), None);
        assert!(!pace.rested(false), "they have ended before");
        pace.wake();
        assert_eq!(pause(&mut pace, true), Some(INTERVAL));
        for _ in 0..2 * MAX_IDLE {
            assert!(!pace.rested(true), "requests wait");
        }
    }
}
