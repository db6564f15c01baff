//! One run of a copy, and the check of its result.

use std::sync::{Arc, Mutex};

use iscsi_copy::{
    Checksums, Copied, CopyError, CopyJob, CopyOptions, Destination, Failure, RangeSet, Source,
    Verify, VerifyError,
};
use iscsi_initiator::device::{Device, DeviceError};
use iscsi_initiator::{Disk, ErrorKind};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::in_use::InUse;
use super::kept::Store;
use super::passes::Ends;
use super::source::ImageDevice;
use super::user::{Stop, lay};
use super::watch::{Watch, Watched};
use super::{Copies, Ended, Job, Kind};
use crate::rng::Rng;
use crate::settings::Class;
use crate::workload::MAX_WAIT;

/// The parts of a run.
pub(super) struct Run {
    pub(super) watch: Arc<Watch>,
    pub(super) source: Source,
    pub(super) destination: Destination,
    pub(super) stop: Option<Stop>,
    /// Whether one read of the image fails.
    fails: bool,
    /// Whether there are no faults during the run.
    is_strict: bool,
}

impl Run {
    const fn ends(&self) -> Ends<'_> {
        let Self { watch, source, destination, stop, .. } = self;
        Ends { watch, source, destination, stop: *stop }
    }
}

impl Copies<'_> {
    /// Runs the copy once. The last run must succeed.
    pub(super) async fn run(
        &mut self,
        job: &mut Job,
        done: RangeSet,
        is_last: bool,
    ) -> Result<Ended, String> {
        let (disk, has_connections) = self.host.disk().ok_or("no disk is open")?;
        let options = self.options(job.is_blank, done);
        let watch = Arc::new(Watch {
            shared: Arc::clone(&self.shared),
            judge: Arc::clone(&job.judge),
            begun: self.shared.lock().oracle.now(),
            has_connections,
            was_blind: job.is_blind,
            // Ranges that earlier runs have copied. The copy must not write them again.
            done: match job.kind {
                // The copy may write every range again, because a stream cannot skip ranges, and a source in
                // use may have changed anywhere.
                Kind::Stream | Kind::InUse => RangeSet::new(),
                Kind::Device | Kind::Unit => options.done.clone(),
            },
            max_memory: match job.kind {
                // Copies in passes also read the destination, to verify it. So their requests have no memory
                // limit here.
                Kind::InUse => usize::MAX,
                Kind::Device | Kind::Unit | Kind::Stream => {
                    options.max_memory.max(one_read(&options, &disk))
                }
            },
            counts: Mutex::default(),
            flushes: Notify::new(),
            is_crashing: Arc::clone(&self.is_crashing),
            vouching: None,
        });
        let options = self.with_checkpoint(options, job, &watch)?;
        let stop = if is_last { None } else { self.stop() };
        let is_image = matches!(job.kind, Kind::Device | Kind::InUse);
        let fails = !is_last && is_image && self.rng.percent(10);
        let source = self.source(job, &watch, fails);
        let destination = Watched { disk, watch: Arc::clone(&watch), is_source: false };
        let destination = Destination::device(destination);
        let is_strict = is_last || self.host.is_strict;
        let run = Run { watch, source, destination, stop, fails, is_strict };
        self.trace_run(&run, &options);
        let (ended, rest) = match &job.in_use {
            Some(in_use) => Box::pin(self.run_passes(run.ends(), options, in_use, is_last)).await?,
            None => (self.run_once(&run, options).await?, RangeSet::new()),
        };
        self.requests += run.watch.requests();
        job.is_blind |= run.watch.is_blind(&self.shared.lock());
        match ended {
            Some(Ok(copied)) => {
                self.has_copied(job, &run, &copied)?;
                if let Some(checksums) = copied.checksums {
                    let is_at_rest = job.in_use.as_ref().is_none_or(InUse::is_frozen);
                    let rest = if is_at_rest { rest } else { RangeSet::new() };
                    self.verify(&run, checksums, rest).await?;
                }
                Ok(Ended::Well)
            }
            Some(Err(failure)) => self.has_failed(job, &run, &failure),
            None => {
                self.check(job, &run)?;
                Ok(if stop == Some(Stop::Kill) { Ended::Killed } else { Ended::Badly })
            }
        }
    }

    /// Runs the copy to its end. Returns `None` if the user drops it before that.
    async fn run_once(
        &mut self,
        run: &Run,
        options: CopyOptions,
    ) -> Result<Option<Result<Copied, Failure>>, String> {
        let copy = CopyJob::new(run.source.clone(), run.destination.clone()).with_options(options);
        let user = lay(copy.control(), &run.watch, self.rng.fork(), run.stop);
        let copying = async {
            tokio::select! {
                biased;
                ended = copy.run() => Some(ended),
                () = user => None,
            }
        };
        self.in_time("a copy", copying).await
    }

    /// Waits for a future while faults happen. After a time limit the faults end, and the future has to complete.
    pub(super) async fn in_time<T>(
        &mut self,
        what: &str,
        running: impl Future<Output = T>,
    ) -> Result<T, String> {
        let mut running = Box::pin(running);
        let limit = self.rng.millis(10_000..600_000);
        if let Ok(ended) = timeout(limit, &mut running).await {
            return Ok(ended);
        }
        self.mend();
        let ended = timeout(MAX_WAIT, running).await;
        ended.map_err(|_| format!("{what} goes on {MAX_WAIT:?} after the last fault"))
    }

    pub(super) fn options(&mut self, is_blank: bool, done: RangeSet) -> CopyOptions {
        let rng = &mut self.rng;
        let mut options = CopyOptions::default()
            .with_max_memory(1 << rng.within(13..21))
            .with_checksums(rng.percent(60))
            .with_destination_is_zero(is_blank && rng.percent(50))
            .with_flush_bytes(1 << rng.within(12..19))
            .with_flush_interval(rng.any_scale(30_000))
            .with_done(done);
        if rng.percent(85) {
            options = options.with_io_size(1 << rng.within(12..16));
        }
        if rng.percent(60) {
            options = options.with_queue_depth(rng.index(1..17));
        }
        let granularity = (!rng.percent(20)).then(|| 512 << rng.within(0..7));
        options.with_zero_granularity(granularity)
    }

    fn with_checkpoint(
        &mut self,
        options: CopyOptions,
        job: &Job,
        watch: &Arc<Watch>,
    ) -> Result<CopyOptions, String> {
        // Some runs store no checkpoint: an older checkpoint stays true. For a source in use it would not stay
        // true, since the changes that the source has reported are not reported again.
        if self.rng.percent(20) && job.in_use.is_none() {
            return Ok(options);
        }
        let (source, destination) = (job.identity.clone(), self.destination()?);
        let (kept, watch) = (self.kept.clone(), Arc::clone(watch));
        let rng = Mutex::new(self.rng.fork());
        Ok(options.with_checkpoint(Store { kept, watch, source, destination, rng }))
    }

    fn stop(&mut self) -> Option<Stop> {
        match self.rng.within(0..10) {
            0..2 => Some(Stop::Cancel),
            2 => Some(Stop::Abandon),
            3..5 if self.faults.has(Class::Dropped) => Some(Stop::Drop),
            5..7 if self.faults.has(Class::Death) => Some(Stop::Kill),
            _ => None,
        }
    }

    fn source(&mut self, job: &Job, watch: &Arc<Watch>, fails: bool) -> Source {
        let rng: Rng = self.rng.fork();
        match (job.kind, &self.unit) {
            (Kind::Unit, Some(unit)) => {
                let (disk, watch) = (unit.clone(), Arc::clone(watch));
                Source::device(Watched { disk, watch, is_source: true })
            }
            (Kind::Stream, _) => {
                let len = job.image.bytes.len() as u64;
                Source::stream(job.image.stream(rng), self.rng.percent(50).then_some(len))
            }
            (Kind::Device | Kind::Unit | Kind::InUse, _) => {
                let (image, in_use) = (job.image.clone(), job.in_use.clone());
                Source::device(ImageDevice::drawn(image, in_use, Arc::clone(watch), fails, rng))
            }
        }
    }

    fn trace_run(&self, run: &Run, options: &CopyOptions) {
        let io_size = options.io_size.unwrap_or(0) as u64;
        let depth = options.queue_depth.unwrap_or(0) as u64;
        let what = format!("a run, to be stopped by {:?}", run.stop);
        self.shared.lock().trace.record(&what, &[options.done.bytes(), io_size, depth]);
    }

    /// Checks the destination and the checkpoint after a run.
    fn check(&self, job: &Job, run: &Run) -> Result<(), String> {
        let world = self.shared.lock();
        job.judge.image(&world)?;
        drop(world);
        let kept = self.kept.load(&job.identity, &self.destination()?).ok().flatten();
        let world = self.shared.lock();
        let claims = run.watch.claims(&world, &kept.unwrap_or_default());
        claims.map_err(|why| format!("a checkpoint that is kept: {why}"))
    }

    fn has_copied(&self, job: &Job, run: &Run, copied: &Copied) -> Result<(), String> {
        self.check(job, run)?;
        let mut world = self.shared.lock();
        world.trace.record("copied", &[]);
        let all = run.watch.claims(&world, &job.judge.all());
        all.map_err(|why| format!("a copy has ended well: {why}"))?;
        let (len, progress) = (job.image.bytes.len() as u64, copied.progress);
        if (progress.done, progress.flushed) != (len, len) {
            return Err(format!("a copy of {len} bytes has ended well with {progress:?}"));
        }
        Ok(())
    }

    /// Returns whether the unit was too small for the image at any time.
    fn has_shrunk(&self, job: &Job) -> bool {
        let world = self.shared.lock();
        let bytes = world.lun.min_blocks() * u64::from(world.lun.disk().block_size());
        bytes < job.image.bytes.len() as u64
    }

    /// Judges a copy that has failed: there has to be a reason.
    fn has_failed(&self, job: &Job, run: &Run, failure: &Failure) -> Result<Ended, String> {
        let error = &failure.error;
        self.shared.lock().trace.record(&format!("not copied: {error}"), &[]);
        self.check(job, run)?;
        let of_disk = error.device().and_then(DeviceError::source_as::<iscsi_initiator::Error>);
        let may_fail = match error {
            CopyError::Cancelled => matches!(run.stop, Some(Stop::Cancel | Stop::Abandon)),
            CopyError::Abandoned { .. } => run.stop == Some(Stop::Abandon),
            CopyError::Source(_) => run.fails || job.kind == Kind::Unit && !run.is_strict,
            CopyError::Destination(_) | CopyError::Flush(_) => !run.is_strict && of_disk.is_some(),
            CopyError::TooSmall { .. } | CopyError::Overflow { .. } => {
                !run.is_strict && self.has_shrunk(job)
            }
            CopyError::Shrunk | CopyError::ReadOnly | _ => false,
        };
        if !may_fail {
            return Err(format!("a copy has failed without a reason: {error}"));
        }
        let is_of_no_use =
            of_disk.is_some_and(|error| error.kind() == ErrorKind::UnitChanged || is_over(error));
        Ok(if is_of_no_use { Ended::Unusable } else { Ended::Badly })
    }

    /// Verifies the destination by the checksums of the copy; the ranges `rest` have none. A mismatch is no violation if the unit
    /// may have been another one or smaller meanwhile.
    async fn verify(
        &mut self,
        run: &Run,
        checksums: Checksums,
        rest: RangeSet,
    ) -> Result<(), String> {
        let bytes = checksums.bytes() + rest.bytes();
        let verify = Verify::new(run.source.clone(), &run.destination, checksums);
        let verify = verify.map_err(|error| error.to_string())?.with_earlier(rest);
        let verified = self.in_time("a verification", verify.run()).await?;
        let world = self.shared.lock();
        let is_there = world.lun.min_blocks() == world.lun.blocks();
        let may_differ = run.watch.is_blind(&world) || !is_there;
        drop(world);
        match verified {
            Ok(progress) if progress.done == bytes => Ok(()),
            Err(VerifyError::Mismatch(_)) if may_differ => Ok(()),
            Err(VerifyError::Destination(_)) if !run.is_strict => Ok(()),
            Err(VerifyError::Source(_)) if run.fails => Ok(()),
            Ok(progress) => Err(format!("{bytes} bytes were verified with {progress:?}")),
            Err(error) => Err(format!("a copy has ended well, but: {error}")),
        }
    }
}

/// Returns the length of one read of a stream. The copy makes a read of this length even if the memory limit is
/// smaller.
fn one_read(options: &CopyOptions, disk: &Disk) -> usize {
    let wanted = options.io_size.unwrap_or_else(|| disk.limits().preferred_transfer);
    wanted.next_multiple_of(usize::try_from(disk.block_size()).unwrap_or(1))
}

/// Returns whether the disk is unusable after this error.
fn is_over(error: &iscsi_initiator::Error) -> bool {
    error.is_of_session() || error.reconnect_error().is_some()
}
