//! Keeps chunks of the device's data in memory.

use std::ops::Range;

use bytes::Bytes;
use quick_cache::unsync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

/// Least bytes of a chunk. With longer chunks, more bytes would be read that no client requested.
const CHUNK_LEN: u64 = 4096;

/// Share of the memory for data that were requested more than once. The rest is for data that were read for the
/// first time.
const HOT_SHARE: f64 = 0.5;

/// Chunks of equal length. Each is a separate allocation, so that the memory in use equals the counted memory.
#[derive(Debug)]
pub(super) struct Chunks {
    len: u64,
    capacity: u64,
    cache: Cache<u64, Bytes, ByLength>,
}

/// Weighs a chunk by its length.
#[derive(Clone, Debug)]
struct ByLength;

impl Weighter<u64, Bytes> for ByLength {
    fn weight(&self, _: &u64, bytes: &Bytes) -> u64 {
        bytes.len() as u64
    }
}

impl Chunks {
    pub(super) fn new(block_size: u32, capacity: u64, bytes: u64) -> Self {
        let len = CHUNK_LEN.next_multiple_of(u64::from(block_size.max(1)));
        let count = usize::try_from(bytes / len).unwrap_or(usize::MAX);
        let mut options = OptionsBuilder::new();
        options.estimated_items_capacity(count).weight_capacity(bytes).hot_allocation(HOT_SHARE);
        let (hashes, lifecycle) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
        let cache = match options.build() {
            Ok(options) => Cache::with_options(options, ByLength, hashes, lifecycle),
            Err(_) => Cache::with(count, bytes, ByLength, hashes, lifecycle),
        };
        Self { len, capacity, cache }
    }

    /// Returns the length of the device in bytes.
    pub(super) const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the number of bytes in memory.
    #[cfg(test)]
    pub(super) fn weight(&self) -> u64 {
        self.cache.weight()
    }

    /// Returns the range from the first missing chunk of a range to the last missing one, in whole chunks.
    pub(super) fn missing(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let mut missing = self.numbers(range).filter(|number| self.cache.get(number).is_none());
        let first = missing.next()?;
        let last = missing.next_back().unwrap_or(first);
        Some(first * self.len..((last + 1) * self.len).min(self.capacity))
    }

    /// Returns the number of bytes of a range that are in memory.
    pub(super) fn present(&self, range: &Range<u64>) -> u64 {
        let there = self.numbers(range).filter(|number| self.cache.contains_key(number));
        there
            .map(|number| {
                let start = (number * self.len).max(range.start);
                ((number + 1) * self.len).min(range.end) - start
            })
            .sum()
    }

    /// Copies those bytes of a range that are in memory.
    pub(super) fn copy(&self, range: &Range<u64>, buffer: &mut [u8]) {
        for number in self.numbers(range) {
            if let Some(chunk) = self.cache.peek(&number) {
                copy_overlap(number * self.len, chunk, range.start, buffer);
            }
        }
    }

    /// Adds data that begin at the start of a chunk, and end at the end of a chunk or of the device.
    pub(super) fn insert(&mut self, start: u64, data: &[u8]) {
        let step = usize::try_from(self.len).unwrap_or(usize::MAX);
        for (number, chunk) in (start / self.len..).zip(data.chunks(step)) {
            self.cache.insert(number, Bytes::copy_from_slice(chunk));
        }
    }

    /// Removes all chunks that overlap a range.
    pub(super) fn remove(&mut self, range: &Range<u64>) {
        let numbers = range.start / self.len..range.end.div_ceil(self.len);
        if numbers.end - numbers.start > self.cache.len() as u64 {
            self.cache.retain(|number, _| !numbers.contains(number));
        } else {
            for number in numbers {
                self.cache.remove(&number);
            }
        }
    }

    fn numbers(&self, range: &Range<u64>) -> Range<u64> {
        range.start / self.len..range.end.div_ceil(self.len)
    }
}

/// Copies a part of `bytes`, which begin at the device's offset `at`, to the same place in a buffer that begins
/// at `offset`.
pub(super) fn copy_overlap(at: u64, bytes: &[u8], offset: u64, buffer: &mut [u8]) {
    let start = at.max(offset);
    let end = (at + bytes.len() as u64).min(offset + buffer.len() as u64);
    if start < end {
        let [from, to, len] = [start - at, start - offset, end - start]
            .map(|distance| usize::try_from(distance).unwrap_or(usize::MAX));
        buffer[to..to + len].copy_from_slice(&bytes[from..from + len]);
    }
}
