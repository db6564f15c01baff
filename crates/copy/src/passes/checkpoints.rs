//! Extends the checkpoints of a single pass by the ranges of the other passes.

use std::sync::Arc;

use iscsi_block_device::RangeSet;

use crate::boxed::IoFuture;
use crate::progress::checkpoint::CheckpointStore;

/// Saves each checkpoint of a pass together with the ranges that other passes have copied.
#[derive(Debug)]
pub(crate) struct PassCheckpoints {
    pub(crate) store: Arc<dyn CheckpointStore>,
    /// Flushed ranges outside of the ranges that the pass copies.
    pub(crate) flushed: RangeSet,
    /// Ranges that the source could not read in other passes.
    pub(crate) unreadable: RangeSet,
}

impl CheckpointStore for PassCheckpoints {
    fn keep(
        &self,
        mut flushed: RangeSet,
        mut unreadable: RangeSet,
        total: u64,
    ) -> IoFuture<'_, ()> {
        flushed.extend(self.flushed.iter());
        unreadable.extend(self.unreadable.iter());
        self.store.keep(flushed, unreadable, total)
    }

    fn sessions(&self) -> IoFuture<'_, Vec<String>> {
        self.store.sessions()
    }

    fn begin_run(&self, sessions: Vec<String>) {
        self.store.begin_run(sessions);
    }

    fn end_run(&self, sessions: Vec<String>) -> IoFuture<'_, ()> {
        self.store.end_run(sessions)
    }
}
