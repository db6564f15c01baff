//! Watches the destination of a copy: the writes to it, and what checkpoints claim about it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use iscsi_copy::{Device, RangeSet};
use iscsi_initiator::Disk;
use iscsi_initiator::device::{BufferPool, DeviceFuture, Extent};
use tokio::sync::Notify;

use super::judge::Judge;
use super::repeated::Vouching;
use crate::oracle::Moment;
use crate::world::{Shared, World};

/// Percentage of critical moments at which power is lost.
const CRASHES: u64 = 6;

/// State of one run of a copy, shared by source and destination.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) shared: Arc<Shared>,
    pub(crate) judge: Arc<Judge>,
    /// When the run began.
    pub(crate) begun: Moment,
    /// Whether the sessions have several connections.
    pub(crate) has_connections: bool,
    /// Whether another unit may have responded in an earlier run of the same copy.
    pub(crate) was_blind: bool,
    /// Ranges that an earlier run has copied.
    pub(crate) done: RangeSet,
    /// Largest number of bytes that the copy may hold.
    pub(crate) max_memory: usize,
    pub(crate) counts: Mutex<Counts>,
    /// Notified when a flush begins.
    pub(crate) flushes: Notify,
    /// Whether power is lost at critical moments.
    pub(crate) is_crashing: Arc<AtomicBool>,
    /// Judges the digests and checkpoints of repeated copies.
    pub(crate) vouching: Option<Arc<Vouching>>,
}

/// Counts of a run.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Number of requests so far.
    requests: usize,
    /// Bytes that reads and writes in flight hold.
    held: usize,
    /// Bytes of the longest request, which the copy may make even if the memory limit is smaller.
    max_request: usize,
}

/// Bytes that a request holds until this value is dropped.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    watch: &'a Watch,
    bytes: usize,
}

impl Watch {
    pub(crate) fn requests(&self) -> usize {
        self.counts().requests
    }

    /// Begins a request for which the copy holds `bytes` bytes.
    pub(crate) fn request(&self, bytes: usize) -> Held<'_> {
        let mut counts = self.counts();
        counts.requests += 1;
        counts.held += bytes;
        counts.max_request = counts.max_request.max(bytes);
        if counts.held > self.max_memory.max(counts.max_request) {
            let why = format!("a copy holds {} bytes of {}", counts.held, self.max_memory);
            self.shared.lock().accuse(why);
        }
        Held { watch: self, bytes }
    }

    /// Loses power with a certain probability. The caller has reached a critical moment: the destination has
    /// reported which of its bytes are zero, or is about to flush.
    fn may_crash(&self) {
        let mut world = self.shared.lock();
        if self.is_crashing.load(Ordering::Relaxed) && world.chance.percent(CRASHES) {
            world.trace.record("power loss", &[]);
            world.lose_all_power();
        }
    }

    /// Returns whether another unit may have responded in this copy, before the initiator could notice that it
    /// had replaced the original unit.
    pub(crate) fn is_blind(&self, world: &World) -> bool {
        self.was_blind || world.lun.may_have_misled(self.has_connections, self.begun)
    }

    /// Checks that a loss of power would undo nothing in the ranges `flushed`.
    ///
    /// # Errors
    /// The first place whose data would be lost.
    pub(crate) fn claims(&self, world: &World, flushed: &RangeSet) -> Result<(), String> {
        if self.is_blind(world) { Ok(()) } else { self.judge.claims(world, flushed) }
    }

    /// Checks a write before it is sent. It must not touch ranges that are copied already, or exceed the source.
    fn write(&self, what: &str, offset: u64, len: u64) {
        let mut world = self.shared.lock();
        world.trace.record(what, &[offset, len]);
        let range = offset..offset + len;
        if range.end > self.judge.source().len() as u64 {
            world.accuse(format!("a copy writes {range:x?}, behind the end of the source"));
        }
        if !self.done.overlap(&range).is_empty() {
            world.accuse(format!("a copy writes {range:x?} again, which was done"));
        }
        if let Some(vouching) = &self.vouching {
            vouching.is_about_to_write(&mut world, &range);
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.watch.counts().held -= self.bytes;
    }
}

