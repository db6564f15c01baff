//! Helpers for bytes in memory.

use std::ops::Range;

use crate::rng::Rng;

/// Fills `bytes` with random bytes.
pub(crate) fn fill(bytes: &mut [u8], rng: &mut Rng) {
    for word in bytes.chunks_mut(8) {
        word.copy_from_slice(&rng.next().to_le_bytes()[..word.len()]);
    }
}

/// Converts a range of offsets to a range of indices.
pub(crate) fn index(range: &Range<u64>) -> Range<usize> {
    let [start, end] = [range.start, range.end].map(|at| usize::try_from(at).unwrap_or(usize::MAX));
    start..end
}
