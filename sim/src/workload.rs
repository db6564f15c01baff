//! Requests of many kinds, many at once, and what the oracle says of their answers.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use iscsi_initiator::{Disk, Error};
use tokio::time::{sleep, timeout};

use crate::oracle::GRAIN;
use crate::rng::Rng;
use crate::world::Shared;

/// The longest request, grains.
const MAX_GRAINS: usize = 64 << 10 >> 6;

/// One user of a disk, with a handle of its own.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    /// Its handle, which is told of each loss: clones would be handles of their own.
    pub(crate) disk: Arc<Disk>,
    /// Which opened disk it is, and which of its handles.
    pub(crate) opened: usize,
    pub(crate) handle: u32,
    pub(crate) rng: Rng,
    /// Requests that are still to be made, by all workers.
    pub(crate) left: Arc<AtomicUsize>,
    /// Between two requests of a worker, milliseconds at most.
    pub(crate) max_pause: u64,
    /// Whether futures are dropped now and then.
    pub(crate) drops: bool,
    /// Whether nothing goes wrong, so that a request that fails is a violation.
    pub(crate) is_strict: bool,
}

/// What a request is.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Read,
    Write,
    Zeroes,
    Discard,
    Flush,
}

impl Worker {
    /// Makes requests until there are enough, or the disk is gone.
    pub(crate) async fn run(mut self) {
        while self.takes_one() {
            if self.rng.percent(50) {
                sleep(self.rng.any_scale(self.max_pause)).await;
            }
            let result = match self.kind() {
                Kind::Read => {
                    let grains = self.grains();
                    self.read(grains).await
                }
                Kind::Flush => self.flush().await,
                kind @ (Kind::Write | Kind::Zeroes | Kind::Discard) => self.write(kind).await,
            };
            let Some(Err(error)) = result else { continue };
            if self.fails(&error) {
                return;
            }
        }
    }

    /// Reads all of the disk.
    pub(crate) async fn read_all(&mut self) -> Option<Result<(), Error>> {
        let len = usize::try_from(self.disk.capacity()).unwrap_or(0) / GRAIN;
        self.read(0..len).await
    }

