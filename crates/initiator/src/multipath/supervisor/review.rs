//! Keeps the state of the number of sessions of a disk from one review of its paths to the next.

use iscsi_multipath::ReviewPace;
use iscsi_tuner::SessionCount;
use tokio::time::Instant;

use crate::driver::measure::tuner;
use crate::error::Error;
use crate::multipath::supervisor::shared_link::Traffic;
use crate::options::sessions::Sessions;

/// State of the decision about the number of sessions.
pub(super) struct Review {
    pub(super) sessions: Sessions,
    pub(super) count: SessionCount,
    /// Error of the latest session that was not opened or not reconnected, or whose port did not serve the
    /// unit; `None` if there was none. A later success does not reset it.
    pub(super) refusal: Option<Error>,
    pub(super) pace: ReviewPace,
    /// Whether the last review has found that data moved.
    pub(super) moves: bool,
    pub(super) begun: Instant,
    /// Bytes moved by the time of the last review, `reviewed`.
    pub(super) moved: u64,
    pub(super) reviewed: Instant,
    pub(super) traffic: Traffic,
}

impl Review {
    pub(super) fn new(sessions: Sessions, reason: String) -> Self {
        let (count, now) = (SessionCount::new(reason, sessions.max()), Instant::now());
        Self {
            sessions,
            count,
            refusal: None,
            pace: ReviewPace::new(
                tuner::POLL_INTERVAL.saturating_mul(tuner::INTERVALS_PER_READING),
            ),
            moves: false,
            begun: now,
            moved: 0,
            reviewed: now,
            traffic: Traffic::default(),
        }
    }
}
