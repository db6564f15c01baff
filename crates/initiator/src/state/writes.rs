//! What all sessions of a disk have written: since when some of it is not flushed, and how often some was lost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::state::unit_flushes::UnitFlushes;

/// A moment in the life of a disk: what matters of it is what lies between two of them. A session
/// that joins makes a new one, and so does a reset that one is told of.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Epoch(pub(super) u64);

/// Of all sessions together. The moment comes first, since a read looks at no more.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Writes {
    now: AtomicU64,
    unflushed: Mutex<Oldest>,
    /// One flush at a time.
    pub(super) flush: tokio::sync::Mutex<()>,
    /// The flushes of all disks of the initiator with the unit, once that is known.
    of_unit: OnceLock<OfUnit>,
    /// How often writes were found lost, or may have been, but for failed flushes of the unit.
    losses: AtomicU64,
    /// Of how many of them some handle was told.
    pub(super) told_of: AtomicU64,
    /// Whether the unit was ever seen to have a volatile cache, over whichever session.
    pub(super) has_cache: AtomicBool,
}

/// The flushes of all disks with the unit, and how many of them had failed before.
#[derive(Debug)]
struct OfUnit {
    flushes: Arc<UnitFlushes>,
    failed_before: u64,
}

/// When the oldest write began of those that no flush has vouched for.
#[derive(Debug, Default)]
pub(super) struct Oldest {
    /// Of those that no flush has begun for.
    pub(super) waiting: Option<Epoch>,
    /// Of those that one is under way for.
    pub(super) flushing: Option<Epoch>,
}

impl Writes {
    pub(super) fn now(&self) -> Epoch {
        Epoch(self.now.load(Ordering::SeqCst))
    }

    /// A new moment.
    pub(super) fn turn(&self) -> Epoch {
        Epoch(self.now.fetch_add(1, Ordering::SeqCst) + 1)
    }

    pub(super) fn lose(&self) {
        self.losses.fetch_add(1, Ordering::SeqCst);
    }

    /// How often writes were found lost, by a flush of another disk as well.
    pub(super) fn losses(&self) -> u64 {
        let failed = self.of_unit.get().map_or(0, OfUnit::failures);
        self.losses.load(Ordering::SeqCst) + failed
    }

    /// A flush has failed on the medium.
    pub(super) fn fail_flush(&self) {
        match self.of_unit.get() {
            Some(of_unit) => of_unit.flushes.fail(),
            None => self.lose(),
        }
    }

    /// From now on a flush takes turns with those of the other disks with the unit, and is told which fail.
    pub(super) fn flush_with(&self, flushes: Arc<UnitFlushes>) {
        let failed_before = flushes.failures();
        self.of_unit.get_or_init(|| OfUnit { flushes, failed_before });
    }

    /// The flushes of all disks of the initiator with the unit.
    pub(super) fn of_unit(&self) -> Option<&Arc<UnitFlushes>> {
        self.of_unit.get().map(|of_unit| &of_unit.flushes)
    }

    pub(super) fn not_flushed(&self, begun: Epoch) {
        let waiting = &mut self.lock().waiting;
        *waiting = Some(waiting.map_or(begun, |oldest| oldest.min(begun)));
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Oldest> {
        self.unflushed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OfUnit {
    fn failures(&self) -> u64 {
        self.flushes.failures() - self.failed_before
    }
}
