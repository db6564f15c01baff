//! What can be read of a range that cannot be read at once.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;

use bytes::BytesMut;
use iscsi_initiator::device::Device;
use iscsi_initiator::scsi::SenseKey;
use nix::errno::Errno;

use crate::error::iscsi_error;
use crate::pool::Pool;
use crate::range_set::RangeSet;

/// What a file may say of a medium that cannot be read.
const BAD_MEDIUM: [Errno; 4] = [Errno::EIO, Errno::EREMOTEIO, Errno::ENODATA, Errno::EILSEQ];

/// What came of a read.
#[derive(Debug, Default)]
pub(crate) struct Salvage {
    /// By its first byte, what could be read.
    pub(crate) data: Vec<(u64, BytesMut)>,
    pub(crate) unreadable: RangeSet,
}

/// Whether it is the medium that failed, and not the way to it: elsewhere a read may succeed.
fn is_unreadable(error: &io::Error) -> bool {
    match (iscsi_error(error), error.raw_os_error()) {
        (Some(error), _) => error.sense().is_some_and(|sense| sense.key == SenseKey::MediumError),
        (None, Some(number)) => BAD_MEDIUM.contains(&Errno::from_raw(number)),
        (None, None) => false,
    }
}

/// Reads a range. With a `block`, which is the least that is read at once, what the medium does not give is
/// left out: the halves of a range that cannot be read are read by themselves.
pub(crate) async fn read(
    device: &dyn Device,
    pool: &Pool,
    range: Range<u64>,
    block: Option<u64>,
) -> io::Result<Salvage> {
    let mut salvage = Salvage::default();
    let mut left = vec![range];
    while let Some(range) = left.pop() {
        let len = range.end - range.start;
        let bytes = usize::try_from(len).map_err(|_| ErrorKind::FileTooLarge)?;
        match (device.read_with(range.start, bytes, Arc::new(pool.clone())).await, block) {
            (Ok(data), _) => salvage.data.push((range.start, data)),
            (Err(error), Some(block)) if is_unreadable(&error) => {
                // Halves meet where blocks do.
                let above = (range.start + len / 2).next_multiple_of(block.max(1));
                let middle = if above < range.end { above } else { above.saturating_sub(block) };
                if middle < range.end && middle > range.start {
                    left.extend([middle..range.end, range.start..middle]);
                } else {
                    salvage.unreadable.insert(range);
                }
            }
            (Err(error), _) => return Err(error),
        }
    }
    Ok(salvage)
}
