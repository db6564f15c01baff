//! Sets of bytes of a device.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of bytes of a device, as ranges in order; no two of them overlap or touch.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RangeSet {
    /// Maps the first byte of each range to the byte after its last one.
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// Creates an empty set.
    pub const fn new() -> Self {
        Self { ranges: BTreeMap::new() }
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the number of bytes in the set.
    pub fn bytes(&self) -> u64 {
        self.iter().map(|range| range.end - range.start).sum()
    }

    /// Returns the ranges in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(start, end)| *start..*end)
    }

    /// Returns the range with the lowest byte.
    pub fn first(&self) -> Option<Range<u64>> {
        self.iter().next()
    }

    /// Returns the ranges from the byte `at` on, in order. If `at` is within a range, the first returned
    /// range begins at `at`.
    pub fn ranges_from(&self, at: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        let around = self.ranges.range(..at).next_back().filter(|(_, end)| **end > at);
        let rest = self.ranges.range(at..).map(|(start, end)| *start..*end);
        around.map(|(_, end)| at..*end).into_iter().chain(rest)
    }

    /// Returns whether the set has all bytes of a range.
    pub fn contains(&self, range: &Range<u64>) -> bool {
        let before = self.ranges.range(..=range.start).next_back();
        range.is_empty() || before.is_some_and(|(_, end)| *end >= range.end)
    }

    /// Returns the parts of a range that are in the set.
    pub fn overlap(&self, range: &Range<u64>) -> Self {
        let mut found = Self::new();
        for part in self.touching(range) {
            found.insert(part.start.max(range.start)..part.end.min(range.end));
        }
        found
    }

    /// Closes the shortest gaps until at most `most` ranges are left (1 if `most` is 0). The bytes of the
    /// closed gaps become part of the set.
    pub fn close_gaps(&mut self, most: usize) {
        let excess = self.ranges.len().saturating_sub(most.max(1));
        if excess == 0 {
            return;
        }
        let gaps = self.iter().zip(self.iter().skip(1));
        let mut gaps: Vec<_> =
            gaps.map(|(range, next)| (next.start - range.end, range.end, next.start)).collect();
        gaps.select_nth_unstable(excess - 1);
        for (_, start, end) in gaps.into_iter().take(excess) {
            self.insert(start..end);
        }
    }

    /// Returns the number of ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the bytes that are in this set and not in the other one.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        other.iter().for_each(|range| rest.remove(&range));
        rest
    }

    /// Adds a range. Parts of the range may already be in the set.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let mut whole = range.clone();
        for part in self.touching(&range) {
            self.ranges.remove(&part.start);
            whole = whole.start.min(part.start)..whole.end.max(part.end);
        }
        self.ranges.insert(whole.start, whole.end);
    }

    /// Removes a range. Parts of the range may be missing from the set.
    pub fn remove(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        for part in self.touching(range) {
            self.ranges.remove(&part.start);
            self.insert(part.start..range.start.min(part.end));
            self.insert(range.end.max(part.start)..part.end);
        }
    }

    /// Returns the ranges that overlap `range`, end where it begins, or begin where it ends.
    fn touching(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let before = self.ranges.range(..range.start).next_back();
        let before = before.filter(|(_, end)| **end >= range.start);
        let rest = self.ranges.range(range.start..=range.end);
        before.into_iter().chain(rest).map(|(start, end)| *start..*end).collect()
    }
}

impl From<Range<u64>> for RangeSet {
    fn from(range: Range<u64>) -> Self {
        let mut set = Self::new();
        set.insert(range);
        set
    }
}

impl Extend<Range<u64>> for RangeSet {
    fn extend<I: IntoIterator<Item = Range<u64>>>(&mut self, ranges: I) {
        ranges.into_iter().for_each(|range| self.insert(range));
    }
}

impl FromIterator<Range<u64>> for RangeSet {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Self {
        let mut set = Self::new();
        set.extend(ranges);
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn bytes(set: &RangeSet) -> BTreeSet<u64> {
        set.iter().flatten().collect()
    }

    fn is_canonical(set: &RangeSet) -> bool {
        let ranges: Vec<_> = set.iter().collect();
        let apart = ranges.windows(2).all(|pair| pair[0].end < pair[1].start);
        apart && ranges.iter().all(|range| !range.is_empty())
    }

    proptest! {
        #[test]
        fn it_holds_what_a_set_of_bytes_holds(
            steps in prop::collection::vec((any::<bool>(), 0..64_u64, 0..16_u64), 0..40),
            probe in (0..64_u64, 0..16_u64),
        ) {
            let (mut set, mut model) = (RangeSet::new(), BTreeSet::new());
            for (is_insert, start, len) in steps {
                let range = start..start + len;
                if is_insert {
                    model.extend(range.clone());
                    set.insert(range);
                } else {
                    model.retain(|byte| !range.contains(byte));
                    set.remove(&range);
                }
                prop_assert!(is_canonical(&set), "{set:?}");
                prop_assert_eq!(bytes(&set), model.clone());
                prop_assert_eq!(set.bytes(), model.len() as u64);
            }
            for most in [set.len(), set.len() / 2, 0] {
                let mut fewer = set.clone();
                fewer.close_gaps(most);
                prop_assert!(is_canonical(&fewer) && fewer.len() <= most.max(1).min(set.len()));
                prop_assert!(set.iter().all(|range| fewer.contains(&range)));
                prop_assert_eq!(fewer.iter().next_back().map(|range| range.end), set.iter().next_back().map(|range| range.end));
            }
            let probe = probe.0..probe.0 + probe.1;
            prop_assert_eq!(set.contains(&probe), probe.clone().all(|byte| model.contains(&byte)));
            let overlap: BTreeSet<_> = probe.clone().filter(|byte| model.contains(byte)).collect();
            prop_assert_eq!(bytes(&set.overlap(&probe)), overlap);
            let behind: BTreeSet<_> = model.range(probe.start..).copied().collect();
            prop_assert_eq!(set.ranges_from(probe.start).flatten().collect::<BTreeSet<_>>(), behind);
        }
    }
}
