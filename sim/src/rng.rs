//! Random numbers, all from one seed.

use std::ops::Range;
use std::time::Duration;

/// A sequence of numbers that its seed determines (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a separate sequence, so that the draws of its user do not change the draws of others.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// Returns a separate sequence for a purpose, without advancing this one.
    pub(crate) const fn beside(&self, purpose: u64) -> Self {
        Self(mix(self.0 ^ purpose))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number of a range that is not empty.
    pub(crate) fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start).max(1)
    }

    /// Returns an index of a range that is not empty.
    pub(crate) fn index(&mut self, range: Range<usize>) -> usize {
        let drawn = self.within(range.start as u64..range.end as u64);
        usize::try_from(drawn).unwrap_or(range.start)
    }

    /// Returns `true` in `percent` of 100 cases.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.within(0..100) < percent
    }

    /// Returns a duration of whole milliseconds from a range.
    pub(crate) fn millis(&mut self, range: Range<u64>) -> Duration {
        Duration::from_millis(self.within(range))
    }

    /// Returns a duration of up to `max` milliseconds. Each order of magnitude is equally likely.
    pub(crate) fn any_scale(&mut self, max: u64) -> Duration {
        let bits = u64::from(max.max(2).ilog2()) + 1;
        let scale = 1 << self.within(1..bits + 1);
        self.millis(1..scale.min(max.max(2)) + 1)
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        if of.is_empty() { None } else { of.get(self.index(0..of.len())) }
    }
}

/// Mixes the bits of a word: the finalizer of SplitMix64. Adjacent inputs give unrelated outputs.
pub(crate) const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
