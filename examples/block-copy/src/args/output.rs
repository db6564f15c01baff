//! What people and programs get to see.

use clap::Args;
use iscsi_examples_common::help::heading;

use crate::progress::ProgressMode;

/// How it is told.
#[derive(Clone, Debug, Args)]
pub struct OutputArgs {
    /// How to show progress on standard error.
    #[arg(long, value_name = "auto|bar|plain|none", value_enum, default_value_t = ProgressMode::Auto, help_heading = heading::OUTPUT)]
    pub progress: ProgressMode,
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
    /// Whether standard output gets the result as an object.
    pub const fn wants_json(&self) -> bool {
        self.json || self.json_lines
    }
}

impl Default for OutputArgs {
    fn default() -> Self {
        Self { progress: ProgressMode::Auto, json: false, json_lines: false }
    }
}
