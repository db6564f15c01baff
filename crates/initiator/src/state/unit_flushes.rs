//! What the disks of an initiator with one unit have to know of each other's flushes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::state::unit_lock::UnitLock;

/// The disks of an initiator with one unit. SYNCHRONIZE CACHE is about what all of them have written: a flush that fails on the
/// medium may have lost what each of them had not flushed, and the unit reports that to no other session. It reports resets
/// and deferred errors to each session itself.
#[derive(Debug, Default)]
pub(crate) struct UnitFlushes {
    /// One flush at a time: until it is answered, it is not known whether it fails.
    turn: tokio::sync::Mutex<()>,
    disks: Mutex<Vec<Weak<UnitLock>>>,
}

impl UnitFlushes {
    /// Adds a disk, whose flushes take turns with those of the others from now on.
    pub(crate) fn add(&self, disk: &Arc<UnitLock>) {
        let mut disks = self.lock();
        disks.retain(|other| other.strong_count() > 0);
        disks.push(Arc::downgrade(disk));
    }

    /// Waits until no other flush is in progress.
    pub(crate) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// A flush of this disk has failed on the medium: the others have lost writes as well.
    pub(crate) fn failed(&self, disk: &UnitLock) {
        let disks: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        let others = disks.iter().filter(|other| !std::ptr::eq(Arc::as_ptr(other), disk));
        others.for_each(|other| other.lock().durability.on_lost_writes());
    }

    /// Whether there are several disks.
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
