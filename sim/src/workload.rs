//! Requests of many kinds, many at once, and what the oracle says of their answers.

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

/// The longest request, grains.
const MAX_GRAINS: usize = 64 << 10 >> 6;

/// What the workers of a disk have in common.
#[derive(Clone)]
pub(crate) struct Work {
    pub(crate) shared: Arc<Shared>,
    /// Which opened disk it is.
    pub(crate) opened: usize,
    /// Number of portals of the disk.
    pub(crate) portals: usize,
    /// The number of the next handle that a worker makes.
    pub(crate) handles: Arc<AtomicU32>,
    /// Where writes are allowed, grains: whole blocks.
    pub(crate) part: Range<usize>,
    /// Requests that are still to be made, by all workers.
    pub(crate) left: Arc<AtomicUsize>,
    /// Between two requests of a worker, milliseconds at most.
    pub(crate) max_pause: u64,
    /// Whether futures are dropped now and then.
    pub(crate) drops: bool,
    /// Whether the unit is reset now and then.
    pub(crate) resets: bool,
    /// Whether the sessions have several connections.
    pub(crate) has_connections: bool,
    /// The disk does not end when no session has come back in time.
    pub(crate) outlasts: bool,
    /// How long the disk waits for lost sessions.
    pub(crate) patience: Duration,
    /// Whether nothing goes wrong, so that a request that fails is a violation.
    pub(crate) is_strict: bool,
}

/// One user of a disk, with a handle of its own.
pub(crate) struct Worker {
    pub(crate) work: Work,
    /// Its handle, which is told of each loss: clones would be handles of their own.
    pub(crate) disk: Arc<Opened>,
    /// Which of the disk's handles it is.
    pub(crate) handle: u32,
    pub(crate) rng: Rng,
    /// What its last request was of.
    pub(crate) last: Range<usize>,
}

