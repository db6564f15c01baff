//! The arguments of the command line.

use std::str::FromStr;
use std::time::Duration;

use clap::Parser;
use iscsi_examples_common::credentials::PasswordFiles;
use iscsi_examples_common::help::heading;
use iscsi_examples_common::time;
use iscsi_initiator::{Policy, Tuning};
use iscsi_tuner::Rate;

/// Measure the link to an iSCSI target, and explain what limits it
///
/// Nothing is ever written to the unit.
///
/// The report goes to standard output, progress and errors to standard error. After an error or an interruption the
/// report has all that was measured before.
#[derive(Clone, Debug, Parser)]
#[command(name = "link-doctor", version)]
pub struct Args {
    /// Target, and unit to read: iscsi://HOST/TARGET/LUN.
    ///
    /// iscsi://USER@HOST:PORT/TARGET/LUN?OPTION=VALUE&..., where user, port, unit and options may be left out; without
    /// a unit nothing is read. A password is best read from a file (--password-file): all users of this host can see
    /// one that is in a URL.
    ///
    /// iscsis:// in place of iscsi:// encrypts the connections by TLS 1.3, up to a tunnel in front of the target.
    pub url: String,
    /// Rate of the narrowest part of the link, if known: 100mbit, 1gbit.
    ///
    /// Without it the rate is assumed, or what the reads fill.
    #[arg(long, value_name = "RATE", help_heading = heading::LINK)]
    pub bandwidth: Option<Rate>,
    /// How socket buffers are chosen.
    ///
    /// `auto` leaves them to the kernel as far as its tuning reaches, and sets them beyond. `static` sets them to what
    /// the link needs. `autotune` never sets them. `thesis` follows Zhang and MacGregor (2011): by round-trip time, its
    /// stability, and memory. `off` sets nothing but TCP_NODELAY.
    #[arg(long, value_name = "POLICY", default_value_t = Policy::Auto, help_heading = heading::LINK)]
    pub tune: Policy,
    /// TCP congestion control, by its name in the kernel.
    ///
    /// Without the option it is the default of the kernel, or what the policy asks for.
    #[arg(long, value_name = "NAME", help_heading = heading::LINK)]
    pub congestion: Option<String>,
    /// Seconds to read, 1 to 3600.
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=3600), help_heading = heading::MEASUREMENT)]
    pub seconds: u64,
    /// Concurrent reads, 1 to 256.
    ///
    /// `auto` takes the number of the plan.
    #[arg(long, value_name = "N|auto", default_value = "auto", help_heading = heading::MEASUREMENT)]
    pub depth: Depth,
    /// Wait for a target that is not ready yet, as 30s or 5min.
    ///
    /// Not ready: nothing listens, the login is refused for now, or a unit is missing. Without the option the program
    /// ends after the first try. `open_timeout` in the URL overrides it.
    #[arg(long, value_name = "TIME", value_parser = time::parse, help_heading = heading::LINK)]
    pub wait: Option<Duration>,
    /// Print the report, or the error, as one JSON object.
    #[arg(long, help_heading = heading::OUTPUT)]
    pub json: bool,
    /// iSCSI name of this initiator [default: made from this host].
    ///
    /// The default is made from the name and the identity of this host.
    #[arg(long, value_name = "IQN", help_heading = heading::LINK)]
    pub initiator_name: Option<String>,
    /// Where the passwords are.
    #[command(flatten)]
    pub passwords: PasswordFiles,
}

impl Args {
    /// Returns the options for the tuner that the arguments set.
    #[must_use]
    pub fn tuning(&self) -> Tuning {
        Tuning::default()
            .with_policy(self.tune)
            .with_bandwidth(self.bandwidth)
            .with_congestion_control(self.congestion.clone())
    }
}

/// The number of reads in flight.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Depth {
    /// The number of the plan.
    Auto,
    /// A fixed number, 1 to 256.
    Fixed(u32),
}

impl Depth {
    /// Maximum number of reads in flight. With the longest I/O size of a plan they have 1 GiB.
    pub const MAX: u32 = 256;
}

impl FromStr for Depth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let depth = text.parse().ok().filter(|depth| (1..=Self::MAX).contains(depth));
        depth
            .map(Self::Fixed)
            .ok_or_else(|| format!("write auto, or a number from 1 to {}", Self::MAX))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(options: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from([&["link-doctor", "iscsi://host/target/0"], options].concat())
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_tuner_is_told() {
        let args = parse(&["--bandwidth", "100mbit", "--tune", "thesis", "--congestion", "bbr"]);
        let tuning = args.unwrap().tuning();
        let expected = Tuning::default()
            .with_policy(Policy::Thesis)
            .with_bandwidth("100mbit".parse().ok())
            .with_congestion_control(Some("bbr".to_owned()));
        assert_eq!(tuning, expected);
        assert_eq!(parse(&[]).unwrap().tuning(), Tuning::default());
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for depth in ["0", "257", "many", "-1", ""] {
            assert!(parse(&["--depth", depth]).is_err(), "{depth:?}");
        }
        for seconds in ["0", "3601", "-1", "1.5", "18446744073709551616"] {
            assert!(parse(&["--seconds", seconds]).is_err(), "{seconds:?}");
        }
        assert_eq!(parse(&["--depth", "256"]).unwrap().depth, Depth::Fixed(256));
    }
}
