//! Renders the state of a running pass, as readable text and as JSON.

use std::fmt;
use std::time::Duration;

use iscsi_copy::Progress;
use iscsi_tuner::Size;
use serde_json::{Value, json};

use crate::progress::activity::Activity;

/// The state of a running pass at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// The progress.
    pub progress: Progress,
    /// The time since the start of the pass.
    pub elapsed: Duration,
    /// The rate since the previous sample, Mbit/s (10^6 bits).
    pub rate: f64,
    /// Present activity of the pass.
    pub activity: Activity,
    /// Number of sessions that carry data, over all units.
    pub sessions: usize,
    /// The smallest round-trip time to the destination's unit, or else to the source's.
    pub round_trip: Option<Duration>,
}

impl Status {
    /// Returns the number of bytes that this run has done.
    const fn done(&self) -> u64 {
        self.progress.done.saturating_sub(self.progress.resumed)
    }

    /// Returns the number of bytes that were sent to the destination as data.
    const fn sent(&self) -> u64 {
        self.progress.written + self.progress.zeros_written
    }

    /// Returns the number of zero bytes that were not sent as data.
    const fn spared(&self) -> u64 {
        self.progress.skipped + self.progress.zeroed - self.progress.zeros_written
    }

    /// Returns the mean rate since the beginning, Mbit/s.
    fn mean(&self) -> f64 {
        mbit_per_s(self.done(), self.elapsed)
    }

    /// Returns the estimated time to the end, at the mean rate.
    fn left(&self) -> Option<Duration> {
        let rest = self.progress.total?.saturating_sub(self.progress.done);
        let rest = mbit_per_s(rest, Duration::from_secs(1));
        Duration::try_from_secs_f64(rest / self.mean()).ok()
    }

    /// Returns the state as a line of text.
    pub(crate) fn line(&self, title: &str) -> String {
        let done = Size(self.progress.done);
        let state = self.activity.texts().into_iter().next();
        let Some(total) = self.progress.total else {
            let state = state.unwrap_or_else(|| format!("{:.1} Mbit/s", self.rate));
            return format!("{title} {done}, {state}{self}");
        };
        let state = state.unwrap_or_else(|| {
            let left = self.left().map_or_else(|| "unknown time".to_owned(), clock);
            format!("{:.1} Mbit/s, {left} left", self.rate)
        });
        let (percent, total) = (percent(self.progress.done, total), Size(total));
        format!("{title} {done} of {total} ({percent}%), {state}{self}")
    }

    /// Returns the state as JSON.
    pub(crate) fn to_json(self, pass: &str) -> Value {
        json!({
            "pass": pass,
            "bytes": self.progress.done,
            "bytes_total": self.progress.total,
            "bytes_flushed": self.progress.flushed,
            "bytes_sent": self.sent(),
            "bytes_zeroed": self.progress.zeroed - self.progress.zeros_written,
            "bytes_skipped": self.progress.skipped,
            "bytes_resumed": self.progress.resumed,
            "seconds": self.elapsed.as_secs_f64(),
            "mbit_per_s": self.rate,
            "mean_mbit_per_s": self.mean(),
            "seconds_left": self.left().map(|left| left.as_secs_f64()),
            "sessions": self.sessions,
            "rtt_ms": self.round_trip.map(|trip| trip.as_secs_f64() * 1e3),
        })
    }
}

/// Displays the state as the part of a line that follows its short beginning.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.elapsed.is_zero() {
            write!(f, ", mean {:.1}", self.mean())?;
        }
        if self.spared() > 0 {
            write!(f, ", sent {}, skipped {}", Size(self.sent()), Size(self.spared()))?;
        }
        if self.sessions > 0 {
            let word = if self.sessions == 1 { "session" } else { "sessions" };
            write!(f, ", {} {word}", self.sessions)?;
        }
        let Some(trip) = self.round_trip else { return Ok(()) };
        write!(f, ", RTT {:.2} ms", trip.as_secs_f64() * 1e3)
    }
}

/// Returns a rate in Mbit/s (10^6 bits); 0 if the time is 0.
pub(crate) fn mbit_per_s(bytes: u64, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate is a rounded number")]
    let bits = bytes as f64 * 8.0;
    if seconds > 0.0 { bits / seconds / 1e6 } else { 0.0 }
}

/// Returns `bytes` as a share of `total`, in whole percent, rounded down.
pub(crate) fn percent(bytes: u64, total: u64) -> u64 {
    let percent = u128::from(bytes) * 100 / u128::from(total.max(1));
    u64::try_from(percent).unwrap_or(u64::MAX)
}

/// Returns a time as minutes and seconds, with the hours before them if there are any.
pub(crate) fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn status(done: u64, total: Option<u64>, resumed: u64) -> Status {
        let mut progress = Progress::default();
        (progress.done, progress.total, progress.resumed) = (done, total, resumed);
        progress.written = done - resumed;
        let elapsed = Duration::from_secs(1);
        let activity = Activity::Running;
        Status { progress, elapsed, rate: 93.75, activity, sessions: 0, round_trip: None }
    }

    #[test]
    fn the_rest_takes_as_long_as_the_rate_so_far_says() {
        let left = |done, resumed| status(done, Some(100), resumed).left();
        assert_eq!(left(25, 0), Some(Duration::from_secs(3)));
        assert_eq!(left(0, 0), None);
        assert_eq!(left(60, 50), Some(Duration::from_secs(4)), "of an earlier run it says nothing");
    }

    #[test]
    fn times_and_shares_are_shown() {
        assert_eq!(clock(Duration::from_secs(59)), "0:59");
        assert_eq!(clock(Duration::from_secs(3_661)), "1:01:01");
        assert_eq!((percent(0, 0), percent(199, 200), percent(200, 200)), (0, 99, 100));
    }

    #[test]
    fn a_line_tells_size_rate_and_rest() {
        let line = status(MIB, Some(4 * MIB), 0).line("copied");
        let expected = "copied 1 MiB of 4 MiB (25%), 93.8 Mbit/s, 0:03 left, mean 8.4";
        assert_eq!(line, expected);
        let stream = status(MIB, None, 0).line("copied");
        assert_eq!(stream, "copied 1 MiB, 93.8 Mbit/s, mean 8.4");
        let paused = Status { activity: Activity::Paused, ..status(MIB, Some(4 * MIB), 0) };
        assert_eq!(paused.line("copied"), "copied 1 MiB of 4 MiB (25%), paused, mean 8.4");
        let mut unit = status(4 * MIB, Some(4 * MIB), 0);
        (unit.progress.written, unit.progress.skipped) = (MIB, 3 * MIB);
        (unit.sessions, unit.round_trip) = (2, Some(Duration::from_micros(100_250)));
        let expected = ", mean 33.6, sent 1 MiB, skipped 3 MiB, 2 sessions, RTT 100.25 ms";
        assert_eq!(unit.to_string(), expected);
    }
}
