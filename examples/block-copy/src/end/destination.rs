//! Where bytes go.

use bytes::Bytes;

use crate::error::Error;

/// Where bytes go. Clones are the same destination.
pub trait Destination: Clone + Send + Sync + 'static {
    /// How many bytes fit; `None` if nothing limits them.
    fn capacity(&self) -> Option<u64>;

    /// Whether bytes must come in order, one write at a time.
    fn is_sequential(&self) -> bool;

    /// How many writes of `io_size` bytes keep it busy by now; `None` if it has no opinion.
    fn queue_depth(&self, _io_size: usize) -> Option<usize> {
        None
    }

    /// Writes `data` from `offset` on.
    ///
    /// # Errors
    /// As the kind of destination has it.
    fn write(&self, offset: u64, data: Bytes) -> impl Future<Output = Result<(), Error>> + Send;

    /// Brings what was written, `length` bytes, onto the medium.
    ///
    /// # Errors
    /// As the kind of destination has it.
    fn flush(&self, length: u64) -> impl Future<Output = Result<(), Error>> + Send;
}