    fn takes_one(&self) -> bool {
        let take = |left: usize| left.checked_sub(1);
        let is_well = self.shared.lock().violation.is_none();
        is_well && self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Notes an error; whether the disk is of no use any more.
    pub(crate) fn fails(&self, error: &Error) -> bool {
        let mut world = self.shared.lock();
        world.trace.note(&format!("error: {error}"), &[u64::from(self.handle)]);
        if is_another_unit(error) {
            let now = world.oracle.now();
            world.lun.found_another(now);
        }
        if self.is_strict {
            world.accuse(format!("nothing is wrong, but a request failed: {error}"));
        }
        matches!(error, Error::Closed | Error::NotReopened { .. } | Error::Session(_))
    }

    fn kind(&mut self) -> Kind {
        match self.rng.within(0..100) {
            0..40 => Kind::Read,
            40..80 => Kind::Write,
            80..86 => Kind::Zeroes,
            86..90 => Kind::Discard,
            _ => Kind::Flush,
        }
    }

    /// A part of the disk; a few places are met often, and many requests are of whole blocks.
    fn grains(&mut self) -> Range<usize> {
        let all = usize::try_from(self.disk.capacity()).unwrap_or(0) / GRAIN;
        let max = if self.rng.percent(80) { 64 } else { MAX_GRAINS };
        let len = self.rng.index(1..max.min(all) + 1);
        let last = if self.rng.percent(50) { all / 8 } else { all };
        let start = self.rng.index(0..last).min(all - len);
        let block = self.disk.block_size() as usize / GRAIN;
        if self.rng.percent(60) {
            let (start, end) = (start / block * block, (start + len).next_multiple_of(block));
            return start..end.min(all);
        }
        start..start + len
    }

    /// Waits for a request, or drops it after a while; `None` if it was dropped.
    async fn patiently<T>(&mut self, request: impl Future<Output = T>) -> Option<T> {
        if self.drops && self.rng.percent(10) {
            let patience = self.rng.any_scale(4000);
            return timeout(patience, request).await.ok();
        }
        Some(request.await)
    }

    async fn read(&mut self, grains: Range<usize>) -> Option<Result<(), Error>> {
        let disk = Arc::clone(&self.disk);
        let begun = {
            let mut world = self.shared.lock();
            self.note(&mut world.trace, "read", &grains);
            world.oracle.now()
        };
        let offset = (grains.start * GRAIN) as u64;
        let request = disk.read_at(offset, grains.len() * GRAIN);
        let data = match self.patiently(request).await? {
            Ok(data) => data,
            Err(error) => return Some(Err(error)),
        };
        let mut world = self.shared.lock();
        self.note(&mut world.trace, "has read", &grains);
        if let Err(why) = world.oracle.check(begun, grains.start, &data) {
            world.accuse(format!("handle {} has read: {why}", self.handle));
        }
        Some(Ok(()))
    }

    async fn write(&mut self, kind: Kind) -> Option<Result<(), Error>> {
        let disk = Arc::clone(&self.disk);
        let (mut grains, block) = (self.grains(), disk.block_size() as usize / GRAIN);
        let asked = grains.clone();
        let is_data = matches!(kind, Kind::Write);
        if matches!(kind, Kind::Discard) {
            // What lies outside of whole blocks stays.
            grains = grains.start.next_multiple_of(block)..grains.end / block * block;
            grains.end = grains.end.max(grains.start);
        }
        let (write, data) = {
            let mut world = self.shared.lock();
            self.note(&mut world.trace, if is_data { "write" } else { "zero" }, &grains);
            let write = world.oracle.begin_write(self.opened, grains.clone(), !is_data);
            let data = is_data.then(|| write.data());
            (write, data)
        };
        let (offset, len) = ((asked.start * GRAIN) as u64, (asked.len() * GRAIN) as u64);
        let request = async {
            match (kind, data) {
                (Kind::Discard, _) => disk.discard(offset, len).await,
                (_, Some(data)) => disk.write_at(offset, data).await,
                (_, None) => disk.write_zeroes(offset, len).await,
            }
        };
        let result = self.patiently(Box::pin(request)).await;
        let mut world = self.shared.lock();
        let is_acknowledged = matches!(result, Some(Ok(())));
        self.note(
            &mut world.trace,
            if is_acknowledged { "written" } else { "not written" },
            &grains,
        );
        world.oracle.end_write(write, is_acknowledged);
        result
    }

    /// Flushes; of a loss that it tells, the oracle learns.
    pub(crate) async fn flush(&mut self) -> Option<Result<(), Error>> {
        let disk = Arc::clone(&self.disk);
        let begun = {
            let mut world = self.shared.lock();
            self.note(&mut world.trace, "flush", &(0..0));
            world.oracle.now()
        };
        let result = self.patiently(disk.flush()).await;
        let mut world = self.shared.lock();
        match &result {
            Some(Ok(())) => {
                self.note(&mut world.trace, "flushed", &(0..0));
                world.oracle.flushed(self.opened, self.handle, begun);
            }
            Some(Err(Error::UnflushedWritesLost)) => {
                self.note(&mut world.trace, "told of lost writes", &(0..0));
                world.oracle.told_of_loss(self.opened, self.handle);
                return None;
            }
            Some(Err(_)) | None => {}
        }
        result
    }

    fn note(&self, trace: &mut crate::trace::Trace, what: &str, grains: &Range<usize>) {
        trace.note(what, &[u64::from(self.handle), grains.start as u64, grains.end as u64]);
    }
}

/// Whether an error says that another unit is there than before.
fn is_another_unit(error: &Error) -> bool {
    if let Error::NotReopened { why, .. } = error {
        return is_another_unit(why);
    }
    matches!(error, Error::DifferentUnits { .. } | Error::BlockSizeChanged { .. })
}

/// How long a flush may take where nothing is wrong any more.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(400);
