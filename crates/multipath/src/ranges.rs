//! Keeps overlapping writes of a unit in their order: each write takes its byte range, and waits while a part
//! of the range is taken.
//!
//! So two writes that touch the same block are never in flight together. An unaligned write reads the blocks at
//! its edges and writes them back, which would undo the other write. A range stays taken until the target has
//! finished with the write, even if the write was cancelled: an aborted write cannot overwrite a later one.
//!
//! First come, first served: a range waits for all taken ranges and all earlier waiting ranges that touch the
//! same bytes. So short writes cannot starve a long one.
//!
//! A range is in doubt if a session was lost that was writing there: the target may still execute that write. The
//! range stays taken until the session is settled, which means that the target will certainly execute none of
//! its writes any more. The end of a time limit does not make that certain.
//!
//! Design: `docs/design/writes-in-doubt.md`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{Hash, Hasher};
use std::ops::Range;

/// The taken ranges, and the waiting ranges.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Ranges {
    /// Taken ranges by their starts. They are disjoint.
    taken: BTreeMap<u64, Taken>,
    /// Waiting ranges by their numbers, which grow in the order in which the ranges came.
    waiting: BTreeMap<u64, Range<u64>>,
    next: u64,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Taken {
    end: u64,
    number: u64,
    /// Number of holders, which may still write there: the request, and each attempt in flight.
    holders: u32,
    /// Number of lost sessions that were writing there and are not settled.
    in_doubt: u32,
}

/// Identifies a range that waits or is taken. No identifier is used twice.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RangeId {
    number: u64,
    start: u64,
}

/// A union of ranges. The result does not depend on the order in which the ranges were added.
#[derive(Debug, Default)]
struct Union(BTreeMap<u64, u64>);

/// Ranges that have waited and are now taken.
pub type Admitted = Vec<RangeId>;

impl Ranges {
    /// Takes the range if it touches no range that is taken or waits; otherwise returns `None`, and the range
    /// does not wait.
    ///
    /// `range` must not be empty.
    pub fn try_take(&mut self, range: &Range<u64>) -> Option<RangeId> {
        let is_free = !self.overlaps_taken(range)
            && !self.waiting.values().any(|waiting| overlap(waiting, range));
        is_free.then(|| {
            let id = self.next_id(range);
            self.insert(id, range);
            id
        })
    }

    /// Takes the range, or appends it to the waiting ranges. Returns whether the range is taken.
    ///
    /// `range` must not be empty.
    pub fn take(&mut self, range: Range<u64>) -> (RangeId, bool) {
        match self.try_take(&range) {
            Some(id) => (id, true),
            None => {
                let id = self.next_id(&range);
                self.waiting.insert(id.number, range);
                (id, false)
            }
        }
    }

    /// Adds a holder to a taken range, because an attempt is sent. Each holder calls
    /// [`release`](Self::release) once.
    pub fn hold(&mut self, id: RangeId) {
        if let Some(taken) = self.taken_mut(id) {
            taken.holders += 1;
        }
    }

    /// Removes a holder of a taken range, or removes a waiting range. A taken range stays taken while it has
    /// another holder, and while it is in doubt.
    pub fn release(&mut self, id: RangeId) -> Admitted {
        let is_known = self.waiting.remove(&id.number).is_some()
            || self.give_back(id, |taken| taken.holders = taken.holders.saturating_sub(1));
        if is_known { self.admit() } else { Vec::new() }
    }

    /// Marks a range as in doubt, because a session that was writing there was lost.
    pub fn doubt(&mut self, id: RangeId) {
        if let Some(taken) = self.taken_mut(id) {
            taken.in_doubt += 1;
        }
    }

    /// Settles one lost session: the writes of that session in the range will not be executed any more.
    pub fn settle(&mut self, id: RangeId) -> Admitted {
        let is_known =
            self.give_back(id, |taken| taken.in_doubt = taken.in_doubt.saturating_sub(1));
        if is_known { self.admit() } else { Vec::new() }
    }

    /// Returns whether no range is taken and none waits.
    pub fn are_free(&self) -> bool {
        self.taken.is_empty() && self.waiting.is_empty()
    }

    /// Hashes the taken and the waiting ranges, by position instead of number.
    pub(crate) fn fingerprint(&self, state: &mut impl Hasher) {
        for (start, taken) in &self.taken {
            (start, taken.end, taken.holders, taken.in_doubt).hash(state);
        }
        u8::MAX.hash(state);
        self.waiting.values().for_each(|range| range.hash(state));
    }

    /// Returns the start of a range, and its position among the waiting ranges if it waits: an identification
    /// that does not depend on its number.
    pub(crate) fn name(&self, id: RangeId) -> (u64, Option<usize>) {
        (id.start, self.waiting.keys().position(|number| *number == id.number))
    }

