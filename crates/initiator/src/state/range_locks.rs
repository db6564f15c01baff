//! Which ranges of a unit are being written, so that overlapping writes keep their order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The byte ranges of one unit that are being written.
///
/// Two writes that touch the same block never run at once: reading and writing back the edges of
/// an unaligned write would undo the other one. A range stays taken until the target has finished
/// with it, also when its writer was dropped, so that an aborted write cannot land on a later one.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeLocks(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Disjoint ranges: start to end.
    taken: Mutex<BTreeMap<u64, u64>>,
    released: Notify,
}

/// A range that is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct RangeGuard {
    shared: Arc<Shared>,
    start: u64,
}

/// Ranges that a lost session was writing: the target may go on with them, until it is known to
/// have finished.
///
/// Another session may write the same data there again; whatever else belongs there has to wait.
#[derive(Debug, Default)]
pub(crate) struct Unsettled(Mutex<Option<Vec<Arc<RangeGuard>>>>);

impl Unsettled {
    /// From now on ranges are kept.
    pub(crate) fn keep(&self) {
        self.lock().get_or_insert_default();
    }

    pub(crate) fn put(&self, extent: Arc<RangeGuard>) {
        if let Some(extents) = &mut *self.lock() {
            extents.push(extent);
        }
    }

    /// Gives all of them back, and keeps none any more.
    pub(crate) fn settle(&self) {
        let extents = self.lock().take();
        // Each wakes those that wait for it.
        drop(extents);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Arc<RangeGuard>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RangeLocks {
    /// Waits until no byte of the range is taken, and takes it. Invariant: it is not empty.
    pub(crate) async fn take(&self, range: Range<u64>) -> RangeGuard {
        loop {
            let released = self.0.released.notified();
            tokio::pin!(released);
            // Listening begins before the look, or a release in between would go unnoticed.
            released.as_mut().enable();
            if let Some(extent) = self.try_take(&range) {
                return extent;
            }
            released.await;
        }
    }

    fn try_take(&self, range: &Range<u64>) -> Option<RangeGuard> {
        let mut taken = self.0.lock();
        let before = taken.range(..range.end).next_back();
        if before.is_some_and(|(_, end)| *end > range.start) {
            return None;
        }
        taken.insert(range.start, range.end);
        Some(RangeGuard { shared: Arc::clone(&self.0), start: range.start })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RangeGuard {
    fn drop(&mut self) {
        self.shared.lock().remove(&self.start);
        self.shared.released.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_overlapping_ranges_exclude_each_other() {
        let extents = RangeLocks::default();
        let held = extents.try_take(&(10..20));
        assert!(held.is_some());
        for (range, free) in [
            (0..10, true),
            (20..30, true),
            (0..11, false),
            (19..21, false),
            (12..13, false),
            (0..30, false),
            (10..20, false),
        ] {
            assert_eq!(extents.try_take(&range).is_some(), free, "{range:?}");
        }
        drop(held);
        assert!(extents.try_take(&(0..30)).is_some());
    }

    #[test]
    fn what_is_unsettled_stays_taken() {
        let (extents, unsettled) = (RangeLocks::default(), Unsettled::default());
        let taken = || extents.try_take(&(0..8)).map(Arc::new);
        unsettled.put(taken().unwrap());
        assert!(taken().is_some(), "nobody asked to keep it");
        unsettled.keep();
        unsettled.put(taken().unwrap());
        assert!(taken().is_none());
        unsettled.settle();
        assert!(taken().is_some());
    }

    #[tokio::test]
    async fn a_release_wakes_the_next() {
        let extents = RangeLocks::default();
        let held = extents.take(0..8).await;
        let waiter = tokio::spawn({
            let extents = extents.clone();
            async move { extents.take(4..12).await }
        });
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        drop(held);
        assert!(waiter.await.is_ok());
    }
}
