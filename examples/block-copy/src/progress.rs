//! What people see while they wait.

use std::fmt::Write;
use std::io::{IsTerminal, stderr};
use std::sync::LazyLock;
use std::time::Duration;

use clap::ValueEnum;
use indicatif::{MultiProgress, ProgressBar, ProgressState, ProgressStyle};
use tokio::time::Instant;

use crate::output;
use crate::rate::mbit_per_s;
use iscsi_initiator::tuning::Size;

/// How progress is shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum ProgressMode {
    /// A bar on a terminal, else lines.
    Auto,
    /// A bar with rate and remaining time; lines where there is no terminal.
    Bar,
    /// A line a second.
    Plain,
    /// Nothing but errors.
    None,
}

const WITH_TOTAL: &str = "{prefix} {wide_bar} {percent}% of {total} {rate} {eta} left";
const WITHOUT_TOTAL: &str = "{prefix} {spinner} {done} {rate}";

/// The bar of this process, if there is one just now.
static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// Puts whole lines on standard error, above the bar where there is one.
pub fn say(lines: &str) {
    // Whoever draws the bar has the lock, and may wait for the terminal.
    output::aside(|| BARS.suspend(|| output::say(lines)));
}

/// The display of one pass over the bytes.
#[derive(Debug)]
pub struct Progress {
    title: &'static str,
    total: Option<u64>,
    start: Instant,
    display: Display,
}

#[derive(Debug)]
enum Display {
    Bar(ProgressBar),
    Lines,
    Nothing,
}

impl Progress {
    /// Begins to show a pass over `total` bytes, if their number is known.
    pub fn new(mode: ProgressMode, title: &'static str, total: Option<u64>) -> Self {
        let display = match mode {
            ProgressMode::None => Display::Nothing,
            ProgressMode::Plain => Display::Lines,
            ProgressMode::Auto | ProgressMode::Bar if !stderr().is_terminal() => Display::Lines,
            ProgressMode::Auto | ProgressMode::Bar => Display::Bar(bar(title, total)),
        };
        Self { title, total, start: Instant::now(), display }
    }

    /// Moves the bar.
    pub(crate) fn refresh(&self, bytes: u64) {
        if let Display::Bar(bar) = &self.display {
            output::aside(|| bar.set_position(bytes));
        }
    }

    /// Writes the line of a second, with its rate in Mbit/s.
    pub(crate) fn line(&self, bytes: u64, rate: f64) {
        if let Display::Lines = &self.display {
            say(&format!("{}\n", self.describe(bytes, rate)));
        }
    }

    /// Says something between two lines, or above the bar.
    pub(crate) fn remark(&self, text: &str) {
        match &self.display {
            Display::Bar(_) | Display::Lines => say(&format!("{text}\n")),
            Display::Nothing => {}
        }
    }

    /// Takes the bar away; what is to be said at the end is the caller's.
    pub(crate) fn finish(&self, bytes: u64) {
        if let Display::Bar(bar) = &self.display {
            output::aside(|| {
                bar.set_position(bytes);
                bar.finish_and_clear();
            });
        }
    }

    fn describe(&self, bytes: u64, rate: f64) -> String {
        let (title, done) = (self.title, Size(bytes));
        let Some(total) = self.total else {
            return format!("{title} {done}, {rate:.1} Mbit/s");
        };
        let percent = percent(bytes, total);
        let left = match remaining(bytes, total, self.start.elapsed()) {
            Some(left) => clock(left),
            None => "unknown time".to_owned(),
        };
        let total = Size(total);
        format!("{title} {done} of {total} ({percent}%), {rate:.1} Mbit/s, {left} left")
    }
}

/// A bar with rate and remaining time; without a total, a sign of life.
fn bar(title: &'static str, total: Option<u64>) -> ProgressBar {
    let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    let template = if total.is_some() { WITH_TOTAL } else { WITHOUT_TOTAL };
    // The templates are fixed, and they parse.
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(
        style
            .with_key("done", |state: &ProgressState, out: &mut dyn Write| {
                show(out, Size(state.pos()));
            })
            .with_key("total", |state: &ProgressState, out: &mut dyn Write| {
                show(out, Size(state.len().unwrap_or_default()));
            })
            .with_key("rate", |state: &ProgressState, out: &mut dyn Write| {
                show(out, format_args!("{:.1} Mbit/s", state.per_sec() * 8.0 / 1e6));
            })
            .with_key("eta", |state: &ProgressState, out: &mut dyn Write| {
                show(out, clock(state.eta()));
            }),
    );
    BARS.add(bar.with_prefix(title))
}

fn show(out: &mut dyn Write, value: impl std::fmt::Display) {
    // The bar writes into a string, which takes everything.
    let _ = write!(out, "{value}");
}

/// How much is done, in whole percent, rounded down.
fn percent(bytes: u64, total: u64) -> u64 {
    let percent = u128::from(bytes) * 100 / u128::from(total.max(1));
    u64::try_from(percent).unwrap_or(u64::MAX)
}

/// How long the rest takes at the mean rate so far.
fn remaining(bytes: u64, total: u64, elapsed: Duration) -> Option<Duration> {
    let rate = mbit_per_s(bytes, elapsed);
    let rest = mbit_per_s(total.saturating_sub(bytes), Duration::from_secs(1));
    Duration::try_from_secs_f64(rest / rate).ok()
}

/// Minutes and seconds, or hours before them.
fn clock(time: Duration) -> String {
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

    #[test]
    fn templates_parse() {
        for template in [WITH_TOTAL, WITHOUT_TOTAL] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }

    #[test]
    fn the_rest_takes_as_long_as_the_rate_so_far_says() {
        let second = Duration::from_secs(1);
        assert_eq!(remaining(25, 100, second), Some(3 * second));
        assert_eq!(remaining(0, 100, second), None);
    }

    #[test]
    fn times_and_shares_are_shown() {
        assert_eq!(clock(Duration::from_secs(59)), "0:59");
        assert_eq!(clock(Duration::from_secs(3_661)), "1:01:01");
        assert_eq!((percent(0, 0), percent(199, 200), percent(200, 200)), (0, 99, 100));
    }

    #[test]
    fn a_line_tells_size_rate_and_rest() {
        let progress = Progress::new(ProgressMode::None, "copied", Some(4 << 20));
        let line = progress.describe(1 << 20, 93.75);
        assert!(line.starts_with("copied 1 MiB of 4 MiB (25%), 93.8 Mbit/s, 0:0"), "{line}");
        let stream = Progress::new(ProgressMode::None, "copied", None);
        assert_eq!(stream.describe(1 << 20, 8.0), "copied 1 MiB, 8.0 Mbit/s");
    }
}
