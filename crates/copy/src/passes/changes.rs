//! Reports writes to a source while it is copied.

use std::fmt;

use iscsi_block_device::RangeSet;

use crate::boxed::IoFuture;

/// Reports the writes to a source in use: for example by the bitmaps of a hypervisor, or by the snapshots of
/// a volume.
pub trait Changes: fmt::Debug + Send + Sync {
    /// Returns the ranges that were written since the last call. The first call returns the ranges that were
    /// written since before the copy began. Writes after the report must be in the next report. Bytes after
    /// the end of the source are ignored.
    ///
    /// Returns an error if the writes are not known. The copy then ends, and its checkpoint records nothing as
    /// done.
    fn changed(&mut self) -> IoFuture<'_, RangeSet>;

    /// Stops all writes to the source. It is called once, before the last call of [`changed`](Self::changed).
    /// `None`, the default, means that writes cannot be stopped; then that last call is omitted.
    ///
    /// Returns an error if writes may continue. The copy then ends.
    fn freeze(&mut self) -> Option<IoFuture<'_, ()>> {
        None
    }
}
