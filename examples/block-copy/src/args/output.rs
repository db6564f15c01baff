//! Options for the output, as readable text and as JSON.

use std::time::Duration;

use clap::{ArgAction, Args};
use iscsi_examples_common::help::heading;
use iscsi_examples_common::time;

use crate::log::Usually;
use crate::progress::ProgressMode;

/// Default interval of the lines of progress.
const LINE_INTERVAL: Duration = Duration::from_secs(60);
/// Shortest interval of the lines of progress.
const LEAST_INTERVAL: Duration = Duration::from_secs(1);

/// What the program prints.
#[derive(Clone, Debug, Args)]
pub struct OutputArgs {
    /// Show errors only, as --progress none.
    #[arg(short, long, conflicts_with = "verbose", help_heading = heading::OUTPUT)]
    pub quiet: bool,
    /// Show the plan and what held the copy back; -vv logs sessions.
    ///
    /// `-v` prints what was measured and chosen before the copy, and the diagnosis after it. `-vv` also logs what the
    /// sessions do.
    #[arg(short, long, action = ArgAction::Count, help_heading = heading::OUTPUT)]
    pub verbose: u8,
    /// How to show progress on standard error.
    ///
    /// `auto` is a bar on a terminal, and lines with time stamps elsewhere. `none` shows errors only.
    #[arg(long, value_name = "auto|bar|plain|none", value_enum, default_value_t = ProgressMode::Auto, help_heading = heading::OUTPUT)]
    pub progress: ProgressMode,
    /// How often to write a line if there is no bar.
    ///
    /// `10s`, `5min`; at least `1s`.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_interval, help_heading = heading::OUTPUT)]
    pub stats: Duration,
    /// Print the result, or the failure, as one JSON object.
    ///
    /// On standard output.
    #[arg(long, help_heading = heading::OUTPUT)]
    pub json: bool,
    /// Print a JSON object each second, and that of --json last.
    ///
    /// On standard output. For one copy: it cannot be combined with --jobs.
    #[arg(long, help_heading = heading::OUTPUT)]
    pub json_lines: bool,
}

impl OutputArgs {
    /// Returns whether no text is printed except errors.
    pub fn is_silent(&self) -> bool {
        self.mode() == ProgressMode::None
    }

    /// Returns the way in which progress is shown.
    pub fn mode(&self) -> ProgressMode {
        if self.quiet { ProgressMode::None } else { self.progress }
    }

    /// Returns whether the plan and the diagnosis are printed.
    pub fn is_verbose(&self) -> bool {
        self.verbose > 0 && !self.is_silent()
    }

    /// Returns what the log contains if `RUST_LOG` is not set.
    pub fn usually(&self) -> Usually {
        if self.is_silent() {
            Usually::Silence
        } else if self.verbose > 1 {
            Usually::Details
        } else {
            Usually::Warnings
        }
    }

    /// Returns whether the result is written to standard output as a JSON object.
    pub const fn wants_json(&self) -> bool {
        self.json || self.json_lines
    }
}

impl Default for OutputArgs {
    fn default() -> Self {
        Self {
            quiet: false,
            verbose: 0,
            progress: ProgressMode::Auto,
            stats: LINE_INTERVAL,
            json: false,
            json_lines: false,
        }
    }
}

/// Parses the interval between two lines of progress.
fn parse_interval(text: &str) -> Result<Duration, String> {
    let time = time::parse(text)?;
    if time < LEAST_INTERVAL {
        return Err("a line a second is the most; write 1s or more".to_owned());
    }
    Ok(time)
}