    /// Returns whether a part of the range is in doubt.
    pub fn is_in_doubt(&self, range: &Range<u64>) -> bool {
        self.taken_in(range).any(|(_, taken)| taken.in_doubt > 0)
    }

    /// Returns whether another range waits for a part of this range.
    pub fn is_waited_for(&self, id: RangeId) -> bool {
        let Some(taken) = self.taken.get(&id.start).filter(|taken| taken.number == id.number)
        else {
            return false;
        };
        self.waiting.values().any(|waiting| overlap(waiting, &(id.start..taken.end)))
    }

    fn next_id(&mut self, range: &Range<u64>) -> RangeId {
        let id = RangeId { number: self.next, start: range.start };
        self.next += 1;
        id
    }

    fn insert(&mut self, id: RangeId, range: &Range<u64>) {
        debug_assert!(!range.is_empty(), "an empty range touches nothing");
        let taken = Taken { end: range.end, number: id.number, holders: 1, in_doubt: 0 };
        self.taken.insert(range.start, taken);
    }

    /// Returns the taken ranges that overlap this one, the last one first.
    fn taken_in(&self, range: &Range<u64>) -> impl Iterator<Item = (&u64, &Taken)> {
        let start = range.start;
        self.taken.range(..range.end).rev().take_while(move |(_, taken)| taken.end > start)
    }

    fn overlaps_taken(&self, range: &Range<u64>) -> bool {
        self.taken_in(range).next().is_some()
    }

    fn taken_mut(&mut self, id: RangeId) -> Option<&mut Taken> {
        self.taken.get_mut(&id.start).filter(|taken| taken.number == id.number)
    }

    /// Applies `change` to a taken range, and frees it if it then has no holder and is not in doubt. Returns
    /// `false` if the range is not taken.
    fn give_back(&mut self, id: RangeId, change: impl FnOnce(&mut Taken)) -> bool {
        let Entry::Occupied(mut entry) = self.taken.entry(id.start) else { return false };
        if entry.get().number != id.number {
            return false;
        }
        let taken = entry.get_mut();
        change(taken);
        if taken.holders == 0 && taken.in_doubt == 0 {
            entry.remove();
        }
        true
    }

    /// Takes each waiting range that touches neither a taken range nor an earlier waiting one.
    fn admit(&mut self) -> Admitted {
        let mut admitted = Vec::new();
        // This is the usual case (docs/design/hot-path.md).
        if self.waiting.is_empty() {
            return admitted;
        }
        let mut earlier = Union::default();
        for (number, range) in &self.waiting {
            let is_taken = self.taken_in(range).next().is_some();
            if is_taken || earlier.overlaps(range) {
                earlier.add(range.clone());
            } else {
                // An admitted range is added to `earlier` as well, so no later range that overlaps it is
                // admitted.
                admitted.push(RangeId { number: *number, start: range.start });
                earlier.add(range.clone());
            }
        }
        for id in &admitted {
            if let Some(range) = self.waiting.remove(&id.number) {
                self.insert(*id, &range);
            }
        }
        admitted
    }
}

impl Union {
    fn overlaps(&self, range: &Range<u64>) -> bool {
        self.last_overlap(range).is_some()
    }

    /// Adds a range, and merges the ranges that it overlaps into it.
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

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_overlapping_ranges_exclude_each_other() {
        let mut ranges = Ranges::default();
        let held = ranges.try_take(&(10..20)).unwrap();
        for (range, is_free) in [
            (0..10, true),
            (20..30, true),
            (0..11, false),
            (19..21, false),
            (12..13, false),
            (0..30, false),
            (10..20, false),
        ] {
            let taken = ranges.try_take(&range);
            assert_eq!(taken.is_some(), is_free, "{range:?}");
            taken.into_iter().for_each(|id| assert!(ranges.release(id).is_empty()));
        }
        assert!(ranges.release(held).is_empty());
        assert!(ranges.try_take(&(0..30)).is_some());
    }

    #[test]
    fn a_range_in_doubt_stays_taken_until_each_session_is_settled() {
        let mut ranges = Ranges::default();
        let id = ranges.try_take(&(8..16)).unwrap();
        ranges.doubt(id);
        ranges.doubt(id);
        assert!(ranges.release(id).is_empty());
        for (range, is_in_doubt) in [(0..8, false), (0..9, true), (15..32, true), (16..32, false)] {
            assert_eq!(ranges.is_in_doubt(&range), is_in_doubt, "{range:?}");
        }
        let (next, is_taken) = ranges.take(0..32);
        assert!(!is_taken && ranges.is_waited_for(id));
        assert!(ranges.settle(id).is_empty());
        assert_eq!(ranges.settle(id), [next]);
        assert!(!ranges.is_in_doubt(&(0..32)));
        assert!(ranges.settle(id).is_empty(), "it is over");
    }

