//! Locks ranges of a unit while they are being written ([`Ranges`]).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use iscsi_multipath::ranges::{Admitted, RangeId, Ranges};
use tokio::sync::oneshot;

/// The ranges of one unit that any disk or session is writing. Clones share the same ranges.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeLocks(Arc<Shared>);

/// A weak reference to the ranges of a unit.
#[derive(Clone, Debug)]
pub(crate) struct WeakRangeLocks(Weak<Shared>);

#[derive(Debug, Default)]
struct Shared(Mutex<Line>);

#[derive(Debug, Default)]
struct Line {
    ranges: Ranges,
    /// A sender for each range that waits in the queue.
    admissions: BTreeMap<RangeId, oneshot::Sender<()>>,
}

/// A place in the queue. If it is dropped before its range is locked, the ranges after it move up.
#[derive(Debug)]
struct Turn {
    shared: Arc<Shared>,
    id: RangeId,
    is_claimed: bool,
}

/// A locked range, until this value is dropped. If the target may still execute a write of the range, the
/// range stays locked after the drop.
#[derive(Debug)]
pub(crate) struct RangeGuard {
    shared: Arc<Shared>,
    id: RangeId,
}

/// The writes of one session that the target may still execute. While the session lives, these are the writes
/// in flight. After it is lost, these are the writes that were in flight, until the target is known to have
/// finished with them.
///
/// Another session may send the same data to the range of such a write again. Every other write to the range
/// must wait.
#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    writes: AtomicUsize,
    /// Ranges of the writes that the lost session had in flight; `None` if the ranges are not kept.
    extents: Mutex<Option<Vec<Arc<RangeGuard>>>>,
}

impl Unsettled {
    /// Keeps the ranges of the session's writes when the session is lost.
    pub(crate) fn keep(&self) {
        self.lock().get_or_insert_default();
    }

    /// Counts a write that is handed to the session.
    pub(crate) fn begin(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a write that the target has finished.
    pub(crate) fn end(&self) {
        self.writes.fetch_sub(1, Ordering::Relaxed);
    }

    /// Keeps the range of a write that was in flight when the session was lost.
    pub(crate) fn put(&self, extent: Arc<RangeGuard>) {
        if let Some(extents) = &mut *self.lock() {
            extent.leave();
            extents.push(extent);
        }
    }

    /// Returns whether the target has finished with every write.
    pub(crate) fn is_settled(&self) -> bool {
        self.writes.load(Ordering::Relaxed) == 0
    }

    /// Returns whether a write waits for a range that the lost session was writing.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.lock().iter().flatten().any(|extent| extent.is_waited_for())
    }

