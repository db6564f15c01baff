//! What can be read of a range that cannot be read at once.

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

use bytes::BytesMut;
use iscsi_block_device::{Device, DeviceErrorKind, DeviceResult, RangeSet};

use super::pool::Pool;

/// What came of a read.
#[derive(Debug, Default)]
pub(crate) struct Salvage {
    /// By its first byte, what could be read.
    pub(crate) data: Vec<(u64, BytesMut)>,
    pub(crate) unreadable: RangeSet,
}

/// Reads a range. With a `block`, which is the least that is read at once, what the medium does not give is
/// left out: the halves of a range that cannot be read are read by themselves.
pub(crate) async fn read(
    device: &dyn Device,
    pool: &Pool,
    range: Range<u64>,
    block: Option<u64>,
) -> DeviceResult<Salvage> {
    let mut salvage = Salvage::default();
    let mut left = vec![range];
    while let Some(range) = left.pop() {
        let len = range.end - range.start;
        let bytes = usize::try_from(len).map_err(|_| ErrorKind::FileTooLarge)?;
        match (device.read_with(range.start, bytes, Arc::new(pool.clone())).await, block) {
            (Ok(data), _) => salvage.data.push((range.start, data)),
            (Err(error), Some(block)) if error.kind() == DeviceErrorKind::Medium => {
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