    /// A range has three holders, and the session of one attempt is lost. The range is freed only after each
    /// holder has released it and the lost session is settled.
    #[test]
    fn a_range_is_taken_until_each_holder_has_given_it_back() {
        let mut ranges = Ranges::default();
        let id = ranges.try_take(&(0..8)).unwrap();
        ranges.hold(id);
        ranges.hold(id);
        let (next, _) = ranges.take(4..12);
        assert!(ranges.release(id).is_empty(), "the request is answered");
        ranges.doubt(id);
        assert!(ranges.release(id).is_empty(), "an attempt was lost");
        assert!(ranges.release(id).is_empty(), "the other one has ended");
        assert_eq!(ranges.settle(id), [next]);
        ranges.hold(id);
        assert_eq!(ranges.release(next), []);
        assert!(ranges.are_free());
    }

    #[test]
    fn what_is_given_back_twice_frees_nobody_else() {
        let mut ranges = Ranges::default();
        let first = ranges.try_take(&(0..8)).unwrap();
        ranges.release(first);
        let second = ranges.try_take(&(0..8)).unwrap();
        ranges.release(first);
        ranges.settle(first);
        assert!(ranges.try_take(&(0..8)).is_none());
        ranges.release(second);
        assert!(ranges.try_take(&(0..8)).is_some());
    }

    /// A writer of a whole range gets its turn among writers of one half each.
    #[test]
    fn a_long_range_is_not_starved_by_short_ones() {
        let mut ranges = Ranges::default();
        let halves = [0..8, 8..16].map(|half| ranges.take(half).0);
        let (long, _) = ranges.take(0..16);
        let next = [0..8, 8..16].map(|half| ranges.take(half).0);
        assert!(ranges.release(halves[0]).is_empty());
        assert_eq!(ranges.release(halves[1]), [long]);
        assert_eq!(ranges.release(long), next);
    }

    #[test]
    fn who_leaves_the_line_holds_nobody_up() {
        let mut ranges = Ranges::default();
        let held = ranges.try_take(&(0..8)).unwrap();
        let [first, second] = [0..16, 8..16].map(|range| ranges.take(range).0);
        assert_eq!(ranges.release(first), [second]);
        let (third, _) = ranges.take(0..8);
        assert_eq!(ranges.release(held), [third]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Come(Range<u64>),
        /// One of the taken or waiting ranges is released.
        Go(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let come = (0..24u64, 1..9u64).prop_map(|(start, len)| Step::Come(start..start + len));
        prop_oneof![2 => come, 1 => any::<usize>().prop_map(Step::Go)]
    }

    /// Adds to `taken` each range of `line` that overlaps neither a taken range nor a range before it. `line`
    /// has all ranges that were not released, taken or waiting, in the order in which they came.
    fn model(line: &[(usize, Range<u64>)], taken: &mut BTreeSet<usize>) {
        for (at, (who, range)) in line.iter().enumerate() {
            let is_barred = line.iter().enumerate().any(|(other_at, (other, other_range))| {
                let comes_first = other_at < at || taken.contains(other);
                other != who && overlap(other_range, range) && comes_first
            });
            if !is_barred {
                taken.insert(*who);
            }
        }
    }

    proptest! {
        #[test]
        fn the_line_equals_its_model(steps in prop::collection::vec(step(), 1..60)) {
            let mut ranges = Ranges::default();
            let (mut line, mut expected) = (Vec::new(), BTreeSet::new());
            let (mut ids, mut found) = (BTreeMap::new(), BTreeSet::new());
            for (who, step) in steps.into_iter().enumerate() {
                let admitted = match step {
                    Step::Come(range) => {
                        line.push((who, range.clone()));
                        let (id, is_taken) = ranges.take(range);
                        ids.insert(who, id);
                        is_taken.then_some(id).into_iter().collect()
                    }
                    Step::Go(_) if line.is_empty() => Vec::new(),
                    Step::Go(which) => {
                        let (gone, _) = line.remove(which % line.len());
                        expected.remove(&gone);
                        found.remove(&gone);
                        ids.remove(&gone).map_or_else(Vec::new, |id| ranges.release(id))
                    }
                };
                model(&line, &mut expected);
                for id in admitted {
                    found.extend(ids.iter().find(|(_, known)| **known == id).map(|(who, _)| *who));
                }
                prop_assert_eq!(&found, &expected);
            }
        }
    }
}
