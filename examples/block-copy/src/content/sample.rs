//! Reads the bytes of a medium that are needed to recognise its format.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use iscsi_copy::Device;
use iscsi_initiator::device::DeviceResult;
use tokio::task::JoinSet;

/// A place on a medium where a signature may be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    /// This byte, counted from the beginning.
    Start(u64),
    /// This number of bytes before the end.
    End(u64),
    /// The last multiple of `unit` that is at least `before` bytes from the end.
    AlignedEnd {
        /// Least distance from the end.
        before: u64,
        /// The alignment.
        unit: u64,
    },
}

use Place::{AlignedEnd, End, Start};

/// Places of the md superblock in the versions 0.90 and 1.0.
pub(super) const MD_0: Place = AlignedEnd { before: 64 << 10, unit: 64 << 10 };
pub(super) const MD_1: Place = AlignedEnd { before: 8 << 10, unit: 4 << 10 };

/// Bytes read at the beginning of a source. They include the header of a GPT with blocks of 4096 bytes. `END`
/// is the number of bytes read at the end of a regular file, where some image formats have their signature.
const START: u64 = 4096 + 512;
const END: u64 = 512;

/// Places read of a destination, with their lengths. The total is at most what a new TCP connection may send
/// immediately, so that reading takes one round trip.
const PIECES: [(Place, u64); 8] = [
    // Signatures of partition tables, most file systems, LVM, md 1.1 and 1.2, and swap.
    (Start(0), 4096 + 512),
    // Signature of ZFS.
    (Start(16 << 10), 1024),
    // Signature of ISO 9660.
    (Start(32 << 10), 1024),
    // Signatures of btrfs, and of swap with pages of 64 KiB.
    (Start((64 << 10) - 512), 512 + 1024),
    (MD_0, 512),
    (MD_1, 512),
    // The second header of a GPT, and signatures at the end of disk images.
    (End(4096), 512),
    (End(512), 512),
];

/// Pieces of a medium, each with its offset.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    capacity: u64,
    pieces: Vec<(u64, Bytes)>,
}

impl Sample {
    /// Creates a sample of the first bytes of a medium whose length is not known.
    pub(crate) fn of_start(bytes: Bytes) -> Self {
        Self { capacity: 0, pieces: vec![(0, bytes)] }
    }

    /// Reads the first bytes of a device, and the last bytes if it `has_end`. Parts that cannot be read are
    /// omitted.
    pub(crate) async fn read_ends(device: &dyn Device, has_end: bool) -> Self {
        let capacity = device.capacity();
        let block = u64::from(device.limits().block_size.max(1));
        let start = count(0..START.next_multiple_of(block).min(capacity));
        let end = count(0..END.min(capacity));
        let (start, end) = tokio::join!(device.read_at(0, start), async {
            if has_end {
                device.read_at(capacity - end as u64, end).await
            } else {
                Ok(Bytes::new())
            }
        });
        let (start, end) = (start.unwrap_or_default(), end.unwrap_or_default());
        let at = capacity.saturating_sub(end.len() as u64);
        Self { capacity, pieces: vec![(0, start), (at, end)] }
    }

    /// Reads the pieces of a device that may have a signature, within `len` bytes from `start` on. The reads
    /// are concurrent.
    ///
    /// # Errors
    /// The error of a read.
    pub(crate) async fn read(device: Arc<dyn Device>, start: u64, len: u64) -> DeviceResult<Self> {
        let block = u64::from(device.limits().block_size.max(1));
        let capacity = device.capacity().saturating_sub(start);
        let mut reading = JoinSet::new();
        for (place, length) in PIECES {
            let Some(at) = place.of(capacity) else { continue };
            if at >= len {
                continue;
            }
            let first = (start + at) / block * block;
            let end = (start + at + length).next_multiple_of(block).min(device.capacity());
            let len = count(first..end);
            if len == 0 {
                continue;
            }
            let device = Arc::clone(&device);
            reading.spawn(async move {
                let bytes = device.read_at(first, len).await?;
                // Bytes before the start do not belong to the range.
                let before = usize::try_from(start.saturating_sub(first)).unwrap_or_default();
                Ok((first.saturating_sub(start), bytes.slice(before.min(bytes.len())..)))
            });
        }
        let pieces: DeviceResult<Vec<_>> = reading.join_all().await.into_iter().collect();
        let mut pieces = pieces?;
        pieces.sort_by_key(|(at, _)| *at);
        Ok(Self { capacity, pieces })
    }

    /// Returns whether nothing of the medium could be read.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.iter().all(|(_, bytes)| bytes.is_empty())
    }

    /// Returns the `len` bytes that begin `within` bytes after a place, or `None` if the sample lacks them.
    pub(crate) fn at(&self, place: Place, within: usize, len: usize) -> Option<&[u8]> {
        let at = place.of(self.capacity)?.checked_add(within as u64)?;
        self.pieces.iter().find_map(|(start, bytes)| {
            let from = usize::try_from(at.checked_sub(*start)?).ok()?;
            bytes.get(from..from.checked_add(len)?)
        })
    }

    /// Returns the `len` bytes from the offset `at` on, or `None` if the sample lacks them.
    pub(crate) fn bytes(&self, at: u64, len: usize) -> Option<&[u8]> {
        self.at(Start(at), 0, len)
    }

    /// Returns the offset of the first byte that is not zero.
    pub(crate) fn first_nonzero(&self) -> Option<u64> {
        self.pieces.iter().find_map(|(start, bytes)| {
            let at = bytes.iter().position(|byte| *byte != 0)?;
            Some(start + at as u64)
        })
    }
}

fn count(range: Range<u64>) -> usize {
    usize::try_from(range.end.saturating_sub(range.start)).unwrap_or_default()
}

impl Place {
    /// Returns the offset of the place on a medium of `capacity` bytes, or `None` if the medium is too short.
    fn of(self, capacity: u64) -> Option<u64> {
        match self {
            Start(at) => Some(at).filter(|at| capacity == 0 || *at < capacity),
            End(before) => capacity.checked_sub(before),
            AlignedEnd { before, unit } => Some(capacity.checked_sub(before)? / unit * unit),
        }
    }
}
