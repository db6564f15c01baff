//! Ranges of bytes as whole blocks, and as runs of blocks that one command can have.

use std::ops::Range;

/// Returns the smallest range of whole blocks around a range of bytes; `None` if that range is empty.
pub(super) fn around(bytes: Range<u64>, block_size: u32) -> Option<Range<u64>> {
    let block = u64::from(block_size);
    (!bytes.is_empty())
        .then(|| bytes.start - bytes.start % block..bytes.end.next_multiple_of(block))
}

/// Returns the largest range of whole blocks within a range of bytes; `None` if the range contains no whole block.
pub(super) fn within(bytes: Range<u64>, block_size: u32) -> Option<Range<u64>> {
    let block = u64::from(block_size);
    let blocks = bytes.start.next_multiple_of(block)..bytes.end - bytes.end % block;
    (!blocks.is_empty()).then_some(blocks)
}

/// Returns the distance between two offsets within one request. It fits in a `usize`, because the data of a
/// request fit in memory.
pub(super) fn distance(from: u64, to: u64) -> usize {
    usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX)
}

/// Divides a range of blocks into runs of at most `most` blocks.
pub(super) fn runs(blocks: Range<u64>, most: u64) -> impl Iterator<Item = (u64, u32)> {
    let most = most.clamp(1, u32::MAX.into());
    let mut lba = blocks.start;
    std::iter::from_fn(move || {
        let count = u32::try_from(most.min(blocks.end.saturating_sub(lba))).ok()?;
        let run = (lba, count);
        lba += u64::from(count);
        (count > 0).then_some(run)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_belong_to_the_blocks_around_a_range_and_not_to_those_within_it() {
        for (bytes, outer, inner) in [
            (0..0, None, None),
            (700..700, None, None),
            (0..512, Some(0..512), Some(0..512)),
            (1..511, Some(0..512), None),
            (1..512, Some(0..512), None),
            (511..513, Some(0..1024), None),
            (100..1100, Some(0..1536), Some(512..1024)),
        ] {
            assert_eq!(around(bytes.clone(), 512), outer, "{bytes:?}");
            assert_eq!(within(bytes.clone(), 512), inner, "{bytes:?}");
        }
    }

    #[test]
    fn runs_cover_the_range_once() {
        assert_eq!(runs(5..12, 3).collect::<Vec<_>>(), [(5, 3), (8, 3), (11, 1)]);
        assert_eq!(runs(5..5, 3).count(), 0);
        assert_eq!(runs(0..1 << 33, u64::MAX).map(|(_, n)| u64::from(n)).sum::<u64>(), 1 << 33);
    }
}