    /// Releases the ranges of a lost session, because the target has finished with its writes. Ranges that
    /// are added later are not kept.
    pub(crate) fn settle(&self) {
        let extents = self.lock().take().unwrap_or_default();
        self.writes.store(0, Ordering::Relaxed);
        // The drop of each range wakes the writes that wait for it.
        extents.into_iter().for_each(|extent| extent.settle());
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Arc<RangeGuard>>>> {
        self.extents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WeakRangeLocks {
    pub(crate) fn is_in_use(&self) -> bool {
        self.0.strong_count() > 0
    }

    pub(crate) fn upgrade(&self) -> Option<RangeLocks> {
        self.0.upgrade().map(RangeLocks)
    }
}

impl RangeLocks {
    pub(crate) fn downgrade(&self) -> WeakRangeLocks {
        WeakRangeLocks(Arc::downgrade(&self.0))
    }

    /// Returns whether a lost session was writing a part of the range, and the target may still execute that
    /// write.
    pub(crate) fn is_unsettled(&self, range: &Range<u64>) -> bool {
        self.0.lock().ranges.is_in_doubt(range)
    }

    /// Locks the range, if it does not overlap a range that is locked or waits.
    pub(crate) fn try_take(&self, range: &Range<u64>) -> Option<RangeGuard> {
        let id = self.0.lock().ranges.try_take(range)?;
        Some(RangeGuard { shared: Arc::clone(&self.0), id })
    }

    /// Waits until the range is free, and locks it. The first poll joins the queue. Invariant: the range is
    /// not empty.
    pub(crate) async fn take(&self, range: Range<u64>) -> RangeGuard {
        let shared = Arc::clone(&self.0);
        let (id, admission) = {
            // Both steps need the same lock: if a range were released between the steps, this waiter would
            // not be woken.
            let mut line = self.0.lock();
            let (id, is_taken) = line.ranges.take(range);
            if is_taken {
                return RangeGuard { shared, id };
            }
            let (admission, admitted) = oneshot::channel();
            line.admissions.insert(id, admission);
            (id, admitted)
        };
        let turn = Turn { shared, id, is_claimed: false };
        // The result is dropped because it cannot be an error: the sender stays in the queue as long as
        // `turn` exists.
        drop(admission.await);
        turn.claim()
    }
}

impl Turn {
    /// Returns the lock of the range, when its turn has come.
    fn claim(mut self) -> RangeGuard {
        self.is_claimed = true;
        RangeGuard { shared: Arc::clone(&self.shared), id: self.id }
    }
}

impl Shared {
    /// Applies `change` and, after unlocking, wakes each waiter whose range was locked by the change.
    fn change(&self, change: impl FnOnce(&mut Line) -> Admitted) {
        let admissions: Vec<_> = {
            let mut line = self.lock();
            let admitted = change(&mut line);
            admitted.iter().filter_map(|id| line.admissions.remove(id)).collect()
        };
        // A waiter whose future was dropped releases its range by dropping its turn.
        for admission in admissions {
            admission.send(()).ok();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_claimed {
            self.shared.change(|line| {
                line.admissions.remove(&self.id);
                line.ranges.release(self.id)
            });
        }
    }
}

impl RangeGuard {
    /// Returns whether a write waits for a part of the range.
    fn is_waited_for(&self) -> bool {
        self.shared.lock().ranges.is_waited_for(self.id)
    }

    /// Marks the range as in doubt, because a session that was writing it was lost.
    fn leave(&self) {
        self.shared.lock().ranges.doubt(self.id);
    }

    /// Records that the target has finished with one lost session's write of the range.
    fn settle(&self) {
        self.shared.change(|line| line.ranges.settle(self.id));
    }
}

impl Drop for RangeGuard {
    fn drop(&mut self) {
        self.shared.change(|line| line.ranges.release(self.id));
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    type Taking = Pin<Box<dyn Future<Output = RangeGuard>>>;

    fn poll(taking: &mut Taking) -> Option<RangeGuard> {
        match taking.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(guard) => Some(guard),
            Poll::Pending => None,
        }
    }

    impl RangeLocks {
        fn taking(&self, range: Range<u64>) -> Taking {
            let locks = self.clone();
            Box::pin(async move { locks.take(range).await })
        }
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

    /// If two lost sessions were writing a range, both must be settled. If the values that could settle them
    /// are dropped first, the range stays locked.
    #[test]
    fn what_nobody_settles_stays_taken() {
        let extents = RangeLocks::default();
        let [one, other] = [(); 2].map(|()| Unsettled::default());
        let guard = Arc::new(extents.try_take(&(8..16)).unwrap());
        for unsettled in [&one, &other] {
            unsettled.keep();
            unsettled.begin();
            unsettled.put(Arc::clone(&guard));
        }
        drop(guard);
        one.settle();
        assert!(one.is_settled() && !other.is_settled());
        drop(other);
        assert!(extents.is_unsettled(&(0..32)));
        assert!(extents.try_take(&(0..32)).is_none());
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

    /// A write that is dropped while it waits for its range, or before it has taken the range that is free,
    /// delays no other write.
    #[test]
    fn who_leaves_the_line_holds_nobody_up() {
        let locks = RangeLocks::default();
        let held = locks.try_take(&(0..8));
        let (mut first, mut second) = (locks.taking(0..16), locks.taking(8..16));
        assert!(poll(&mut first).is_none() && poll(&mut second).is_none());
        drop(first);
        let second = poll(&mut second);
        assert!(second.is_some());
        // The range was given to the third write, which is dropped before it is polled.
        let mut third = locks.taking(0..8);
        assert!(poll(&mut third).is_none());
        drop(held);
        drop(third);
        assert!(locks.try_take(&(0..8)).is_some());
    }
}
