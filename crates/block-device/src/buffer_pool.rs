//! Where the buffers of reads come from.

use std::fmt;

use bytes::BytesMut;

/// Where the buffers of reads come from: memory that was used before costs no page faults, and may still lie in the
/// caches of the processor.
pub trait BufferPool: fmt::Debug + Send + Sync {
    /// Returns a buffer of `len` bytes, whatever they are. A device may call it while it receives data, so it must not
    /// block.
    fn take(&self, len: usize) -> BytesMut;
}
