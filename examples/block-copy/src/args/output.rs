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
}

impl Default for OutputArgs {
    fn default() -> Self {
        Self { progress: ProgressMode::Auto, json: false }
    }
}
