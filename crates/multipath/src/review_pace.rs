//! When the paths of a disk are reviewed.

use std::time::{Duration, Instant};

/// After this number of reviews at which nothing had moved, the next request is waited for.
const MAX_IDLE: u32 = 4;

/// When the last review was due, and what it has found.
#[derive(Debug)]
pub struct ReviewPace {
    /// The first review is due immediately.
    last: Option<Instant>,
    /// Little had moved, over a single short path.
    is_rare: bool,
    /// Reviews in a row at which nothing more had moved.
    idle: u32,
    /// The time between two rare reviews.
    rare: Duration,
}

impl ReviewPace {
    /// Time between two reviews of the paths.
    pub const INTERVAL: Duration = Duration::from_millis(250);

    /// Creates a pace in which `rare` passes between two reviews where little goes over a single short path, of which nothing new
    /// is measured sooner. With 1,000 disks in a process a review finds nothing of its disk in a cache of the processor.
    #[must_use]
    pub const fn new(rare: Duration) -> Self {
        Self { last: None, is_rare: false, idle: 0, rare }
    }

    /// Returns the time between two rare reviews.
    #[must_use]
    pub const fn rare_interval(&self) -> Duration {
        self.rare
    }

    /// Returns when the next review is due: none while nothing has moved for a while. `are_steady` says whether
    /// no session is lost, or on its way: those do not wait for a rare review.
    #[must_use]
    pub fn poll_timeout(&self, are_steady: bool, now: Instant) -> Option<Instant> {
        let interval = if self.is_rare && are_steady { self.rare } else { Self::INTERVAL };
        let next = self.last.map_or(now, |last| last + interval);
        self.is_awake().then_some(next)
    }

    /// Returns whether there are reviews.
    #[must_use]
    pub const fn is_awake(&self) -> bool {
        self.idle < MAX_IDLE
    }

    /// Begins a review.
    pub const fn begin(&mut self, now: Instant) {
        self.last = Some(now);
    }

    /// Takes in that there is work, or that something has happened.
    pub const fn wake(&mut self) {
        self.idle = 0;
    }

    /// Takes in that something has moved since the last review; `is_rare` if it was little, over a single short path.
    pub const fn moved(&mut self, is_rare: bool) {
        (self.is_rare, self.idle) = (is_rare, 0);
    }

    /// Takes in that nothing has moved. Returns whether there are no reviews from now on: where requests wait, there are.
    pub fn rested(&mut self, has_requests: bool) -> bool {
        let was_awake = self.is_awake();
        self.is_rare = false;
        self.idle += u32::from(!has_requests);
        was_awake && !self.is_awake()
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "some time to count from")]
mod tests {
    use super::*;

    const RARE: Duration = Duration::from_secs(2);

    /// The time from a review to the next one.
    fn pause(pace: &mut ReviewPace, are_steady: bool) -> Option<Duration> {
        let now = Instant::now();
        pace.begin(now);
        pace.poll_timeout(are_steady, now).map(|next| next - now)
    }

    #[test]
    fn a_single_short_path_that_moves_little_is_reviewed_seldom_while_its_sessions_are_steady() {
        let mut pace = ReviewPace::new(RARE);
        let now = Instant::now();
        assert_eq!(pace.poll_timeout(true, now), Some(now), "the first one is due immediately");
        assert_eq!(pause(&mut pace, true), Some(ReviewPace::INTERVAL));
        pace.moved(true);
        assert_eq!(pause(&mut pace, true), Some(RARE));
        assert_eq!(pause(&mut pace, false), Some(ReviewPace::INTERVAL));
        pace.moved(false);
        assert_eq!(pause(&mut pace, true), Some(ReviewPace::INTERVAL));
    }

    #[test]
    fn where_nothing_moves_reviews_end_until_there_is_work() {
        let mut pace = ReviewPace::new(RARE);
        pace.moved(true);
        let ended = [(); MAX_IDLE as usize].map(|()| {
            assert!(pace.poll_timeout(true, Instant::now()).is_some());
            pace.rested(false)
        });
        assert_eq!(ended, [false, false, false, true]);
        assert_eq!(pace.poll_timeout(true, Instant::now()), None);
        assert!(!pace.rested(false), "they have ended before");
        pace.wake();
        assert_eq!(pause(&mut pace, true), Some(ReviewPace::INTERVAL));
        for _ in 0..2 * MAX_IDLE {
            assert!(!pace.rested(true), "requests wait");
        }
    }
}
