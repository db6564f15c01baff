//! How a source is copied that somebody writes to.

use std::time::Duration;

use clap::{Args, ValueEnum};

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
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = parse_time,
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
/// A day.
const MAX_TIME: f64 = 86_400.0;

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

/// A time: a number of seconds, or one with `s` or `ms` behind it.
fn parse_time(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let seconds = number.parse().ok().map(|number: f64| number * unit);
    let seconds = seconds.filter(|seconds| (0.0..=MAX_TIME).contains(seconds));
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| "write a time up to a day, as 2s or 500ms".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_or_milliseconds() {
        for (text, millis) in
            [("2s", 2000), ("500ms", 500), ("1.5", 1500), ("0", 0), ("86400s", 86_400_000)]
        {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "-1s", "1m", "NaN", "inf", "86401s", "2 s"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
