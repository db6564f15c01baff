//! Options for the data to copy, and for the part of them that is sent.

use std::str::FromStr;

use clap::{Args, ValueEnum};
use iscsi_examples_common::amounts::parse_length;
use iscsi_examples_common::help::heading;
use iscsi_tuner::Size;

use super::link::parse_io_size;

/// The content to copy.
#[derive(Clone, Debug, Args)]
pub struct ContentArgs {
    /// First byte of the source to copy.
    ///
    /// K, M, G and T are powers of 1024.
    #[arg(long, value_name = "SIZE", default_value = "0", help_heading = heading::ENDS)]
    pub offset: Size,
    /// Number of bytes to copy [default: up to the end of the source].
    #[arg(long, value_name = "SIZE", value_parser = parse_length, help_heading = heading::ENDS)]
    pub length: Option<Size>,
    /// Where in the destination the first byte goes.
    ///
    /// What lies before it and behind the copy stays, also in a regular file. Without the option the copy begins at the
    /// start of the destination, and a regular file ends up as long as the copy.
    #[arg(long, value_name = "SIZE", help_heading = heading::ENDS)]
    pub destination_offset: Option<Size>,
    /// Do not send runs of zeros of SIZE or longer.
    ///
    /// 512 to 64M, rounded up to whole blocks of a unit; `off` sends all zeros. In either case the source is not read
    /// where it reports a hole.
    #[arg(long, value_name = "SIZE|off", default_value = "64K", help_heading = heading::TRANSFER)]
    pub zero_granularity: ZeroGranularity,
    /// Read the source also where it reports holes.
    ///
    /// Some file systems have reported data as holes. With `--verify` the destination is read there as well. Zeros that are
    /// read are still not sent.
    #[arg(long, help_heading = heading::TRANSFER)]
    pub read_holes: bool,
    /// The destination reads as zeros everywhere: write no zeros.
    ///
    /// Without the option the destination is asked. With it, what the destination holds in the place of zeros stays
    /// there.
    #[arg(long, help_heading = heading::TRANSFER)]
    pub destination_is_zero: bool,
    /// Read the destination back and compare it.
    ///
    /// `--verify` alone means `--verify=read`. Holes of the source must be zeros at the destination: where that reports that it
    /// holds no data, the report is believed, unless there is `--read-holes`. Data that are read back may come from a cache
    /// of the destination.
    #[arg(long, value_name = "MODE", value_enum, default_value_t = VerifyMode::None,
          default_missing_value = "read", num_args = 0..=1, require_equals = true, help_heading = heading::RESUME_AND_VERIFY)]
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

/// The data to which the destination is compared.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum VerifyMode {
    /// Not at all.
    None,
    /// With checksums of what was read from the source.
    Read,
    /// With all that the file of --digests holds, also from earlier copies.
    Digests,
}

impl VerifyMode {
    /// Returns whether the destination is read back.
    pub(crate) fn reads_back(self) -> bool {
        self != Self::None
    }
}

/// The runs of zeros that are not sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ZeroGranularity {
    /// All zeros are sent.
    Off,
    /// Runs of at least this length, 512 bytes to 64 MiB.
    Runs(Size),
}

impl ZeroGranularity {
    /// Returns the least length of a run of zeros that is not sent; `None` if all zeros are sent.
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
