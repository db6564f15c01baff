//! How a copy is made.

use std::sync::Arc;
use std::time::Duration;

use iscsi_block_device::RangeSet;

use crate::digests::file::DigestFile;
use crate::progress::checkpoint::CheckpointStore;

/// Options of a copy. Begin with the [default](Self::default), and change it by the setters.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CopyOptions {
    /// Bytes of one read or write; `None` takes what the destination prefers, or else the source.
    pub io_size: Option<usize>,
    /// The most concurrent reads, and as many writes; `None` follows what the devices say.
    pub queue_depth: Option<usize>,
    /// The most bytes of data in memory.
    pub max_memory: usize,
    /// The length of the runs of zeros in data, at multiples of it, that are not sent; `None` sends all.
    pub zero_granularity: Option<usize>,
    /// Whether the source is read where it reports holes as well.
    pub reads_holes: bool,
    /// Whether the destination reads as zeros everywhere, so that zeros need not be made.
    pub destination_is_zero: bool,
    /// Whether checksums of what is read are kept, so that the destination can be
    /// [verified](crate::Verify).
    pub has_checksums: bool,
    /// Whether what the medium of the source does not give is left out.
    pub skips_unreadable: bool,
    /// What is copied; `None` copies all.
    pub ranges: Option<RangeSet>,
    /// What is at the destination already, and flushed: it is left alone.
    pub done: RangeSet,
    /// Where to keep what is flushed, after each flush.
    pub checkpoint: Option<Arc<dyn CheckpointStore>>,
    /// Where to keep which blocks the destination has; those that it has are not sent.
    pub digests: Option<DigestFile>,
    /// A flush begins at the latest when this many bytes are written and not flushed.
    pub flush_bytes: u64,
    /// A flush begins at the latest this long after the last one ended.
    pub flush_interval: Duration,
}

/// No unit takes less, and a shorter run saves less than its command costs.
const MIN_GRANULARITY: usize = 512;
const MAX_IO: usize = 64 << 20;

impl Default for CopyOptions {
    /// 64 MiB of memory; zeros are found in runs of 64 KiB; a flush at the latest after 1 GiB or 30 s, and
    /// sooner as [`with_flush_bytes`](Self::with_flush_bytes) says.
    fn default() -> Self {
        Self {
            io_size: None,
            queue_depth: None,
            max_memory: 64 << 20,
            zero_granularity: Some(64 << 10),
            reads_holes: false,
            destination_is_zero: false,
            has_checksums: false,
            skips_unreadable: false,
            ranges: None,
            done: RangeSet::new(),
            checkpoint: None,
            digests: None,
            flush_bytes: 1 << 30,
            flush_interval: Duration::from_secs(30),
        }
    }
}

impl CopyOptions {
    /// Sets the length of one read or write, 512 bytes to 64 MiB.
    #[must_use]
    pub fn with_io_size(mut self, bytes: usize) -> Self {
        self.io_size = Some(bytes.clamp(MIN_GRANULARITY, MAX_IO));
        self
    }

    /// Sets the most concurrent reads, and writes, at least 1 each.
    #[must_use]
    pub fn with_queue_depth(mut self, depth: usize) -> Self {
        self.queue_depth = Some(depth.max(1));
        self
    }

    /// Sets the most bytes of data in memory. One read is made in any case, so less than its length counts as its length.
    #[must_use]
    pub const fn with_max_memory(mut self, bytes: usize) -> Self {
        self.max_memory = bytes;
        self
    }

    /// Sets the length of the runs of zeros that are not sent as data, at least 512 bytes; `None` sends all as it is read.
    /// It is rounded up to whole blocks of the destination.
    #[must_use]
    pub fn with_zero_granularity(mut self, bytes: Option<usize>) -> Self {
        self.zero_granularity = bytes.map(|bytes| bytes.max(MIN_GRANULARITY));
        self
    }

    /// Sets whether the source is read where it reports holes as well: some file systems have reported data as holes.
    #[must_use]
    pub const fn with_holes_read(mut self, reads: bool) -> Self {
        self.reads_holes = reads;
        self
    }

    /// Sets whether the destination is known to read as zeros everywhere. If that is not so, what stood in the place of a
    /// zero stays.
    #[must_use]
    pub const fn with_destination_is_zero(mut self, is_zero: bool) -> Self {
        self.destination_is_zero = is_zero;
        self
    }

    /// Sets whether checksums of what is read are kept, about 40 bytes for each request.
    #[must_use]
    pub const fn with_checksums(mut self, keep: bool) -> Self {
        self.has_checksums = keep;
        self
    }

    /// Sets whether what the medium of the source does not give is left out: then a read that fails is made
    /// again in halves, and halves of these, down to blocks, and what stood in their place at the
    /// destination stays there. Of a stream nothing is left out, nor on the way to one.
    #[must_use]
    pub const fn with_skipped_unreadable(mut self, skips: bool) -> Self {
        self.skips_unreadable = skips;
        self
    }

    /// Sets the bytes that are copied, if it is known what has changed; a stream is copied whole. With
    /// [digests](Self::with_digests) all blocks are copied that have some of these bytes.
    #[must_use]
    pub fn with_ranges(mut self, ranges: RangeSet) -> Self {
        self.ranges = Some(ranges);
        self
    }

    /// Sets what an earlier run has [left](crate::CheckpointFile::load) at the destination and flushed, which is not copied
    /// again; of a stream nothing is left out. [`CopyJob::resume_from`](crate::CopyJob::resume_from) does it by itself.
    #[must_use]
    pub fn with_done(mut self, done: RangeSet) -> Self {
        self.done = done;
        self
    }

    /// Sets where to keep what is flushed, so that another run can resume from there.
    #[must_use]
    pub fn with_checkpoint(mut self, store: impl CheckpointStore + 'static) -> Self {
        self.checkpoint = Some(Arc::new(store));
        self
    }

    /// Sets where to keep the digests of what is flushed, so that the next copy sends only what differs. The source is read
    /// as a whole; a request is no longer than a block.
    #[must_use]
    pub fn with_digests(mut self, file: DigestFile) -> Self {
        self.digests = Some(file);
        self
    }

    /// Sets the most that is written before a flush begins, bytes. The first flush begins after 2 MiB, and each of the
    /// others covers what comes onto the medium within 0.75 s, by the time that the last one took: a
    /// target may keep a large cache before a slow medium, and answer nothing while it is flushed.
    ///
    /// At most twice what a flush covers, and one request more, is at any time written or in flight and not in a flush
    /// that has ended and a checkpoint that records it: it is what one loss of a cache, or of this process, costs. A
    /// stream is flushed when half of the memory is full, too, because it cannot be read again.
    #[must_use]
    pub fn with_flush_bytes(mut self, bytes: u64) -> Self {
        self.flush_bytes = bytes.max(1);
        self
    }

    /// Sets the longest time between two flushes while something is written. It is five times what the last flush took, at
    /// least half a second, where that is shorter.
    #[must_use]
    pub const fn with_flush_interval(mut self, interval: Duration) -> Self {
        self.flush_interval = interval;
        self
    }
}
