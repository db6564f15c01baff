//! What is copied, and how much of it has to be sent.

use std::str::FromStr;

use clap::{Args, ValueEnum};
use iscsi_initiator::tuning::Size;

use super::link::parse_io_size;

/// What is copied.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "What is copied")]
pub struct ContentArgs {
    /// The first byte of the source to copy; K, M, G and T are powers of 1024.
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub offset: Size,
    /// How many bytes to copy; without it all to the end of the source.
    #[arg(long, value_name = "SIZE")]
    pub length: Option<Size>,
    /// Where in the destination the first byte goes. What lies before it and behind the copy stays, also
    /// in a file, which otherwise ends up as long as the copy.
    #[arg(long, value_name = "SIZE")]
    pub destination_offset: Option<Size>,
    /// Zeros in data, in runs of SIZE and longer, are not sent; 512 to 64M, off sends them. What the
    /// source says to be a hole is not read in either case.
    #[arg(long, value_name = "SIZE|off", default_value = "64K")]
    pub zero_granularity: ZeroGranularity,
    /// Reads the source also where it reports holes, and with --verify the destination as well. Some file systems have reported
    /// data as holes. Zeros that are read are still not sent.
    #[arg(long)]
    pub read_holes: bool,
    /// The destination reads as zeros everywhere, so zeros need not be made there. Where that is not so,
    /// what stood in the place of a zero stays.
    #[arg(long)]
    pub destination_is_zero: bool,
    /// Reads the destination back and compares it: with what was read from the source (read, also without
    /// a MODE); or with all that --digests knows, also of earlier copies (digests). Holes of the source must be zeros at the
    /// destination: where that reports that it holds no data, it is believed, unless there is --read-holes.
    #[arg(long, value_name = "MODE", value_enum, default_value_t = VerifyMode::None,
          default_missing_value = "read", num_args = 0..=1, require_equals = true)]
    pub verify: VerifyMode,
}

impl Default for ContentArgs {
    fn default() -> Self {
        Self {
            offset: Size(0),
            length: None,
            destination_offset: None,
            zero_granularity: ZeroGranularity::Runs(Size(64 << 10)),
            read_holes: false,
            destination_is_zero: false,
            verify: VerifyMode::None,
        }
    }
}

/// What the destination is compared with.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum VerifyMode {
    /// Nothing: it is not read back.
    None,
    /// What was read from the source.
    Read,
    /// What copies have kept of it.
    Digests,
}

impl VerifyMode {
    /// Whether the destination is read back.
    pub(crate) fn reads_back(self) -> bool {
        self != Self::None
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
