//! Whether one more pass over what has changed meanwhile is the last, and how long that will take.
//!
//! A source that is in use while it is copied is copied in passes: each takes what was written since the
//! one before began. The last pass is made while nobody writes. Its length is the time that users wait.

use std::fmt;
use std::time::Duration;

/// A pass that has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pass {
    /// Bytes that it has copied.
    pub copied: u64,
    /// How long that took, with its flush.
    pub time: Duration,
    /// Bytes that were written at the source meanwhile.
    pub dirtied: u64,
}

/// The next step after a pass.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// One more pass, while the source is in use.
    Again {
        /// How long a last pass would take now.
        last: Duration,
        /// After how many more passes, the last one included, the goal will be reached, if all goes on as it
        /// went.
        passes: u32,
    },
    /// The last pass is short enough: stop all writes, and make it.
    Last {
        /// How long it will take.
        last: Duration,
    },
    /// More passes do not make the last one shorter.
    Diverges {
        /// How long a last pass would take now.
        last: Duration,
        /// Why.
        why: Divergence,
    },
}

/// The reason why more passes do not help.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Divergence {
    /// As much is written during a pass as during the one before.
    DirtiedAgain {
        /// Bytes that were written during the pass before.
        before: u64,
        /// And during this one.
        now: u64,
    },
    /// There were as many passes as there may be.
    MaxPasses(u32),
}

/// Watches the passes of one copy.
#[derive(Clone, Debug)]
pub struct Forecast {
    goal: Duration,
    max_passes: u32,
    passes: u32,
    last: Option<Pass>,
}

/// A pass that leaves so much of what the one before has left, in tenths, is no progress.
const NO_PROGRESS: u64 = 9;
/// No forecast goes further ahead, in passes.
const HORIZON: u32 = 100;

impl Forecast {
    /// Sets how long the last pass may take (`goal`); there are `max_passes` before it at most, and one at least.
    pub fn new(goal: Duration, max_passes: u32) -> Self {
        Self { goal, max_passes: max_passes.max(1), passes: 0, last: None }
    }

    /// Takes the next pass, and says what follows from it.
    pub fn take(&mut self, pass: Pass) -> Verdict {
        self.passes += 1;
        let before = self.last.replace(pass).map(|before| before.dirtied);
        let last = pass.time_of(pass.dirtied);
        if last <= self.goal {
            return Verdict::Last { last };
        }
        let now = pass.dirtied;
        let is_stuck =
            |before: &u64| u128::from(now) * 10 >= u128::from(*before) * u128::from(NO_PROGRESS);
        if let Some(before) = before.filter(is_stuck) {
            return Verdict::Diverges { last, why: Divergence::DirtiedAgain { before, now } };
        }
        if self.passes >= self.max_passes {
            return Verdict::Diverges { last, why: Divergence::MaxPasses(self.max_passes) };
        }
        Verdict::Again { last, passes: self.ahead(pass, last) }
    }

    /// How many passes it takes until one is short enough: each is shorter than the one before by the
    /// share of the rate that the source is written with.
    fn ahead(&self, pass: Pass, mut last: Duration) -> u32 {
        let ratio = last.as_secs_f64() / pass.time.as_secs_f64().max(f64::MIN_POSITIVE);
        let mut passes = 1;
        while last > self.goal && passes < HORIZON {
            last = Duration::try_from_secs_f64(last.as_secs_f64() * ratio).unwrap_or(Duration::MAX);
            passes += 1;
        }
        passes
    }
}

impl Pass {
    /// How long a copy of so many bytes takes, as fast as this pass was.
    fn time_of(&self, bytes: u64) -> Duration {
        if bytes == 0 {
            return Duration::ZERO;
        }
        // Of a pass that copied nothing nobody knows how fast it was.
        let share = bytes as f64 / self.copied as f64;
        Duration::try_from_secs_f64(self.time.as_secs_f64() * share).unwrap_or(Duration::MAX)
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DirtiedAgain { before, now } => write!(
                f,
                "the source is written to about as fast as it is copied: {now} bytes during this pass, \
                 {before} during the one before"
            ),
            Self::MaxPasses(count) => {
                write!(f, "no further pass may follow on number {count}")
            }
        }
    }
}
