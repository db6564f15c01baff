//! Concurrent requests of many kinds, whose results the oracle judges.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use iscsi_initiator::{Advice, Error, ErrorKind, TaskFunction};
use tokio::time::{Instant, sleep, timeout};

use crate::opened::Opened;
use crate::oracle::{GRAIN, Moment};
use crate::rng::Rng;
use crate::settings::Class;
use crate::world::{Shared, World};

/// Length of the longest request, in grains of 64 bytes.
const MAX_GRAINS: usize = 64 << 10 >> 6;

/// State that the workers of a disk share.
#[derive(Clone)]
pub(crate) struct Work {
    pub(crate) shared: Arc<Shared>,
    /// Number of the opened disk.
    pub(crate) opened: usize,
    /// Number of portals of the disk.
    pub(crate) portals: usize,
    /// Number of the next handle that a worker makes.
    pub(crate) handles: Arc<AtomicU32>,
    /// The grains (64 bytes each) that may be written: whole blocks.
    pub(crate) part: Range<usize>,
    /// Number of requests that all workers together have still to make.
    pub(crate) left: Arc<AtomicUsize>,
    /// Longest pause of a worker between two requests, milliseconds.
    pub(crate) max_pause: u64,
    /// Whether futures are dropped at times.
    pub(crate) drops: bool,
    /// Whether the unit is reset at times.
    pub(crate) resets: bool,
    /// Whether the sessions have several connections.
    pub(crate) has_connections: bool,
    /// Whether the disk fails requests, but does not end, if no session is back within the retry timeout.
    pub(crate) outlasts: bool,
    /// Retry timeout of the disk.
    pub(crate) patience: Duration,
    /// Whether there are no faults, so that a request that fails is a violation.
    pub(crate) is_strict: bool,
}

/// A user of a disk, with a handle of its own.
pub(crate) struct Worker {
    pub(crate) work: Work,
    /// Its handle, to which each loss is reported. Clones would be further handles.
    pub(crate) disk: Arc<Opened>,
    /// Number of the handle among the handles of the disk.
    pub(crate) handle: u32,
    pub(crate) rng: Rng,
    /// Range of the worker's last request.
    pub(crate) last: Range<usize>,
}

/// Kind of a request.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Read,
    Write,
    Zeroes,
    Discard,
    Flush,
    Extents,
    Confirm,
    Stream,
    Reset,
}

impl Worker {
    /// Makes requests until there are enough, or the disk has ended.
    pub(crate) async fn run(mut self) {
        while self.takes_one() {
            if self.rng.percent(50) {
                sleep(self.rng.any_scale(self.work.max_pause)).await;
            }
            let result = match self.kind() {
                Kind::Read => {
                    let grains = self.any_grains();
                    self.read(grains).await
                }
                Kind::Flush => match self.flush().await {
                    // One unit of the volume may have reported a loss to the dropped flush. The next flush has
                    // to report it.
                    None if self.is_of_volume() => self.flush().await,
                    flushed => flushed,
                },
                Kind::Extents => self.extents().await,
                Kind::Confirm => self.confirm().await,
                Kind::Stream => match &*self.disk {
                    Opened::Disk(disk) => {
                        let disk = disk.clone();
                        Box::pin(self.stream(disk)).await
                    }
                    Opened::Volume(_) => self.flush().await,
                },
                Kind::Reset => self.reset().await,
                kind @ (Kind::Write | Kind::Zeroes | Kind::Discard) => self.write(kind).await,
            };
            let Some(Err(error)) = result else { continue };
            if self.fails(&error) {
                return;
            }
        }
    }

    /// Reads the whole disk.
    pub(crate) async fn read_all(&mut self) -> Option<Result<(), Error>> {
        let len = usize::try_from(self.disk.capacity()).unwrap_or(0) / GRAIN;
        self.read(0..len).await
    }

