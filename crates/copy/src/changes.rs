//! What is written to a source while it is copied.

use std::fmt;

use iscsi_initiator::device::IoFuture;

use crate::range_set::RangeSet;

/// Who knows what is written to a source in use: a hypervisor with its bitmaps, a volume with its snapshots.
pub trait Changes: fmt::Debug + Send + Sync {
    /// The bytes that were written since it was asked last, at the first time since before the copy began.
    /// What is written after it has answered, it tells the next time. What lies behind the end of the source
    /// does not count.
    ///
    /// # Errors
    /// When it is not known. The copy ends then, and no checkpoint says that anything is done.
    fn changed(&mut self) -> IoFuture<'_, RangeSet>;

    /// Keeps everybody from writing to the source from now on; called once, before it is asked for the last
    /// time. `None` where nobody can; then it is not asked once more.
    ///
    /// # Errors
    /// When somebody may go on to write. The copy ends then.
    fn freeze(&mut self) -> Option<IoFuture<'_, ()>> {
        None
    }
}
