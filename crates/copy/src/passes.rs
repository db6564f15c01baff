//! A source in use, which is copied in passes.
//!
//! ```text
//!   first pass ──► what has changed? ──► pass over that ──► what has changed? ──► ... ──► freeze
//!                        ▲                     │                                            │
//!                        └─────────────────────┘        last pass ◄── what has changed? ◄───┘
//! ```
//! Invariant: before it is asked what has changed, no checkpoint says any more that something is done, because
//! whoever answers forgets what he has told; after the answer all is done but that.

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

/// Copies a source that is written to meanwhile: at first all of it, and then, pass by pass, what has
/// [changed](Changes), until one more pass is short enough to be made while writes are stopped.
///
/// Each pass is a [copy](CopyJob) of its own, which reads the source again and is flushed at its end. It may be paused and
/// cancelled, and made again if it fails. Checkpoints and digests stay true from pass to pass, also where
/// the process is killed between two of them. But what a killed process has sent may arrive after what the next one
/// sends, and is older: with the same ISID (`iscsi_initiator::Advanced::with_isid`) its sessions are ended first, by a target
/// that gets as many of them again.
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
///     passes.take(copy.run().await?);
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

/// All passes together.
#[derive(Debug)]
struct Total {
    /// What some pass has copied, or shall copy.
    covered: RangeSet,
    /// What of it the next pass shall copy, or the one that is running.
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
    /// How far it came: all of what it was to copy.
    pub progress: Progress,
    /// From its beginning to the end of its last flush.
    pub time: Duration,
    /// Bytes that were written at the source meanwhile; `None` until that is known, and after the last pass.
    pub dirtied: Option<u64>,
    /// What follows from that.
    pub verdict: Option<Verdict>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// A pass is to be made; it is under way since then.
    Copying { is_last: bool, since: Option<Instant> },
    /// It is to be found out what has changed.
    Asking,
    /// The last pass has ended.
    Ended,
    /// What has changed was asked, and is not known.
    Unknown,
}

/// The reason why no further pass can be made.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum PassesError {
    /// One of the ends is a stream, of which no part can be copied again.
    #[error("a stream cannot be copied in passes")]
    Stream,
    /// It could not be found out what has changed.
    #[error("what has changed is not known: {0}")]
    Changes(#[source] io::Error),
    /// Writes to the source may go on.
    #[error("writes to the source cannot be stopped: {0}")]
    Freeze(#[source] io::Error),
    /// The checkpoint says that all is done, and cannot be changed.
    #[error("checkpoint: {0}")]
    Checkpoint(#[source] io::Error),
    /// What has changed was asked before, and the answer was lost.
    #[error(
        "what has changed was reported before, and the report was lost; copy again from the start"
    )]
    Unknown,
    /// A pass that keeps digests has failed, and what was known of its blocks at the beginning holds no more.
    #[error(
        "a pass that keeps digests is made once: open their file again, and begin with what the checkpoint says"
    )]
    Digests,
}

impl Passes {
    /// Creates the passes from a source to the same place of a destination. The first one copies what the options say;
    /// what it leaves out counts as done.
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

    /// Sets what happens if more passes do not help. With `true` writes are not stopped then: one more pass copies what
    /// was reported, and it is the last. Otherwise the last one is made however long it takes.
    #[must_use]
    pub const fn with_stop_at_divergence(mut self, stops: bool) -> Self {
        self.stops_at_divergence = stops;
        self
    }