/// A disk that is copied to or from.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) disk: Disk,
    pub(crate) watch: Arc<Watch>,
    pub(crate) is_source: bool,
}

impl Device for Watched {
    fn below(&self) -> Option<&dyn Device> {
        Some(&self.disk)
    }

    fn capacity(&self) -> u64 {
        self.disk.capacity()
    }

    /// Returns the line by which a later process ends the requests of this one, in repeated copies only: the
    /// checkpoints of other episodes do not store that line.
    fn leaves(&self) -> Option<String> {
        self.watch.vouching.as_ref().and_then(|_| Device::leaves(&self.disk))
    }

    fn end_left<'a>(&'a self, told: &'a str) -> DeviceFuture<'a, ()> {
        Box::pin(async move {
            let had_orphans = self.watch.shared.lock().has_orphans();
            let ended = Device::end_left(&self.disk, told).await;
            let mut world = self.watch.shared.lock();
            match (&ended, &self.watch.vouching) {
                (Ok(()), _) if had_orphans => world.counts.repeated_copy("what was left is ended"),
                (Err(error), Some(vouching)) => {
                    world.trace.record(&format!("what was left is not ended: {error}"), &[]);
                    vouching.not_ended(&world);
                }
                (Ok(()) | Err(_), _) => {}
            }
            ended
        })
    }

    fn is_settled(&self) -> bool {
        self.watch.vouching.is_none() || self.disk.is_settled()
    }

    fn read_into(&self, offset: u64, buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
        let held = self.watch.request(if self.is_source { buffer.len() } else { 0 });
        Box::pin(async move {
            let read = Device::read_into(&self.disk, offset, buffer).await;
            drop(held);
            read
        })
    }

    fn read_with(
        &self,
        offset: u64,
        len: usize,
        buffers: Arc<dyn BufferPool>,
    ) -> DeviceFuture<'_, BytesMut> {
        let held = self.watch.request(if self.is_source { len } else { 0 });
        Box::pin(async move {
            let read = self.disk.read_with(offset, len, buffers).await.map_err(Into::into);
            drop(held);
            read
        })
    }

    fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> DeviceFuture<'_, ()> {
        if self.is_source {
            self.watch.shared.lock().accuse("a copy writes to its source".to_owned());
        }
        let len = pages.iter().map(Bytes::len).sum::<usize>();
        self.watch.write("copy writes", offset, len as u64);
        // The copy sends zeros from one shared buffer, so a write of zeros holds no memory of its own.
        let is_zero = pages.iter().flatten().all(|byte| *byte == 0);
        let held = self.watch.request(if is_zero { 0 } else { len });
        Box::pin(async move {
            let written = Device::write_at(&self.disk, offset, pages).await;
            drop(held);
            written
        })
    }

    fn flush(&self) -> DeviceFuture<'_, ()> {
        drop(self.watch.request(0));
        Box::pin(async move {
            self.watch.may_crash();
            self.watch.shared.lock().trace.record("copy flushes", &[]);
            self.watch.flushes.notify_one();
            let flushed = Device::flush(&self.disk).await;
            let is_well = u64::from(flushed.is_ok());
            self.watch.shared.lock().trace.record("copy has flushed", &[is_well]);
            flushed
        })
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        drop(self.watch.request(0));
        self.watch.write("copy makes zeros", offset, len);
        Device::write_zeroes(&self.disk, offset, len)
    }

    fn extents(&self, offset: u64, len: u64) -> DeviceFuture<'_, Vec<Extent>> {
        Box::pin(async move {
            let extents = Device::extents(&self.disk, offset, len).await;
            self.watch.may_crash();
            extents
        })
    }
}
