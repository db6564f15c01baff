//! Holds the state of flushes that the disks of an initiator with the same unit share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use iscsi_multipath::flushing::{FlushOwner, Flushes};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::state::unit_lock::UnitLock;

/// The disks of an initiator with one unit. SYNCHRONIZE CACHE flushes the writes of all of them. A flush that
/// fails on the medium may have lost unflushed writes of every disk, and the unit reports the failure to no
/// other session. So the other disks are informed here. Resets and deferred errors are different: the unit
/// itself reports them to each session.
#[derive(Debug, Default)]
pub(crate) struct UnitFlushes {
    /// Must be locked before a [`UnitLock`], never after one.
    owner: Mutex<Flushes>,
    /// Notified when the turn may have passed to another flush.
    turned: Notify,
    disks: Mutex<Vec<Weak<UnitLock>>>,
}

impl UnitFlushes {
    /// Adds a disk. Its flushes take turns with those of the other disks.
    pub(crate) fn add(&self, disk: &Arc<UnitLock>) {
        let mut disks = self.lock();
        disks.retain(|other| {
            other.strong_count() > 0 && !std::ptr::eq(other.as_ptr(), disk.as_ref())
        });
        disks.push(Arc::downgrade(disk));
    }

    /// Returns the flushes in progress, locked.
    pub(crate) fn owner(&self) -> MutexGuard<'_, Flushes> {
        self.owner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an identifier that distinguishes the flushes of a disk from those of other disks.
    pub(crate) fn owner_of(disk: &Arc<UnitLock>) -> FlushOwner {
        FlushOwner(Arc::as_ptr(disk).addr() as u64)
    }

    /// Returns a future that completes when the turn may have passed to another flush.
    pub(crate) fn turned(&self) -> Notified<'_> {
        self.turned.notified()
    }

    /// Notifies the waiting flushes that the turn may have passed to one of them.
    pub(crate) fn pass_turn(&self) {
        self.turned.notify_waiters();
    }

    /// Records a loss of writes for the other disks, because a flush of this disk has failed on the medium.
    pub(crate) fn failed(&self, disk: &UnitLock) {
        let disks: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        let others = disks.iter().filter(|other| !std::ptr::eq(Arc::as_ptr(other), disk));
        others.for_each(|other| other.lock().durability.on_lost_writes());
    }

    /// Returns whether several disks share the unit.
    pub(crate) fn are_shared(&self) -> bool {
        self.lock().iter().filter(|disk| disk.strong_count() > 0).count() > 1
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<UnitLock>>> {
        self.disks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use iscsi_multipath::LossCount;

    use super::*;

    #[test]
    fn a_flush_that_fails_is_a_loss_of_the_other_disks() {
        let flushes = UnitFlushes::default();
        let [one, other] = [(); 2].map(|()| Arc::<UnitLock>::default());
        flushes.add(&one);
        assert!(!flushes.are_shared());
        flushes.add(&other);
        assert!(flushes.are_shared());
        flushes.failed(&one);
        let losses = |disk: &UnitLock| disk.lock().durability.losses();
        assert_eq!((losses(&one), losses(&other)), (LossCount(0), LossCount(1)));
        let later = Arc::default();
        flushes.add(&later);
        assert_eq!(losses(&later), LossCount(0), "it had written nothing by then");
        drop((other, later));
        assert!(!flushes.are_shared());
    }
}
