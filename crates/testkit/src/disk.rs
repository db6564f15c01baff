//! A disk in memory that the test and all sessions share.

mod losses;
mod null;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;

use crate::convert::index;
use null::Null;

/// Bytes that are compared in one step.
const STEP: usize = 1 << 20;

/// A disk in memory, or a disk that stores nothing ([`RamDisk::null`]). Clones are handles of the same disk.
#[derive(Clone, Debug)]
pub struct RamDisk(Arc<Shared>);

/// Kinds of write cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cache {
    /// A cache that loses nothing: WCE is set in the caching mode page, and writes are durable
    /// immediately.
    #[default]
    NonVolatile,
    /// WCE is set, and a loss of power empties the cache: writes are durable once SYNCHRONIZE CACHE
    /// without IMMED has covered them, or when they were written with FUA. DPOFUA is set.
    Volatile,
    /// No write cache: WCE is clear, and writes are durable immediately.
    WriteThrough,
}

#[derive(Debug)]
struct Shared {
    block_size: u32,
    read_only: AtomicBool,
    flushes: AtomicU64,
    power_losses: AtomicU64,
    cache_losses: AtomicU64,
    deferred_errors: AtomicU64,
    resizes: AtomicU64,
    mode_changes: AtomicU64,
    content: RwLock<Content>,
}

/// Counters of changes to a unit that initiators must be informed about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) resizes: u64,
    pub(crate) modes: u64,
}

/// The data of a disk, and whether each block is mapped: written, and not unmapped since.
#[derive(Debug)]
struct Content {
    bytes: Vec<u8>,
    mapped: Vec<bool>,
    /// The store of a null disk, which keeps no data; `bytes` and `mapped` are then empty.
    null: Option<Null>,
    cache: Cache,
    /// The durable data of each block that was changed since its last flush. A loss of power restores them.
    durable: BTreeMap<usize, Block>,
}

/// The durable data of a block.
#[derive(Debug)]
struct Block {
    bytes: Box<[u8]>,
    mapped: bool,
}

impl RamDisk {
    /// Creates a zeroed disk of `blocks` blocks of `block_size` bytes (usually 512 or 4096). The system provides
    /// the memory page by page, as it is written.
    #[must_use]
    pub fn new(block_size: u32, blocks: u64) -> Self {
        let length = index(blocks.saturating_mul(u64::from(block_size)));
        Self::of(block_size, vec![0; length], vec![false; index(blocks)], None)
    }

    /// Creates a disk of `blocks` blocks of `block_size` bytes that stores nothing and takes 1 MiB of memory,
    /// whatever its size. Writes are discarded, and reads return zeros. No block is ever mapped, and no block
    /// waits for a flush. Otherwise the disk behaves like any other. Use it to measure without the cost of a
    /// store.
    ///
    /// Over TCP (feature `serve`) reads of such a disk are not copied in user space: the socket always gets the
    /// same buffer of zeros. Written data are taken from the socket and copied no further.
    ///
    /// ```
    /// use iscsi_testkit::disk::RamDisk;
    ///
    /// let disk = RamDisk::null(512, 1 << 31); // 1 TiB
    /// disk.write(1 << 39, b"gone");
    /// assert!(disk.holds(1 << 39, &[0; 4]));
    /// ```
    #[must_use]
    pub fn null(block_size: u32, blocks: u64) -> Self {
        Self::of(block_size, Vec::new(), Vec::new(), Some(Null::new(blocks)))
    }

    fn of(block_size: u32, bytes: Vec<u8>, mapped: Vec<bool>, null: Option<Null>) -> Self {
        Self(Arc::new(Shared {
            block_size,
            read_only: AtomicBool::new(false),
            flushes: AtomicU64::new(0),
            power_losses: AtomicU64::new(0),
            cache_losses: AtomicU64::new(0),
            deferred_errors: AtomicU64::new(0),
            resizes: AtomicU64::new(0),
            mode_changes: AtomicU64::new(0),
            content: RwLock::new(Content {
                bytes,
                mapped,
                null,
                cache: Cache::default(),
                durable: BTreeMap::new(),
            }),
        }))
    }

