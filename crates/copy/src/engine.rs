//! The engine of a copy: concurrent reads, writes and flushes.
//!
//! ```text
//!  to do ──► survey ──► data ──► reads in flight ──► waiting parts ──► writes in flight ──► flush
//!                 └───► zeros that the destination lacks ────►┘
//! ```
//! Requests complete in any order; waiting parts are written in ascending order of their offsets. If the
//! source or the destination is a stream, it has one read or write in flight at a time.
//!
//! Design: `docs/design/copies.md`.

mod account;
mod blank;
mod depths;
mod earlier;
mod ends;
mod flush_pace;
mod flushes;
mod ledger;
pub(crate) mod memory;
pub(crate) mod part;
mod parts;
pub(crate) mod pool;
mod reading;
mod reads;
mod salvage;
mod saving;
mod writes;
mod writing;

use std::io;
use std::time::Duration;

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
use crate::job::rate_limit::{RateLimits, at};
use crate::joined::joined;
use crate::progress::Reporter;
use crate::survey::questions::Pace;
use crate::survey::{Question, Survey};
use crate::verify::checksums::Checksums;
use account::Account;
use blank::Blank;
use depths::Depth;
use ends::Ends;
use flushes::Flushes;
use ledger::{Ledger, Task};
use part::{Cut, Part};
use parts::Parts;
use reads::{Read, Reads};
use saving::Saving;
use writes::Writes;

/// Interval at which the devices are queried for their queue depths, and progress is reported.
const REFRESH: Duration = Duration::from_millis(100);

/// A running copy.
#[derive(Debug)]
pub(crate) struct Engine {
    ends: Ends,
    options: CopyOptions,
    control: Control,
    account: Account,
    reads: Reads,
    parts: Parts,
    writes: Writes,
    /// The times at which the next read, and the next write, may begin.
    rates: RateLimits,
    flushes: Flushes,
    saving: Saving,
    tasks: JoinSet<Result<Ended, CopyError>>,
}

/// The result of a task that has ended.
#[derive(Debug)]
enum Ended {
    /// The ranges that read as zeros, as the destination has reported them.
    Asked(RangeSet),
    /// The parts of a range that hold data, as the source has reported them.
    Surveyed(Question, DeviceResult<Vec<Extent>>),
    Read(Read),
    Written(Task, Part, DeviceResult<()>),
    /// A flush, which may report lost writes.
    Flushed(DeviceResult<()>),
    /// A checkpoint, saved or not.
    Saved(io::Result<()>),
    /// Lines for the file of digests, saved or not.
    Kept(String, io::Result<()>),
}

impl Engine {
    pub(crate) fn new(
        source: Source,
        destination: Destination,
        options: CopyOptions,
        control: Control,
        reporter: Reporter,
    ) -> Self {
        let ends = Ends::new(source, destination);
        let digesting = options.digests.clone().map(Digesting::new);
        let io_size = ends.limits.io_size(options.io_size);
        // A write must lie in one block of the digests.
        let io_size = digesting.as_ref().map_or(io_size, |digesting| digesting.max_io(io_size));
        let granularity = options.zero_granularity;
        let granularity = granularity.map(|bytes| bytes.next_multiple_of(ends.block()));
        let len = ends.source_len().unwrap_or(0);
        let mut to_do = RangeSet::from(0..len);
        if let Some(ranges) = &options.ranges {
            let known = digesting.as_ref().map(Digesting::known);
            to_do = known.map_or_else(|| ranges.clone(), |known| known.all_widened(ranges));
            to_do = to_do.overlap(&(0..len));
        }
        let mut done = RangeSet::new();
        to_do.iter().for_each(|range| done.extend(options.done.overlap(&range).iter()));
        let survey = match options.reads_holes && !ends.is_stream() {
            true => Survey::unasked(),
            false => Survey::new(ends.is_stream()),
        };
        let has_cache = ends.limits.destination.has_volatile_cache;
        let checksums = options.has_checksums.then(Checksums::default);
        Self {
            account: Account::new(Ledger::new(to_do, done), reporter),
            reads: Reads::new(survey, options.max_memory),
            parts: Parts::new(Cut { io_size, granularity }, digesting, checksums),
            writes: Writes::new(io_size),
            rates: RateLimits::new(Instant::now()),
            flushes: Flushes::new(&options, has_cache, ends.destination.is_sequential()),
            saving: Saving::new(options.checkpoint.clone()),
            tasks: JoinSet::new(),
            control,
            ends,
            options,
        }
    }

