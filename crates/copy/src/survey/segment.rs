//! Converts extents to segments of data and of zeros.

use std::ops::Range;

use iscsi_block_device::Extent;

/// Consecutive bytes that all hold data, or all read as zeros.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Segment {
    pub(crate) range: Range<u64>,
    pub(crate) is_zero: bool,
}

/// Converts the extents of a range to segments, without gaps and cut to the range. A rest of the range that
/// the extents do not cover is omitted. If they cover nothing, the whole range counts as data.
pub(crate) fn segments(extents: &[Extent], range: Range<u64>) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    let mut at = range.start;
    for extent in extents {
        let end = extent.end().min(range.end);
        if extent.offset != at || end <= at {
            break;
        }
        let is_zero = extent.state.reads_zeros();
        match segments.last_mut() {
            Some(last) if last.is_zero == is_zero => last.range.end = end,
            Some(_) | None => segments.push(Segment { range: at..end, is_zero }),
        }
        at = end;
    }
    if segments.is_empty() {
        segments.push(Segment { range, is_zero: false });
    }
    segments
}

#[cfg(test)]
mod tests {

    use iscsi_block_device::ExtentState;

    use super::*;

    #[test]
    fn extents_that_cannot_be_are_not_believed() {
        let segment = |range, is_zero| Segment { range, is_zero };
        let zero = |at, len| Extent::new(at, len, ExtentState::Deallocated);
        let data = |at, len| Extent::new(at, len, ExtentState::Data);
        let told = [data(10, 5), zero(15, 5), zero(20, 100)];
        let expected = [segment(10..15, false), segment(15..50, true)];
        assert_eq!(segments(&told, 10..50), expected);
        assert_eq!(segments(&[zero(11, 5)], 10..50), [segment(10..50, false)]);
        assert_eq!(segments(&[], 10..50), [segment(10..50, false)]);
        let gap = [zero(10, 5), zero(16, 5)];
        assert_eq!(segments(&gap, 10..50), [segment(10..15, true)], "the rest is asked again");
    }
}
