//! Compares the initiator with libiscsi on this machine: the same requests to the same target, and their cost
//! in each of the two. See `benches/README.md`.
//!
//! ```text
//! short_link                                  all rows, with alternate runs of both programs; writes a result file
//! short_link run URL read 64K 32 512M         one run of this program
//! short_link bare read 64K 512M               one run of a TCP stream without iSCSI
//! short_link session-alone URL 4K 4 512M      one run of the session's state machine alone
//! short_link null-target                      the testkit's target whose unit stores nothing; ends with standard input
//! ```
//!
//! `run`, `bare` and `session-alone` print one line of JSON. So does the C program in this folder, which
//! takes the arguments of `run`.
#![allow(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a bench, and no figure is that exact"
)]

mod args;
mod bare;
mod compare;
mod disks;
mod null;
mod programs;
mod rows;
mod session_alone;
mod session_shared;
mod sessions;
mod target;
mod usage;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};

/// An error, as readable text.
type Trouble = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        Some(Command::Run(args)) => disks::run(args).map(|line| println!("{line}")),
        Some(Command::Bare(args)) => bare::run(args).map(|line| println!("{line}")),
        Some(Command::SessionAlone(args)) => sessions::run(args).map(|line| println!("{line}")),
        Some(Command::NullTarget) => null::serve(),
        None => compare::compare(&cli.compare),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("short_link: {trouble}");
            ExitCode::FAILURE
        }
    }
}
