//! What people see while they wait.

use std::fmt::Write;
use std::io::{IsTerminal, stderr};
use std::sync::LazyLock;

use clap::ValueEnum;
use indicatif::{MultiProgress, ProgressBar, ProgressState, ProgressStyle};
use iscsi_copy::Progress as CopyProgress;

use crate::output;
use crate::standing::{Standing, clock};
use crate::terminal;
use iscsi_initiator::printable;
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

const WITH_TOTAL: &str = "{prefix} {wide_bar} {percent}% of {total} {rate} {eta} left{msg}";
const WITHOUT_TOTAL: &str = "{prefix} {spinner} {done} {rate}{msg}";

/// The bar of this process, if there is one just now.
static BARS: LazyLock<MultiProgress> =
    LazyLock::new(|| MultiProgress::with_draw_target(terminal::draw_target()));

/// Puts whole lines on standard error, above the bar where there is one.
pub fn say(lines: &str) {
    // Whoever draws the bar has the lock, and may wait for the terminal.
    output::aside(|| BARS.suspend(|| output::say(lines)));
}

/// The display of one pass over the bytes.
#[derive(Debug)]
pub struct Progress {
    title: &'static str,
    display: Display,
}

#[derive(Debug)]
enum Display {
    Bar(ProgressBar),
    Lines,
    Nothing,
}

impl Progress {
    /// Begins to show a pass over `total` bytes at most, if their number is known.
    pub fn new(mode: ProgressMode, title: &'static str, total: Option<u64>) -> Self {
        let display = match mode {
            ProgressMode::None => Display::Nothing,
            ProgressMode::Plain => Display::Lines,
            ProgressMode::Auto | ProgressMode::Bar if !stderr().is_terminal() => Display::Lines,
            ProgressMode::Auto | ProgressMode::Bar => Display::Bar(bar(title, total)),
        };
        Self { title, display }
    }

    /// What is done to the bytes.
    pub(crate) const fn title(&self) -> &'static str {
        self.title
    }

    /// Moves the bar.
    pub(crate) fn refresh(&self, now: &CopyProgress) {
        if let Display::Bar(bar) = &self.display {
            output::aside(|| refresh(bar, now));
        }
    }

    /// Tells how a second went: as a line, or behind the bar.
    pub(crate) fn tell(&self, standing: &Standing) {
        match &self.display {
            Display::Bar(bar) => {
                output::aside(|| bar.set_message(printable(&standing.to_string())))
            }
            Display::Lines => say(&format!("{}\n", standing.line(self.title))),
            Display::Nothing => {}
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

/// Moves a bar, and makes it as long as what there is to do.
fn refresh(bar: &ProgressBar, now: &CopyProgress) {
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

fn show(out: &mut dyn Write, value: impl std::fmt::Display) {
    // The bar writes into a string, which takes everything.
    let _ = write!(out, "{value}");
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
}
