//! Deallocates blocks: UNMAP (SBC-3 §5.28).

use clap::Args;
use iscsi_examples_common::amounts::parse_length;
use iscsi_examples_common::help::heading;
use iscsi_examples_common::program::ProgramError;
use iscsi_initiator::{Disk, Session};
use iscsi_tuner::Size;
use serde_json::json;

use crate::connector::{self, Connector};
use crate::error::Error;
use crate::report::Report;

/// The options of `discard`.
#[derive(Clone, Debug, Args)]
pub struct Discard {
    /// Unit: iscsi://HOST/TARGET/LUN.
    pub url: String,
    /// First byte of the range.
    ///
    /// K, M, G and T are powers of 1024.
    #[arg(long, value_name = "SIZE", help_heading = heading::RANGE)]
    pub offset: Size,
    /// Bytes of the range.
    ///
    /// A block that is only partly in the range stays as it is.
    #[arg(long, value_name = "SIZE", value_parser = parse_length, help_heading = heading::RANGE)]
    pub length: Size,
    /// Agree that the data of the range are lost.
    ///
    /// Without it nothing is done.
    #[arg(long, help_heading = heading::CONFIRMATION)]
    pub yes: bool,
}

impl Discard {
    /// Discards the range, and flushes.
    ///
    /// # Errors
    /// Without the user's consent; if the unit does not respond, does not support discards, is write-protected,
    /// or is too short for the range.
    pub async fn run(&self, connector: &Connector) -> Result<Report, Error> {
        connector::parse(&self.url)?;
        if !self.yes {
            return Err(ProgramError::usage(format!(
                "discarding destroys {} of the unit from byte {} on; add --yes if that is meant",
                self.length, self.offset.0
            ))
            .into());
        }
        let work = async |session: &Session, _: &_| {
            let disk = connector.unless(session.disk_without_reconnect()).await??;
            Error::check_range(self.offset, Some(self.length), &disk)?;
            let block_size = disk.block_size();
            if self.whole_blocks(block_size.into()) == 0 {
                return Err(ProgramError::usage(format!(
                    "nothing was discarded: no whole block of {block_size} bytes lies in the range; make it longer"
                )).into());
            }
            let work = async {
                disk.discard(self.offset.0, self.length.0).await?;
                disk.flush().await
            };
            connector.stop.hurry(work).await.ok_or(Error::Abandoned("a discard"))??;
            Ok(self.report(&disk))
        };
        connector.session(&self.url, work).await
    }

    fn report(&self, disk: &Disk) -> Report {
        let bytes = self.whole_blocks(disk.block_size().into());
        let reads_zeros = disk.profile().capacity.unmapped_reads_zeros;
        let reads = if reads_zeros { "read as zeros now" } else { "may read as anything now" };
        let text = format!("{} discarded and flushed; the blocks {reads}\n", Size(bytes));
        let members = json!({
            "offset": self.offset.0,
            "length": self.length.0,
            "bytes_discarded": bytes,
            "unmapped_reads_zeros": reads_zeros,
        });
        Report::new(text, members)
    }

    /// Returns the number of bytes of the whole blocks in the range.
    fn whole_blocks(&self, block_size: u64) -> u64 {
        let first = self.offset.0.div_ceil(block_size);
        let end = self.offset.0.saturating_add(self.length.0) / block_size;
        end.saturating_sub(first) * block_size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_blocks_count() {
        let whole = |offset, length| {
            let (offset, length) = (Size(offset), Size(length));
            Discard { url: String::new(), offset, length, yes: true }.whole_blocks(512)
        };
        assert_eq!(whole(0, 1024), 1024);
        assert_eq!(whole(1, 1024), 512);
        assert_eq!(whole(1, 511), 0);
        assert_eq!(whole(513, 1), 0);
    }
}
