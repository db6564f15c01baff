//! Reads as much as possible of a range with unreadable blocks.

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

use bytes::BytesMut;
use iscsi_block_device::{Device, DeviceErrorKind, DeviceResult, RangeSet};

use super::pool::Pool;

/// The result of a read that omits unreadable parts.
#[derive(Debug, Default)]
pub(crate) struct Salvage {
    /// The data that could be read, each piece with the offset of its first byte.
    pub(crate) data: Vec<(u64, BytesMut)>,
    pub(crate) unreadable: RangeSet,
}

/// Reads a range. With `block`, the length of the smallest read, parts that the medium cannot read are
/// omitted: if the read of a range fails, its halves are read separately.
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
                // Both halves end or begin at a block boundary.
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
