//! Options of a copy.

use std::sync::Arc;
use std::time::Duration;

use iscsi_block_device::RangeSet;

use crate::digests::file::DigestFile;
use crate::progress::checkpoint::CheckpointStore;

/// Options of a copy. Begin with the [default](Self::default), and change it with the setters.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CopyOptions {
    /// Bytes of one read or write; `None` uses the length that the destination prefers, or else that the
    /// source prefers.
    pub io_size: Option<usize>,
    /// Largest number of concurrent reads, and of concurrent writes; `None` uses the depths that the devices
    /// report.
    pub queue_depth: Option<usize>,
    /// Largest number of bytes of data in memory.
    pub max_memory: usize,
    /// Smallest length of a run of zeros that is not sent as data, at a multiple of that length; `None` sends
    /// all data.
    pub zero_granularity: Option<usize>,
    /// Whether the source is read even where it reports holes.
    pub reads_holes: bool,
    /// Whether the destination reads as zeros everywhere, so that zeros need not be written.
    pub destination_is_zero: bool,
    /// Whether the copy stores checksums of the data, so that the destination can be
    /// [verified](crate::Verify).
    pub has_checksums: bool,
    /// Whether bytes that the medium of the source cannot read are omitted.
    pub skips_unreadable: bool,
    /// The bytes to copy; `None` is everything.
    pub ranges: Option<RangeSet>,
    /// Bytes that the destination has already, flushed: they are not copied.
    pub done: RangeSet,
    /// Store in which the flushed ranges are saved after each flush.
    pub checkpoint: Option<Arc<dyn CheckpointStore>>,
    /// The file of digests of the destination; blocks that the destination has are not sent.
    pub digests: Option<DigestFile>,
    /// Number of written and unflushed bytes at which a flush begins at the latest.
    pub flush_bytes: u64,
    /// Longest time between the end of a flush and the beginning of the next one while data is written.
    pub flush_interval: Duration,
}

/// Smallest length of a request and of a run of zeros, bytes: no unit has smaller blocks, and to omit a
/// shorter run saves less than an additional command costs.
const MIN_GRANULARITY: usize = 512;
const MAX_IO: usize = 64 << 20;

impl Default for CopyOptions {
    /// Returns 64 MiB of memory; runs of 64 KiB of zeros; a flush at the latest after 1 GiB or 30 s, and
    /// earlier as described at [`with_flush_bytes`](Self::with_flush_bytes).
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

    /// Sets the largest number of concurrent reads, and of concurrent writes, at least 1 each.
    #[must_use]
    pub fn with_queue_depth(mut self, depth: usize) -> Self {
        self.queue_depth = Some(depth.max(1));
        self
    }

    /// Sets the largest number of bytes of data in memory. One read is always possible, so the effective limit
    /// is at least the length of a read.
    #[must_use]
    pub const fn with_max_memory(mut self, bytes: usize) -> Self {
        self.max_memory = bytes;
        self
    }

    /// Sets the length of the runs of zeros that are not sent as data, at least 512 bytes; `None` sends all
    /// data as it is read. The length is rounded up to whole blocks of the destination.
    #[must_use]
    pub fn with_zero_granularity(mut self, bytes: Option<usize>) -> Self {
        self.zero_granularity = bytes.map(|bytes| bytes.max(MIN_GRANULARITY));
        self
    }

    /// Sets whether the source is read even where it reports holes: some file systems have reported data as
    /// holes.
    #[must_use]
    pub const fn with_holes_read(mut self, reads: bool) -> Self {
        self.reads_holes = reads;
        self
    }

    /// Sets whether the destination is known to read as zeros everywhere. If it does not, its old data
    /// remains where the source has zeros.
    #[must_use]
    pub const fn with_destination_is_zero(mut self, is_zero: bool) -> Self {
        self.destination_is_zero = is_zero;
        self
    }

    /// Sets whether the copy stores checksums of the data, about 40 bytes for each request.
    #[must_use]
    pub const fn with_checksums(mut self, keep: bool) -> Self {
        self.has_checksums = keep;
        self
    }

    /// Sets whether bytes that the medium of the source cannot read are omitted. Then a failed read is
    /// repeated in halves, and halves of these, down to single blocks, and the destination keeps its old data
    /// in these places. Nothing is omitted if the source or the destination is a stream.
    #[must_use]
    pub const fn with_skipped_unreadable(mut self, skips: bool) -> Self {
        self.skips_unreadable = skips;
        self
    }

    /// Sets the ranges to copy, for example the known changes; a stream is copied as a whole. With
    /// [digests](Self::with_digests), all blocks that overlap these ranges are copied.
    #[must_use]
    pub fn with_ranges(mut self, ranges: RangeSet) -> Self {
        self.ranges = Some(ranges);
        self
    }

    /// Sets the bytes that an earlier run has [copied](crate::CheckpointFile::load) and flushed. They are not
    /// copied again; a stream is always copied as a whole.
    /// [`CopyJob::resume_from`](crate::CopyJob::resume_from) sets them by itself.
    #[must_use]
    pub fn with_done(mut self, done: RangeSet) -> Self {
        self.done = done;
        self
    }

    /// Sets the store in which the flushed ranges are saved, so that another run can resume from there.
    #[must_use]
    pub fn with_checkpoint(mut self, store: impl CheckpointStore + 'static) -> Self {
        self.checkpoint = Some(Arc::new(store));
        self
    }

    /// Sets the file for the digests of the flushed blocks, so that the next copy sends only blocks that
    /// differ. The source is read as a whole; a request is no longer than a block.
    #[must_use]
    pub fn with_digests(mut self, file: DigestFile) -> Self {
        self.digests = Some(file);
        self
    }

    /// Sets the number of written bytes at which a flush begins at the latest. The first flush begins after 2
    /// MiB, or after 64 MiB if the destination reports no volatile cache. Each later flush covers what reaches
    /// the medium within 0.75 s, estimated from the duration of the flush before. The reason: a target with a
    /// large cache in front of a slow medium may respond to nothing during a long flush.
    ///
    /// The bytes that are in flight or written, but not yet both flushed and recorded in a checkpoint, are
    /// limited to twice the coverage of a flush plus one request. These bytes must be copied again after the
    /// loss of a cache or the death of this process. A stream is also flushed when half of the memory is full,
    /// because it cannot be read again.
    #[must_use]
    pub fn with_flush_bytes(mut self, bytes: u64) -> Self {
        self.flush_bytes = bytes.max(1);
        self
    }

    /// Sets the longest time between two flushes while data is written. The time is shorter after a short
    /// flush: five times the duration of the flush, at least half a second.
    #[must_use]
    pub const fn with_flush_interval(mut self, interval: Duration) -> Self {
        self.flush_interval = interval;
        self
    }
}
