//! Copies a source in use, in passes.
//!
//! ```text
//!   first pass ──► get changes ──► copy changes ──► ... ──► freeze ──► get changes ──► last pass
//!                       ▲               │
//!                       └───────────────┘
//! ```
//! Invariant: the checkpoint is cleared before the passes query the changes, because [`Changes`] forgets what
//! it has reported. After the report, the checkpoint records everything but the reported changes as done.

pub(crate) mod changes;
mod checkpoints;
pub(crate) mod forecast;

use std::io;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use iscsi_block_device::RangeSet;
use thiserror::Error as ThisError;
use tokio::time::Instant;

use crate::boxed::{BoxFuture, boxed};
use crate::digests::file::DigestFile;
use crate::ends::destination::Destination;
use crate::ends::source::Source;
use crate::job::CopyJob;
use crate::job::copied::Copied;
use crate::job::options::CopyOptions;
use crate::progress::Progress;
use crate::verify::checksums::Checksums;
use changes::Changes;
use checkpoints::PassCheckpoints;
use forecast::{Forecast, Pass, Verdict};

/// Copies a source while other programs write to it: first all of it, and then, pass by pass, its
/// [changes](Changes), until the next pass is short enough to be made while writes are stopped.
///
/// Each pass is a separate [copy](CopyJob), which reads the changed ranges again and flushes at its end. It
/// can be paused and cancelled, and repeated if it fails. Checkpoints and digests stay valid from pass to
/// pass, even if the process is killed between two passes. But the target may execute requests of a killed
/// process after those of the next process, so that older data remains. If the next process has the same ISID
/// (`iscsi_initiator::Advanced::with_isid`) and opens as many sessions, the target ends the old sessions
/// first.
///
/// ```no_run
/// # use std::time::Duration;
/// # use iscsi_copy::{Changes, Destination, Forecast, CopyOptions, Passes, Source};
/// # async fn example(
/// #     source: Source,
/// #     destination: Destination,
/// #     changes: impl Changes + 'static,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// let forecast = Forecast::new(Duration::from_secs(2), 30);
/// let mut passes = Passes::new(source, destination, CopyOptions::default(), changes, forecast)?;
/// while let Some(copy) = passes.next().await? {
///     passes.add_copied(copy.run().await?);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Passes {
    source: Source,
    destination: Destination,
    options: CopyOptions,
    changes: Box<dyn Changes>,
    forecast: Forecast,
    stops_at_divergence: bool,
    state: State,
    total: Total,
    ended: Vec<EndedPass>,
}

/// The state of all passes together.
#[derive(Debug)]
struct Total {
    /// The ranges that any pass has copied, or is to copy.
    covered: RangeSet,
    /// The part of `covered` that the next or the running pass copies.
    left: RangeSet,
    unreadable: RangeSet,
    checksums: Option<Checksums>,
    /// The sum over the passes that have ended.
    progress: Progress,
}

/// A pass that has ended, and what follows from it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EndedPass {
    /// The progress of the pass, which is complete.
    pub progress: Progress,
    /// Time from the beginning of the pass to the end of its last flush.
    pub time: Duration,
    /// Bytes written to the source during the pass; `None` until the changes are known, and after the last
    /// pass.
    pub dirtied: Option<u64>,
    /// The decision about the next step; `None` until the changes are known.
    pub verdict: Option<Verdict>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// A pass is to be made (`since` is `None`), or was returned to the caller at `since`.
    Copying { is_last: bool, since: Option<Instant> },
    /// The changes are to be queried next.
    Asking,
    /// The last pass has ended.
    Ended,
    /// The changes were queried, and the report is lost.
    Unknown,
}

/// Reasons why there is no further pass.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum PassesError {
    /// The source or the destination is a stream, no part of which can be copied again.
    #[error("a stream cannot be copied in passes")]
    Stream,
    /// The changes in the source could not be determined.
    #[error("what has changed is not known: {0}")]
    Changes(#[source] io::Error),
    /// The writes to the source could not be stopped, so they may continue.
    #[error("writes to the source cannot be stopped: {0}")]
    Freeze(#[source] io::Error),
    /// The checkpoint could not be overwritten before the changes were requested. It still says that
    /// everything is copied.
    #[error("checkpoint: {0}")]
    Checkpoint(#[source] io::Error),
    /// The changes were requested before, and the answer was lost. The source does not report them again.
    #[error(
        "what has changed was reported before, and the report was lost; copy again from the start"
    )]
    Unknown,
    /// A pass that keeps digests has failed. It cannot be repeated with the digests that were known at its
    /// beginning, because some of them are not valid any more.
    #[error(
        "a pass that keeps digests is made once: open their file again, and begin with what the checkpoint says"
    )]
    Digests,
}

