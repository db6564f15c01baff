//! A store that keeps nothing: what is written is thrown away, and reads bring zeros.

use bytes::Bytes;

use crate::convert::index;

/// Zeros that all reads share; a longer read has memory of its own.
const ZEROS: usize = 1 << 20;

/// A store of so many blocks, without memory for them.
#[derive(Debug)]
pub(super) struct Null {
    pub(super) blocks: u64,
    zeros: Bytes,
}

impl Null {
    pub(super) fn new(blocks: u64) -> Self {
        // Written, so that it is memory as any other: the pages of what is only zeroed are all one page of the system, which
        // no store's data could be read as fast as.
        let mut zeros = std::hint::black_box(vec![1; ZEROS]);
        zeros.fill(0);
        Self { blocks, zeros: zeros.into() }
    }

    /// `length` zeros: a piece of those that are shared, where there are so many.
    pub(super) fn read(&self, length: usize) -> Bytes {
        if length <= self.zeros.len() { self.zeros.slice(..length) } else { vec![0; length].into() }
    }

    /// How many bytes there are from `offset` to the end.
    pub(super) fn left(&self, block_size: u32, offset: u64) -> usize {
        let capacity = self.blocks.saturating_mul(u64::from(block_size));
        index(capacity.saturating_sub(offset))
    }
}
