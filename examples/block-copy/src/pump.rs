//! The copy itself: reads ahead, writes behind.
//!
//! ```text
//!             as many as `reads`            as many as both in all          as many as `writes`
//!  source ──► reads under way ──► chunks that wait for their turn ──► writes under way ──► destination
//! ```
//! Both may become more or fewer on the way, as the sessions of the ends come and go. Reads and
//! writes end in any order. What waits is written from the lowest offset on. An end that
//! is sequential has one read or write under way, in order.

use std::collections::BTreeMap;
use std::future::pending;
use std::panic::resume_unwind;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::end::{Destination, Source};
use crate::error::Error;
use crate::meter::Meter;
use crate::stop::Stop;
use crate::verify::{Checksums, sum};
use iscsi_initiator::tuning::Size;

/// How much is read, written and kept at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PumpConfig {
    /// Bytes of one read or write, not 0.
    pub io_size: usize,
    /// Reads under way, at least 1.
    pub reads: usize,
    /// Writes under way, at least 1. Memory holds as many chunks as reads and writes together.
    pub writes: usize,
}

/// How often the ends are asked how deep the queues shall be.
const REFRESH: Duration = Duration::from_millis(100);

/// A part of what is copied.
#[derive(Debug)]
struct Chunk {
    offset: u64,
    data: Bytes,
    sum: Option<u64>,
}

/// What one read has brought.
#[derive(Debug)]
struct Stride {
    /// How many chunks it was to bring.
    asked: usize,
    chunks: Vec<Chunk>,
}

/// A copy under way.
#[derive(Debug)]
pub struct Pump<S, D> {
    source: S,
    destination: D,
    config: PumpConfig,
    /// When to ask the ends for the depth of the queues; `None` if it stays.
    refreshes: Option<Interval>,
    /// Where the source ends, once that is known.
    end: Option<u64>,
    next_read: u64,
    next_write: u64,
    /// Reads of one chunk or several.
    reads: JoinSet<Result<Stride, Error>>,
    /// How many chunks they will bring.
    reading: usize,
    waiting: BTreeMap<u64, Bytes>,
    writes: JoinSet<Result<usize, Error>>,
    /// Bytes of the writes under way.
    writing: u64,
    sums: Option<Checksums>,
}

impl<S: Source, D: Destination> Pump<S, D> {
    /// A copy of the first `length` bytes, or of all that a sequential source has to give.
    pub fn new(source: S, destination: D, config: PumpConfig, length: Option<u64>) -> Self {
        Self {
            source,
            destination,
            config,
            refreshes: None,
            end: length,
            next_read: 0,
            next_write: 0,
            reads: JoinSet::new(),
            reading: 0,
            waiting: BTreeMap::new(),
            writes: JoinSet::new(),
            writing: 0,
            sums: None,
        }
    }

    /// The same copy, with a checksum of each chunk.
    #[must_use]
    pub fn with_checksums(mut self) -> Self {
        self.sums = Some(Checksums::new(self.config.io_size));
        self
    }

    /// The same copy, with queues as deep as the ends say from time to time. The given depth stands
    /// where an end has no opinion.
    #[must_use]
    pub fn following_its_ends(mut self) -> Self {
        let refreshes = self.refreshes.insert(interval(REFRESH));
        refreshes.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self
    }

    /// Copies until the source ends, and counts what is written. Nothing is flushed.
    ///
    /// # Errors
    /// The first error of either end, [`Error::Overflow`] when there is more than the destination
    /// holds, [`Error::Interrupted`] after a stop: then what is under way has ended, or is given up
    /// ([`Error::Abandoned`]).
    pub async fn run(mut self, meter: &Meter, stop: &Stop) -> Result<Option<Checksums>, Error> {
        loop {
            self.start_reads();
            self.start_writes();
            // Nothing waits either: with no write under way, the lowest chunk would have been started.
            if self.reads.is_empty() && self.writes.is_empty() {
                return Ok(self.sums);
            }
            tokio::select! {
                Some(read) = self.reads.join_next() => self.keep(joined(read)?)?,
                Some(write) = self.writes.join_next() => self.written(write, meter)?,
                () = tick(&mut self.refreshes) => self.refresh(),
                () = stop.requested() => return Err(self.drain(meter, stop).await),
            }
        }
    }

    /// Asks the ends for the depth of the queues.
    fn refresh(&mut self) {
        let io_size = self.config.io_size;
        if let Some(reads) = self.source.queue_depth(io_size) {
            self.config.reads = reads.max(1);
        }
        if let Some(writes) = self.destination.queue_depth(io_size) {
            self.config.writes = writes.max(1);
        }
    }

