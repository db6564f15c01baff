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
    /// Reads or writes through the initiator, and prints what it cost.
    Run(RunArgs),
    /// Reads or writes a TCP stream without iSCSI, and prints what it cost.
    Bare(BareArgs),
    /// Reads through the session's state machine alone, and prints what it cost.
    SessionAlone(AloneArgs),
    /// Serves a unit that keeps nothing until standard input ends, and prints its URL.
    NullTarget,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct CompareArgs {
    /// Runs of each program in each row.
    #[arg(long, default_value_t = 5)]
    pub(crate) runs: u32,
    /// Only rows whose name contains this, as in "read 4K x 1".
    #[arg(long, value_name = "PATTERN")]
    pub(crate) only: Option<String>,
    /// The runtimes of the initiator; each is a program of its own.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "current")]
    pub(crate) runtime: Vec<Runtime>,
    /// A key of the target in place of its default, as in MaxRecvDataSegmentLength=262144.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) target_key: Vec<String>,
    /// The result's file.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// One short run of everything, for a check; the figures mean nothing.
    #[arg(long)]
    pub(crate) test: bool,
}

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// The unit.
    pub(crate) url: String,
    #[arg(value_enum)]
    pub(crate) direction: Direction,
    /// Bytes of one request.
    pub(crate) io: Size,
    /// Requests under way, of each disk.
    pub(crate) depth: u32,
    /// Bytes to move, over all disks together.
    pub(crate) bytes: Size,
    /// What the digests cover.
    #[arg(value_enum, default_value_t)]
    pub(crate) digests: Digests,
    #[arg(long, value_enum, default_value_t)]
    pub(crate) runtime: Runtime,
    /// So many disks, each with a session of its own.
    #[arg(long, default_value_t = 1)]
    pub(crate) disks: u32,
    /// So many sessions carry them all, and each disk is a unit of its own: those from the URL's on.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) sessions: Option<u16>,
    /// Asks for nothing in the measured time, for so many seconds.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) idle: Option<u64>,
    /// Reads into a new buffer each time, in place of the one that came back before.
    #[arg(long)]
    pub(crate) fresh: bool,
}

#[derive(Args, Debug)]
pub(crate) struct BareArgs {
    #[arg(value_enum)]
    pub(crate) direction: Direction,
    /// Bytes of one send, without its header.
    pub(crate) io: Size,
    /// Bytes to move.
    pub(crate) bytes: Size,
    /// Reads come into so many buffers in turns, as those of a program with so many requests under way.
    #[arg(long, default_value_t = 1)]
    pub(crate) depth: u32,
}

#[derive(Args, Debug)]
pub(crate) struct AloneArgs {
    /// The unit, with blocks of 512 bytes, and as long as what each session reads, from its beginning on.
    pub(crate) url: String,
    /// Bytes of one read.
    pub(crate) io: Size,
    /// Reads under way, of each session.
    pub(crate) depth: u32,
    /// Bytes to read, over all sessions together.
    pub(crate) bytes: Size,
    /// So many sessions.
    #[arg(long, default_value_t = 1)]
    pub(crate) disks: u32,
    /// Each read under way has a task of its own: it hands the read to the session, which is behind a lock, sends it, and
    /// hears of its end through a channel.
    #[arg(long)]
    pub(crate) tasks: bool,
    /// Which runtime carries them.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) runtime: Runtime,
}

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// What has a digest.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(crate) enum Digests {
    #[default]
    None,
    Header,
    Both,
}

/// Which of tokio's runtimes carries the initiator.
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
