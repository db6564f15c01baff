//! What the command line says.

use std::str::FromStr;
use std::time::Duration;

use clap::Parser;
use iscsi_examples_common::credentials::PasswordFiles;
use iscsi_examples_common::time;
use iscsi_initiator::tuning::{Bandwidth, Policy, Tuning};

/// Measures the link to an iSCSI target and explains it. Nothing is ever written to the unit.
///
/// The URL is iscsi://user@host:port/target/lun?option=value, where user, port, unit and options may be left out; without a
/// unit nothing is read. The password of the user is best read from a file (--password-file); LIBISCSI_CHAP_USERNAME and
/// LIBISCSI_CHAP_PASSWORD are read as well. In a URL all users of the host may see it.
///
/// The report goes to standard output, progress and errors to standard error. The exit status is 0
/// when the report is complete, 3 when it is and packets of full length do not arrive (a path-MTU black
/// hole), 1 after an error, 2 for a wrong command line, 130 after an interrupt; whatever was measured by
/// then is reported all the same.
#[derive(Clone, Debug, Parser)]
#[command(name = "link-doctor", version)]
pub struct Args {
    /// The target, and the unit to read: iscsi://host/target/lun.
    pub url: String,
    /// The rate of the narrowest part of the link, if it is known: 100mbit, 1gbit.
    #[arg(long, value_name = "RATE")]
    pub bandwidth: Option<Bandwidth>,
    /// Who decides about the socket: auto, static, autotune, thesis or off.
    #[arg(long, value_name = "POLICY", default_value_t = Policy::Auto)]
    pub tune: Policy,
    /// The congestion control to use, by its name in the kernel.
    #[arg(long, value_name = "NAME")]
    pub congestion: Option<String>,
    /// How long to read, 1 to 3600 seconds.
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
    /// Reads under way at once, 1 to 256; auto is what the plan says.
    #[arg(long, value_name = "N|auto", default_value = "auto")]
    pub depth: Depth,
    /// How long to wait for a target that is not up yet, as 30s or 5min: nothing listens, it refuses the login for now, or the unit
    /// is missing. By default there is one try. A URL may say otherwise (open_patience).
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub wait: Option<Duration>,
    /// Prints the report, or why there is none, as one JSON object.
    #[arg(long)]
    pub json: bool,
    /// The initiator's iSCSI name; by default one that is made from this host's name and identity.
    #[arg(long, value_name = "IQN")]
    pub initiator_name: Option<String>,
    /// Where the passwords are.
    #[command(flatten)]
    pub passwords: PasswordFiles,
}

impl Args {
    /// What is asked of the tuner.
    #[must_use]
    pub fn tuning(&self) -> Tuning {
        let mut tuning = Tuning::default();
        tuning.policy = self.tune;
        tuning.bandwidth = self.bandwidth;
        tuning.congestion_control.clone_from(&self.congestion);
        tuning
    }
}

/// How many reads are under way at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Depth {
    /// As the plan says.
    Auto,
    /// This many, 1 to 256.
    Fixed(u32),
}

impl Depth {
    /// The most reads at once: with the longest I/O size of a plan, 1 GiB.
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
        assert_eq!(tuning.policy, Policy::Thesis);
        assert_eq!(tuning.bandwidth, "100mbit".parse().ok());
        assert_eq!(tuning.congestion_control.as_deref(), Some("bbr"));
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
