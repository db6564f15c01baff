//! The copy itself: reads ahead, writes behind, flushes beside.
//!
//! ```text
//!  to do ──► survey ──► data ──► reads under way ──► parts that wait ──► writes under way ──► flush
//!                 └───► zeros, unless the destination has them ──►┘
//! ```
//! Everything ends in any order; what waits is written from the lowest offset on. A source or a
//! destination that is a stream has one read or write under way, in order.

mod blank;
mod depths;
mod digesting;
mod earlier;
mod flush_pace;
mod flushes;
mod flushing;
mod ledger;
mod limits;
pub(crate) mod memory;
pub(crate) mod part;
pub(crate) mod pool;
mod reading;
mod salvage;
mod saving;
mod writing;

use std::collections::BTreeMap;
use std::io;
use std::panic::resume_unwind;
use std::time::Duration;

use bytes::Bytes;
use iscsi_block_device::{DeviceResult, Extent, RangeSet};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use crate::boxed::{BoxFuture, boxed};
use crate::digests::digesting::Digesting;
use crate::ends::destination::Destination;
use crate::ends::source::Source;
use crate::error::{CopyError, Failure, is_loss};
use crate::job::control::{Control, Order};
use crate::job::copied::Copied;
use crate::job::options::CopyOptions;
use crate::job::rate_limit::RateLimits;
use crate::moment::at;
use crate::progress::Teller;
use crate::survey::blocks::Block;
use crate::survey::questions::Pace;
use crate::survey::{Question, Survey};
use crate::verify::checksums::Checksums;
use blank::Blank;
use depths::{Depth, Load};
use flushes::Flushes;
use ledger::{Ledger, Task};
use limits::Limits;
use memory::Memory;
use part::{Cut, Part};
use pool::Pool;

/// How often the devices are asked how deep the queues shall be, and progress is told.
const REFRESH: Duration = Duration::from_millis(100);

/// A copy under way.
#[derive(Debug)]
pub(crate) struct Engine {
    source: Source,
    destination: Destination,
    options: CopyOptions,
    limits: Limits,
    cut: Cut,
    /// The most reads, and writes, that may be in flight.
    reads: Depth,
    writes: Depth,
    /// When the next read, and the next write, may begin.
    rates: RateLimits,
    control: Control,
    teller: Teller,
    ledger: Ledger,
    memory: Memory,
    pool: Pool,
    survey: Survey,
    blank: Blank,
    /// What was read and not written yet.
    waiting: BTreeMap<u64, Part>,
    /// What a stream has given, until a flush has covered it: it cannot be read again.
    kept: BTreeMap<u64, Part>,
    /// The destination is as long as it will be, as far as that is known.
    is_sized: bool,
    /// Where a stream is written next.
    next_write: u64,
    /// Reads and writes under way; both count requests of the length of one.
    reading: usize,
    writing: usize,
    /// Their bytes.
    reading_bytes: u64,
    writing_bytes: u64,
    flushes: Flushes,
    checksums: Option<Checksums>,
    /// What the source does not give.
    unreadable: RangeSet,
    digesting: Option<Digesting>,
    /// A checkpoint is being written; there is something new for one.
    is_saving: bool,
    is_save_due: bool,
    /// Bytes that a flush has covered and no checkpoint says yet; of them those in the one that is being
    /// written.
    unsaved: u64,
    saving_bytes: u64,
    /// Sessions of runs that are gone, which may still have something under way at the destination.
    unended: Vec<String>,
    /// What is sent where the destination does not make zeros by itself.
    zeros: Bytes,
    tasks: JoinSet<Result<Ended, CopyError>>,
}

/// What has come to its end.
#[derive(Debug)]
enum Ended {
    /// The destination has told which bytes read as zeros.
    Asked(RangeSet),
    /// The source has told which parts of a range hold data.
    Surveyed(Question, DeviceResult<Vec<Extent>>),
    /// What was asked for has brought these parts.
    Read {
        asked: Load,
        bytes: u64,
        parts: Vec<(Part, u64)>,
        /// The blocks that they are of, if digests are kept.
        blocks: Vec<Block>,
        unreadable: RangeSet,
        is_last: bool,
        /// Nothing was known of it.
        is_blind: bool,
    },
    Written(Task, Part, DeviceResult<()>),
    /// A flush, which may say that writes are lost.
    Flushed(DeviceResult<()>),
    /// A checkpoint was written, or not.
    Saved(io::Result<()>),
    /// These lines were added to the file of digests, or not.
    Kept(String, io::Result<()>),
}

