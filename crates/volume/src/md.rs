//! Metadata of Linux md, with which the kernel of another host can assemble a volume.

mod superblock;
mod uuid;

pub use crate::refusal::SuperblockError;
pub use superblock::Superblock;
pub use uuid::Uuid;

use std::ops::Range;

use crate::stripe::Chunk;

/// The parameters that md needs for a volume, in addition to the order of its members.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Md {
    /// The UUID of the array, which the superblocks of all its members contain.
    pub set_uuid: Uuid,
    /// Offset of the data on each member, in bytes.
    pub data_offset: u64,
    /// Length of the data on each member, in bytes.
    pub data_size: u64,
}

impl Md {
    /// Returns the range of each member that holds data.
    pub const fn data(&self) -> Range<u64> {
        self.data_offset..self.data_offset.saturating_add(self.data_size)
    }

    /// Returns the offset of the data of a new array, in bytes: after the superblock, at a multiple of the chunk
    /// size and of 1 MiB. So the data also begin at a multiple of the usual sizes of blocks and discard granules.
    pub const fn new_data_offset(chunk: Chunk) -> u64 {
        const LEAST: u64 = 1 << 20;
        if chunk.bytes() > LEAST { chunk.bytes() } else { LEAST }
    }
}