    /// Copies until the source ends, flushes, and saves the checkpoint and the digests.
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
            let is_written = is_prepared && self.is_copied();
            let Self { ends, mut account, parts, .. } = self;
            account.reporter.show();
            account.reporter.report_progress();
            let Account { reporter, unreadable, .. } = account;
            let progress = reporter.progress;
            match result {
                Ok(()) => {
                    let Parts { checksums, digesting, .. } = parts;
                    let digests = digesting.map(Digesting::into_file);
                    Ok(Copied { progress, unreadable, checksums, digests })
                }
                Err(error) => {
                    let progress = Box::new(progress);
                    // An earlier run may have set the length of the file.
                    let is_sized = ends.is_sized || progress.resumed > 0;
                    let has_full_length = is_sized && ends.awaits_length();
                    Err(Failure { error, progress, unreadable, is_written, has_full_length })
                }
            }
        })
    }

    /// Checks that the data fits, ends the sessions that earlier runs have left, and starts to query which
    /// ranges of the destination read as zeros.
    async fn prepare(&mut self) -> Result<(), CopyError> {
        let len = self.ends.source_len();
        self.account.begin(self.ends.is_stream(), self.ends.source.length());
        let destination = &self.ends.destination;
        if destination.limits().is_read_only {
            return Err(CopyError::ReadOnly);
        }
        destination.fits(len).await?;
        if let Some(digesting) = &mut self.parts.digesting {
            digesting.prepare(destination, len).await?;
        }
        let digesting = self.parts.digesting.as_ref();
        self.saving.end_earlier(destination, digesting, &self.account, len).await?;
        if self.ends.awaits_length() {
            self.parts.blank = Blank::asked();
        } else {
            self.ends.is_sized = true;
            self.parts.blank = self.find_blank(len.unwrap_or(u64::MAX)).await;
        }
        self.refresh();
        Ok(())
    }

    /// Sets the length of the destination file after the first read, so that a copy that fails before leaves
    /// no trace. The ranges of the file that read as zeros are known only after that.
    async fn set_len(&mut self) -> Result<(), CopyError> {
        if self.ends.is_sized || self.parts.is_empty() {
            return Ok(());
        }
        let len = self.ends.source_len();
        self.ends.destination.set_len(len).await.map_err(CopyError::Destination)?;
        self.ends.is_sized = true;
        self.take_blank(RangeSet::new());
        self.parts.blank = self.find_blank(len.unwrap_or(u64::MAX)).await;
        Ok(())
    }

    /// Takes the destination's report of its zeros. The parts that have waited for it return to the survey.
    fn take_blank(&mut self, found: RangeSet) {
        let zeros = self.parts.answer(found);
        self.reads.survey.put_back(&zeros);
    }

    /// Records in which state the destination is left.
    async fn end_kept(&mut self, is_complete: bool) {
        let (destination, digesting) = (&self.ends.destination, self.parts.digesting.as_mut());
        self.saving.close(is_complete, destination, digesting, &self.account.reporter).await;
    }

    /// Returns the known zeros of the destination. Unless the options state them, a query to the destination
    /// starts, and runs concurrently with the copy.
    async fn find_blank(&mut self, len: u64) -> Blank {
        // A stream has no ranges to query: it receives zeros as data.
        let Some(device) = self.ends.destination.shared() else { return Blank::default() };
        // Earlier copies may have written data even where no digest is known, so the destination counts as zeros
        // only in the first copy.
        let is_first =
            self.parts.digesting.as_ref().is_none_or(|digesting| digesting.file.begin_first());
        if self.options.destination_is_zero && is_first {
            self.flush_before_anything().await;
            return Blank::known((0..len).into());
        }
        let len = len.min(self.ends.destination.capacity().unwrap_or(len));
        // The source is a stream, so its length is unknown, and the file has no length yet.
        if len == u64::MAX {
            self.flush_before_anything().await;
            return Blank::default();
        }
        // Zeros in a volatile cache may be lost with it, so they count only after a flush.
        if !self.flush_before_anything().await {
            return Blank::default();
        }
        self.tasks.spawn(async move { Ok(Ended::Asked(blank::ask(device, len).await)) });
        Blank::asked()
    }

    /// Flushes a volatile cache before the first write, and records the time that this takes as the time of
    /// an empty flush. Returns whether nothing remains in the cache. That is `true` even if the flush reports
    /// a loss, which concerns no write of this copy.
    async fn flush_before_anything(&mut self) -> bool {
        let Some(device) = self.ends.destination.shared() else { return false };
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
            // The clock is read once per iteration: where that is a system call, it costs more than the rest of the
            // loop.
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
                Order::Pause => self.reads.survey.set_pace(now, Pace::Paused),
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

    /// Waits for the next event, and processes it.
    async fn turn(
        &mut self,
        order: Order,
        rate: Option<u64>,
        rate_opens: Option<Instant>,
        refreshes: &mut Interval,
    ) -> Result<(), CopyError> {
        let flush_due = self.flushes.due(self.account.ledger.unflushed());
        tokio::select! {
            biased;
            () = self.control.other_than(order) => {}
            () = self.control.other_rate_than(rate) => {}
            Some(ended) = self.tasks.join_next() => self.take(outcome(ended)?)?,
            _ = refreshes.tick() => self.refresh(),
            () = at(flush_due) => {}
            () = at(rate_opens) => {}
        }
        self.account.reporter.show();
        Ok(())
    }

    fn take(&mut self, ended: Ended) -> Result<(), CopyError> {
        match ended {
            Ended::Asked(found) => self.take_blank(found),
            Ended::Surveyed(question, told) => self.take_survey(&question, told),
            Ended::Read(read) => self.take_read(read)?,
            Ended::Written(task, part, result) => self.take_written(task, part, result)?,
            Ended::Flushed(result) => self.take_flushed(result)?,
            Ended::Saved(result) => self.saving.end(result, &self.account.reporter),
            Ended::Kept(lines, result) => self.take_kept(&lines, result)?,
        }
        Ok(())
    }

    /// Starts to save the digests that parts wait for, and those that a flush has covered.
    fn start_keep(&mut self) {
        let lines = self.parts.begin_save(&mut self.account, &self.ends);
        let Some((file, lines)) = lines else { return };
        self.tasks.spawn(async move {
            let (lines, result) = file.save(lines).await;
            Ok(Ended::Kept(lines, result))
        });
    }

    fn take_kept(&mut self, lines: &str, result: io::Result<()>) -> Result<(), CopyError> {
        self.parts.end_save(lines, result, &mut self.account, &self.ends)
    }

    /// Starts to save a checkpoint, if there is anything new.
    fn start_save(&mut self) {
        let Some(save) = self.saving.begin(&self.account, self.ends.source_len()) else { return };
        self.tasks.spawn(async move { Ok(Ended::Saved(save.await)) });
    }

    /// Returns whether a checkpoint or digests are being saved.
    fn is_saving(&self) -> bool {
        self.saving.is_saving() || self.parts.digesting.as_ref().is_some_and(Digesting::is_saving)
    }

    /// Queries the devices for their queue depths, and reports progress.
    fn refresh(&mut self) {
        self.ends.refresh();
        let io_size = self.parts.cut.io_size;
        (self.reads.depth, self.writes.depth) = match self.options.queue_depth {
            Some(depth) => (Depth::fixed(depth), Depth::fixed(depth)),
            None => (
                Depth::of(io_size, |len| self.ends.source.read_depth(len)),
                Depth::of(io_size, |len| self.ends.destination.queue_depth(len)),
            ),
        };
        self.account.reporter.report_progress();
    }

    /// Returns whether everything is copied, flushed and saved.
    fn is_done(&self) -> bool {
        self.is_copied()
            && self.account.ledger.is_flushed()
            && self.flushes.has_ended()
            && self.saving.is_saved()
    }

    /// Returns whether everything is copied, so that only a flush remains.
    fn is_copied(&self) -> bool {
        self.reads.is_over()
            && self.account.ledger.next().is_none()
            && self.writes.in_flight.count == 0
            && self.parts.is_empty()
    }

    /// Ends the copy after an error, a cancel or an abandon: waits for the writes in flight, and flushes them,
    /// so that the next run need not write them again. After a failed flush there is no other flush, since it
    /// would not show that the data is durable. If the copy turns out to be complete, it succeeds.
    async fn wind_up(&mut self, error: CopyError) -> Result<(), CopyError> {
        let control = self.control.clone();
        let ending = async {
            while self.writes.in_flight.count > 0 || self.flushes.is_under_way() || self.is_saving()
            {
                let Some(ended) = self.tasks.join_next().await else { return };
                match outcome(ended) {
                    Ok(Ended::Written(task, part, result)) => {
                        _ = self.take_written(task, part, result);
                    }
                    Ok(Ended::Flushed(result)) => _ = self.take_flushed(result),
                    Ok(Ended::Saved(result)) => self.saving.end(result, &self.account.reporter),
                    Ok(Ended::Kept(lines, result)) => _ = self.take_kept(&lines, result),
                    // The data of a read is not needed any more, and the first error is enough.
                    Ok(Ended::Read(_) | Ended::Surveyed(..) | Ended::Asked(_)) | Err(_) => {}
                }
            }
            let is_last = self.is_copied();
            let is_wanted = is_last && !self.is_done() || !self.account.ledger.is_flushed();
            if is_wanted && !self.flushes.has_failed() {
                self.flushes.begin(is_last, self.account.ledger.unflushed());
                self.account.ledger.begin_flush();
                let len = is_last.then(|| self.final_len());
                let flushed = self.ends.destination.flush(len).await;
                _ = self.take_flushed(flushed);
            }
            self.start_save();
            while self.saving.is_saving() {
                match self.tasks.join_next().await.map(outcome) {
                    Some(Ok(Ended::Saved(result))) => {
                        self.saving.end(result, &self.account.reporter)
                    }
                    Some(_) => {}
                    None => return,
                }
            }
        };
        tokio::select! {
            biased;
            () = ending => {}
            () = control.at_least(Order::Abandon) => {
                return Err(CopyError::Abandoned { in_flight: self.writes.in_flight.bytes });
            }
        }
        let is_complete = matches!(error, CopyError::Cancelled) && self.is_done();
        if is_complete { Ok(()) } else { Err(error) }
    }
}

/// Returns what a task has done. A task is cancelled only when the runtime shuts down.
fn outcome(ended: Result<Result<Ended, CopyError>, JoinError>) -> Result<Ended, CopyError> {
    joined(ended).unwrap_or(Err(CopyError::Cancelled))
}
