//! Options for the rate, and for its changes while the copy runs.

use std::path::PathBuf;

use clap::Args;
use iscsi_examples_common::help::heading;
use iscsi_initiator::shaping::RateLimit;

/// The limits of the rate.
#[derive(Clone, Debug, Default, Args)]
pub struct RateArgs {
    /// Limit reads from a unit, and writes to one, as 40mbit or 5MB/s.
    ///
    /// 1kbit to 1000gbit, in bits a second (kbit, mbit, gbit: powers of 1000) or bytes a second (kB/s, MB/s, GB/s:
    /// powers of 1000; KiB/s, MiB/s, GiB/s: powers of 1024). Reads and writes have the limit each. `off` is no limit,
    /// and the default.
    #[arg(long, value_name = "RATE|off", value_parser = parse_limit, help_heading = heading::RATE)]
    pub rate_limit: Option<RateLimit>,
    /// Share the traffic classes of the block-copy with --control PATH.
    ///
    /// Reads from a unit, and writes to one, wait until the classes of that process let them pass.
    #[arg(long, value_name = "PATH", conflicts_with = "rate_limit", help_heading = heading::RATE)]
    pub share: Option<PathBuf>,
    /// Class to use with --share.
    ///
    /// Without the option the copy gets what all classes leave.
    #[arg(long, value_name = "NAME", requires = "share", help_heading = heading::RATE)]
    pub class: Option<String>,
    /// Unix socket that takes commands while the copy runs.
    ///
    /// A line each: `rate RATE`, `rate off`, `pause`, `resume`, `status`. Each is answered with one JSON object. Only
    /// the same user may connect.
    #[arg(long, value_name = "PATH", help_heading = heading::RATE)]
    pub control: Option<PathBuf>,
}

/// Parses a rate limit. A rate of 0 is an error.
pub(crate) fn parse_limit(text: &str) -> Result<RateLimit, String> {
    match text.parse() {
        Ok(RateLimit::Zero) => Err("nothing would ever pass; 1kbit is the lowest rate".to_owned()),
        Ok(rate) => Ok(rate),
        Err(error) => Err(error.to_string()),
    }
}
