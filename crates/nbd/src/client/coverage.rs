//! Tracks which bytes of a read have arrived.

use std::collections::BTreeMap;
use std::ops::Range;

/// Number of separate ranges above which a reply is an error.
const MAX_PARTS: usize = 1 << 16;

/// Ranges of bytes that do not overlap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coverage {
    /// First byte of each range, and the byte after its last one; no two ranges touch.
    parts: BTreeMap<usize, usize>,
}

/// Reason why a range cannot be added.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum CoverageError {
    /// A part of the range is present already.
    Overlap,
    /// There are too many ranges.
    Fragments,
}

impl Coverage {
    /// Adds a range, which must not be empty.
    pub(crate) fn add(&mut self, range: Range<usize>) -> Result<(), CoverageError> {
        let Range { mut start, mut end } = range;
        let before = self.parts.range(..end).next_back().map(|(start, end)| (*start, *end));
        if before.is_some_and(|(_, before_end)| before_end > start) {
            return Err(CoverageError::Overlap);
        }
        if let Some((before_start, before_end)) = before
            && before_end == start
        {
            start = before_start;
        }
        if let Some(after_end) = self.parts.remove(&end) {
            end = after_end;
        }
        self.parts.insert(start, end);
        if self.parts.len() > MAX_PARTS {
            return Err(CoverageError::Fragments);
        }
        Ok(())
    }

    /// Returns whether the first `len` bytes have arrived.
    pub(crate) fn is_complete(&self, len: usize) -> bool {
        self.parts.get(&0).is_some_and(|end| *end >= len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_in_any_order_make_a_whole() {
        let mut coverage = Coverage::default();
        for range in [8..10, 0..2, 4..8, 10..12] {
            assert_eq!(coverage.add(range), Ok(()));
            assert!(!coverage.is_complete(12));
        }
        assert_eq!(coverage.add(2..4), Ok(()));
        assert!(coverage.is_complete(12) && !coverage.is_complete(13));
        assert_eq!(coverage.parts.len(), 1);
    }

    #[test]
    fn a_byte_comes_once() {
        let mut coverage = Coverage::default();
        assert_eq!(coverage.add(4..8), Ok(()));
        for range in [4..8, 0..5, 7..9, 5..6, 0..20] {
            assert_eq!(coverage.add(range), Err(CoverageError::Overlap));
        }
        assert_eq!(coverage.add(8..9), Ok(()));
    }

    #[test]
    fn there_is_a_limit_of_parts() {
        let mut coverage = Coverage::default();
        let added = (0..).map(|at| coverage.add(2 * at..2 * at + 1)).take_while(Result::is_ok);
        assert_eq!(added.count(), MAX_PARTS);
    }
}