    /// Creates a disk that holds `bytes`, cut down to whole blocks.
    #[must_use]
    pub fn holding(block_size: u32, bytes: &[u8]) -> Self {
        let blocks = bytes.len() as u64 / u64::from(block_size);
        let disk = Self::new(block_size, blocks);
        disk.write(0, &bytes[..index(disk.capacity())]);
        disk
    }

    /// Returns the number of bytes in a block.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        self.0.block_size
    }

    /// Returns the number of blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        let content = self.content();
        content.null.as_ref().map_or(content.mapped.len() as u64, |null| null.blocks)
    }

    /// Returns the capacity in bytes.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.blocks() * u64::from(self.0.block_size)
    }

    /// Returns whether writes of initiators are refused.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.0.read_only.load(Ordering::Relaxed)
    }

    /// Refuses writes of initiators, or allows them again.
    pub fn set_read_only(&self, read_only: bool) {
        self.0.read_only.store(read_only, Ordering::Relaxed);
    }

    /// Changes the number of blocks. Data beyond the new end are lost; new blocks are zero. Each session that
    /// knows the old capacity receives the unit attention CAPACITY DATA HAS CHANGED.
    pub fn resize(&self, blocks: u64) {
        let mut content = self.content_mut();
        if let Some(null) = &mut content.null {
            null.blocks = blocks;
        } else {
            content.bytes.resize(index(blocks.saturating_mul(u64::from(self.0.block_size))), 0);
            content.mapped.resize(index(blocks), false);
            content.durable.split_off(&index(blocks));
        }
        self.0.resizes.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counters of changes that initiators must be informed about.
    pub(crate) fn changes(&self) -> Changes {
        let [resizes, modes] = [&self.0.resizes, &self.0.mode_changes];
        Changes { resizes: resizes.load(Ordering::Relaxed), modes: modes.load(Ordering::Relaxed) }
    }

    /// Returns the kind of write cache.
    #[must_use]
    pub fn cache(&self) -> Cache {
        self.content().cache
    }

    pub(crate) fn is_volatile(&self) -> bool {
        self.cache() == Cache::Volatile
    }

    /// Sets the kind of write cache for later writes. Blocks that wait in a volatile cache become durable first.
    pub fn set_cache(&self, cache: Cache) {
        let mut content = self.content_mut();
        content.durable.clear();
        content.cache = cache;
    }

    /// Sets the kind of write cache like [`set_cache`](Self::set_cache), and reports the change: each session, of
    /// any target that serves this disk, then receives the unit attention MODE PARAMETERS CHANGED.
    pub fn switch_cache(&self, cache: Cache) {
        self.set_cache(cache);
        self.0.mode_changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of blocks that a loss of power would change.
    #[must_use]
    pub fn unflushed_blocks(&self) -> usize {
        self.content().durable.len()
    }

    /// Returns the number of SYNCHRONIZE CACHE commands that this disk has executed.
    #[must_use]
    pub fn flushes(&self) -> u64 {
        self.0.flushes.load(Ordering::Relaxed)
    }

    /// Counts a SYNCHRONIZE CACHE.
    pub(crate) fn count_flush(&self) {
        self.0.flushes.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes blocks durable.
    pub(crate) fn flush(&self, blocks: Range<u64>) {
        self.content_mut().flush(index(blocks.start)..index(blocks.end));
    }

    /// Returns a copy of `length` bytes from `offset`, truncated at the end of the disk.
    #[must_use]
    pub fn read(&self, offset: u64, length: usize) -> Bytes {
        let content = self.content();
        if let Some(null) = &content.null {
            return null.read(length.min(null.left(self.0.block_size, offset)));
        }
        let start = index(offset).min(content.bytes.len());
        let end = start.saturating_add(length).min(content.bytes.len());
        Bytes::copy_from_slice(&content.bytes[start..end])
    }

    /// Returns the bytes that a [`read`](Self::read) would return after a loss of power.
    #[must_use]
    pub fn read_durable(&self, offset: u64, length: usize) -> Bytes {
        let content = self.content();
        if content.null.is_some() {
            drop(content);
            return self.read(offset, length);
        }
        let start = index(offset).min(content.bytes.len());
        let end = start.saturating_add(length).min(content.bytes.len());
        let (size, mut data) = (self.0.block_size as usize, content.bytes[start..end].to_vec());
        for (lba, block) in content.durable.range(start / size..end.div_ceil(size)) {
            let (from, to) = ((lba * size).max(start), ((lba + 1) * size).min(end));
            data[from - start..to - start]
                .copy_from_slice(&block.bytes[from - lba * size..to - lba * size]);
        }
        data.into()
    }

    /// Reads for a command that was in flight when the disk became smaller: bytes beyond the new end are zeros.
    pub(crate) fn read_padded(&self, offset: u64, length: usize) -> Bytes {
        let data = self.read(offset, length);
        if data.len() == length {
            return data;
        }
        let mut data = data.to_vec();
        data.resize(length, 0);
        data.into()
    }

    /// Writes `data` at `offset`, up to the end of the disk. The blocks are durable immediately, including
    /// earlier writes to them that waited in a cache.
    pub fn write(&self, offset: u64, data: &[u8]) {
        let mut content = self.content_mut();
        let blocks = self.put(&mut content, offset, data);
        content.flush(blocks);
    }

    /// Writes `data` at `offset` for an initiator. The blocks are durable once they are flushed.
    pub(crate) fn write_cached(&self, offset: u64, data: &[u8]) {
        self.put(&mut self.content_mut(), offset, data);
    }

    /// Writes `block` to each of `blocks` blocks from `lba`. They are durable once they are flushed.
    pub(crate) fn write_same(&self, lba: u64, blocks: u64, block: &[u8]) {
        if self.content().null.is_some() {
            return;
        }
        for lba in lba..lba + blocks {
            self.write_cached(lba * u64::from(self.0.block_size), block);
        }
    }

    /// Copies `data` to `offset`, and returns the range of changed blocks.
    fn put(&self, content: &mut Content, offset: u64, data: &[u8]) -> Range<usize> {
        let start = index(offset).min(content.bytes.len());
        let end = start.saturating_add(data.len()).min(content.bytes.len());
        let size = self.0.block_size as usize;
        let blocks = start / size..end.div_ceil(size);
        content.keep_durable(blocks.clone(), size);
        content.bytes[start..end].copy_from_slice(&data[..end - start]);
        content.mapped[blocks.clone()].fill(true);
        blocks
    }

    /// Fills the whole disk with bytes that depend on their offset and on `seed`. They are durable
    /// immediately.
    pub fn fill(&self, seed: u64) {
        let mut content = self.content_mut();
        for (at, word) in (0..).zip(content.bytes.chunks_mut(8)) {
            word.copy_from_slice(&scramble(seed ^ at).to_le_bytes()[..word.len()]);
        }
        content.mapped.fill(true);
        content.durable.clear();
    }

    /// Returns whether the bytes at `offset` equal `data`.
    #[must_use]
    pub fn holds(&self, offset: u64, data: &[u8]) -> bool {
        let content = self.content();
        if let Some(null) = &content.null {
            let has_room = data.len() <= null.left(self.0.block_size, offset);
            return has_room && data.iter().all(|byte| *byte == 0);
        }
        let start = index(offset);
        content.bytes.get(start..start.saturating_add(data.len())) == Some(data)
    }

    /// Returns the offset of the first byte at which two disks differ. The end of the shorter disk counts as a
    /// difference.
    #[must_use]
    pub fn first_difference(&self, other: &Self) -> Option<u64> {
        let end = self.capacity().max(other.capacity());
        (0..end).step_by(STEP).find_map(|start| {
            let (mine, theirs) = (self.read(start, STEP), other.read(start, STEP));
            let same = || mine.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
            (mine != theirs).then(|| start + same() as u64)
        })
    }

    /// Zeroes whole blocks and marks them as never written (UNMAP); durable when they are flushed.
    pub(crate) fn unmap(&self, lba: u64, blocks: u64) {
        let mut content = self.content_mut();
        let size = self.0.block_size as usize;
        let count = content.mapped.len();
        let (start, end) = (index(lba).min(count), index(lba.saturating_add(blocks)).min(count));
        content.keep_durable(start..end, size);
        content.bytes[start * size..end * size].fill(0);
        content.mapped[start..end].fill(false);
    }

    /// Returns the number of mapped blocks: written, and not unmapped since.
    #[must_use]
    pub fn mapped_blocks(&self) -> usize {
        self.content().mapped.iter().filter(|mapped| **mapped).count()
    }

    /// Returns whether the block at `lba` is mapped, and how many consecutive blocks from there are in the same
    /// state.
    pub(crate) fn extent(&self, lba: u64) -> (bool, u64) {
        let content = self.content();
        if let Some(null) = &content.null {
            return (false, null.blocks.saturating_sub(lba));
        }
        let rest = content.mapped.get(index(lba)..).unwrap_or_default();
        let mapped = rest.first().copied().unwrap_or(false);
        let run = rest.iter().take_while(|other| **other == mapped).count();
        (mapped, run as u64)
    }

    fn content(&self) -> RwLockReadGuard<'_, Content> {
        self.0.content.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn content_mut(&self) -> RwLockWriteGuard<'_, Content> {
        self.0.content.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Content {
    /// Saves the durable data of blocks that are about to change.
    fn keep_durable(&mut self, blocks: Range<usize>, size: usize) {
        if self.cache != Cache::Volatile {
            return;
        }
        for lba in blocks {
            let (bytes, mapped) = (&self.bytes[lba * size..(lba + 1) * size], self.mapped[lba]);
            self.durable.entry(lba).or_insert_with(|| Block { bytes: bytes.into(), mapped });
        }
    }

    fn flush(&mut self, blocks: Range<usize>) {
        drop(self.take_durable(blocks));
    }

    /// Removes the saved durable data of these blocks, and returns them.
    fn take_durable(&mut self, blocks: Range<usize>) -> BTreeMap<usize, Block> {
        if blocks.is_empty() || self.durable.is_empty() {
            return BTreeMap::new();
        }
        let mut taken = self.durable.split_off(&blocks.start);
        self.durable.append(&mut taken.split_off(&blocks.end));
        taken
    }
}

/// The finalizer of SplitMix64: neighbouring seeds give unrelated numbers.
pub(crate) const fn scramble(seed: u64) -> u64 {
    let mut word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::{Cache, RamDisk};

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
        let (null, zeros) = (RamDisk::null(512, 8192), RamDisk::new(512, 8192));
        assert_eq!(null.first_difference(&zeros), None);
        zeros.write((3 << 20) + 5, b"x");
        assert_eq!(null.first_difference(&zeros), Some((3 << 20) + 5));
        zeros.resize(8191);
        zeros.write((3 << 20) + 5, &[0]);
        assert_eq!(null.first_difference(&zeros), Some(8191 * 512));
    }

    #[test]
    fn a_loss_of_power_brings_back_what_was_flushed() {
        let disk = RamDisk::new(512, 8);
        disk.set_cache(Cache::Volatile);
        disk.write(0, &[1; 1024]);
        disk.write_cached(256, &[2; 512]);
        disk.write_cached(256, &[3; 512]);
        disk.unmap(7, 1);
        assert_eq!(disk.unflushed_blocks(), 3);
        assert_eq!(disk.read_durable(200, 900), [&[1; 824][..], &[0; 76]].concat());
        disk.flush(1..7);
        assert_eq!(disk.read_durable(500, 24), [[1; 12], [3; 12]].concat());
        assert_eq!(disk.unflushed_blocks(), 2);
        disk.lose_power();
        assert!(
            disk.holds(0, &[1; 512]) && disk.holds(512, &[3; 256]) && disk.holds(768, &[1; 256])
        );
        assert_eq!(
            (disk.extent(0), disk.extent(2), disk.unflushed_blocks()),
            ((true, 2), (false, 6), 0)
        );
    }

    #[test]
    fn other_caches_lose_nothing() {
        for cache in [Cache::NonVolatile, Cache::WriteThrough] {
            let disk = RamDisk::new(512, 1);
            disk.set_cache(cache);
            disk.write_cached(0, b"here to stay");
            disk.lose_power();
            assert!(disk.holds(0, b"here to stay"));
        }
    }

    #[test]
    fn a_failed_write_back_loses_the_cached_content_of_its_blocks() {
        let disk = RamDisk::new(512, 4);
        disk.set_cache(Cache::Volatile);
        disk.write(0, &[1; 2048]);
        disk.write_cached(512, &[2; 1024]);
        assert_eq!((disk.fail_write_back(0..1), disk.deferred_errors()), (0, 0));
        assert_eq!((disk.fail_write_back(1..2), disk.deferred_errors()), (1, 1));
        assert!(disk.holds(0, &[1; 1024]) && disk.holds(1024, &[2; 512]));
        assert_eq!((disk.unflushed_blocks(), disk.cache_losses()), (1, 1));
    }

    #[test]
    fn a_disk_that_keeps_nothing_holds_zeros_everywhere() {
        let disk = RamDisk::null(512, 1 << 31);
        disk.set_cache(Cache::Volatile);
        for offset in [0, 511, (1 << 40) - 3] {
            disk.write(offset, b"abc");
            disk.write_cached(offset, b"abc");
            for length in [0, 1, 3, 1 << 20, (1 << 20) + 1] {
                let room = usize::try_from((1 << 40) - offset).unwrap();
                assert_eq!(disk.read(offset, length), vec![0; length.min(room)]);
                assert_eq!(disk.read_padded(offset, length), vec![0; length]);
            }
            assert!(disk.holds(offset, &[0; 3]) && !disk.holds(offset, b"abc"));
        }
        assert_eq!(disk.read_durable(7, 9), [0; 9][..]);
        assert!(!disk.holds((1 << 40) - 3, &[0; 4]), "behind the end");
        disk.fill(1);
        disk.unmap(0, 8);
        disk.write_same(0, 1 << 31, &[1; 512]);
        disk.flush(0..1 << 31);
        disk.lose_power();
        let state = (disk.extent(9), disk.mapped_blocks(), disk.unflushed_blocks());
        assert_eq!(state, ((false, (1 << 31) - 9), 0, 0));
        disk.resize(1 << 32);
        assert_eq!((disk.blocks(), disk.capacity()), (1 << 32, 1 << 41));
        assert!(disk.holds(1 << 40, &[0; 4]));
    }

    #[test]
    fn reads_of_what_keeps_nothing_share_one_buffer() {
        let disk = RamDisk::null(512, 1 << 31);
        let buffer = disk.read(0, 1 << 20).as_ptr_range();
        for (offset, length) in [(0, 1), (1 << 39, 65_536), (12_345, 1 << 20)] {
            let read = disk.clone().read_padded(offset, length).as_ptr_range();
            assert!(buffer.start <= read.start && read.end <= buffer.end);
        }
    }

    #[test]
    fn a_disk_shrinks_and_grows() {
        let disk = RamDisk::new(512, 4);
        disk.set_cache(Cache::Volatile);
        disk.write_cached(3 * 512, &[1; 512]);
        disk.resize(2);
        disk.resize(4);
        disk.lose_power();
        assert_eq!((disk.blocks(), disk.extent(0)), (4, (false, 4)));
        assert!(disk.holds(0, &[0; 2048]));
    }
}
