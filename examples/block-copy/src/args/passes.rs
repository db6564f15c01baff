//! How a source is copied that somebody writes to.

use std::time::Duration;

use clap::{Args, ValueEnum};
use iscsi_examples_common::time;

/// How a source in use is copied.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "A source in use")]
pub struct PassArgs {
    /// Copies in passes, because the source is written to meanwhile. After each pass CMD is run by `sh -c`, and
    /// prints, as in a file of --ranges, what was changed since it was asked last, or the dirty bitmap that knows; at
    /// the first time since before the copy began. That is the next pass. What it has told it need not tell again.
    #[arg(long, value_name = "CMD", conflicts_with_all = ["offset", "length"])]
    pub ranges_from: Option<String>,
    /// How long the last pass may take, during which nobody may write: 2s, 500ms. There are passes until the next
    /// one will be as short as this, or more of them do not help.
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = time::parse,
          requires = "ranges_from")]
    pub downtime: Duration,
    /// No more than N passes before the last one, 1 to 1000.
    #[arg(long, value_name = "N", default_value_t = MAX_PASSES,
          value_parser = clap::value_parser!(u32).range(1..=1000), requires = "ranges_from")]
    pub max_passes: u32,
    /// Run once by `sh -c` before the last pass, to keep everybody from writing to the source from then on: it pauses
    /// a guest, or shuts it down. The command of --ranges-from is asked once more after it.
    #[arg(long, value_name = "CMD", requires = "ranges_from")]
    pub before_last_pass: Option<String>,
    /// What to do where more passes do not make the last one shorter: finish makes it all the same, stop copies
    /// what was told by then, leaves out --before-last-pass, and ends with exit status 4.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = WhenNotConverging::Finish,
          requires = "ranges_from")]
    pub when_not_converging: WhenNotConverging,
}

/// About as many as Xen used to make of a guest's memory, 29; QEMU has no limit. Where passes do not help that is seen
/// sooner; where each leaves just enough less, thirty of them leave a twentieth.
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

/// What is done where more passes do not help.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum WhenNotConverging {
    /// The last pass is made, however long it takes.
    Finish,
    /// Nobody is kept from writing.
    Stop,
}
