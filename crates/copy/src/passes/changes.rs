//! What is written to a source while it is copied.

use std::fmt;

use iscsi_block_device::RangeSet;

use crate::boxed::IoFuture;

/// Reports what is written to a source in use: a hypervisor with its bitmaps, a volume with its snapshots.
pub trait Changes: fmt::Debug + Send + Sync {
    /// Returns the bytes that were written since the last call; at the first call, since before the copy began.
    /// Writes after the answer belong to the next answer. Bytes after the end of the source are ignored.
    ///
    /// # Errors
    /// When it is not known. The copy ends then, and no checkpoint says that anything is done.
    fn changed(&mut self) -> IoFuture<'_, RangeSet>;

    /// Stops all writes to the source from now on. It is called once, before the last call of
    /// [`changed`](Self::changed). `None`, the default, if writes cannot be stopped; then that call is omitted.
    ///
    /// # Errors
    /// When writes may go on. The copy ends then.
    fn freeze(&mut self) -> Option<IoFuture<'_, ()>> {
        None
    }
}
