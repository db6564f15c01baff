//! Shows the progress of a copy on standard error.

pub mod activity;
pub(crate) mod bar_line;
pub(crate) mod heading;
pub(crate) mod json_lines;
pub mod meter;
pub(crate) mod shortened;
pub mod status;
pub(crate) mod terminal;

use std::io::{IsTerminal, stderr};
use std::sync::LazyLock;
use std::time::Duration;

use clap::ValueEnum;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use iscsi_copy::Progress as CopyProgress;

use self::activity::Activity;
use self::bar_line::BarLine;
use self::status::Status;
use crate::log;
use crate::output;

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

/// Columns of a terminal that does not report its width.
const COLUMNS: usize = 80;
/// The template has only a message: `BarLine` renders the whole line, because the number of columns may change.
const TEMPLATE: &str = "{wide_msg}";

/// The bar of this process, if one is shown.
static BARS: LazyLock<MultiProgress> =
    LazyLock::new(|| MultiProgress::with_draw_target(terminal::draw_target()));

/// Writes whole lines to standard error, above the bar if there is one.
pub fn eprint_lines(lines: &str) {
    // `aside`, because this may block: the task that draws the bar may hold its lock while it waits for the terminal.
    output::aside(|| BARS.suspend(|| output::eprint_lines(lines)));
}

/// The kind of a pass: it copies, or reads back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pass {
    /// Copies the bytes.
    Copy,
    /// Reads the bytes back and compares them.
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
    /// Lines at this interval.
    Lines(Duration),
    Nothing,
}

impl Progress {
    /// Begins to show a pass over `total` bytes, if their number is known. Without a bar, writes a line every
    /// `interval`.
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

    /// Returns the word for the pass in lines: "copied" or "verified".
    pub(crate) const fn title(&self) -> &'static str {
        match self.pass {
            Pass::Copy => "copied",
            Pass::Verify => "verified",
        }
    }

    /// Redraws the bar.
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

    /// Returns the interval of the lines; `None` if no lines are written.
    pub(crate) const fn line_interval(&self) -> Option<Duration> {
        if let Display::Lines(interval) = self.display { Some(interval) } else { None }
    }

    /// Writes the state of the pass as a line.
    pub(crate) fn print_status(&self, status: &Status) {
        eprint_lines(&format!("{} {}\n", log::time_stamp(), status.line(self.title())));
    }

    /// Writes a remark: above the bar if there is one, otherwise as a line with a time stamp.
    pub(crate) fn remark(&self, text: &str) {
        match &self.display {
            Display::Bar(_) => eprint_lines(&format!("{text}\n")),
            Display::Lines(_) => eprint_lines(&format!("{} {text}\n", log::time_stamp())),
            Display::Nothing => {}
        }
    }

    /// Removes the bar. The caller prints the last message.
    pub(crate) fn finish(&self) {
        if let Display::Bar(bar) = &self.display {
            output::aside(|| bar.finish_and_clear());
        }
    }
}

/// Creates a bar at the bottom of the terminal. The bar counts bytes, from which its rate is computed.
fn bar(total: Option<u64>) -> ProgressBar {
    let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
    // The template is constant and valid.
    let style = ProgressStyle::with_template(TEMPLATE);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    BARS.add(bar)
}

/// Moves a bar, and sets its length to the total.
fn advance(bar: &ProgressBar, now: &CopyProgress) {
    if bar.length().is_some() {
        // The total is not known before source and destination are open.
        let Some(total) = now.total else { return };
        if bar.length() != Some(total) || bar.position() < now.resumed {
            bar.update(|state| {
                state.set_len(total);
                state.set_pos(now.resumed);
            });
            // Bytes of an earlier run must not count in the rate, so the rate begins here.
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
