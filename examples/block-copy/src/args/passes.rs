//! Options for a source that is written to during the copy.

use std::time::Duration;

use clap::{Args, ValueEnum};
use iscsi_examples_common::help::heading;
use iscsi_examples_common::time;

/// The passes over a source in use.
#[derive(Clone, Debug, Args)]
pub struct PassArgs {
    /// Copy in passes; CMD lists what changed since the last one.
    ///
    /// For a source that is written to during the copy. `sh -c CMD` runs after each pass and prints, in the formats of
    /// --ranges, what was changed since its last run; the first time since before the copy began. That is the next
    /// pass. What CMD has printed once it need not print again. It must end with a status other than 0 if it fails.
    #[arg(long, value_name = "CMD", conflicts_with_all = ["offset", "length"], help_heading = heading::SOURCE_IN_USE)]
    pub ranges_from: Option<String>,
    /// How long the last pass may take, as 2s.
    ///
    /// No program may write to the source during the last pass. Passes are repeated until the next one will be as
    /// short as this, or more of them do not help.
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = time::parse,
          requires = "ranges_from", help_heading = heading::SOURCE_IN_USE)]
    pub downtime: Duration,
    /// Passes before the last one, 1 to 1000.
    #[arg(long, value_name = "N", default_value_t = MAX_PASSES,
          value_parser = clap::value_parser!(u32).range(1..=1000), requires = "ranges_from", help_heading = heading::SOURCE_IN_USE)]
    pub max_passes: u32,
    /// Command that ends all writing to the source.
    ///
    /// It runs once, by `sh -c`, before the last pass: it pauses a guest, for instance, or shuts it down. After it the
    /// command of --ranges-from runs once more.
    #[arg(long, value_name = "CMD", requires = "ranges_from", help_heading = heading::SOURCE_IN_USE)]
    pub before_last_pass: Option<String>,
    /// What to do if more passes do not help.
    #[arg(long, value_name = "finish|stop", value_enum, default_value_t = WhenNotConverging::Finish,
          requires = "ranges_from", help_heading = heading::SOURCE_IN_USE)]
    pub when_not_converging: WhenNotConverging,
}

/// Default maximum of passes. Xen by default makes about as many passes over a guest's memory (29); QEMU has no
/// limit. The copy ends earlier if it notices that passes do not help. If each pass leaves 10 % less to copy
/// than the previous one, a twentieth is left after thirty passes.
const MAX_PASSES: u32 = 30;
const DOWNTIME: Duration = Duration::from_millis(300);

impl Default for PassArgs {
    fn default() -> Self {
        Self {
            ranges_from: None,
            downtime: DOWNTIME,
            max_passes: MAX_PASSES,
            before_last_pass: None,
            when_not_converging: WhenNotConverging::Finish,
        }
    }
}

/// The action where more passes do not help.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum WhenNotConverging {
    /// Makes the last pass, however long it takes.
    Finish,
    /// Copies what was listed by then, does not run --before-last-pass, and ends with exit status 4.
    Stop,
}
