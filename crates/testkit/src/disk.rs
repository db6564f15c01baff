//! A disk in memory that many sessions, and the test that looks on, share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;

use crate::convert::index;

/// A disk in memory. Clones are handles of one disk.
#[derive(Clone, Debug)]
pub struct RamDisk(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    block_size: u32,
    blocks: u64,
    read_only: AtomicBool,
    flushes: AtomicU64,
    content: RwLock<Content>,
}

/// The bytes, and for each block whether it was ever written (and not unmapped since).
#[derive(Debug)]
struct Content {
    bytes: Vec<u8>,
    mapped: Vec<bool>,
}

impl RamDisk {
    /// A zeroed disk of `blocks` blocks of `block_size` bytes (usually 512 or 4096). The memory is
    /// taken from the system page by page, as it is written.
    #[must_use]
    pub fn new(block_size: u32, blocks: u64) -> Self {
        let length = index(blocks.saturating_mul(u64::from(block_size)));
        let content = Content { bytes: vec![0; length], mapped: vec![false; index(blocks)] };
        Self(Arc::new(Shared {
            block_size,
            blocks,
            read_only: AtomicBool::new(false),
            flushes: AtomicU64::new(0),
            content: RwLock::new(content),
        }))
    }

    /// A disk that holds `bytes`, cut down to whole blocks.
    #[must_use]
    pub fn holding(block_size: u32, bytes: &[u8]) -> Self {
        let blocks = bytes.len() as u64 / u64::from(block_size);
        let disk = Self::new(block_size, blocks);
        disk.write(0, &bytes[..index(disk.capacity())]);
        disk
    }

    /// Bytes in a block.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        self.0.block_size
    }

    /// Number of blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.0.blocks
    }

    /// Number of bytes.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.0.blocks * u64::from(self.0.block_size)
    }

    /// Whether initiators are refused to write.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.0.read_only.load(Ordering::Relaxed)
    }

    /// Refuses writes of initiators, or allows them again.
    pub fn set_read_only(&self, read_only: bool) {
        self.0.read_only.store(read_only, Ordering::Relaxed);
    }

    /// How many SYNCHRONIZE CACHE commands this disk has seen.
    #[must_use]
    pub fn flushes(&self) -> u64 {
        self.0.flushes.load(Ordering::Relaxed)
    }

    pub(crate) fn flush(&self) {
        self.0.flushes.fetch_add(1, Ordering::Relaxed);
    }

    /// A copy of `length` bytes from `offset`, cut at the end of the disk.
    #[must_use]
    pub fn read(&self, offset: u64, length: usize) -> Bytes {
        let content = self.content();
        let start = index(offset).min(content.bytes.len());
        let end = start.saturating_add(length).min(content.bytes.len());
        Bytes::copy_from_slice(&content.bytes[start..end])
    }

    /// Puts `data` at `offset`; what would lie behind the end is left out.
    pub fn write(&self, offset: u64, data: &[u8]) {
        let mut content = self.content_mut();
        let start = index(offset).min(content.bytes.len());
        let end = start.saturating_add(data.len()).min(content.bytes.len());
        content.bytes[start..end].copy_from_slice(&data[..end - start]);
        self.mark(&mut content, start, end, true);
    }

    /// Fills the whole disk with bytes that depend on their place and on `seed`.
    pub fn fill(&self, seed: u64) {
        let mut content = self.content_mut();
        for (at, word) in (0..).zip(content.bytes.chunks_mut(8)) {
            word.copy_from_slice(&scramble(seed ^ at).to_le_bytes()[..word.len()]);
        }
        content.mapped.fill(true);
    }

    /// Whether `data` stands at `offset`.
    #[must_use]
    pub fn holds(&self, offset: u64, data: &[u8]) -> bool {
        let content = self.content();
        let start = index(offset);
        content.bytes.get(start..start.saturating_add(data.len())) == Some(data)
    }

    /// The first byte at which two disks differ, the shorter one's end included.
    #[must_use]
    pub fn first_difference(&self, other: &Self) -> Option<u64> {
        let (mine, theirs) = (self.read(0, usize::MAX), other.read(0, usize::MAX));
        if mine == theirs {
            return None;
        }
        let same = mine.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
        Some(same as u64)
    }

    /// Zeroes whole blocks and marks them as never written (UNMAP).
    pub(crate) fn unmap(&self, lba: u64, blocks: u64) {
        let mut content = self.content_mut();
        let size = u64::from(self.0.block_size);
        let start = index(lba * size).min(content.bytes.len());
        let end = index((lba + blocks) * size).min(content.bytes.len());
        content.bytes[start..end].fill(0);
        self.mark(&mut content, start, end, false);
    }

    /// Whether the block at `lba` is mapped, and for how many blocks that stays so.
    pub(crate) fn extent(&self, lba: u64) -> (bool, u64) {
        let content = self.content();
        let rest = content.mapped.get(index(lba)..).unwrap_or_default();
        let mapped = rest.first().copied().unwrap_or(false);
        let run = rest.iter().take_while(|other| **other == mapped).count();
        (mapped, run as u64)
    }

    /// Marks the blocks that lie, also in part, between two bytes.
    fn mark(&self, content: &mut Content, start: usize, end: usize, mapped: bool) {
        let size = self.0.block_size as usize;
        content.mapped[start / size..end.div_ceil(size)].fill(mapped);
    }

    fn content(&self) -> RwLockReadGuard<'_, Content> {
        self.0.content.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn content_mut(&self) -> RwLockWriteGuard<'_, Content> {
        self.0.content.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The finalizer of SplitMix64: neighbours become unlike.
const fn scramble(seed: u64) -> u64 {
    let mut word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::RamDisk;

    #[test]
    fn handles_share_one_disk() {
        let disk = RamDisk::new(512, 8);
        let other = disk.clone();
        other.write(510, b"over the edge");
        assert!(disk.holds(510, b"over the edge"));
        assert_eq!(disk.extent(0), (true, 2));
        assert_eq!(disk.extent(2), (false, 6));
        disk.unmap(0, 1);
        assert_eq!(disk.read(508, 4), &[0; 4][..]);
    }

    #[test]
    fn finds_the_first_difference() {
        let (one, two) = (RamDisk::new(512, 4), RamDisk::new(512, 4));
        one.fill(7);
        two.fill(7);
        assert_eq!(one.first_difference(&two), None);
        two.write(777, &[!one.read(777, 1)[0]]);
        assert_eq!(one.first_difference(&two), Some(777));
    }
}
