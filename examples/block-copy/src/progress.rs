//! The progress of a copy, for people.

use std::io::{IsTerminal, stderr};
use std::sync::LazyLock;
use std::time::Duration;

use clap::ValueEnum;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use iscsi_copy::Progress as CopyProgress;

use crate::activity::Activity;
use crate::bar_line::BarLine;
use crate::log;
use crate::output;
use crate::standing::Standing;
use crate::terminal;

/// The way in which progress is shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum ProgressMode {
    /// A bar on a terminal, else lines.
    Auto,
    /// A bar with rate and remaining time; lines where there is no terminal.
    Bar,
    /// A line with a time stamp now and then.
    Plain,
    /// Nothing but errors.
    None,
}

/// Where a terminal does not say how wide it is.
const COLUMNS: usize = 80;
/// The line is rendered here, for the columns that there are by now.
const TEMPLATE: &str = "{wide_msg}";

/// The bar of this process, if there is one just now.
static BARS: LazyLock<MultiProgress> =
    LazyLock::new(|| MultiProgress::with_draw_target(terminal::draw_target()));

/// Puts whole lines on standard error, above the bar where there is one.
pub fn say(lines: &str) {
    // Whoever draws the bar has the lock, and may wait for the terminal.
    output::aside(|| BARS.suspend(|| output::say(lines)));
}

/// The work of a pass.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pass {
    /// Copies them.
    Copy,
    /// Reads them back and compares.
    Verify,
}

/// The display of one pass over the bytes.
#[derive(Debug)]
pub struct Progress {
    pass: Pass,
    display: Display,
}

#[derive(Debug)]
enum Display {
    Bar(ProgressBar),
    /// A line each time that this has passed.
    Lines(Duration),
    Nothing,
}

impl Progress {
    /// Begins to show a pass over `total` bytes at most, if their number is known. Where there is no bar, a line is
    /// written each `interval`.
    pub fn new(mode: ProgressMode, interval: Duration, pass: Pass, total: Option<u64>) -> Self {
        let display = match mode {
            ProgressMode::None => Display::Nothing,
            ProgressMode::Auto | ProgressMode::Bar if stderr().is_terminal() => {
                Display::Bar(bar(total))
            }
            ProgressMode::Auto | ProgressMode::Bar | ProgressMode::Plain => {
                Display::Lines(interval)
            }
        };
        Self { pass, display }
    }

    /// What is done to the bytes.
    pub(crate) const fn title(&self) -> &'static str {
        match self.pass {
            Pass::Copy => "copied",
            Pass::Verify => "verified",
        }
    }

    /// Draws the bar anew.
    pub(crate) fn refresh(&self, now: &CopyProgress, activity: Activity, elapsed: Duration) {
        if let Display::Bar(bar) = &self.display {
            output::aside(|| {
                advance(bar, now);
                let columns = terminal::columns().unwrap_or(COLUMNS);
                let line = self.bar_line(bar, now, activity, elapsed);
                bar.set_message(line.render(columns));
            });
        }
    }

    fn bar_line(
        &self,
        bar: &ProgressBar,
        now: &CopyProgress,
        activity: Activity,
        elapsed: Duration,
    ) -> BarLine {
        let CopyProgress { done, total, .. } = *now;
        let rate = bar.per_sec() * 8.0 / 1e6;
        let pass = match self.pass {
            Pass::Copy => "copy",
            Pass::Verify => "verify",
        };
        let left = (rate > 0.0).then(|| bar.eta());
        BarLine { pass, done, total, activity, rate, elapsed, left }
    }

    /// How often a line is due; `None` where there are no lines.
    pub(crate) const fn line_interval(&self) -> Option<Duration> {
        if let Display::Lines(interval) = self.display { Some(interval) } else { None }
    }

    /// Tells how it stands, as a line.
    pub(crate) fn tell(&self, standing: &Standing) {
        say(&format!("{} {}\n", log::time_stamp(), standing.line(self.title())));
    }

    /// Says something above the bar, or between two lines and with a time stamp as these.
    pub(crate) fn remark(&self, text: &str) {
        match &self.display {
            Display::Bar(_) => say(&format!("{text}\n")),
            Display::Lines(_) => say(&format!("{} {text}\n", log::time_stamp())),
            Display::Nothing => {}
        }
    }

    /// Takes the bar away; what is to be said at the end is the caller's.
    pub(crate) fn finish(&self) {
        if let Display::Bar(bar) = &self.display {
            output::aside(|| bar.finish_and_clear());
        }
    }
}

/// A line at the bottom of the terminal; it counts the bytes, for their rate.
fn bar(total: Option<u64>) -> ProgressBar {
    let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
    // The template is fixed, and it parses.
    let style = ProgressStyle::with_template(TEMPLATE);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    BARS.add(bar)
}

/// Moves a bar, and makes it as long as what there is to do.
fn advance(bar: &ProgressBar, now: &CopyProgress) {
    if bar.length().is_some() {
        // Before both ends were looked at nobody knows.
        let Some(total) = now.total else { return };
        if bar.length() != Some(total) || bar.position() < now.resumed {
            bar.update(|state| {
                state.set_len(total);
                state.set_pos(now.resumed);
            });
            // The rate is that of what is done from now on.
            bar.reset_eta();
        }
    }
    bar.set_position(now.done);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_parses() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }
}
