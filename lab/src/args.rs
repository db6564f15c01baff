//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::scenario::Direction;
use crate::size::Size;

/// Seconds of a day.
const DAY: u64 = 86_400;

/// Run programs between two hosts with a chosen round-trip time, rate and loss, against LIO
///
/// The exit status is 0 when all went well (without --strict, a figure that timed out or failed is a
/// result, not an error), 1 after an error, 2 for a wrong command line or scenario, 3 when this
/// machine has no environment for a lab, 124 when the limit ended the run, 128 and the signal's number
/// after an interrupt; `exec` passes its program's status on.
#[derive(Clone, Debug, Parser)]
#[command(name = "lab", version)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands of the lab.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Measure all that a scenario names, and write the figures to a file.
    Run(RunArgs),
    /// Run a program with `LAB_URL`, the URL of the target, in its environment.
    Exec(ExecArgs),
    /// Draw tables and charts of result files.
    Draw(DrawArgs),
    /// Start the lab again, inside its environment.
    #[command(hide = true)]
    Agent {
        /// The command to carry out there.
        job: String,
    },
}

/// The arguments of `lab run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// The scenario, a TOML file.
    pub scenario: PathBuf,
    /// The file for the result [default: target/lab/NAME.json].
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Measure only these programs, as the scenario names them.
    #[arg(long, value_name = "WHO", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Measure only this direction.
    #[arg(long, value_enum, value_name = "WAY")]
    pub direction: Option<Direction>,
    /// End with status 1 if a figure failed or timed out.
    #[arg(long)]
    pub strict: bool,
    /// The folder of the programs to measure [default: the release folder of this workspace, where block-copy is built
    /// first].
    #[arg(long, value_name = "FOLDER")]
    pub tree: Option<PathBuf>,
    /// The environment and the limits.
    #[command(flatten)]
    pub lab: LabArgs,
}

/// The arguments of `lab exec`.
#[derive(Args, Clone, Debug)]
pub struct ExecArgs {
    /// The environment and the limits.
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
    /// The result files of `lab run`.
    #[arg(required = true, value_name = "RESULT")]
    pub results: Vec<PathBuf>,
    /// Mark the figures that reach the goals of this scenario.
    #[arg(long, value_name = "SCENARIO")]
    pub goals: Option<PathBuf>,
    /// The folder for NAME.md and its charts, for each NAME.json.
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
}

/// The environment of a lab, and its limits.
#[derive(Args, Clone, Debug)]
pub struct LabArgs {
    /// The environment: a kernel of its own, or network namespaces of this machine.
    #[arg(long = "where", value_enum, value_name = "ENVIRONMENT", default_value_t = Where::Auto)]
    pub environment: Where,
    /// Seconds until the lab is ended, at most a day [default: an hour; for a scenario the time that its measurements may
    /// take].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=DAY))]
    pub limit: Option<u64>,
    /// The memory of the guest [default: what the units and images need].
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,
}

/// Environments of a lab.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Where {
    /// The guest where it can run, else the host.
    Auto,
    /// A Linux kernel that runs as a program (user-mode-linux).
    Guest,
    /// The kernel of this machine, in network namespaces; needs root.
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
