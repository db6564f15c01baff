//! How a copy that ended before its time is gone on with.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use iscsi_initiator::tuning::{Size, SizeError};

/// How it goes on after an end before its time.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "How it goes on after an end before its time")]
pub struct ResumptionArgs {
    /// Keeps in FILE what is at the destination and flushed, after each flush, as a map of ddrescue. Both
    /// ends must be files, block devices or units.
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Option<PathBuf>,
    /// Leaves out what the checkpoint says to be there already; where there is no such file yet, all is
    /// copied. It is refused where it is of another source or another destination.
    #[arg(long, requires = "checkpoint")]
    pub resume: bool,
    /// What becomes of bytes that the medium of the source does not give: stop ends the copy, skip leaves
    /// out the blocks that cannot be read. What stood in their place at the destination stays, the
    /// checkpoint says where they are, --resume tries them again, and the exit status is 3.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = OnReadError::Stop)]
    pub on_read_error: OnReadError,
    /// A flush begins at the latest when SIZE is written since the last one, 64K to 1T; sooner where the medium is
    /// slow. Twice that is the most that is sent again after a kill.
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub flush_bytes: FlushBytes,
}

impl Default for ResumptionArgs {
    fn default() -> Self {
        Self {
            checkpoint: None,
            resume: false,
            on_read_error: OnReadError::Stop,
            flush_bytes: FlushBytes(Size(1 << 30)),
        }
    }
}

/// What becomes of bytes that the medium of the source does not give.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum OnReadError {
    /// The copy ends.
    Stop,
    /// They are left out.
    Skip,
}

/// How many bytes one flush covers at most, 64 KiB to 1 TiB.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FlushBytes(pub Size);

const MIN_FLUSH: Size = Size(64 << 10);
const MAX_FLUSH: Size = Size(1 << 40);

impl FromStr for FlushBytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let size: Size = text.parse().map_err(|error: SizeError| error.to_string())?;
        if (MIN_FLUSH..=MAX_FLUSH).contains(&size) {
            Ok(Self(size))
        } else {
            Err(format!("it must lie between {MIN_FLUSH} and {MAX_FLUSH}"))
        }
    }
}
