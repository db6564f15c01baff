//! What the command line says.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::str::FromStr;

use clap::Parser;

use crate::progress::ProgressMode;
use crate::size::Size;

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
    /// Bytes of one read or write, 512 to 64M; K, M and G are powers of 1024.
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = parse_io_size)]
    pub io_size: Size,
    /// Writes, and as many reads, under way at once, 1 to 1024; auto fits it to the round trip
    /// time.
    #[arg(long, value_name = "N|auto", default_value = "auto")]
    pub queue_depth: QueueDepth,
    /// Reads the destination back and compares it with what was read from the source.
    #[arg(long)]
    pub verify: bool,
    /// How to show progress on standard error; auto is a bar on a terminal, else a line a second;
    /// none shows errors only.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = ProgressMode::Auto)]
    pub progress: ProgressMode,
    /// Prints one JSON object with the result on standard output.
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
            io_size: DEFAULT_IO_SIZE,
            queue_depth: QueueDepth::Auto,
            verify: false,
            progress: ProgressMode::Auto,
            json: false,
            initiator_name: None,
        }
    }
}

/// Large enough to amortise a command, small enough for some to be under way on a slow link.
pub(crate) const DEFAULT_IO_SIZE: Size = Size(1 << 20);
const SMALLEST_IO: Size = Size(512);
const LARGEST_IO: Size = Size(64 << 20);

fn parse_io_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse().map_err(|error: crate::size::SizeError| error.to_string())?;
    if (SMALLEST_IO..=LARGEST_IO).contains(&size) {
        Ok(size)
    } else {
        Err(format!("it must lie between {SMALLEST_IO} and {LARGEST_IO}"))
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
            ("--queue-depth", "0"),
            ("--queue-depth", "1025"),
            ("--queue-depth", "many"),
            ("--progress", "loud"),
        ] {
            let parsed = Args::try_parse_from(["block-copy", "a", "b", option, value]);
            assert!(parsed.is_err(), "{option} {value}");
        }
    }
}
