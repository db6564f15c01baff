//! The blocks that a command reaches, and how it accesses them (SBC-3 §5).

use std::ops::Range;

use super::unit::Unit;
use super::{operation, provisioning, transfer};

/// Kinds of access of a command to blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// READ.
    Read,
    /// WRITE.
    Write,
    /// WRITE SAME.
    WriteSame,
    /// UNMAP.
    Unmap,
    /// SYNCHRONIZE CACHE.
    SynchronizeCache,
}

impl Access {
    /// Returns whether the access changes the data that a read returns.
    pub(crate) const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::WriteSame | Self::Unmap)
    }
}

/// Returns the blocks that a command reaches, and the kind of access; `None` for a command that reaches no
/// blocks, or is out of range. The blocks of UNMAP are in its parameter list: before the list has arrived
/// there are none.
pub(crate) fn accessed(
    unit: &Unit,
    cdb: [u8; 16],
    parameters: &[u8],
) -> Option<(Access, Vec<Range<u64>>)> {
    let access = match cdb[0] {
        operation::READ_10 | operation::READ_16 => Access::Read,
        operation::WRITE_10 | operation::WRITE_16 => Access::Write,
        operation::WRITE_SAME_10 | operation::WRITE_SAME_16 => Access::WriteSame,
        operation::SYNCHRONIZE_CACHE_10 | operation::SYNCHRONIZE_CACHE_16 => {
            Access::SynchronizeCache
        }
        operation::UNMAP => {
            let ranges = provisioning::descriptors(unit, parameters).unwrap_or_default();
            let spans = ranges.iter().map(|range| range.lba..range.lba + range.blocks);
            return Some((Access::Unmap, spans.collect()));
        }
        _ => return None,
    };
    let range = transfer::Range::of(cdb).check(unit).ok()?;
    let open = matches!(access, Access::WriteSame | Access::SynchronizeCache) && range.blocks == 0;
    let end = if open { unit.disk.blocks() } else { range.lba + range.blocks };
    Some((access, std::iter::once(range.lba..end).collect()))
}
