//! What the command line says.

use std::ffi::OsString;
use std::num::{NonZeroU32, NonZeroUsize};
use std::str::FromStr;

use clap::{Parser, ValueEnum};
use iscsi_initiator::Sessions;
use iscsi_initiator::tuning::{Bandwidth, Policy, Size, SizeError, UnknownPolicy};

use crate::progress::ProgressMode;

/// Copies a disk image to an iSCSI unit, back, or from unit to unit.
///
/// SOURCE and DESTINATION are each a path (regular file, block device, FIFO), `-` for standard
/// input or output, or a URL: `iscsi://user:password@host:port/target/lun?option=value`, where user,
/// port and options may be left out. A password need not stand in the URL, where other users may
/// see it: LIBISCSI_CHAP_USERNAME and LIBISCSI_CHAP_PASSWORD are read as well.
///
/// The exit status is 0 only when every byte is written, flushed and, with --verify, read back
/// equal; 1 after an error, 2 for a wrong command line, 130 after an interrupt.
#[derive(Clone, Debug, Parser)]
#[command(name = "block-copy", version)]
pub struct Args {
    /// Where the bytes come from: a path, `-` or an iscsi:// URL.
    pub source: OsString,
    /// Where they go: a path, `-` or an iscsi:// URL. A regular file is created if it is missing,
    /// and ends up as long as the source; a unit or a block device must be at least that long.
    pub destination: OsString,
    /// Bytes of one read or write, 512 to 64M; K, M and G are powers of 1024; auto fits it to the
    /// link and to what the target agreed to.
    #[arg(long, value_name = "SIZE|auto", default_value = "auto")]
    pub io_size: IoSize,
    /// Reads under way at once, and writes, 1 to 1024 each; auto fits those of a unit to its link, and
    /// to its sessions while they come and go.
    #[arg(long, value_name = "N|auto", default_value = "auto")]
    pub queue_depth: QueueDepth,
    /// Sessions with each unit, 1 to 64; auto begins with what the link needs by the plan, and adds
    /// more as long as the total rises. The default is auto, or 1 with several --connections.
    #[arg(long, value_name = "N|auto")]
    pub sessions: Option<SessionCount>,
    /// TCP connections of each session (MC/S), 1 to 16, as far as the target allows them.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=16))]
    pub connections: u16,
    /// What decides about the TCP socket: auto leaves buffers to the kernel as far as it reaches,
    /// static sets them, autotune never does, thesis follows the scheme of Zhang and MacGregor
    /// (2011), off sets nothing but TCP_NODELAY.
    #[arg(long, value_name = "POLICY", default_value = "auto", value_parser = parse_policy)]
    pub tune: Policy,
    /// The rate of the narrowest part of the link, such as 100mbit or 2.5gbit, 1kbit to 1000gbit;
    /// without it 1gbit is assumed until more is known.
    #[arg(long, value_name = "RATE")]
    pub bandwidth: Option<Bandwidth>,
    /// Whether small segments go out at once, on, or wait for an acknowledgement (Nagle), off.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = NoDelay::Auto)]
    pub nodelay: NoDelay,
    /// The congestion control, by the kernel's name for it: cubic, bbr, ...
    #[arg(long, value_name = "NAME")]
    pub congestion: Option<String>,
    /// Zeros in data, in runs of SIZE and longer, are not sent; 512 to 64M, off sends them. What the
    /// source says to be a hole is not read in either case.
    #[arg(long, value_name = "SIZE|off", default_value = "64K")]
    pub zero_granularity: ZeroGranularity,
    /// The destination reads as zeros everywhere, so zeros need not be made there. Where that is not so,
    /// what stood in the place of a zero stays.
    #[arg(long)]
    pub destination_is_zero: bool,
    /// Reads the destination back and compares it with what was read from the source.
    #[arg(long)]
    pub verify: bool,
    /// How to show progress on standard error; auto is a bar on a terminal, else a line a second;
    /// none shows errors only.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = ProgressMode::Auto)]
    pub progress: ProgressMode,
    /// Prints one JSON object with the result, or the failure, on standard output.
    #[arg(long)]
    pub json: bool,
    /// The initiator's iSCSI name; by default one that is made from this host's name and identity.
    #[arg(long, value_name = "IQN")]
    pub initiator_name: Option<String>,
}

impl Args {
    /// A copy with the default options.
    pub fn new(source: impl Into<OsString>, destination: impl Into<OsString>) -> Self {
        Self {
            source: source.into(),
            destination: destination.into(),
            io_size: IoSize::Auto,
            queue_depth: QueueDepth::Auto,
            sessions: None,
            connections: 1,
            tune: Policy::Auto,
            bandwidth: None,
            nodelay: NoDelay::Auto,
            congestion: None,
            zero_granularity: ZeroGranularity::Runs(Size(64 << 10)),
            destination_is_zero: false,
            verify: false,
            progress: ProgressMode::Auto,
            json: false,
            initiator_name: None,
        }
    }

    /// How many sessions each unit shall have.
    pub(crate) fn sessions(&self) -> Sessions {
        match self.sessions {
            Some(SessionCount::Fixed(count)) => Sessions::Fixed(count.get()),
            None if self.connections > 1 => Sessions::Fixed(1),
            Some(SessionCount::Auto) | None => Sessions::default(),
        }
    }