impl Passes {
    /// Creates the passes from a source to the same offsets of a destination. The first pass copies the ranges
    /// that the options set; the rest of the source counts as done.
    ///
    /// # Errors
    /// [`PassesError::Stream`].
    pub fn new(
        source: Source,
        destination: Destination,
        options: CopyOptions,
        changes: impl Changes + 'static,
        forecast: Forecast,
    ) -> Result<Self, PassesError> {
        let device = source.device_ref().filter(|_| !destination.is_sequential());
        let len = device.ok_or(PassesError::Stream)?.capacity();
        let first = options.ranges.clone().unwrap_or_else(|| (0..len).into());
        let first = widened(&first, options.digests.as_ref(), len);
        Ok(Self {
            source,
            destination,
            options,
            changes: Box::new(changes),
            forecast,
            stops_at_divergence: false,
            state: State::Copying { is_last: false, since: None },
            total: Total::new(first),
            ended: Vec::new(),
        })
    }

    /// Sets what happens if more passes do not make the last one shorter. With `true`, writes are not stopped:
    /// one more pass copies the reported changes, and it is the last. With `false`, writes are stopped, and
    /// the last pass is made however long it takes.
    #[must_use]
    pub const fn with_stop_at_divergence(mut self, stops: bool) -> Self {
        self.stops_at_divergence = stops;
        self
    }

    /// Returns the next pass, to be run and [added](Self::add_copied); `None` after the last. Before each pass
    /// but the first, it queries the changes. A pass whose result was not added is returned again, unless it
    /// keeps digests. If that pass was abandoned or dropped, its writes in flight must not be executed after
    /// those of the repeated pass: a `Disk` of `iscsi-initiator` ensures that, a file does not.
    ///
    /// # Errors
    /// The reason why there is no further pass. After any error but [`PassesError::Freeze`], the checkpoint of
    /// an earlier run is not valid any more.
    pub async fn next(&mut self) -> Result<Option<CopyJob>, PassesError> {
        if let State::Asking = self.state {
            // If this future is dropped, the changes are unknown.
            self.state = State::Unknown;
            let is_last = self.decide().await?;
            self.state = State::Copying { is_last, since: None };
        }
        match &mut self.state {
            State::Copying { since: Some(_), .. } if self.options.digests.is_some() => {
                Err(PassesError::Digests)
            }
            State::Copying { since, .. } => {
                *since = Some(Instant::now());
                Ok(Some(self.pass()))
            }
            State::Asking | State::Unknown => Err(PassesError::Unknown),
            State::Ended => Ok(None),
        }
    }

    /// Adds the result of the [next](Self::next) pass, which has ended.
    pub fn add_copied(&mut self, copied: Copied) {
        let State::Copying { is_last, since: Some(since) } = self.state else { return };
        let (progress, time) = (copied.progress, since.elapsed());
        self.state = if is_last { State::Ended } else { State::Asking };
        self.total.add(&progress, &copied.unreadable, copied.checksums);
        self.options.digests = copied.digests;
        self.ended.push(EndedPass { progress, time, dirtied: None, verdict: None });
    }

    /// Returns the passes that have ended, in order.
    pub fn ended(&self) -> &[EndedPass] {
        &self.ended
    }

    /// Returns whether the current pass is the last one.
    pub const fn is_last(&self) -> bool {
        matches!(self.state, State::Copying { is_last: true, .. } | State::Ended)
    }

    /// Returns the ranges that the next or the running pass copies.
    pub const fn left(&self) -> &RangeSet {
        &self.total.left
    }

    /// Returns the ranges that the medium of the source could not read in the passes that have ended, without
    /// the ranges that are [left](Self::left).
    pub fn unreadable(&self) -> RangeSet {
        self.total.unreadable()
    }

    /// Returns the progress of all passes together; `of_pass` is the progress of the running pass. Changes
    /// that are to be copied again do not count as done.
    pub fn progress(&self, of_pass: &Progress) -> Progress {
        self.total.progress(of_pass)
    }

    /// Returns the result of all passes together.
    pub fn into_copied(self) -> Copied {
        let progress = self.progress(&Progress::default());
        let Self { total: Total { unreadable, checksums, .. }, options, .. } = self;
        Copied { progress, unreadable, checksums, digests: options.digests }
    }

    /// Returns the ranges that were copied and have no checksum, because an earlier run has copied them, or
    /// because a later pass has copied a part of a range with a checksum. They can be
    /// [verified](crate::Verify::with_earlier) as long as the source does not change.
    pub fn without_checksum(&self) -> RangeSet {
        let known = self.total.checksums.as_ref().map(Checksums::ranges).unwrap_or_default();
        self.total.covered.without(&known).without(&self.total.unreadable)
    }

    /// Returns the pass over the ranges that are left.
    fn pass(&mut self) -> CopyJob {
        let mut options = self.options.clone();
        // This pass writes data, so for later passes the destination does not read as zeros.
        self.options.destination_is_zero = false;
        if !self.ended.is_empty() {
            (options.ranges, options.done) = (Some(self.total.left.clone()), RangeSet::new());
        }
        if let Some(store) = options.checkpoint.take() {
            let unreadable = self.unreadable();
            let flushed = self.all().without(&self.total.left).without(&unreadable);
            options.checkpoint = Some(Arc::new(PassCheckpoints { store, flushed, unreadable }));
        }
        CopyJob::new(self.source.clone(), self.destination.clone()).with_options(options)
    }

