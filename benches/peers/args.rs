//! The command line.

use std::fmt::{self, Display};
use std::io;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use iscsi_lab::size::Size;
use tokio::runtime::Builder;

/// Compares the initiator with libiscsi over the loopback interface, or is one of the programs compared.
#[derive(Debug, Parser)]
#[command(name = "short_link", args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) compare: CompareArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Read or write through the initiator, and print what it costs.
    Run(RunArgs),
    /// Read or write a TCP stream without iSCSI, and print what it costs.
    Bare(BareArgs),
    /// Read through the session's state machine alone, and print what it costs.
    SessionAlone(AloneArgs),
    /// Serve a unit that keeps no data, print its URL, and end when standard input ends.
    NullTarget,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct CompareArgs {
    /// Number of runs of each program in each row.
    #[arg(long, default_value_t = 5)]
    pub(crate) runs: u32,
    /// Measure only the rows whose name contains PATTERN, as in "read 4K x 1".
    #[arg(long, value_name = "PATTERN")]
    pub(crate) only: Option<String>,
    /// Runtimes of the initiator to measure.
    ///
    /// The table shows each as a program of its own.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "current")]
    pub(crate) runtime: Vec<Runtime>,
    /// Set a login key of the target, as in MaxRecvDataSegmentLength=262144.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) target_key: Vec<String>,
    /// File for the result.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Run each row once, with few requests, to check that it works.
    ///
    /// The figures mean nothing.
    #[arg(long)]
    pub(crate) test: bool,
}

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// URL of the unit.
    pub(crate) url: String,
    #[arg(value_enum)]
    pub(crate) direction: Direction,
    /// Bytes of one request.
    pub(crate) io: Size,
    /// Requests in flight of each disk.
    pub(crate) depth: u32,
    /// Bytes to transfer, of all disks together.
    pub(crate) bytes: Size,
    /// Coverage of the digests.
    #[arg(value_enum, default_value_t)]
    pub(crate) digests: Digests,
    /// Runtime of tokio.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) runtime: Runtime,
    /// Number of disks, each with its own session.
    #[arg(long, default_value_t = 1)]
    pub(crate) disks: u32,
    /// Number of sessions that all disks share.
    ///
    /// Each disk is a unit of its own: the first is that of the URL, and the others follow it.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) sessions: Option<u16>,
    /// Send no request for SECONDS, and measure that time.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) idle: Option<u64>,
    /// Read into a new buffer each time, in place of one that was used before.
    #[arg(long)]
    pub(crate) fresh: bool,
}

#[derive(Args, Debug)]
pub(crate) struct BareArgs {
    #[arg(value_enum)]
    pub(crate) direction: Direction,
    /// Bytes of one send, without its header.
    pub(crate) io: Size,
    /// Bytes to transfer.
    pub(crate) bytes: Size,
    /// Number of buffers that are read into in turn, as by a program with that many requests in flight.
    #[arg(long, default_value_t = 1)]
    pub(crate) depth: u32,
}

#[derive(Args, Debug)]
pub(crate) struct AloneArgs {
    /// URL of the unit, with blocks of 512 bytes.
    ///
    /// It must be at least as long as what each session reads: BYTES divided by the number of sessions.
    pub(crate) url: String,
    /// Bytes of one read.
    pub(crate) io: Size,
    /// Reads in flight of each session.
    pub(crate) depth: u32,
    /// Bytes to read, of all sessions together.
    pub(crate) bytes: Size,
    /// Number of sessions.
    #[arg(long, default_value_t = 1)]
    pub(crate) disks: u32,
    /// Give each read in flight a task of its own.
    ///
    /// The task hands the read to the session, which is behind a lock, sends it, and learns of its end through a channel.
    #[arg(long)]
    pub(crate) tasks: bool,
    /// Runtime of tokio.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) runtime: Runtime,
}

/// Direction of the transfer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// Coverage of the digests.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(crate) enum Digests {
    #[default]
    None,
    Header,
    Both,
}

/// Runtime of tokio.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(crate) enum Runtime {
    /// The program's own thread.
    #[default]
    Current,
    /// A thread for each processor.
    Multi,
}

impl Runtime {
    /// Builds this kind of runtime, with sockets and timers.
    pub(crate) fn build(self) -> io::Result<tokio::runtime::Runtime> {
        let mut builder = match self {
            Self::Current => Builder::new_current_thread(),
            Self::Multi => Builder::new_multi_thread(),
        };
        builder.enable_all().build()
    }
}

impl Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
        })
    }
}

impl Display for Digests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Header => "header",
            Self::Both => "both",
        })
    }
}

impl Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Current => "current",
            Self::Multi => "multi",
        })
    }
}
