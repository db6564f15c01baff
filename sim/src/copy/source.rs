//! Sources of copies: bytes with holes, as a device in memory, as a unit, or as a stream.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use iscsi_copy::{Device, RangeSet};
use iscsi_initiator::device::{
    DeviceError, DeviceErrorKind, DeviceFuture, DeviceLimits, Extent, ExtentState,
};
use iscsi_testkit::disk::RamDisk;
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio::time::sleep;

use super::content::{fill, index};
use super::in_use::InUse;
use super::watch::Watch;
use crate::rng::Rng;

/// Alignment of holes: a multiple of the block size of any unit. A process that writes a part of a block also
/// writes back the rest of the block as it has read it. If the process dies, that may happen late, over newer
/// data. So a hole shares no block with data.
const HOLE: usize = 4096;

/// The data of a source.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) bytes: Bytes,
    /// Ranges without storage, which are zero.
    pub(crate) holes: RangeSet,
}

impl Image {
    /// Draws runs of data, of zeros and of holes, of any length.
    pub(crate) fn drawn(len: usize, rng: &mut Rng) -> Self {
        let (mut bytes, mut holes) = (BytesMut::zeroed(len), RangeSet::new());
        let mut at = 0;
        while at < len {
            let run = 1 << rng.within(6..17);
            let kind = rng.within(0..8);
            let end = (at + run).next_multiple_of(if kind == 0 { HOLE } else { 1 }).min(len);
            match kind {
                0 => holes.insert(at.next_multiple_of(HOLE).min(end) as u64..end as u64),
                1 => {}
                // A single nonzero byte among zeros.
                2 => bytes[at] = 1,
                _ => fill(&mut bytes[at..end], rng),
            }
            at = end;
        }
        Self { bytes: bytes.freeze(), holes }
    }

    /// Returns a unit with this data.
    pub(crate) fn disk(&self) -> RamDisk {
        let disk = RamDisk::new(512, self.bytes.len() as u64 / 512);
        let mut data = RangeSet::from(0..self.bytes.len() as u64);
        self.holes.iter().for_each(|hole| data.remove(&hole));
        data.iter().for_each(|range| disk.write(range.start, &self.bytes[index(&range)]));
        disk
    }

    /// Returns a stream of the data, in pieces with pauses between them.
    pub(crate) fn stream(&self, mut rng: Rng) -> DuplexStream {
        let (reader, mut writer) = duplex(1 << rng.within(8..18));
        let (bytes, max_piece) = (self.bytes.clone(), 1 << rng.within(8..18));
        tokio::spawn(async move {
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let piece = rng.index(1..max_piece).min(rest.len());
                // The copy may have dropped the reader.
                if writer.write_all(&rest[..piece]).await.is_err() {
                    return;
                }
                rest = &rest[piece..];
                if rng.percent(20) {
                    sleep(rng.any_scale(500)).await;
                }
            }
        });
        reader
    }
}

/// An image as a device in memory, whose requests take time.
#[derive(Debug)]
pub(crate) struct ImageDevice {
    image: Image,
    /// Current data of the image, if it is written to.
    in_use: Option<InUse>,
    watch: Arc<Watch>,
    limits: DeviceLimits,
    depth: usize,
    /// Largest number of extents that one call returns.
    max_extents: usize,
    /// Longest duration of a request, milliseconds.
    max_delay: u64,
    /// Number of reads before the one that fails. `None` if none fails.
    fails: Mutex<Option<u64>>,
    rng: Mutex<Rng>,
}

impl ImageDevice {
    pub(crate) fn drawn(
        image: Image,
        in_use: Option<InUse>,
        watch: Arc<Watch>,
        fails: bool,
        mut rng: Rng,
    ) -> Self {
        let mut limits = DeviceLimits::default();
        limits.block_size = 1 << rng.within(0..13);
        limits.preferred_transfer = 1 << rng.within(12..18);
        Self {
            image,
            in_use,
            watch,
            limits,
            depth: rng.index(1..9),
            max_extents: if rng.percent(30) { rng.index(1..4) } else { usize::MAX },
            max_delay: 1 << rng.within(1..8),
            fails: Mutex::new(fails.then(|| rng.within(0..32))),
            rng: Mutex::new(rng),
        }
    }

    fn delay(&self) -> Duration {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).any_scale(self.max_delay)
    }

    /// Returns whether this is the read that fails.
    fn fails_now(&self) -> bool {
        let mut fails = self.fails.lock().unwrap_or_else(PoisonError::into_inner);
        let is_now = *fails == Some(0);
        *fails = fails.and_then(|left| left.checked_sub(1));
        is_now
    }
}

impl Device for ImageDevice {
    fn capacity(&self) -> u64 {
        self.image.bytes.len() as u64
    }

    fn limits(&self) -> DeviceLimits {
        self.limits
    }

    fn queue_depth(&self, _: usize) -> usize {
        self.depth
    }

    fn read_into(&self, offset: u64, mut buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
        let held = self.watch.request(buffer.len());
        let (fails, delay) = (self.fails_now(), self.delay());
        Box::pin(async move {
            sleep(delay).await;
            drop(held);
            if fails {
                return Err(DeviceError::new(DeviceErrorKind::Other, "the image cannot be read"));
            }
            let range = offset..offset + buffer.len() as u64;
            if let Some(in_use) = &self.in_use {
                in_use.live();
                buffer.copy_from_slice(&in_use.read(&range));
                in_use.live();
                return Ok(buffer);
            }
            let range = index(&range);
            let bytes = self.image.bytes.get(range).ok_or(DeviceErrorKind::InvalidInput)?;
            buffer.copy_from_slice(bytes);
            Ok(buffer)
        })
    }

    fn write_at(&self, _: u64, _: Vec<Bytes>) -> DeviceFuture<'_, ()> {
        self.watch.shared.lock().accuse("a copy writes to its source".to_owned());
        Box::pin(async { Err(DeviceErrorKind::Unsupported.into()) })
    }

    fn flush(&self) -> DeviceFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn extents(&self, offset: u64, len: u64) -> DeviceFuture<'_, Vec<Extent>> {
        let delay = self.delay();
        Box::pin(async move {
            sleep(delay).await;
            let (mut at, mut extents) = (offset, Vec::new());
            for hole in self.image.holes.overlap(&(offset..offset + len)).iter() {
                extents.push(Extent::new(at, hole.start - at, ExtentState::Data));
                let len = hole.end - hole.start;
                extents.push(Extent::new(hole.start, len, ExtentState::Deallocated));
                at = hole.end;
            }
            extents.push(Extent::new(at, offset + len - at, ExtentState::Data));
            extents.retain(|extent| extent.len > 0);
            extents.truncate(self.max_extents);
            Ok(extents)
        })
    }
}
