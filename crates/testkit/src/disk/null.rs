//! A store that discards writes and returns zeros for reads.

use bytes::Bytes;

use crate::convert::index;

/// Length of the buffer of zeros that all reads share. A longer read allocates memory.
const ZEROS: usize = 1 << 20;

/// A store of `blocks` blocks, without memory for them.
#[derive(Debug)]
pub(super) struct Null {
    pub(super) blocks: u64,
    zeros: Bytes,
}

impl Null {
    pub(super) fn new(blocks: u64) -> Self {
        // Write to the memory, so that it has pages of its own. The system maps memory that is only zeroed to
        // a single page, and reads of that page would be faster than reads of any real store.
        let mut zeros = std::hint::black_box(vec![1; ZEROS]);
        zeros.fill(0);
        Self { blocks, zeros: zeros.into() }
    }

    /// Returns `length` zeros: a slice of the shared buffer if it is long enough.
    pub(super) fn read(&self, length: usize) -> Bytes {
        if length <= self.zeros.len() { self.zeros.slice(..length) } else { vec![0; length].into() }
    }

    /// Returns the number of bytes from `offset` to the end.
    pub(super) fn left(&self, block_size: u32, offset: u64) -> usize {
        let capacity = self.blocks.saturating_mul(u64::from(block_size));
        index(capacity.saturating_sub(offset))
    }
}
