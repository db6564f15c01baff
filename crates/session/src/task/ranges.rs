//! Tracks which bytes of a transfer were transferred.

use smallvec::SmallVec;

/// A set of byte ranges, sorted and merged. A transfer in order has one range, which needs no separate
/// memory; nearly all transfers are in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges(SmallVec<[(usize, usize); 1]>);

impl Ranges {
    /// Adds `start..end`, and merges it with ranges that overlap or touch it.
    pub(crate) fn insert(&mut self, start: usize, end: usize) {
        if start >= end {
            return;
        }
        if self.0.is_empty() {
            return self.0.push((start, end));
        }
        let first = self.0.partition_point(|range| range.1 < start);
        let last = self.0.partition_point(|range| range.0 <= end);
        let touched = self.0.get(first..last).unwrap_or_default();
        let start = touched.first().map_or(start, |range| range.0.min(start));
        let end = touched.last().map_or(end, |range| range.1.max(end));
        match self.0.get_mut(first).filter(|_| first < last) {
            Some(range) => {
                *range = (start, end);
                self.0.drain(first + 1..last);
            }
            None => self.0.insert(first, (start, end)),
        }
    }

    /// Returns whether any byte of `start..end` was transferred.
    pub(crate) fn overlaps(&self, start: usize, end: usize) -> bool {
        let first = self.0.partition_point(|range| range.1 <= start);
        start < end && self.0.get(first).is_some_and(|range| range.0 < end)
    }

    /// Returns the length of the first range, if it begins at zero.
    pub(crate) fn contiguous(&self) -> usize {
        self.0.first().map_or(0, |range| if range.0 == 0 { range.1 } else { 0 })
    }

    /// Returns the end of the last range.
    pub(crate) fn end(&self) -> usize {
        self.0.last().map_or(0, |range| range.1)
    }
}

#[cfg(test)]
mod tests {
    use super::Ranges;
    use proptest::prelude::*;

    proptest! {
        /// The set gives the same results as an array of one flag per byte.
        #[test]
        fn agrees_with_flags(ops in prop::collection::vec((0usize..40, 0usize..12), 0..30), probe in (0usize..50, 0usize..12)) {
            let mut ranges = Ranges::default();
            let mut flags = [false; 64];
            for (start, len) in ops {
                ranges.insert(start, start + len);
                flags[start..start + len].fill(true);
            }
            prop_assert_eq!(ranges.contiguous(), flags.iter().take_while(|flag| **flag).count());
            prop_assert_eq!(ranges.end(), flags.iter().rposition(|flag| *flag).map_or(0, |at| at + 1));
            prop_assert_eq!(ranges.overlaps(probe.0, probe.0 + probe.1), flags[probe.0..probe.0 + probe.1].contains(&true));
        }
    }
}
