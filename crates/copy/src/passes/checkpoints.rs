//! The checkpoints of one pass of several.

use std::sync::Arc;

use iscsi_block_device::RangeSet;

use crate::boxed::IoFuture;
use crate::progress::checkpoint::CheckpointStore;

/// Keeps the checkpoints of one pass, each with what the pass leaves alone: other passes have copied that.
#[derive(Debug)]
pub(crate) struct PassCheckpoints {
    pub(crate) store: Arc<dyn CheckpointStore>,
    /// What is at the destination and flushed, beside what the pass copies.
    pub(crate) flushed: RangeSet,
    /// What the source did not give to other passes.
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

    fn begin(&self, sessions: Vec<String>) {
        self.store.begin(sessions);
    }

    fn end(&self, sessions: Vec<String>) -> IoFuture<'_, ()> {
        self.store.end(sessions)
    }
}
