//! Which ranges of a unit are being written, so that overlapping writes keep their order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::oneshot;

/// The byte ranges of one unit that are being written.
///
/// Two writes that touch the same block never run at once: reading and writing back the edges of
/// an unaligned write would undo the other one. A range stays taken until the target has finished
/// with it, also when its writer was dropped, so that an aborted write cannot land on a later one.
///
/// First come, first served: who comes waits for what is taken, and for all who wait already and
/// touch the same bytes. So many short writes do not keep a long one out.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeLocks(Arc<Shared>);

/// The same, as long as anybody uses them.
#[derive(Clone, Debug)]
pub(crate) struct WeakRangeLocks(Weak<Shared>);

#[derive(Debug, Default)]
struct Shared(Mutex<Line>);

/// Who has what, and who waits for it.
#[derive(Debug, Default)]
struct Line {
    taken: Ranges,
    /// The starts of those that are unsettled, and how many lost sessions were writing each.
    unsettled: BTreeMap<u64, usize>,
    /// In the order in which they came.
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
}

#[derive(Debug)]
struct Waiting {
    range: Range<u64>,
    admission: oneshot::Sender<()>,
}

/// Disjoint ranges: start to end.
#[derive(Debug, Default)]
struct Ranges(BTreeMap<u64, u64>);

/// A turn in the line. Dropped before the range is had, it lets those behind it move up.
#[derive(Debug)]
struct Turn {
    shared: Arc<Shared>,
    number: u64,
    start: u64,
    is_claimed: bool,
}

/// A range that is taken until this is dropped; one that is unsettled then stays taken.
#[derive(Debug)]
pub(crate) struct RangeGuard {
    shared: Arc<Shared>,
    start: u64,
}

/// The writes of one session that the target may still carry out: those under way, and once the session
/// is lost, those that were, until the target is known to have finished with them.
///
/// Another session may write the same data there again; whatever else belongs there has to wait.
#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    writes: AtomicUsize,
    /// What the writes of the lost session were to change.
    extents: Mutex<Option<Vec<Arc<RangeGuard>>>>,
}

impl Unsettled {
    /// From now on the ranges of a lost session are kept.
    pub(crate) fn keep(&self) {
        self.lock().get_or_insert_default();
    }

    /// A write is handed to the session.
    pub(crate) fn begin(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    /// The target has finished with a write.
    pub(crate) fn end(&self) {
        self.writes.fetch_sub(1, Ordering::Relaxed);
    }

    /// The session was lost with a write under way.
    pub(crate) fn put(&self, extent: Arc<RangeGuard>) {
        if let Some(extents) = &mut *self.lock() {
            extent.leave();
            extents.push(extent);
        }
    }

    /// Whether the target has finished with every write.
    pub(crate) fn is_settled(&self) -> bool {
        self.writes.load(Ordering::Relaxed) == 0
    }

    /// Whether somebody waits for a range that the lost session was writing.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.lock().iter().flatten().any(|extent| extent.is_waited_for())
    }

    /// The target has finished with what the lost session was writing. Gives the ranges back, and keeps
    /// none any more.
    pub(crate) fn settle(&self) {
        let extents = self.lock().take().unwrap_or_default();
        self.writes.store(0, Ordering::Relaxed);
        // The drop of each wakes those that wait for it.
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

    /// Whether a lost session was writing a part of the range, and the target may go on with it.
    pub(crate) fn is_unsettled(&self, range: &Range<u64>) -> bool {
        self.0.lock().is_unsettled(range)
    }

    /// Takes the range, if nobody has a byte of it, or came before and waits for one.
    pub(crate) fn try_take(&self, range: &Range<u64>) -> Option<RangeGuard> {
        let is_taken = self.0.lock().take(range);
        is_taken.then(|| RangeGuard { shared: Arc::clone(&self.0), start: range.start })
    }

    /// Waits for its turn, and until no byte of the range is taken, and takes it. The turn is that of
    /// the first poll. Invariant: the range is not empty.
    pub(crate) async fn take(&self, range: Range<u64>) -> RangeGuard {
        let start = range.start;
        let (number, admission) = {
            // Under one lock, or who gives the range back in between would not see who waits for it.
            let mut line = self.0.lock();
            if line.take(&range) {
                return RangeGuard { shared: Arc::clone(&self.0), start };
            }
            line.queue(range)
        };
        let turn = Turn { shared: Arc::clone(&self.0), number, start, is_claimed: false };
        // The other end stays in the line as long as the turn does.
        drop(admission.await);
        turn.claim()
    }
}

impl Line {
    /// Whether a lost session was writing a part of the range, and the target may go on with it.
    fn is_unsettled(&self, range: &Range<u64>) -> bool {
        let overlapping = self.taken.0.range(..range.end).rev();
        let mut overlapping = overlapping.take_while(|(_, end)| **end > range.start);
        overlapping.any(|(start, _)| self.unsettled.contains_key(start))
    }

