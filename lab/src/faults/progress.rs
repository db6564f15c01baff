//! Parses the progress of a copy from the line that it prints every second.

use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// Share of the bytes at which the fault is made, percent.
const FAULT_AT: u64 = 40;

/// The progress so far, from the lines of `--progress plain`.
#[derive(Debug)]
pub(super) struct Progress {
    stage: &'static str,
    reached: Option<oneshot::Sender<()>>,
    reached_percent: Option<u64>,
    /// Amount in the last line that showed progress.
    done: String,
    since: Instant,
    longest: Duration,
}

impl Progress {
    /// Follows a program that starts at `now`. `reached` is notified when it is time for the fault in `stage`.
    pub(super) fn new(stage: &'static str, reached: oneshot::Sender<()>, now: Instant) -> Self {
        Self {
            stage,
            reached: Some(reached),
            reached_percent: None,
            done: String::new(),
            since: now,
            longest: Duration::ZERO,
        }
    }

    /// Parses a line. Lines without progress are ignored.
    pub(super) fn parse_line(&mut self, line: &str, now: Instant) {
        let Some((done, percent)) = parse(line) else { return };
        if self.done != done {
            self.longest = self.longest_stall(now);
            (self.done, self.since) = (done.to_owned(), now);
        }
        if done.starts_with(self.stage)
            && percent >= FAULT_AT
            && let Some(reached) = self.reached.take()
        {
            self.reached_percent = Some(percent);
            // The receiver is gone if the copy has ended meanwhile. That is no error.
            let _ended = reached.send(());
        }
    }

    /// Returns the percentage of the stage at which the fault was due.
    pub(super) fn reached_percent(&self) -> Option<u64> {
        self.reached_percent
    }

    /// Returns the longest time without progress. If progress is missing until `now`, that time counts too.
    pub(super) fn longest_stall(&self, now: Instant) -> Duration {
        self.longest.max(now.saturating_duration_since(self.since))
    }
}

/// Parses the amount and its percentage. For `2026-01-31T12:00:00Z copied 3M of 64M (4%), ...` they are the
/// text between the time stamp and the parenthesis, and 4.
fn parse(line: &str) -> Option<(&str, u64)> {
    let (_, line) = line.split_once("Z ")?;
    let (done, rest) = line.split_once(" (")?;
    let (percent, _) = rest.split_once("%)")?;
    Some((done, percent.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(stage: &str, percent: u64) -> String {
        format!(
            "2026-01-31T12:00:00Z {stage} {percent}M of 100M ({percent}%), 93.1 Mbit/s, 0:05 left"
        )
    }

    #[test]
    fn the_fault_comes_once_its_stage_is_far_enough() {
        let (reached, mut at) = oneshot::channel();
        let now = Instant::now();
        let mut progress = Progress::new("verified", reached, now);
        for (stage, percent) in [("copied", 99), ("verified", 39)] {
            progress.parse_line(&line(stage, percent), now);
        }
        assert_eq!((progress.reached_percent(), at.try_recv().is_ok()), (None, false));
        progress.parse_line(&line("verified", 44), now);
        progress.parse_line(&line("verified", 60), now);
        assert_eq!((progress.reached_percent(), at.try_recv().is_ok()), (Some(44), true));
    }

    #[test]
    fn a_line_that_tells_no_more_is_no_progress() {
        let (reached, _at) = oneshot::channel();
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut progress = Progress::new("copied", reached, start);
        for (second, percent) in [(1, 5), (2, 5), (3, 5), (5, 6), (6, 7)] {
            progress.parse_line(&line("copied", percent), after(second));
        }
        progress.parse_line("block-copy: a session was lost (network)", after(7));
        assert_eq!(progress.longest_stall(after(8)), Duration::from_secs(4));
        assert_eq!(progress.longest_stall(after(16)), Duration::from_secs(10));
    }
}