/// What a request is.
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
    /// Makes requests until there are enough, or the disk is gone.
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
                    // What a dropped flush was told by one unit has to be told by the next.
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

    /// Reads all of the disk.
    pub(crate) async fn read_all(&mut self) -> Option<Result<(), Error>> {
        let len = usize::try_from(self.disk.capacity()).unwrap_or(0) / GRAIN;
        self.read(0..len).await
    }

    pub(crate) fn takes_one(&self) -> bool {
        let take = |left: usize| left.checked_sub(1);
        let is_well = self.work.shared.lock().violation.is_none();
        is_well && self.work.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Notes an error; whether the disk is of no use any more.
    pub(crate) fn fails(&self, error: &Error) -> bool {
        let mut world = self.work.shared.lock();
        world.trace.note(&format!("error: {error}"), &[u64::from(self.handle)]);
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

    /// Whether an error that says that a disk has ended is one that there may be: before it is closed only where another
    /// unit was there, or no session has come back for as long as that is waited for.
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
        // One that a request may have been sent before is of that request alone.
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

    /// A part of the disk to be read: mostly of where this worker writes.
    fn any_grains(&mut self) -> Range<usize> {
        let all = usize::try_from(self.disk.capacity()).unwrap_or(0) / GRAIN;
        let part = if self.rng.percent(80) { self.work.part.clone() } else { 0..all };
        self.grains(&part)
    }

    /// A part of a range: now and then that of the request before, which may not have come to its end.
    pub(crate) fn grains(&mut self, of: &Range<usize>) -> Range<usize> {
        let is_within = of.start <= self.last.start && self.last.end <= of.end;
        if self.last.is_empty() || !is_within || self.rng.percent(75) {
            self.last = self.other_grains(of);
        }
        self.last.clone()
    }

    /// A few places are met often, and many requests are of whole blocks.
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

    /// Waits for a request, or drops it after a while; `None` if it was dropped.
    async fn patiently<T>(&mut self, request: impl Future<Output = T>) -> Option<T> {
        self.patiently_with(10, request).await
    }

    /// The same for a request that is dropped so often of a hundred times.
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
            self.note(&mut world.trace, "read", &grains);
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
        self.note(&mut world.trace, "has read", &grains);
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
            // What lies outside of whole blocks stays.
            grains = grains.start.next_multiple_of(block)..grains.end / block * block;
            grains.end = grains.end.max(grains.start);
        }
        let (begun, write, data) = {
            let mut world = self.work.shared.lock();
            let begun = world.oracle.now();
            self.note(&mut world.trace, if is_data { "write" } else { "zero" }, &grains);
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
        self.note(
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

    /// Flushes; of a loss that it tells, the oracle learns.
    pub(crate) async fn flush(&mut self) -> Option<Result<(), Error>> {
        let disk = Arc::clone(&self.disk);
        let begun = {
            let mut world = self.work.shared.lock();
            self.note(&mut world.trace, "flush", &(0..0));
            world.oracle.now()
        };
        let percent = if self.is_of_volume() { 40 } else { 10 };
        let result = self.patiently_with(percent, disk.flush()).await;
        let mut world = self.work.shared.lock();
        match &result {
            Some(Ok(())) => {
                self.note(&mut world.trace, "flushed", &(0..0));
                world.counts.flushes += 1;
                world.oracle.flushed(self.work.opened, self.handle, begun);
            }
            Some(Err(error)) if error.kind() == ErrorKind::UnflushedWritesLost => {
                self.note(&mut world.trace, "told of lost writes", &(0..0));
                self.told_of_loss(&mut world, self.handle);
                return None;
            }
            Some(Err(_)) | None => {}
        }
        result
    }

    /// A flush has told of lost writes, for which there has to be a reason.
    pub(crate) fn told_of_loss(&self, world: &mut World, handle: u32) {
        if self.work.is_strict {
            world.accuse("nothing is wrong, but a flush tells of lost writes".to_owned());
        }
        world.losses.told(self.work.opened, self.work.patience);
        world.oracle.told_of_loss(self.work.opened, handle);
    }

    /// Whether what began then may have been answered by another unit before anything could tell.
    pub(crate) fn may_be_of_another(&self, world: &World, begun: Moment) -> bool {
        world.lun.may_have_misled(self.work.has_connections, begun)
    }

    /// Whether a read that began then may have returned these bytes.
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

    /// Asks for holes, and checks that there is nothing.
    async fn extents(&mut self) -> Option<Result<(), Error>> {
        let (disk, grains) = (Arc::clone(&self.disk), self.any_grains());
        let begun = self.work.shared.lock().oracle.now();
        let (offset, len) = ((grains.start * GRAIN) as u64, (grains.len() * GRAIN) as u64);
        let extents = match self.patiently(disk.extents(offset, len)).await? {
            Ok(extents) => extents,
            Err(error) => return Some(Err(error)),
        };
        let mut world = self.work.shared.lock();
        self.note(&mut world.trace, "has seen extents", &grains);
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

    /// Resets the unit: what was not flushed may be gone, also what others wrote.
    async fn reset(&mut self) -> Option<Result<(), Error>> {
        let disk = Arc::clone(&self.disk);
        let disks = disk.disks();
        let disk = match disks.as_slice() {
            [disk] => *disk,
            disks => self.rng.pick(disks).copied()?,
        };
        let session = disk.sessions().into_iter().next()?;
        self.note(&mut self.work.shared.lock().trace, "reset", &(0..0));
        let function = TaskFunction::LogicalUnitReset;
        let reset = session.manage(function, disk.unit().lun());
        self.patiently(reset).await;
        None
    }

    pub(crate) fn note(&self, trace: &mut crate::trace::Trace, what: &str, grains: &Range<usize>) {
        trace.note(what, &[u64::from(self.handle), grains.start as u64, grains.end as u64]);
    }
}

/// Whether an error says that another unit is there than before.
fn is_another_unit(error: &Error) -> bool {
    if let Some(why) = error.reconnect_error() {
        return is_another_unit(why);
    }
    // With sense data, it is the capacity that has changed.
    error.sense().is_none() && matches!(error.advice(), Some(Advice::OneUnit | Advice::Reopen))
}

/// The pause before the last try to open a lost session anew, which may be left out.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Longer than any request takes after the last fault, a reconnect included.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(400);