    /// Whether nobody has a byte of the range, or came before and waits for one.
    fn is_free(&self, range: &Range<u64>) -> bool {
        let overlaps =
            |waiting: &Waiting| waiting.range.start < range.end && range.start < waiting.range.end;
        !self.taken.overlaps(range) && !self.waiting.values().any(overlaps)
    }

    /// Takes the range if it is free; says whether it was.
    fn take(&mut self, range: &Range<u64>) -> bool {
        let is_free = self.is_free(range);
        if is_free {
            self.taken.add(range.clone());
        }
        is_free
    }

    fn queue(&mut self, range: Range<u64>) -> (u64, oneshot::Receiver<()>) {
        let (admission, admitted) = oneshot::channel();
        let number = self.next;
        self.next += 1;
        self.waiting.insert(number, Waiting { range, admission });
        (number, admitted)
    }

    /// Gives all who need wait no longer their ranges; they are to be told.
    fn admit(&mut self) -> Vec<oneshot::Sender<()>> {
        let mut admitted = Vec::new();
        let mut before = Ranges::default();
        for (number, Waiting { range, .. }) in &self.waiting {
            if self.taken.overlaps(range) || before.overlaps(range) {
                before.add(range.clone());
            } else {
                self.taken.add(range.clone());
                admitted.push(*number);
            }
        }
        let admitted = admitted.iter().filter_map(|number| self.waiting.remove(number));
        admitted.map(|waiting| waiting.admission).collect()
    }
}

impl Ranges {
    fn overlaps(&self, range: &Range<u64>) -> bool {
        self.last_overlap(range).is_some()
    }

    /// Adds a range; those that it overlaps become one with it.
    fn add(&mut self, mut range: Range<u64>) {
        while let Some((start, end)) = self.last_overlap(&range) {
            self.0.remove(&start);
            range = range.start.min(start)..range.end.max(end);
        }
        self.0.insert(range.start, range.end);
    }

    fn last_overlap(&self, range: &Range<u64>) -> Option<(u64, u64)> {
        let (start, end) = self.0.range(..range.end).next_back()?;
        (*end > range.start).then_some((*start, *end))
    }
}

impl Turn {
    /// The range, which has come to its turn.
    fn claim(mut self) -> RangeGuard {
        self.is_claimed = true;
        RangeGuard { shared: Arc::clone(&self.shared), start: self.start }
    }
}

impl Shared {
    /// Changes the line, and tells all whose turn it is then.
    fn leave(&self, change: impl FnOnce(&mut Line)) {
        let admitted = {
            let mut line = self.lock();
            change(&mut line);
            line.admit()
        };
        // Who does not listen any more gives the range back by dropping its turn.
        for admission in admitted {
            admission.send(()).ok();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.is_claimed {
            return;
        }
        self.shared.leave(|line| {
            if line.waiting.remove(&self.number).is_none() {
                line.taken.0.remove(&self.start);
            }
        });
    }
}

impl RangeGuard {
    /// Whether somebody waits for a part of the range.
    fn is_waited_for(&self) -> bool {
        let line = self.shared.lock();
        let end = line.taken.0.get(&self.start).copied().unwrap_or(self.start);
        let overlaps = |range: &Range<u64>| range.start < end && self.start < range.end;
        line.waiting.values().any(|waiting| overlaps(&waiting.range))
    }

    /// A session was lost that was writing the range.
    fn leave(&self) {
        *self.shared.lock().unsettled.entry(self.start).or_default() += 1;
    }