    /// Returns the next pass, to be run and [taken](Self::take); `None` after the last. Before all but the first it asks
    /// what has changed. A pass that was not taken is given again, unless it keeps digests. Where it was abandoned or
    /// dropped, what it was writing must not come after that: a `Disk` of `iscsi-initiator` sees to it, a file does not.
    ///
    /// # Errors
    /// Why there is no further pass. After any but [`PassesError::Freeze`], what an earlier run has left in a
    /// checkpoint does not count any more.
    pub async fn next(&mut self) -> Result<Option<CopyJob>, PassesError> {
        if let State::Asking = self.state {
            // What is dropped in the middle is not known.
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

    /// Takes the result of the [next](Self::next) pass.
    pub fn take(&mut self, copied: Copied) {
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

    /// Returns what the next pass copies, or the one that is running.
    pub const fn left(&self) -> &RangeSet {
        &self.total.left
    }

    /// Returns what the medium of the source has not given to the passes that have ended, beside what is
    /// [left](Self::left).
    pub fn unreadable(&self) -> RangeSet {
        self.total.unreadable()
    }

    /// Returns how far all passes have come, if the one that is running has come as far as `of_pass`. What has changed,
    /// and is to be copied again, is not done.
    pub fn progress(&self, of_pass: &Progress) -> Progress {
        self.total.progress(of_pass)
    }

    /// Returns the result of all passes: the source as the last one has found it.
    pub fn into_copied(self) -> Copied {
        let progress = self.progress(&Progress::default());
        let Self { total: Total { unreadable, checksums, .. }, options, .. } = self;
        Copied { progress, unreadable, checksums, digests: options.digests }
    }

    /// Returns what was copied and has no checksum, because an earlier run has copied it, or because a later pass has
    /// copied a part of what has one. It can be [verified](crate::Verify::with_earlier) while the source is not
    /// written to.
    pub fn without_checksum(&self) -> RangeSet {
        let known = self.total.checksums.as_ref().map(Checksums::ranges).unwrap_or_default();
        self.total.covered.without(&known).without(&self.total.unreadable)
    }

    /// The pass over what is left.
    fn pass(&mut self) -> CopyJob {
        let mut options = self.options.clone();
        // What this pass writes, and the one before, is not zero.
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

    /// Finds out what is left; whether the next pass is the last.
    fn decide(&mut self) -> BoxFuture<'_, Result<bool, PassesError>> {
        boxed(async move {
            self.ask().await?;
            let dirtied = self.total.left.bytes();
            let Some(ended) = self.ended.last_mut() else { return Err(PassesError::Unknown) };
            // What was left alone was no work.
            let copied = ended.progress.written + ended.progress.zeros_written;
            let verdict = self.forecast.take(Pass { copied, time: ended.time, dirtied });
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

    /// Keeps everybody from writing, if that can be done.
    async fn freeze(&mut self) -> Result<bool, PassesError> {
        let Some(frozen) = self.changes.freeze() else { return Ok(false) };
        frozen.await.map_err(PassesError::Freeze)?;
        Ok(true)
    }

    /// Asks what has changed, and takes it back.
    async fn ask(&mut self) -> Result<(), PassesError> {
        self.keep(RangeSet::new()).await.map_err(PassesError::Checkpoint)?;
        let changed = self.changes.changed().await.map_err(PassesError::Changes)?;
        let len = self.source.length().unwrap_or_default();
        let changed = widened(&changed, self.options.digests.as_ref(), len);
        self.total.change(&changed);
        let flushed = self.all().without(&self.total.left).without(&self.total.unreadable);
        // Where that fails the checkpoint says less than it could, and the next flush tries again.
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
    /// The first pass copies `first`.
    fn new(first: RangeSet) -> Self {
        Self {
            covered: first.clone(),
            left: first,
            unreadable: RangeSet::new(),
            checksums: None,
            progress: Progress::default(),
        }
    }

    /// Adds a pass that has copied all that was left.
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

    /// Takes back what has changed at the source.
    fn change(&mut self, changed: &RangeSet) {
        self.left.extend(changed.iter());
        self.covered.extend(changed.iter());
    }

    /// What is not given by the source, beside what is left.
    fn unreadable(&self) -> RangeSet {
        self.unreadable.without(&self.left)
    }

    /// What is at the destination, beside what is left.
    fn settled(&self) -> RangeSet {
        self.covered.without(&self.left).without(&self.unreadable)
    }

    /// How far all passes have come, if the one that is running has come as far as `of_pass`.
    fn progress(&self, of_pass: &Progress) -> Progress {
        let rest = self.settled().bytes();
        let mut progress = added(&self.progress, of_pass);
        progress.total = Some(self.covered.bytes());
        (progress.done, progress.flushed) = (rest + of_pass.done, rest + of_pass.flushed);
        progress.unreadable = self.unreadable().bytes() + of_pass.unreadable;
        progress
    }
}

/// What of these bytes the source has; of digests, the blocks that have some of them.
fn widened(ranges: &RangeSet, digests: Option<&DigestFile>, len: u64) -> RangeSet {
    let wide = digests.map(|file| file.known().all_widened(ranges));
    wide.as_ref().unwrap_or(ranges).overlap(&(0..len))
}

/// What two copies have done together; how far they came is not among it.
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