    /// Queries the changes if needed, and returns whether the next pass is the last.
    fn decide(&mut self) -> BoxFuture<'_, Result<bool, PassesError>> {
        boxed(async move {
            self.ask().await?;
            let dirtied = self.total.left.bytes();
            let Some(ended) = self.ended.last_mut() else { return Err(PassesError::Unknown) };
            // Skipped ranges took no time, so they do not count in the rate.
            let copied = ended.progress.written + ended.progress.zeros_written;
            let verdict = self.forecast.add_pass(Pass { copied, time: ended.time, dirtied });
            (ended.dirtied, ended.verdict) = (Some(dirtied), Some(verdict));
            let freezes = match verdict {
                Verdict::Again { .. } => return Ok(false),
                Verdict::Last { .. } => true,
                Verdict::Diverges { .. } => !self.stops_at_divergence,
            };
            if freezes && self.freeze().await? {
                self.ask().await?;
            }
            Ok(true)
        })
    }

    /// Stops all writes to the source, and returns whether that is supported.
    async fn freeze(&mut self) -> Result<bool, PassesError> {
        let Some(frozen) = self.changes.freeze() else { return Ok(false) };
        frozen.await.map_err(PassesError::Freeze)?;
        Ok(true)
    }

    /// Queries the changes, and marks them as to be copied.
    async fn ask(&mut self) -> Result<(), PassesError> {
        self.keep(RangeSet::new()).await.map_err(PassesError::Checkpoint)?;
        let changed = self.changes.changed().await.map_err(PassesError::Changes)?;
        let len = self.source.length().unwrap_or_default();
        let changed = widened(&changed, self.options.digests.as_ref(), len);
        self.total.change(&changed);
        let flushed = self.all().without(&self.total.left).without(&self.total.unreadable);
        // A failure is ignored: the checkpoint then records less than it could, and the next flush saves it again.
        _ = self.keep(flushed).await;
        Ok(())
    }

    async fn keep(&self, flushed: RangeSet) -> io::Result<()> {
        let Some(store) = &self.options.checkpoint else { return Ok(()) };
        let total = self.source.length().unwrap_or_default();
        store.keep(flushed, self.unreadable(), total).await
    }

    fn all(&self) -> RangeSet {
        (0..self.source.length().unwrap_or_default()).into()
    }
}

impl Total {
    /// Creates the state before the first pass, which copies `first`.
    fn new(first: RangeSet) -> Self {
        Self {
            covered: first.clone(),
            left: first,
            unreadable: RangeSet::new(),
            checksums: None,
            progress: Progress::default(),
        }
    }

    /// Adds the result of a pass that has copied all ranges that were left.
    fn add(&mut self, of_pass: &Progress, unreadable: &RangeSet, checksums: Option<Checksums>) {
        self.progress = added(&self.progress, of_pass);
        let left = mem::take(&mut self.left);
        self.unreadable = self.unreadable.without(&left);
        self.unreadable.extend(unreadable.iter());
        match (&mut self.checksums, checksums) {
            (Some(sums), Some(later)) => sums.supersede(&left, later),
            (sums, later) => *sums = later,
        }
    }

    /// Marks the changes of the source as to be copied.
    fn change(&mut self, changed: &RangeSet) {
        self.left.extend(changed.iter());
        self.covered.extend(changed.iter());
    }

    /// Returns the ranges that the source could not read, without the ranges that are left.
    fn unreadable(&self) -> RangeSet {
        self.unreadable.without(&self.left)
    }

    /// Returns the copied ranges, without the ranges that are left.
    fn present_ranges(&self) -> RangeSet {
        self.covered.without(&self.left).without(&self.unreadable)
    }

    /// Returns the progress of all passes together; `of_pass` is the progress of the running pass.
    fn progress(&self, of_pass: &Progress) -> Progress {
        let rest = self.present_ranges().bytes();
        let mut progress = added(&self.progress, of_pass);
        progress.total = Some(self.covered.bytes());
        (progress.done, progress.flushed) = (rest + of_pass.done, rest + of_pass.flushed);
        progress.unreadable = self.unreadable().bytes() + of_pass.unreadable;
        progress
    }
}

/// Returns the parts of `ranges` that lie within the source; with digests, extended to whole blocks.
fn widened(ranges: &RangeSet, digests: Option<&DigestFile>, len: u64) -> RangeSet {
    let wide = digests.map(|file| file.known().all_widened(ranges));
    wide.as_ref().unwrap_or(ranges).overlap(&(0..len))
}

/// Returns the sums of the byte counts of two copies; `total`, `done` and `flushed` are not added.
fn added(one: &Progress, other: &Progress) -> Progress {
    Progress {
        resumed: one.resumed + other.resumed,
        read: one.read + other.read,
        written: one.written + other.written,
        zeroed: one.zeroed + other.zeroed,
        zeros_written: one.zeros_written + other.zeros_written,
        skipped: one.skipped + other.skipped,
        lost: one.lost + other.lost,
        ..Progress::default()
    }
}
