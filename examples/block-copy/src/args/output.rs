//! What people and programs get to see.

use clap::Args;

use crate::progress::ProgressMode;

/// How it is told.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "How it is told")]
pub struct OutputArgs {
    /// How to show progress on standard error; auto is a bar on a terminal, else a line a second;
    /// none shows errors only.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = ProgressMode::Auto)]
    pub progress: ProgressMode,
    /// Prints one JSON object with the result, or the failure, on standard output.
    #[arg(long)]
    pub json: bool,
    /// Prints one JSON object a second on standard output, and the one of --json as the last. Of one copy: not
    /// together with --jobs.
    #[arg(long)]
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
