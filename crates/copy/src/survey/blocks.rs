//! Cuts and rounds ranges at block boundaries.

use std::ops::Range;

use super::segment::Segment;
use crate::digests::Digest;

/// A block that was read, or a part of a block. It has a digest if it was read completely.
pub(crate) type Block = (Range<u64>, Option<Digest>);

/// Cuts a range at block boundaries, in a copy that ends at `end`. Returns each piece, and whether it is a
/// whole block.
pub(crate) fn blocks(range: Range<u64>, size: u64, end: u64) -> Vec<(Range<u64>, bool)> {
    let mut blocks = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let next = (at - at % size).saturating_add(size).min(range.end);
        let is_whole = at.is_multiple_of(size) && (next.is_multiple_of(size) || next == end);
        blocks.push((at..next, is_whole));
        at = next;
    }
    blocks
}

/// Rounds data up to whole blocks within the range of the query: a block of which only a part is a hole is
/// read completely.
pub(crate) fn whole_blocks(segments: Vec<Segment>, asked: &Range<u64>, size: u64) -> Vec<Segment> {
    let mut whole: Vec<Segment> = Vec::new();
    let mut put = |range: Range<u64>, is_zero: bool| match whole.last_mut() {
        _ if range.is_empty() => {}
        Some(last) if last.is_zero == is_zero => last.range.end = range.end,
        Some(_) | None => whole.push(Segment { range, is_zero }),
    };
    let mut at = asked.start;
    for Segment { range, is_zero } in segments {
        let (down, up) = (range.end - range.end % size, range.end.next_multiple_of(size));
        let is_last = range.end == asked.end;
        let end = match is_zero {
            _ if is_last => range.end,
            true => down.max(at),
            false => up.clamp(at, asked.end),
        };
        // The rest of the block in which the previous data ended is read with it.
        put(at..end, is_zero);
        at = end.max(at);
    }
    // The segments cover only a part of the first block, so this block is read.
    if at == asked.start {
        put(at..(at - at % size + size).min(asked.end), false);
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_read_in_whole_blocks() {
        let segment = |range, is_zero| Segment { range, is_zero };
        let told = vec![
            segment(0..25, true),
            segment(25..31, false),
            segment(31..39, true),
            segment(39..41, false),
            segment(41..75, true),
        ];
        let expected = vec![segment(0..20, true), segment(20..50, false), segment(50..70, true)];
        assert_eq!(whole_blocks(told.clone(), &(0..200), 10), expected, "the rest is asked again");
        let all = vec![segment(0..20, true), segment(20..50, false), segment(50..75, true)];
        assert_eq!(whole_blocks(told, &(0..75), 10), all);
        let short = vec![segment(7..9, true)];
        assert_eq!(whole_blocks(short.clone(), &(7..200), 10), [segment(7..10, false)]);
        assert_eq!(whole_blocks(short.clone(), &(7..9), 10), short);
    }

    #[test]
    fn the_last_block_ends_where_the_copy_does() {
        let expected = [(5..10, false), (10..20, true), (20..25, false)];
        assert_eq!(blocks(5..25, 10, 100), expected);
        assert_eq!(blocks(10..25, 10, 25), [(10..20, true), (20..25, true)]);
        assert_eq!(blocks(25..25, 10, 25), []);
    }
}
