//! Schedules the reviews of a disk's paths.

use std::time::{Duration, Instant};

/// Number of consecutive reviews without traffic and without a waiting request after which the reviews stop
/// until the next request.
const MAX_IDLE: u32 = 4;

/// Time and result of the last review.
#[derive(Debug)]
pub struct ReviewPace {
    /// Start of the last review; `None` before the first review, which is due immediately.
    last: Option<Instant>,
    /// Whether reviews are rare: there was little traffic, over a single path whose link is local.
    is_rare: bool,
    /// Number of consecutive reviews without traffic and without a waiting request.
    idle: u32,
    /// The time between two rare reviews.
    rare: Duration,
}

impl ReviewPace {
    /// Time between two reviews of the paths.
    pub const INTERVAL: Duration = Duration::from_millis(250);

    /// Creates the pace of a disk. While there is little traffic over a single path with a short round-trip
    /// time, the time between two reviews is `rare`, because no new measurements are available sooner. More
    /// frequent reviews would cost CPU time: with 1,000 disks in a process, a review misses the caches of the
    /// processor.
    #[must_use]
    pub const fn new(rare: Duration) -> Self {
        Self { last: None, is_rare: false, idle: 0, rare }
    }

    /// Returns the time between two rare reviews.
    #[must_use]
    pub const fn rare_interval(&self) -> Duration {
        self.rare
    }

    /// Returns when the next review is due; `None` after four reviews without traffic and without a
    /// waiting request. If a session is lost or being opened (`are_steady` is `false`), reviews are not rare.
    #[must_use]
    pub fn poll_timeout(&self, are_steady: bool, now: Instant) -> Option<Instant> {
        let interval = if self.is_rare && are_steady { self.rare } else { Self::INTERVAL };
        let next = self.last.map_or(now, |last| last + interval);
        self.is_awake().then_some(next)
    }

    /// Returns whether reviews are scheduled.
    #[must_use]
    pub const fn is_awake(&self) -> bool {
        self.idle < MAX_IDLE
    }

    /// Begins a review.
    pub const fn begin(&mut self, now: Instant) {
        self.last = Some(now);
    }

    /// Resumes the reviews, because there is a request or another event.
    pub const fn wake(&mut self) {
        self.idle = 0;
    }

    /// Notes that there was traffic since the last review. `is_rare` is whether there was little traffic,
    /// over a single path with a short round-trip time.
    pub const fn moved(&mut self, is_rare: bool) {
        (self.is_rare, self.idle) = (is_rare, 0);
    }

    /// Notes that there was no traffic since the last review. Returns whether the reviews stop now; they
    /// continue while requests wait.
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

    /// Returns the time from one review to the next.
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