    /// The target has finished with what one such session was writing.
    fn settle(&self) {
        let unsettled = &mut self.shared.lock().unsettled;
        if let Some(sessions) = unsettled.get_mut(&self.start) {
            *sessions -= 1;
            if *sessions == 0 {
                unsettled.remove(&self.start);
            }
        }
    }
}

impl Drop for RangeGuard {
    fn drop(&mut self) {
        self.shared.leave(|line| {
            if !line.unsettled.contains_key(&self.start) {
                line.taken.0.remove(&self.start);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use proptest::prelude::*;

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

    /// Of two lost sessions that were writing a range, both have to be settled; and it stays taken when
    /// nobody is left who could settle them.
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
        for (range, is_unsettled) in [(0..8, false), (0..9, true), (15..32, true), (16..32, false)]
        {
            assert_eq!(extents.is_unsettled(&range), is_unsettled, "{range:?}");
        }
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

    /// Writers of one half each, one after the other, let a writer of both in.
    #[test]
    fn a_long_range_is_not_starved_by_short_ones() {
        let locks = RangeLocks::default();
        let mut halves = [locks.try_take(&(0..8)), locks.try_take(&(8..16))];
        let mut long = locks.taking(0..16);
        assert!(poll(&mut long).is_none());
        let mut next = [locks.taking(0..8), locks.taking(8..16)];
        for (half, next) in halves.iter_mut().zip(&mut next) {
            *half = None;
            assert!(poll(next).is_none(), "who came later has to wait");
        }
        let long = poll(&mut long);
        assert!(long.is_some() && next.iter_mut().all(|next| poll(next).is_none()));
        drop(long);
        assert!(next.iter_mut().all(|next| poll(next).is_some()));
    }

    #[test]
    fn who_leaves_the_line_holds_nobody_up() {
        let locks = RangeLocks::default();
        let held = locks.try_take(&(0..8));
        let (mut first, mut second) = (locks.taking(0..16), locks.taking(8..16));
        assert!(poll(&mut first).is_none() && poll(&mut second).is_none());
        drop(first);
        let second = poll(&mut second);
        assert!(second.is_some());
        // It has the range, and leaves before it knows.
        let mut third = locks.taking(0..8);
        assert!(poll(&mut third).is_none());
        drop(held);
        drop(third);
        assert!(locks.try_take(&(0..8)).is_some());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Come(Range<u64>),
        /// One of those who came, and are still there, goes: whether or not it has its range.
        Go(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let come = (0..24u64, 1..9u64).prop_map(|(start, len)| Step::Come(start..start + len));
        prop_oneof![2 => come, 1 => any::<usize>().prop_map(Step::Go)]
    }

    /// Who has a range: by going through all in the order in which they came, whoever overlaps neither
    /// one who had it before nor one who came before and still waits.
    fn admit(line: &[(usize, Range<u64>)], had: &mut BTreeSet<usize>) {
        for (at, (who, range)) in line.iter().enumerate() {
            let overlaps = |other: &Range<u64>| other.start < range.end && range.start < other.end;
            let is_barred = line.iter().enumerate().any(|(other_at, (other, other_range))| {
                other != who && overlaps(other_range) && (other_at < at || had.contains(other))
            });
            if !is_barred {
                had.insert(*who);
            }
        }
    }

    proptest! {
        #[test]
        fn the_line_equals_its_model(steps in prop::collection::vec(step(), 1..60)) {
            let locks = RangeLocks::default();
            let mut line = Vec::new();
            let mut had = BTreeSet::new();
            let mut takings = BTreeMap::new();
            let mut guards = BTreeMap::new();
            for (who, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Come(range) => {
                        line.push((who, range.clone()));
                        takings.insert(who, locks.taking(range));
                    }
                    Step::Go(_) if line.is_empty() => {}
                    Step::Go(which) => {
                        let (gone, _) = line.remove(which % line.len());
                        had.remove(&gone);
                        takings.remove(&gone);
                        guards.remove(&gone);
                    }
                }
                admit(&line, &mut had);
                for (who, taking) in &mut takings {
                    if let Some(guard) = poll(taking) {
                        guards.insert(*who, guard);
                    }
                }
                takings.retain(|who, _| !guards.contains_key(who));
                prop_assert!(guards.keys().eq(had.iter()));
            }
        }
    }
}
