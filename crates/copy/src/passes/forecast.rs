//! Decides whether one more pass over the changes is the last, and how long it will take.
//!
//! A source that is in use is copied in passes: each one copies the writes since the beginning of the one
//! before. The last pass is made while writes are stopped. Its length is the time that users wait.

use std::fmt;
use std::time::Duration;

/// A pass that has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pass {
    /// Bytes that the pass has copied.
    pub copied: u64,
    /// Duration of the pass, with its flush.
    pub time: Duration,
    /// Bytes that were written to the source meanwhile.
    pub dirtied: u64,
}

/// The next step after a pass.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// One more pass, while the source is in use.
    Again {
        /// How long a last pass would take at present.
        last: Duration,
        /// Number of further passes, with the last one, until the goal is reached, if the rates stay the
        /// same.
        passes: u32,
    },
    /// The last pass is short enough: stop all writes, and make it.
    Last {
        /// How long that pass will take.
        last: Duration,
    },
    /// More passes do not make the last one shorter.
    Diverges {
        /// How long a last pass would take at present.
        last: Duration,
        /// The reason.
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
        /// Bytes that were written during this pass.
        now: u64,
    },
    /// The largest number of passes is reached.
    MaxPasses(u32),
}

/// Forecasts the last pass from the passes of one copy.
#[derive(Clone, Debug)]
pub struct Forecast {
    goal: Duration,
    max_passes: u32,
    passes: u32,
    last: Option<Pass>,
}

/// Share of the changes before a pass, in tenths, above which the changes after it count as no progress.
const NO_PROGRESS: u64 = 9;
/// Largest forecast, in passes.
const HORIZON: u32 = 100;

impl Forecast {
    /// Sets how long the last pass may take (`goal`). At most `max_passes` are made before it, and at least
    /// one.
    pub fn new(goal: Duration, max_passes: u32) -> Self {
        Self { goal, max_passes: max_passes.max(1), passes: 0, last: None }
    }

    /// Takes in a pass, and returns the next step.
    pub fn add_pass(&mut self, pass: Pass) -> Verdict {
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

    /// Returns the number of passes until one is short enough: each is shorter than the one before by the
    /// ratio of the rate of writes at the source to the rate of the copy.
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
    /// Returns how long a copy of `bytes` bytes takes at the rate of this pass.
    fn time_of(&self, bytes: u64) -> Duration {
        if bytes == 0 {
            return Duration::ZERO;
        }
        // The rate of a pass that copied nothing is unknown.
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
