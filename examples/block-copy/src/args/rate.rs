//! How fast it may go, and who may change that.

use std::path::PathBuf;

use clap::Args;
use iscsi_initiator::shaping::Rate;

/// How fast it may go.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "How fast it may go")]
pub struct RateArgs {
    /// What is read from a unit and written to one goes no faster, each by itself: 40mbit, 2.5gbit, or
    /// in bytes 5MB/s, 1MiB/s; 1kbit to 1000gbit. off is no limit.
    #[arg(long, value_name = "RATE|off", value_parser = parse_limit)]
    pub rate_limit: Option<Rate>,
    /// Shares the classes of another block-copy, which keeps them at this --control PATH: what is read from
    /// a unit and written to one goes when its classes let it pass.
    #[arg(long, value_name = "PATH", conflicts_with = "rate_limit")]
    pub share: Option<PathBuf>,
    /// Which of the classes at --share; without it what all others leave.
    #[arg(long, value_name = "NAME", requires = "share")]
    pub class: Option<String>,
    /// A Unix socket that takes orders while the copy runs, a line each, and answers each with one JSON
    /// object: `rate RATE`, `rate off`, `pause`, `resume`, `status`. Only this user may connect to it.
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

/// A rate at which something passes.
pub(crate) fn parse_limit(text: &str) -> Result<Rate, String> {
    match text.parse() {
        Ok(Rate::Zero) => Err("nothing would ever pass; 1kbit is the lowest rate".to_owned()),
        Ok(rate) => Ok(rate),
        Err(error) => Err(error.to_string()),
    }
}