    fn start_reads(&mut self) {
        while self.may_read() {
            let offset = self.next_read;
            let len = self.next_len();
            let asked = len.div_ceil(self.config.io_size);
            self.next_read += len as u64;
            self.reading += asked;
            let (source, wants_sum) = (self.source.clone(), self.sums.is_some());
            let io_size = self.config.io_size;
            self.reads.spawn(async move {
                let data = source.read(offset, len).await?;
                Ok(Stride { asked, chunks: chunks(offset, data, io_size, wants_sum) })
            });
        }
    }

    fn may_read(&self) -> bool {
        let at_once = if self.source.is_sequential() { 1 } else { self.config.reads };
        let held = self.reading + self.waiting.len() + self.writes.len();
        self.reading < at_once
            && held + self.stride() <= self.config.reads + self.config.writes
            && self.next_len() > 0
    }

    /// How many chunks one read fetches: no more than may be read at once.
    fn stride(&self) -> usize {
        (self.source.stride() / self.config.io_size).clamp(1, self.config.reads)
    }

    fn next_len(&self) -> usize {
        let left = self.end.map_or(u64::MAX, |end| end.saturating_sub(self.next_read));
        let most = self.stride() * self.config.io_size;
        usize::try_from(left).unwrap_or(usize::MAX).min(most)
    }

    fn start_writes(&mut self) {
        while let Some((offset, data)) = self.next_to_write() {
            let (source, destination) = (self.source.clone(), self.destination.clone());
            self.next_write = offset + data.len() as u64;
            self.writing += data.len() as u64;
            self.writes.spawn(async move {
                let len = data.len();
                destination.write(offset, data.clone()).await?;
                source.take_back(data);
                Ok(len)
            });
        }
    }

    fn next_to_write(&mut self) -> Option<(u64, Bytes)> {
        let in_order = self.destination.is_sequential();
        let at_once = if in_order { 1 } else { self.config.writes };
        let next = self.waiting.first_entry()?;
        let in_turn = !in_order || *next.key() == self.next_write;
        (self.writes.len() < at_once && in_turn).then(|| next.remove_entry())
    }

    fn keep(&mut self, stride: Stride) -> Result<(), Error> {
        self.reading -= stride.asked;
        stride.chunks.into_iter().try_for_each(|chunk| self.keep_chunk(chunk))
    }

    /// Takes a chunk that was read; a short one is the end of the source.
    fn keep_chunk(&mut self, chunk: Chunk) -> Result<(), Error> {
        let Chunk { offset, data, sum } = chunk;
        let end = offset + data.len() as u64;
        if end < self.next_read && self.source.is_sequential() {
            self.end = Some(end);
        }
        if let Some(capacity) = self.destination.capacity().filter(|capacity| *capacity < end) {
            return Err(Error::Overflow { capacity: Size(capacity) });
        }
        if let (Some(sums), Some(sum)) = (&mut self.sums, sum) {
            sums.put(offset, sum);
        }
        if !data.is_empty() {
            self.waiting.insert(offset, data);
        }
        Ok(())
    }

    /// A write has ended.
    fn written(
        &mut self,
        write: Result<Result<usize, Error>, JoinError>,
        meter: &Meter,
    ) -> Result<(), Error> {
        let len = joined(write)?;
        self.writing -= len as u64;
        meter.count(len);
        Ok(())
    }

    /// Waits a moment for the writes that are under way, and forgets the rest.
    async fn drain(&mut self, meter: &Meter, stop: &Stop) -> Error {
        self.reads.abort_all();
        let ended = async {
            while let Some(write) = self.writes.join_next().await {
                self.written(write, meter)?;
            }
            Ok(())
        };
        match stop.hurry(ended).await {
            Some(Ok(())) => Error::Interrupted,
            Some(Err(error)) => error,
            None => Error::Abandoned { under_way: Size(self.writing) },
        }
    }
}

/// Waits until it is time, if it ever is.
async fn tick(refreshes: &mut Option<Interval>) {
    match refreshes {
        Some(refreshes) => drop(refreshes.tick().await),
        None => pending().await,
    }
}

/// Cuts what was read into chunks; nothing is one empty chunk.
fn chunks(offset: u64, mut data: Bytes, io_size: usize, wants_sum: bool) -> Vec<Chunk> {
    let count = data.len().div_ceil(io_size).max(1);
    let offsets = (0..count).map(|at| offset + (at * io_size) as u64);
    let cut = offsets.map(|offset| {
        let data = data.split_to(data.len().min(io_size));
        Chunk { offset, sum: wants_sum.then(|| sum(&data)), data }
    });
    cut.collect()
}

/// The result of a task. Its panic is ours.
fn joined<T>(result: Result<Result<T, Error>, JoinError>) -> Result<T, Error> {
    match result.map_err(JoinError::try_into_panic) {
        Ok(result) => result,
        Err(Ok(panic)) => resume_unwind(panic),
        Err(Err(_)) => Err(Error::Cancelled),
    }
}
