//! What the disks of an initiator with one unit have to know of each other's flushes.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Mutex, MutexGuard};

/// The flushes of one unit, whichever disk of the initiator asks for them: SYNCHRONIZE CACHE is about what
/// all have written. One that fails on the medium may have cost each of them what it had not flushed, and
/// the unit tells that to nobody else. Resets and deferred errors it tells to each session itself.
#[derive(Debug, Default)]
pub(crate) struct UnitFlushes {
    /// One at a time: while one is under way, nobody knows whether it fails.
    turn: Mutex<()>,
    failures: AtomicU64,
}

impl UnitFlushes {
    /// Waits until no other flush is under way.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// A flush has failed on the medium.
    pub(crate) fn fail(&self) {
        self.failures.fetch_add(1, Ordering::SeqCst);
    }

    /// How many have failed so far.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::SeqCst)
    }
}
