//! Tracks the ranges of failed changes, which the device may still execute.

use std::ops::Range;

use iscsi_initiator::device::{Extent, ExtentState};

use super::known_extents::KnownExtents;

/// Maximum number of ranges. Beyond it, they are merged into one range, with all bytes between them.
const MAX_PARTS: usize = 4096;

/// The ranges that must not be cached. A change of them has failed and may still be executed, until a later
/// change of the same bytes has succeeded.
///
/// By the rules of [`Device`](iscsi_initiator::device::Device), the later change is executed after all changes
/// of these bytes that had failed before it.
#[derive(Debug, Default)]
pub(super) struct Uncertain(KnownExtents);

impl Uncertain {
    /// Records a failed change of a range.
    pub(super) fn add(&mut self, range: &Range<u64>) {
        self.insert(range);
        if self.0.len() > MAX_PARTS
            && let Some(hull) = self.0.hull()
        {
            self.insert(&hull);
        }
    }

    /// Records a change of a range that succeeded.
    pub(super) fn record_success(&mut self, range: &Range<u64>) {
        self.0.replace(range, None);
    }

    /// Returns the parts of a range that must not be cached.
    pub(super) fn within(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        self.0.overlapping(range)
    }

    fn insert(&mut self, range: &Range<u64>) {
        let len = range.end.saturating_sub(range.start);
        self.0.insert(&[Extent::new(range.start, len, ExtentState::Unknown)]);
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;

    #[test]
    fn what_failed_is_uncertain_until_it_is_written_well() {
        let mut uncertain = Uncertain::default();
        let all = 0..u64::MAX;
        assert_eq!(uncertain.within(&all), []);
        uncertain.add(&(10..20));
        uncertain.add(&(15..30));
        uncertain.add(&(100..110));
        assert_eq!(uncertain.within(&(0..50)), [10..15, 15..30]);
        uncertain.record_success(&(12..18));
        assert_eq!(uncertain.within(&all), [10..12, 18..30, 100..110]);
        assert_eq!(uncertain.within(&(30..100)), []);
    }

    #[test]
    fn many_parts_are_one_with_all_between_them() {
        let mut uncertain = Uncertain::default();
        for at in 1..=MAX_PARTS as u64 {
            uncertain.add(&(at * 10..at * 10 + 1));
        }
        assert_eq!(uncertain.within(&(15..16)), []);
        uncertain.add(&(0..1));
        let end = MAX_PARTS as u64 * 10 + 1;
        assert_eq!(uncertain.within(&(0..u64::MAX)), from_ref(&(0..end)));
        uncertain.record_success(&(5..end));
        assert_eq!(uncertain.within(&(0..u64::MAX)), from_ref(&(0..5)));
    }
}