impl Engine {
    pub(crate) fn new(
        source: Source,
        destination: Destination,
        options: CopyOptions,
        control: Control,
        teller: Teller,
    ) -> Self {
        let limits = Limits::of(&source, &destination);
        let digesting = options.digests.clone().map(Digesting::new);
        let io_size = limits.io_size(options.io_size);
        // Each write is of one block.
        let io_size = digesting.as_ref().map_or(io_size, |digesting| digesting.max_io(io_size));
        let block = usize::try_from(limits.destination.block_size).unwrap_or(1).max(1);
        let granularity = options.zero_granularity.map(|bytes| bytes.next_multiple_of(block));
        let is_stream = source.device_ref().is_none();
        let len = source.device_ref().map_or(0, |device| device.capacity());
        let mut to_do = RangeSet::from(0..len);
        if let Some(ranges) = &options.ranges {
            let known = digesting.as_ref().map(Digesting::known);
            to_do = known.map_or_else(|| ranges.clone(), |known| known.all_widened(ranges));
            to_do = to_do.overlap(&(0..len));
        }
        let mut done = RangeSet::new();
        to_do.iter().for_each(|range| done.extend(options.done.overlap(&range).iter()));
        let flushes = Flushes::new(
            &options,
            limits.destination.has_volatile_cache,
            destination.is_sequential(),
        );
        Self {
            limits,
            cut: Cut { io_size, granularity },
            reads: Depth::ONE,
            writes: Depth::ONE,
            rates: RateLimits::new(Instant::now()),
            control,
            teller,
            ledger: Ledger::new(to_do, done),
            memory: Memory::new(options.max_memory),
            pool: Pool::default(),
            survey: match options.reads_holes && !is_stream {
                true => Survey::unasked(),
                false => Survey::new(is_stream),
            },
            blank: Blank::default(),
            waiting: BTreeMap::new(),
            kept: BTreeMap::new(),
            is_sized: false,
            next_write: 0,
            reading: 0,
            writing: 0,
            reading_bytes: 0,
            writing_bytes: 0,
            flushes,
            checksums: options.has_checksums.then(Checksums::default),
            unreadable: RangeSet::new(),
            digesting,
            is_saving: false,
            is_save_due: false,
            unsaved: 0,
            saving_bytes: 0,
            unended: Vec::new(),
            zeros: Bytes::from(vec![0; io_size]),
            tasks: JoinSet::new(),
            source,
            destination,
            options,
        }
    }

