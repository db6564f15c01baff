//! Caches the extents that the device has reported.

use std::collections::BTreeMap;
use std::ops::Range;

use iscsi_initiator::device::{Extent, ExtentState};

/// Maximum number of extents. Beyond it, all extents are removed.
const MAX_EXTENTS: usize = 1 << 16;

/// Extents by their first byte, without overlaps.
#[derive(Debug, Default)]
pub(super) struct KnownExtents(BTreeMap<u64, Extent>);

impl KnownExtents {
    /// Returns the known extents from the first byte of a range on, at most `most`. They may cover only the
    /// beginning of the range. Returns `None` if the extent of the first byte is unknown.
    pub(super) fn of(&self, range: &Range<u64>, most: usize) -> Option<Vec<Extent>> {
        let (_, first) = self.0.range(..=range.start).next_back()?;
        let mut at = range.start;
        let from = self.0.range(first.offset..range.end).map(|(_, extent)| *extent);
        let row = from.take_while(|extent| {
            let follows = extent.offset <= at && at < extent.end();
            at = extent.end();
            follows
        });
        let extents = cut(&row.take(most).collect::<Vec<_>>(), range);
        (!extents.is_empty()).then_some(extents)
    }

    /// Adds extents that the device has reported.
    pub(super) fn insert(&mut self, extents: &[Extent]) {
        let (Some(first), Some(last)) = (extents.first(), extents.last()) else { return };
        if self.0.len() + extents.len() > MAX_EXTENTS {
            self.0.clear();
        }
        self.remove(&(first.offset..last.end()));
        let room = extents.iter().take(MAX_EXTENTS);
        self.0.extend(room.map(|extent| (extent.offset, *extent)));
    }

    /// Sets the extent of a range to `state`, or removes the known extents of the range.
    pub(super) fn replace(&mut self, range: &Range<u64>, state: Option<ExtentState>) {
        if self.0.is_empty() || range.is_empty() {
            return;
        }
        self.remove(range);
        if let Some(state) = state {
            let mut extent = Extent::new(range.start, range.end - range.start, state);
            let before = self.0.range(..range.start).next_back().map(|(_, before)| *before);
            // Merge with the extent before it, so that sequential writes result in one extent.
            if let Some(before) = before.filter(|it| it.end() == range.start && it.state == state) {
                extent = Extent::new(before.offset, before.len + extent.len, state);
            }
            self.0.insert(extent.offset, extent);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the range from the first known byte to the last one.
    pub(super) fn hull(&self) -> Option<Range<u64>> {
        let (first, _) = self.0.first_key_value()?;
        let (_, last) = self.0.last_key_value()?;
        Some(*first..last.end())
    }

    /// Returns the known parts of a range.
    pub(super) fn overlapping(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let first = self.0.range(..range.start).next_back().map(|(start, _)| *start);
        let near = self.0.range(first.unwrap_or(range.start)..range.end.max(range.start));
        let parts = near.map(|(_, it)| it.offset.max(range.start)..it.end().min(range.end));
        parts.filter(|part| !part.is_empty()).collect()
    }

    fn remove(&mut self, range: &Range<u64>) {
        let first = self.0.range(..range.start).next_back().map(|(start, _)| *start);
        let touched = self.0.range(first.unwrap_or(range.start)..range.end);
        let touched: Vec<Extent> =
            touched.map(|(_, extent)| *extent).filter(|it| it.end() > range.start).collect();
        for extent in touched {
            self.0.remove(&extent.offset);
            let left = extent.offset..range.start;
            let right = range.end..extent.end();
            for rest in [left, right].into_iter().filter(|rest| !rest.is_empty()) {
                let rest = Extent::new(rest.start, rest.end - rest.start, extent.state);
                self.0.insert(rest.offset, rest);
            }
        }
    }
}

/// Returns the parts of the extents within a range. Adjacent parts in the same state are merged.
pub(super) fn cut(extents: &[Extent], range: &Range<u64>) -> Vec<Extent> {
    let mut result: Vec<Extent> = Vec::new();
    for extent in extents {
        let (start, end) = (extent.offset.max(range.start), extent.end().min(range.end));
        match result.last_mut() {
            _ if start >= end => {}
            Some(last) if last.state == extent.state => last.len += end - start,
            _ => result.push(Extent::new(start, end - start, extent.state)),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hole(offset: u64, len: u64) -> Extent {
        Extent::new(offset, len, ExtentState::Deallocated)
    }

    fn filled(offset: u64, len: u64) -> Extent {
        Extent::new(offset, len, ExtentState::Data)
    }

    #[test]
    fn what_was_told_is_known_until_it_is_written_to() {
        let mut known = KnownExtents::default();
        assert_eq!(known.of(&(0..10), MAX_EXTENTS), None);
        known.insert(&[hole(10, 20), filled(30, 10), hole(40, 60)]);
        assert_eq!(known.of(&(0..20), MAX_EXTENTS), None);
        assert_eq!(
            known.of(&(15..50), MAX_EXTENTS),
            Some(vec![hole(15, 15), filled(30, 10), hole(40, 10)])
        );
        assert_eq!(known.of(&(90..200), MAX_EXTENTS), Some(vec![hole(90, 10)]));
        assert_eq!(known.of(&(15..50), 1), Some(vec![hole(15, 15)]));
        known.replace(&(50..60), Some(ExtentState::Data));
        known.replace(&(60..62), Some(ExtentState::Data));
        assert_eq!(
            known.of(&(45..70), MAX_EXTENTS),
            Some(vec![hole(45, 5), filled(50, 12), hole(62, 8)])
        );
        known.replace(&(20..35), None);
        assert_eq!(known.of(&(10..100), MAX_EXTENTS), Some(vec![hole(10, 10)]));
        assert_eq!(known.of(&(20..100), MAX_EXTENTS), None);
        assert_eq!(known.of(&(36..41), MAX_EXTENTS), Some(vec![filled(36, 4), hole(40, 1)]));
        known.replace(&(0..u64::MAX), None);
        assert_eq!(known.of(&(36..41), MAX_EXTENTS), None);
    }
}
