//! Options for the checkpoint and the resumption.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use iscsi_examples_common::help::heading;
use iscsi_tuner::{Size, SizeError};

/// The resumption after an interruption.
#[derive(Clone, Debug, Args)]
pub struct ResumptionArgs {
    /// Record in FILE what is written and flushed.
    ///
    /// After each flush, as a map of GNU ddrescue. Both ends must be files, block devices or units.
    #[arg(long, value_name = "FILE", help_heading = heading::RESUME_AND_VERIFY)]
    pub checkpoint: Option<PathBuf>,
    /// Skip what the checkpoint records as done.
    ///
    /// If there is no checkpoint yet, all is copied. A checkpoint of another source or destination is refused.
    #[arg(long, requires = "checkpoint", help_heading = heading::RESUME_AND_VERIFY)]
    pub resume: bool,
    /// Name of the source, if you know that its content is the same.
    ///
    /// As the uid of a snapshot. --checkpoint then knows the source by it, on each host, and also an NBD export. You vouch for
    /// the content: that the source has changed since is not noticed.
    #[arg(long, value_name = "NAME", value_parser = parse_id, requires = "checkpoint", help_heading = heading::RESUME_AND_VERIFY)]
    pub source_id: Option<String>,
    /// Name of the destination, if you know that it is the same.
    ///
    /// As the uid of a volume claim. --checkpoint and --digests then know the destination by it, on each host, and also an NBD
    /// export.
    #[arg(long, value_name = "NAME", value_parser = parse_id, help_heading = heading::RESUME_AND_VERIFY)]
    pub destination_id: Option<String>,
    /// What to do at bytes that cannot be read.
    #[arg(long, value_name = "stop|skip", value_enum, default_value_t = OnReadError::Stop, help_heading = heading::RESUME_AND_VERIFY)]
    pub on_read_error: OnReadError,
    /// Bytes between two flushes, at most.
    ///
    /// 64K to 1T; a slow medium is flushed sooner. After a kill at most twice this much is sent again.
    #[arg(long, value_name = "SIZE", default_value = "1G", help_heading = heading::RESUME_AND_VERIFY)]
    pub flush_bytes: FlushBytes,
}

impl Default for ResumptionArgs {
    fn default() -> Self {
        Self {
            checkpoint: None,
            resume: false,
            source_id: None,
            destination_id: None,
            on_read_error: OnReadError::Stop,
            flush_bytes: FlushBytes(Size(1 << 30)),
        }
    }
}

/// Parses the name of a source or destination: a word, which stands in the checkpoint.
fn parse_id(text: &str) -> Result<String, String> {
    let is_word = !text.is_empty() && text.len() <= 200;
    let is_plain = text.chars().all(|letter| !letter.is_whitespace() && !letter.is_control());
    if is_word && is_plain && !text.contains(',') {
        Ok(text.to_owned())
    } else {
        Err("write a word of at most 200 bytes, without a comma, such as a uid".to_owned())
    }
}

/// The treatment of bytes that the medium of the source cannot read.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum OnReadError {
    /// Ends the copy.
    Stop,
    /// Leaves out the blocks. Old data stay in their place at the destination, the checkpoint lists them, --resume tries them again, and the exit status is 3.
    Skip,
}

/// The most bytes that one flush covers, 64 KiB to 1 TiB.
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