    /// Why a unit has one session, where nobody said so.
    pub(crate) fn why_one_session(&self) -> Option<&'static str> {
        (self.sessions.is_none() && self.connections > 1)
            .then_some("with several --connections, unless --sessions asks for more")
    }
}

/// How many bytes one read or write has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum IoSize {
    /// Chosen for the link.
    Auto,
    /// This many, 512 bytes to 64 MiB.
    Fixed(Size),
}

const SMALLEST_IO: Size = Size(512);
const LARGEST_IO: Size = Size(64 << 20);

impl FromStr for IoSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        parse_io_size(text).map(Self::Fixed)
    }
}

/// A size that a read or write may have.
fn parse_io_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse().map_err(|error: SizeError| error.to_string())?;
    if (SMALLEST_IO..=LARGEST_IO).contains(&size) {
        Ok(size)
    } else {
        Err(format!("it must lie between {SMALLEST_IO} and {LARGEST_IO}"))
    }
}

/// Which zeros in data are not sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ZeroGranularity {
    /// None.
    Off,
    /// Runs of this length, 512 bytes to 64 MiB, and longer ones.
    Runs(Size),
}

impl ZeroGranularity {
    /// The length, if there is one.
    pub(crate) fn bytes(self) -> Option<usize> {
        match self {
            Self::Off => None,
            Self::Runs(size) => Some(size.as_usize()),
        }
    }
}

impl FromStr for ZeroGranularity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" { Ok(Self::Off) } else { parse_io_size(text).map(Self::Runs) }
    }
}

fn parse_policy(text: &str) -> Result<Policy, UnknownPolicy> {
    text.parse()
}

/// Whether small segments wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum NoDelay {
    /// They go out at once (`TCP_NODELAY`).
    On,
    /// They wait for an acknowledgement (Nagle's algorithm).
    Off,
    /// The tuner decides.
    Auto,
}

impl NoDelay {
    /// The wish, if there is one.
    pub(crate) const fn wish(self) -> Option<bool> {
        match self {
            Self::On => Some(true),
            Self::Off => Some(false),
            Self::Auto => None,
        }
    }
}

/// How many reads, and how many writes, are under way at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QueueDepth {
    /// Chosen from the round trip time.
    Auto,
    /// This many, 1 to 1024.
    Fixed(NonZeroUsize),
}

/// As many requests as a session has room for.
const DEEPEST_QUEUE: usize = 1024;

impl FromStr for QueueDepth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let depth = text.parse().ok().filter(|depth: &NonZeroUsize| depth.get() <= DEEPEST_QUEUE);
        depth
            .map(Self::Fixed)
            .ok_or_else(|| format!("write auto, or a number from 1 to {DEEPEST_QUEUE}"))
    }
}

/// How many sessions a unit has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SessionCount {
    /// As many as the link needs.
    Auto,
    /// This many, 1 to 64.
    Fixed(NonZeroU32),
}

/// More would crowd out whoever else uses the target.
const MAX_SESSIONS: u32 = 64;

impl FromStr for SessionCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let count = text.parse().ok().filter(|count: &NonZeroU32| count.get() <= MAX_SESSIONS);
        count
            .map(Self::Fixed)
            .ok_or_else(|| format!("write auto, or a number from 1 to {MAX_SESSIONS}"))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn defaults_agree_with_the_command_line() {
        let parsed = Args::parse_from(["block-copy", "a", "b"]);
        assert_eq!(format!("{parsed:?}"), format!("{:?}", Args::new("a", "b")));
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for (option, value) in [
            ("--io-size", "511"),
            ("--io-size", "65M"),
            ("--zero-granularity", "511"),
            ("--zero-granularity", "65M"),
            ("--zero-granularity", "none"),
            ("--destination-is-zero", "yes"),
            ("--queue-depth", "0"),
            ("--queue-depth", "1025"),
            ("--queue-depth", "many"),
            ("--sessions", "0"),
            ("--sessions", "65"),
            ("--sessions", "many"),
            ("--connections", "0"),
            ("--connections", "17"),
            ("--progress", "loud"),
            ("--tune", "faster"),
            ("--bandwidth", "0mbit"),
            ("--bandwidth", "fast"),
            ("--nodelay", "yes"),
        ] {
            let parsed = Args::try_parse_from(["block-copy", "a", "b", option, value]);
            assert!(parsed.is_err(), "{option} {value}");
        }
    }

    #[test]
    fn several_connections_are_one_session_unless_asked_otherwise() {
        let sessions = |options: &[&str]| {
            let args = Args::parse_from([&["block-copy", "a", "b"], options].concat());
            (args.sessions(), args.why_one_session().is_some())
        };
        let auto = Sessions::default();
        assert_eq!(sessions(&[]), (auto, false));
        assert_eq!(sessions(&["--sessions", "64"]), (Sessions::Fixed(64), false));
        assert_eq!(sessions(&["--connections", "4"]), (Sessions::Fixed(1), true));
        assert_eq!(sessions(&["--connections", "4", "--sessions", "auto"]), (auto, false));
        assert_eq!(
            sessions(&["--connections", "4", "--sessions", "2"]),
            (Sessions::Fixed(2), false)
        );
    }
}
