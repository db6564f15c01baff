//! Decides whether the next pass over the changes is the last, and forecasts how long it takes.
//!
//! A source in use is copied in passes: each pass copies what was written since the beginning of the pass
//! before. The last pass is made while writes are stopped, so its duration is an outage for the users of the
//! source.

use std::fmt;
use std::time::Duration;

/// A pass that has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pass {
    /// Bytes that the pass has copied.
    pub copied: u64,
    /// Duration of the pass, with its flush.
    pub time: Duration,
    /// Bytes that were written to the source during the pass.
    pub dirtied: u64,
}

/// The next step after a pass.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// Make one more pass while the source is in use.
    Again {
        /// How long the last pass would take if it were made next.
        last: Duration,
        /// Number of further passes, including the last one, until the last pass is short enough, if the rates
        /// stay the same.
        passes: u32,
    },
    /// The last pass is short enough: stop all writes, and make it.
    Last {
        /// How long the last pass will take.
        last: Duration,
    },
    /// More passes do not make the last pass shorter.
    Diverges {
        /// How long the last pass would take if it were made next.
        last: Duration,
        /// The reason.
        why: Divergence,
    },
}

/// Reasons why more passes do not make the last one shorter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Divergence {
    /// The source gets about as many changes during a pass as during the pass before.
    DirtiedAgain {
        /// Bytes that were written during the previous pass.
        before: u64,
        /// Bytes that were written during this pass.
        now: u64,
    },
    /// The largest number of passes is reached.
    MaxPasses(u32),
}

/// Forecasts the duration of the last pass from the earlier passes of the copy.
#[derive(Clone, Debug)]
pub struct Forecast {
    goal: Duration,
    max_passes: u32,
    passes: u32,
    last: Option<Pass>,
}

/// Ratio of the changes during a pass to those during the previous pass, in tenths, from which on there is no progress.
const NO_PROGRESS: u64 = 9;
/// Largest number of passes that is forecast.
const HORIZON: u32 = 100;

impl Forecast {
    /// Creates a forecast. `goal` is how long the last pass may take. At most `max_passes` passes, and at least one,
    /// are made before the last pass.
    pub fn new(goal: Duration, max_passes: u32) -> Self {
        Self { goal, max_passes: max_passes.max(1), passes: 0, last: None }
    }

    /// Adds a pass that has ended, and returns the next step.
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

    /// Returns the number of passes until one is short enough. Each pass is shorter than the one before by the
    /// ratio of the rate at which the source is written to the rate of the copy.
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
        // If the pass copied nothing, its rate is unknown: the share is infinite, and the result is the
        // longest duration.
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