    pub(crate) fn takes_one(&self) -> bool {
        let take = |left: usize| left.checked_sub(1);
        let is_well = self.work.shared.lock().violation.is_none();
        is_well && self.work.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Notes an error. Returns whether the disk has ended.
    pub(crate) fn fails(&self, error: &Error) -> bool {
        let mut world = self.work.shared.lock();
        world.trace.record(&format!("error: {error}"), &[u64::from(self.handle)]);
        if is_another_unit(error) {
            let now = world.oracle.now();
            world.lun.found_another(self.work.opened, now);
        }
        if self.work.is_strict {
            world.accuse(format!("nothing is wrong, but a request failed: {error}"));
        }
        if let Some(why) = world.forbids(error, self.work.portals).filter(|_| !self.work.outlasts) {
            world.accuse(why);
        }
        if !self.may_have_ended(&world, error) {
            world.accuse(format!("a disk that was not closed has ended: {error}"));
        }
        let has_ended = error.is_of_session() && !error.may_have_executed();
        has_ended || !self.work.outlasts && error.reconnect_error().is_some()
    }

    /// Returns whether the error is permitted. An error which shows that the disk has ended, although it was not
    /// closed, is permitted only if another unit was present, or if faults have lasted for nearly the retry
    /// timeout.
    fn may_have_ended(&self, world: &World, error: &Error) -> bool {
        if world.lun.was_exchanged() {
            return true;
        }
        let waits = self.work.patience.saturating_sub(MAX_PAUSE);
        if world.wrong_since.is_some_and(|since| since.elapsed() >= waits) {
            return true;
        }
        if error.reconnect_error().is_some() {
            return false;
        }
        // A session error after which the request may have executed concerns that request alone.
        !error.is_of_session() || error.may_have_executed()
    }

    fn kind(&mut self) -> Kind {
        // More flushes for a volume: each must flush all of its units.
        if self.is_of_volume() && self.rng.percent(20) {
            return Kind::Flush;
        }
        match self.rng.within(0..100) {
            0..36 => Kind::Read,
            36..74 => Kind::Write,
            74..80 => Kind::Zeroes,
            80..84 => Kind::Discard,
            84..86 => Kind::Extents,
            86..88 => Kind::Confirm,
            88..91 => Kind::Stream,
            91 if self.work.resets => Kind::Reset,
            _ => Kind::Flush,
        }
    }

    fn is_of_volume(&self) -> bool {
        matches!(*self.disk, Opened::Volume(_))
    }

    /// Draws a range to read: mostly from the part that this worker writes.
    fn any_grains(&mut self) -> Range<usize> {
        let all = usize::try_from(self.disk.capacity()).unwrap_or(0) / GRAIN;
        let part = if self.rng.percent(80) { self.work.part.clone() } else { 0..all };
        self.grains(&part)
    }

    /// Draws a part of a range. At times returns the range of the last request, which may not have completed.
    pub(crate) fn grains(&mut self, of: &Range<usize>) -> Range<usize> {
        let is_within = of.start <= self.last.start && self.last.end <= of.end;
        if self.last.is_empty() || !is_within || self.rng.percent(75) {
            self.last = self.other_grains(of);
        }
        self.last.clone()
    }

    /// Draws a range. A few places are used often, and many ranges are whole blocks.
    fn other_grains(&mut self, of: &Range<usize>) -> Range<usize> {
        let all = of.len();
        let max = if self.rng.percent(80) { 64 } else { MAX_GRAINS };
        let len = self.rng.index(1..max.min(all) + 1);
        let last = if self.rng.percent(50) { all.div_ceil(8) } else { all };
        let start = of.start + self.rng.index(0..last).min(all - len);
        let block = self.disk.block_size() as usize / GRAIN;
        if self.rng.percent(60) {
            let (start, end) = (start / block * block, (start + len).next_multiple_of(block));
            return start..end.min(of.end);
        }
        start..start + len
    }

    /// Waits for a request, or drops it after a while. Returns `None` if it was dropped.
    async fn patiently<T>(&mut self, request: impl Future<Output = T>) -> Option<T> {
        self.patiently_with(10, request).await
    }

    /// Waits for a request, or drops it after a while. `percent` is the chance that it is dropped.
    async fn patiently_with<T>(
        &mut self,
        percent: u64,
        request: impl Future<Output = T>,
    ) -> Option<T> {
        if self.work.drops && self.rng.percent(percent) {
            let patience = self.rng.any_scale(4000);
            let ended = timeout(patience, request).await.ok();
            if ended.is_none() {
                self.work.shared.lock().counts.fault(Class::Dropped);
            }
            return ended;
        }
        Some(request.await)
    }

    async fn read(&mut self, grains: Range<usize>) -> Option<Result<(), Error>> {
        let disk = Arc::clone(&self.disk);
        let begun = {
            let mut world = self.work.shared.lock();
            self.trace_grains(&mut world.trace, "read", &grains);
            world.oracle.now()
        };
        let offset = (grains.start * GRAIN) as u64;
        let request = disk.read_at(offset, grains.len() * GRAIN);
        let asked = Instant::now();
        let data = match self.patiently(request).await? {
            Ok(data) => data,
            Err(error) => return Some(Err(error)),
        };
        let mut world = self.work.shared.lock();
        if let Some(why) = world.forbids_wait(asked.elapsed(), self.work.portals) {
            world.accuse(why);
        }
        self.trace_grains(&mut world.trace, "has read", &grains);
        if let Err(why) = self.check(&mut world, begun, grains.start, &data) {
            world.accuse(format!("handle {} has read: {why}", self.handle));
        }
        Some(Ok(()))
    }

    async fn write(&mut self, kind: Kind) -> Option<Result<(), Error>> {
        let disk = Arc::clone(&self.disk);
        let part = self.work.part.clone();
        let (mut grains, block) = (self.grains(&part), disk.block_size() as usize / GRAIN);
        let asked = grains.clone();
        let is_possible = !matches!(kind, Kind::Discard) || disk.discards();
        let kind = if is_possible { kind } else { Kind::Zeroes };
        let (is_data, is_discard) = (matches!(kind, Kind::Write), matches!(kind, Kind::Discard));
        if is_discard {
            // A discard leaves partial blocks as they are.
            grains = grains.start.next_multiple_of(block)..grains.end / block * block;
            grains.end = grains.end.max(grains.start);
        }
        let (begun, write, data) = {
            let mut world = self.work.shared.lock();
            let begun = world.oracle.now();
            self.trace_grains(&mut world.trace, if is_data { "write" } else { "zero" }, &grains);
            let write = world.oracle.begin_write(self.work.opened, grains.clone(), !is_data);
            let data = is_data.then(|| write.data());
            (begun, write, data)
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
        let mut world = self.work.shared.lock();
        let is_acknowledged = matches!(result, Some(Ok(())));
        self.trace_grains(
            &mut world.trace,
            if is_acknowledged { "written" } else { "not written" },
            &grains,
        );
        let is_hint = is_discard && world.lun.may_keep_blocks();
        let counts = is_acknowledged && !is_hint && !self.may_be_of_another(&world, begun);
        world.counts.writes += u64::from(counts);
        world.oracle.end_write(write, counts);
        result
    }

    /// Flushes. Informs the oracle of a loss that the flush reports.
    pub(crate) async fn flush(&mut self) -> Option<Result<(), Error>> {
        let disk = Arc::clone(&self.disk);
        let begun = {
            let mut world = self.work.shared.lock();
            self.trace_grains(&mut world.trace, "flush", &(0..0));
            world.oracle.now()
        };
        let percent = if self.is_of_volume() { 40 } else { 10 };
        let result = self.patiently_with(percent, disk.flush()).await;
        let mut world = self.work.shared.lock();
        match &result {
            Some(Ok(())) => {
                self.trace_grains(&mut world.trace, "flushed", &(0..0));
                world.counts.flushes += 1;
                world.oracle.flushed(self.work.opened, self.handle, begun);
            }
            Some(Err(error)) if error.kind() == ErrorKind::UnflushedWritesLost => {
                self.trace_grains(&mut world.trace, "told of lost writes", &(0..0));
                self.on_reported_loss(&mut world, self.handle);
                return None;
            }
            Some(Err(_)) | None => {}
        }
        result
    }

    /// Notes that a flush has reported lost writes. If there is no reason for a loss, that is a violation.
    pub(crate) fn on_reported_loss(&self, world: &mut World, handle: u32) {
        if self.work.is_strict {
            world.accuse("nothing is wrong, but a flush tells of lost writes".to_owned());
        }
        world.losses.on_reported_loss(self.work.opened, self.work.patience);
        world.oracle.on_reported_loss(self.work.opened, handle);
    }

    /// Returns whether another unit may have responded to a request that began at `begun`, before the initiator
    /// could notice that it had replaced the original unit.
    pub(crate) fn may_be_of_another(&self, world: &World, begun: Moment) -> bool {
        world.lun.may_have_misled(self.work.has_connections, begun)
    }

    /// Checks whether a read that began at `begun` may have returned these bytes.
    pub(crate) fn check(
        &self,
        world: &mut World,
        begun: Moment,
        first: usize,
        data: &[u8],
    ) -> Result<(), String> {
        if self.may_be_of_another(world, begun) {
            return Ok(());
        }
        world.counts.reads += 1;
        world.oracle.check(begun, first, data)
    }

    /// Queries the extents, and checks that holes read as zeros.
    async fn extents(&mut self) -> Option<Result<(), Error>> {
        let (disk, grains) = (Arc::clone(&self.disk), self.any_grains());
        let begun = self.work.shared.lock().oracle.now();
        let (offset, len) = ((grains.start * GRAIN) as u64, (grains.len() * GRAIN) as u64);
        let extents = match self.patiently(disk.extents(offset, len)).await? {
            Ok(extents) => extents,
            Err(error) => return Some(Err(error)),
        };
        let mut world = self.work.shared.lock();
        self.trace_grains(&mut world.trace, "has seen extents", &grains);
        for hole in extents.iter().filter(|extent| extent.state.reads_zeros()) {
            let first = usize::try_from(hole.offset).unwrap_or(0) / GRAIN;
            let zeros = vec![0; usize::try_from(hole.len).unwrap_or(0)];
            if let Err(why) = self.check(&mut world, begun, first, &zeros) {
                world.accuse(format!("handle {} was told of a hole: {why}", self.handle));
            }
        }
        Some(Ok(()))
    }

    async fn confirm(&mut self) -> Option<Result<(), Error>> {
        let disk = Arc::clone(&self.disk);
        let result = self.patiently(disk.confirm_unit()).await;
        let mut world = self.work.shared.lock();
        if let Some(Err(error)) = &result
            && is_another_unit(error)
            && !world.lun.was_exchanged()
        {
            world.accuse(format!("the unit is the same, but: {error}"));
        }
        drop(world);
        result
    }

    /// Resets the unit: writes that were not flushed may be lost, also those of other hosts.
    async fn reset(&mut self) -> Option<Result<(), Error>> {
        let disk = Arc::clone(&self.disk);
        let disks = disk.disks();
        let disk = match disks.as_slice() {
            [disk] => *disk,
            disks => self.rng.pick(disks).copied()?,
        };
        let session = disk.sessions().into_iter().next()?;
        self.trace_grains(&mut self.work.shared.lock().trace, "reset", &(0..0));
        let function = TaskFunction::LogicalUnitReset;
        let reset = session.manage(function, disk.unit().lun());
        self.patiently(reset).await;
        None
    }

    pub(crate) fn trace_grains(
        &self,
        trace: &mut crate::trace::Trace,
        what: &str,
        grains: &Range<usize>,
    ) {
        trace.record(what, &[u64::from(self.handle), grains.start as u64, grains.end as u64]);
    }
}

/// Returns whether an error says that the unit has been replaced by another one.
fn is_another_unit(error: &Error) -> bool {
    if let Some(why) = error.reconnect_error() {
        return is_another_unit(why);
    }
    // An error with sense data reports a changed capacity instead.
    error.sense().is_none() && matches!(error.advice(), Some(Advice::OneUnit | Advice::Reopen))
}

/// Longest pause before the last attempt to reconnect a lost session. That attempt may be omitted, so a disk
/// may end this much earlier than its retry timeout.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Longer than any request takes after the last fault, including a reconnect.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(400);