    /// Copies until the source ends, and flushes.
    pub(crate) fn run(mut self) -> BoxFuture<'static, Result<Copied, Failure>> {
        boxed(async move {
            let control = self.control.clone();
            let prepared = tokio::select! {
                biased;
                () = control.at_least(Order::Cancel) => Err(CopyError::Cancelled),
                prepared = self.prepare() => prepared,
            };
            let is_prepared = prepared.is_ok();
            let result = match prepared {
                Ok(()) => self.copy().await,
                Err(error) => Err(error),
            };
            let result = match result {
                Err(error) if is_prepared => self.wind_up(error).await,
                result => result,
            };
            if is_prepared && !matches!(result, Err(CopyError::Abandoned { .. })) {
                self.end_kept(result.is_ok()).await;
            }
            self.teller.show();
            self.teller.tell_progress();
            let progress = self.teller.progress;
            match result {
                Ok(()) => {
                    let Self { unreadable, checksums, digesting, .. } = self;
                    let digests = digesting.map(Digesting::into_file);
                    Ok(Copied { progress, unreadable, checksums, digests })
                }
                Err(error) => {
                    let is_written = is_prepared && self.is_copied();
                    let progress = Box::new(progress);
                    // An earlier run has seen to that as well.
                    let is_sized = self.is_sized || progress.resumed > 0;
                    let has_full_length = is_sized && self.awaits_length();
                    let unreadable = self.unreadable;
                    Err(Failure { error, progress, unreadable, is_written, has_full_length })
                }
            }
        })
    }

    /// Makes sure that all fits, and begins to find out what the destination has of zeros.
    async fn prepare(&mut self) -> Result<(), CopyError> {
        let resumed = self.ledger.flushed().bytes();
        let is_stream = self.source.device_ref().is_none();
        let to_do = (!is_stream).then(|| self.ledger.to_do() + resumed);
        self.teller.progress.total = to_do.or_else(|| self.source.length());
        let progress = &mut self.teller.progress;
        (progress.resumed, progress.done, progress.flushed) = (resumed, resumed, resumed);
        if self.destination.limits().is_read_only {
            return Err(CopyError::ReadOnly);
        }
        let device = self.source.device_ref().map(|device| device.capacity());
        self.destination.fits(device).await?;
        self.prepare_digests().await?;
        self.end_earlier().await?;
        if self.awaits_length() {
            self.blank = Blank::asked();
        } else {
            self.is_sized = true;
            self.blank = self.find_blank(device.unwrap_or(u64::MAX)).await;
        }
        self.refresh();
        Ok(())
    }

    /// Whether the destination is a file, and it is known how long that will be.
    fn awaits_length(&self) -> bool {
        self.destination.is_file() && self.source.device_ref().is_some()
    }

    /// Gives a file its length once the source has given something: of a copy that fails before, nothing
    /// is to be seen. Only then it is known where the file reads as zeros.
    async fn set_len(&mut self) -> Result<(), CopyError> {
        let is_due = !self.waiting.is_empty()
            || self.blank.is_waited_for()
            || self.digesting.as_ref().is_some_and(|digesting| !digesting.is_idle());
        if self.is_sized || !is_due {
            return Ok(());
        }
        let len = self.source.device_ref().map(|device| device.capacity());
        self.destination.set_len(len).await.map_err(CopyError::Destination)?;
        self.is_sized = true;
        let zeros = self.blank.answer(RangeSet::new());
        self.blank = self.find_blank(len.unwrap_or(u64::MAX)).await;
        self.put_zeros_back(&zeros);
        Ok(())
    }

    /// What is known of zeros at the destination, which is asked, while the copy begins, unless somebody
    /// has told.
    async fn find_blank(&mut self, len: u64) -> Blank {
        // A destination in order gets zeros as well.
        let Some(device) = self.destination.shared() else { return Blank::default() };
        // What earlier copies have put there is not zero, also where nothing is known of it.
        let is_first = self.digesting.as_ref().is_none_or(|digesting| digesting.file.begin_first());
        if self.options.destination_is_zero && is_first {
            self.flush_before_anything().await;
            return Blank::known((0..len).into());
        }
        let len = len.min(self.destination.capacity().unwrap_or(len));
        // A stream goes to a file that does not know its length yet.
        if len == u64::MAX {
            self.flush_before_anything().await;
            return Blank::default();
        }
        // Zeros in a cache come and go with it.
        if !self.flush_before_anything().await {
            return Blank::default();
        }
        self.tasks.spawn(async move { Ok(Ended::Asked(blank::ask(device, len).await)) });
        Blank::asked()
    }

    /// Flushes a cache that may be lost, before a write is under way whose loss this could tell of: what it takes is what
    /// each flush takes at least. Says whether the cache is empty.
    async fn flush_before_anything(&mut self) -> bool {
        let Some(device) = self.destination.shared() else { return false };
        if !device.limits().has_volatile_cache {
            return true;
        }
        let begun = Instant::now();
        match device.flush().await {
            Ok(()) => {
                self.flushes.took_for_nothing(begun.elapsed());
                true
            }
            Err(error) => is_loss(&error),
        }
    }

    async fn copy(&mut self) -> Result<(), CopyError> {
        let mut refreshes = interval(REFRESH);
        refreshes.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let order = self.control.order();
            let rate = self.control.rate();
            // Read once: where the clock is a system call, it costs more than what the loop does.
            let now = Instant::now();
            self.rates.set(rate, now);
            match order {
                Order::Run => {
                    self.start_reads(now);
                    let control = self.control.clone();
                    tokio::select! {
                        biased;
                        () = control.at_least(Order::Cancel) => return Err(CopyError::Cancelled),
                        sized = self.set_len() => sized?,
                    }
                    self.start_writes(now);
                }
                Order::Pause => self.survey.note(now, Pace::Paused),
                Order::Cancel | Order::Abandon => return Err(CopyError::Cancelled),
            }
            self.start_keep();
            self.start_flush();
            self.start_save();
            if self.is_done() {
                return Ok(());
            }
            let rate_opens = self.rates.opens(now);
            self.turn(order, rate, rate_opens, &mut refreshes).await?;
        }
    }

    /// Waits for something to happen, and does what follows from it.
    async fn turn(
        &mut self,
        order: Order,
        rate: Option<u64>,
        rate_opens: Option<Instant>,
        refreshes: &mut Interval,
    ) -> Result<(), CopyError> {
        let flush_due = self.flushes.due(self.ledger.unflushed());
        tokio::select! {
            biased;
            () = self.control.other_than(order) => {}
            () = self.control.other_rate_than(rate) => {}
            Some(ended) = self.tasks.join_next() => self.take(joined(ended)?)?,
            _ = refreshes.tick() => self.refresh(),
            () = at(flush_due) => {}
            () = at(rate_opens) => {}
        }
        self.teller.show();
        Ok(())
    }

    fn take(&mut self, ended: Ended) -> Result<(), CopyError> {
        match ended {
            Ended::Asked(found) => {
                let zeros = self.blank.answer(found);
                self.put_zeros_back(&zeros);
            }
            Ended::Surveyed(question, told) => self.take_survey(&question, told),
            Ended::Read { asked, bytes, parts, blocks, unreadable, is_last, is_blind } => {
                self.survey.end_read(bytes, is_blind);
                self.reading -= asked.count;
                self.reading_bytes -= asked.bytes;
                self.teller.progress.read += bytes;
                self.take_unreadable(&unreadable);
                self.take_parts(parts, &blocks, is_last)?;
            }
            Ended::Written(task, part, result) => self.take_written(task, part, result)?,
            Ended::Flushed(result) => self.take_flushed(result)?,
            Ended::Saved(result) => self.take_saved(result),
            Ended::Kept(lines, result) => self.take_kept(lines, result)?,
        }
        Ok(())
    }

    /// Asks the devices for the depth of the queues, and tells of progress.
    fn refresh(&mut self) {
        self.limits = Limits::of(&self.source, &self.destination);
        let io_size = self.cut.io_size;
        (self.reads, self.writes) = match self.options.queue_depth {
            Some(depth) => (Depth::fixed(depth), Depth::fixed(depth)),
            None => (
                Depth::of(io_size, |len| self.source.read_depth(len)),
                Depth::of(io_size, |len| self.destination.queue_depth(len)),
            ),
        };
        self.teller.tell_progress();
    }

    /// Whether nothing is left to be done, nor to be flushed.
    fn is_done(&self) -> bool {
        self.is_copied() && self.ledger.is_flushed() && self.flushes.has_ended() && self.is_saved()
    }

    /// Whether nothing is left to be done but a flush.
    fn is_copied(&self) -> bool {
        self.survey.is_over()
            && self.ledger.next().is_none()
            && (self.reading, self.writing) == (0, 0)
            && self.waiting.is_empty()
            && !self.blank.is_waited_for()
            && self.digesting.as_ref().is_none_or(Digesting::is_idle)
    }

    /// After an error or an order: waits for the writes under way, and flushes what was written, so that
    /// it need not be written again; unless a flush has failed, after which none proves anything. A copy that
    /// turns out to be complete then has not failed.
    async fn wind_up(&mut self, error: CopyError) -> Result<(), CopyError> {
        let control = self.control.clone();
        let ending = async {
            while self.writing > 0 || self.flushes.is_under_way() || self.is_saving() {
                let Some(ended) = self.tasks.join_next().await else { return };
                match joined(ended) {
                    Ok(Ended::Written(task, part, result)) => {
                        _ = self.take_written(task, part, result);
                    }
                    Ok(Ended::Flushed(result)) => _ = self.take_flushed(result),
                    Ok(Ended::Saved(result)) => self.take_saved(result),
                    Ok(Ended::Kept(lines, result)) => _ = self.take_kept(lines, result),
                    // What was read is not needed any more, and one error is enough.
                    Ok(Ended::Read { .. } | Ended::Surveyed(..) | Ended::Asked(_)) | Err(_) => {}
                }
            }
            let is_last = self.is_copied();
            let is_wanted = is_last && !self.is_done() || !self.ledger.is_flushed();
            if is_wanted && !self.flushes.has_failed() {
                self.flushes.begin(is_last, self.ledger.unflushed());
                self.ledger.begin_flush();
                let len = is_last.then(|| self.final_len());
                let flushed = self.destination.flush(len).await;
                _ = self.take_flushed(flushed);
            }
            self.start_save();
            while self.is_saving {
                match self.tasks.join_next().await.map(joined) {
                    Some(Ok(Ended::Saved(result))) => self.take_saved(result),
                    Some(_) => {}
                    None => return,
                }
            }
        };
        tokio::select! {
            biased;
            () = ending => {}
            () = control.at_least(Order::Abandon) => {
                return Err(CopyError::Abandoned { in_flight: self.writing_bytes });
            }
        }
        let is_complete = matches!(error, CopyError::Cancelled) && self.is_done();
        if is_complete { Ok(()) } else { Err(error) }
    }
}

/// The result of a task. Its panic is ours.
fn joined(result: Result<Result<Ended, CopyError>, JoinError>) -> Result<Ended, CopyError> {
    match result.map_err(JoinError::try_into_panic) {
        Ok(result) => result,
        Err(Ok(panic)) => resume_unwind(panic),
        Err(Err(_)) => Err(CopyError::Cancelled),
    }
}
