//! Buffers for reads.

use std::fmt;

use bytes::BytesMut;

/// Source of the buffers for reads. Memory that was used before costs no page faults, and may still be in the
/// caches of the processor.
pub trait BufferPool: fmt::Debug + Send + Sync {
    /// Returns a buffer of `len` bytes, with any values. A device may call this while it receives data, so it
    /// must not block.
    fn take(&self, len: usize) -> BytesMut;
}
