//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::scenario::Direction;
use crate::size::Size;

/// Seconds of a day.
const DAY: u64 = 86_400;

/// Runs programs between two hosts with a chosen round-trip time, rate and loss, against LIO.
///
/// The exit status is 0 when all went well (without --strict, a figure that timed out or failed is a
/// result, not an error), 1 after an error, 2 for a wrong command line or scenario, 3 when this
/// machine has no environment for a lab, 124 when the limit ended the run, 128 and the signal's number
/// after an interrupt; `exec` passes its program's status on.
#[derive(Clone, Debug, Parser)]
#[command(name = "lab", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the lab can do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Measures all that a scenario names, and writes the figures to a file.
    Run(RunArgs),
    /// Runs a program with `LAB_URL`, the target's URL, in its environment.
    Exec(ExecArgs),
    /// Makes tables and charts of result files.
    Draw(DrawArgs),
    /// How the lab starts itself in its environment.
    #[command(hide = true)]
    Agent {
        /// What to do there.
        job: String,
    },
}

/// The arguments of `lab run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// The scenario, a TOML file.
    pub scenario: PathBuf,
    /// The result's file; target/lab/NAME.json if not given.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Measure only these.
    #[arg(long, value_name = "WHO", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Measure only what goes this way.
    #[arg(long, value_enum, value_name = "WAY")]
    pub direction: Option<Direction>,
    /// End with status 1 if a figure failed or timed out.
    #[arg(long)]
    pub strict: bool,
    /// Where the built programs are; by default this workspace's release folder, and block-copy is
    /// built there first.
    #[arg(long, value_name = "FOLDER")]
    pub tree: Option<PathBuf>,
    /// Where and how long.
    #[command(flatten)]
    pub lab: LabArgs,
}

/// The arguments of `lab exec`.
#[derive(Args, Clone, Debug)]
pub struct ExecArgs {
    /// Where and how long.
    #[command(flatten)]
    pub lab: LabArgs,
    /// The link (`rtt=MS`, `rate=RATE`, `loss=PERCENT`) and what lab/lio takes (`lun=0:256M`,
    /// `depth=N`, `InitialR2T=No`, ...).
    #[arg(value_name = "KEY=VALUE")]
    pub words: Vec<String>,
    /// The program and its arguments; `{url}` in them becomes the target's URL.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<String>,
}

/// The arguments of `lab draw`.
#[derive(Args, Clone, Debug)]
pub struct DrawArgs {
    /// The files that `lab run` left.
    #[arg(required = true, value_name = "RESULT")]
    pub results: Vec<PathBuf>,
    /// Tell beside the figures which of them reach the goals of this scenario.
    #[arg(long, value_name = "SCENARIO")]
    pub goals: Option<PathBuf>,
    /// The folder for NAME.md and its charts, for each NAME.json.
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
}

/// Where a lab is set up, and what it may take.
#[derive(Args, Clone, Debug)]
pub struct LabArgs {
    /// In a kernel of its own, or in network namespaces of this machine's.
    #[arg(long = "where", value_enum, value_name = "ENVIRONMENT", default_value_t = Where::Auto)]
    pub environment: Where,
    /// Seconds until the whole is ended; by default an hour, and for a scenario what its
    /// measurements may take at most. At most a day.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=DAY))]
    pub limit: Option<u64>,
    /// The guest's memory; by default what the units and images need.
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,
}

/// Where a lab may be set up.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Where {
    /// A guest if that can be, else the host.
    Auto,
    /// A Linux kernel that runs as a program: user-mode-linux.
    Guest,
    /// This machine's own kernel, in network namespaces; for root.
    Host,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_limit_is_no_longer_than_a_day() {
        let line = |limit| ["lab", "exec", "--limit", limit, "--", "true"];
        assert!(Cli::try_parse_from(line("86400")).is_ok());
        for limit in ["0", "86401", "18446744073709551615"] {
            assert!(Cli::try_parse_from(line(limit)).is_err(), "{limit}");
        }
    }

    #[test]
    fn all_after_the_dashes_belongs_to_the_program() {
        let line = ["lab", "exec", "rtt=100", "lun=0:64M", "--", "cat", "--limit", "rtt=1"];
        let Command::Exec(exec) = Cli::parse_from(line).command else { panic!("another command") };
        assert_eq!(exec.words, ["rtt=100", "lun=0:64M"]);
        assert_eq!(exec.program, ["cat", "--limit", "rtt=1"]);
    }
}
