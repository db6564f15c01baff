//! Writes to a source while it is copied.

use std::fmt;

use iscsi_block_device::RangeSet;

use crate::boxed::IoFuture;

/// Reports the writes to a source in use: a hypervisor by its bitmaps, a volume by its snapshots.
pub trait Changes: fmt::Debug + Send + Sync {
    /// Returns the ranges that were written since the last call; at the first call, since before the copy
    /// began. Writes after the answer belong to the next answer. Bytes after the end of the source are
    /// ignored.
    ///
    /// # Errors
    /// An error if the writes are not known. The copy ends then, and no checkpoint records anything as done.
    fn changed(&mut self) -> IoFuture<'_, RangeSet>;

    /// Stops all writes to the source. It is called once, before the last call of [`changed`](Self::changed).
    /// `None`, the default, means that writes cannot be stopped; then that call is omitted.
    ///
    /// # Errors
    /// An error if writes may continue. The copy ends then.
    fn freeze(&mut self) -> Option<IoFuture<'_, ()>> {
        None
    }
}
