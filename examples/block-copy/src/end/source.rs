//! Where bytes come from.

use bytes::Bytes;

use crate::error::Error;

/// Where bytes come from. Clones are the same source.
pub trait Source: Clone + Send + Sync + 'static {
    /// How many bytes there are, if that is known before they are read.
    fn length(&self) -> Option<u64>;

    /// Whether bytes come in order only, one read at a time.
    fn is_sequential(&self) -> bool;

    /// How many bytes one read had better fetch, where that is more than a chunk.
    fn stride(&self) -> usize {
        1
    }

    /// How many reads of `io_size` bytes keep it busy by now; `None` if it has no opinion.
    fn queue_depth(&self, _io_size: usize) -> Option<usize> {
        None
    }

    /// Reads `len` bytes from `offset` on; fewer only where a sequential source ends.
    ///
    /// # Errors
    /// As the kind of source has it.
    fn read(&self, offset: u64, len: usize) -> impl Future<Output = Result<Bytes, Error>> + Send;

    /// Takes back what it has read, when nobody needs it any more.
    fn take_back(&self, _data: Bytes) {}
}
