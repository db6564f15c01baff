//! One run of a command line: a process from its beginning to its end, however it ends.

use std::future::pending;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use iscsi_copy::{
    Copied, CopyError, CopyJob, CopyOptions, Destination, Digests, Failure, Identity, RangeSet,
    Source, Verify, VerifyError,
};
use iscsi_initiator::device::DeviceError;
use iscsi_testkit::fault::Fault;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::kept::{Keeping, work};
use super::process::Process;
use super::vouching::DIGESTS;
use super::{RepeatedCopy, Verifies};
use crate::copy::Ended;
use crate::copy::judge::Judge;
use crate::copy::passes::Ends;
use crate::copy::source::ImageDevice;
use crate::copy::user::{Stop, lay};
use crate::copy::watch::{Watch, Watched};
use crate::rng::Rng;
use crate::settings::Class;
use crate::world::{MAX_LATE, World};

/// Longest delay before a process begins to copy or is killed, milliseconds.
const MAX_BEGINNING: u64 = 4000;

/// Interval at which the task that kills a process checks for a delayed write.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// When a process is killed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    Any,
    /// While a target delays a write of the process.
    WithLateWrites,
    /// After the copy of the process has ended. A target may still have a delayed write that was also sent over
    /// a second session.
    AfterTheCopy,
}

/// One run of a command line: the process, its copy, and how it is stopped.
struct CurrentRun {
    process: Process,
    watch: Arc<Watch>,
    source: Source,
    destination: Destination,
    stop: Option<Stop>,
    end: End,
    /// Whether one read of the image fails.
    fails: bool,
    is_strict: bool,
}

impl RepeatedCopy<'_> {
    /// Runs the command line once. In the last run there are no faults.
    pub(super) async fn run(&mut self, is_last: bool) -> Result<Ended, String> {
        let rng = &mut self.copies.rng;
        // In most runs all portals are reachable, so the run can end the sessions that an earlier run has left
        // at the targets.
        if is_last || rng.percent(60) {
            self.copies.mend();
        }
        let has_errors = !is_last && self.copies.faults.has(Class::Medium);
        self.files.fail(has_errors && self.copies.rng.percent(50));
        let max_pause = if self.copies.rng.percent(50) { 20_000 } else { 2 };
        let pause = self.copies.rng.any_scale(max_pause);
        if !is_last && self.copies.going_wrong.is_none() {
            self.copies.go_wrong_after(pause);
        }
        self.copies.open(0).await?;
        let process = Process::new(&self.files, &self.vouching, self.copies.rng.fork());
        let ended = Box::pin(self.run_in(&process, is_last)).await?;
        if ended == Ended::Killed {
            process.end();
            if self.copies.settings.has(Class::Crash) && self.copies.rng.percent(30) {
                self.count("the host crashes");
                self.files.crash();
            }
            self.count("a process is killed");
            self.copies.die();
        } else {
            self.copies.leave(true).await?;
            process.end();
        }
        self.vouching.judge();
        Ok(ended)
    }

    async fn run_in(&mut self, process: &Process, is_last: bool) -> Result<Ended, String> {
        let source =
            Identity::new(&format!("image {}", self.images), self.image.bytes.len() as u64);
        let judge = {
            let world = self.copies.shared.lock();
            Arc::new(Judge::new(self.image.bytes.clone(), self.in_use.clone(), &world))
        };
        self.vouching.copies(source.clone(), &judge);
        let stop = if is_last { None } else { self.stop() };
        let keeping = self.keep(process.clone(), source);
        let keeping = if stop == Some(Stop::Kill) && self.copies.rng.percent(10) {
            let life = self.copies.rng.any_scale(MAX_BEGINNING);
            match timeout(life, keeping).await {
                Ok(keeping) => keeping,
                Err(_) => return Ok(Ended::Killed),
            }
        } else {
            keeping.await
        };
        let keeping = match keeping {
            Ok(keeping) => keeping,
            Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(Ended::Badly),
            Err(error) => return Err(format!("what is kept of copies: {error}")),
        };
        let options = self.options(&keeping);
        let current = self.current_run(process, &judge, &options, stop, is_last)?;
        let ended = self.copy(&current, options).await?;
        self.copies.requests += current.watch.requests();
        self.vouching.judge();
        let is_killed_late = stop == Some(Stop::Kill)
            && (self.copies.rng.percent(50) || current.end == End::AfterTheCopy);
        match ended {
            Some(Ok(copied)) => {
                self.has_copied(&current, &copied)?;
                let ended = self.verify(&current, copied, &keeping).await?;
                Ok(if is_killed_late { Ended::Killed } else { ended })
            }
            Some(Err(failure)) => {
                let ended = self.has_failed(&current, &failure)?;
                Ok(if is_killed_late { Ended::Killed } else { ended })
            }
            None if stop == Some(Stop::Kill) => Ok(Ended::Killed),
            None => Ok(Ended::Badly),
        }
    }

    fn stop(&mut self) -> Option<Stop> {
        let may_die = self.copies.settings.has(Class::Death);
        match self.copies.rng.within(0..10) {
            0 => Some(Stop::Cancel),
            1 => Some(Stop::Abandon),
            2 if self.copies.settings.has(Class::Dropped) => Some(Stop::Drop),
            3..7 if may_die => Some(Stop::Kill),
            _ => None,
        }
    }

    fn options(&mut self, keeping: &Keeping) -> CopyOptions {
        let Keeping { digests, checkpoint, done } = keeping;
        let options = self.copies.options(false, done.clone().unwrap_or_default());
        let options = options
            .with_destination_is_zero(self.line.states_zero && done.is_none())
            .with_checksums(self.line.verifies == Verifies::Read)
            .with_digests(digests.clone());
        match checkpoint {
            Some(file) => options.with_checkpoint(file.clone()),
            None => options,
        }
    }

    fn current_run(
        &mut self,
        process: &Process,
        judge: &Arc<Judge>,
        options: &CopyOptions,
        stop: Option<Stop>,
        is_last: bool,
    ) -> Result<CurrentRun, String> {
        let (disk, has_connections) = self.copies.host.disk().ok_or("no disk is open")?;
        let fails = !is_last && self.copies.rng.percent(5);
        let ends = [End::Any, End::WithLateWrites, End::AfterTheCopy];
        let end = self.copies.rng.pick(&ends).copied().unwrap_or(End::Any);
        let is_late = stop == Some(Stop::Kill) && self.copies.settings.has(Class::Zombie);
        let end = if is_late { end } else { End::Any };
        let watch = Arc::new(Watch {
            shared: Arc::clone(&self.copies.shared),
            judge: Arc::clone(judge),
            begun: self.copies.shared.lock().oracle.now(),
            has_connections,
            was_blind: false,
            // The source may have changed anywhere, so every range may be copied again.
            done: if self.in_use.is_some() { RangeSet::new() } else { options.done.clone() },
            max_memory: usize::MAX,
            counts: std::sync::Mutex::default(),
            flushes: Notify::new(),
            is_crashing: Arc::clone(&self.copies.is_crashing),
            vouching: Some(Arc::clone(&self.vouching)),
        });
        let (image, rng) = (self.image.clone(), self.copies.rng.fork());
        let in_use = self.in_use.clone();
        let source = ImageDevice::drawn(image, in_use, Arc::clone(&watch), fails, rng);
        let destination = Watched { disk, watch: Arc::clone(&watch), is_source: false };
        let known = options.digests.as_ref().map_or(0, |digests| digests.known().bytes());
        let what = format!("a run, to be stopped by {stop:?}");
        watch.shared.lock().trace.record(&what, &[options.done.bytes(), known]);
        let (process, source) = (process.clone(), Source::device(source));
        let destination = Destination::device(destination);
        let is_strict = is_last || self.copies.host.is_strict;
        Ok(CurrentRun { process, watch, source, destination, stop, end, fails, is_strict })
    }

    /// Copies until the end, or until the process is killed.
    async fn copy(
        &mut self,
        current: &CurrentRun,
        options: CopyOptions,
    ) -> Result<Option<Result<Copied, Failure>>, String> {
        let (end, rng) = (current.end, self.copies.rng.fork());
        let of_user = rng.beside(1);
        let stop = current.stop.filter(|_| end == End::Any);
        if end != End::Any {
            let world = &mut self.copies.shared.lock();
            put_off(world, &mut self.copies.rng);
        }
        let dying = async {
            match end {
                End::WithLateWrites => die_with_late_writes(&current.watch, rng).await,
                End::Any | End::AfterTheCopy => pending().await,
            }
        };
        if let Some(in_use) = &self.in_use {
            let CurrentRun { watch, source, destination, is_strict, .. } = current;
            let ends = Ends { watch, source, destination, stop };
            let passing = Box::pin(self.copies.run_passes(ends, options, in_use, *is_strict));
            return tokio::select! {
                biased;
                ended = passing => ended.map(|(ended, _)| ended),
                () = dying => Ok(None),
            };
        }
        let copy = CopyJob::new(current.source.clone(), current.destination.clone());
        let copy = copy.with_options(options);
        let user = lay(copy.control(), &current.watch, of_user, stop);
        let copying = async {
            tokio::select! {
                biased;
                ended = copy.run() => Some(ended),
                () = user => None,
                () = dying => None,
            }
        };
        self.copies.in_time("a copy", copying).await
    }

    /// Checks a copy that succeeded: the destination must equal the source.
    fn has_copied(&self, current: &CurrentRun, copied: &Copied) -> Result<(), String> {
        let mut world = current.watch.shared.lock();
        self.vouching
            .is_all_there(&world)
            .map_err(|why| format!("a copy has ended well: {why}"))?;
        let (len, progress) = (self.image.bytes.len() as u64, copied.progress);
        if (progress.done, progress.flushed) != (len, len) {
            return Err(format!("a copy of {len} bytes has ended well with {progress:?}"));
        }
        world.counts.repeated_copy("a copy ends well");
        if self.line.has_passes {
            world.counts.repeated_copy("passes end well");
        }
        if progress.skipped > 0 {
            world.counts.repeated_copy("blocks are left out");
        }
        Ok(())
    }

    fn has_failed(&self, current: &CurrentRun, failure: &Failure) -> Result<Ended, String> {
        let error = &failure.error;
        current.watch.shared.lock().trace.record(&format!("not copied: {error}"), &[]);
        let may_fail = match error {
            CopyError::Cancelled => matches!(current.stop, Some(Stop::Cancel | Stop::Abandon)),
            CopyError::Abandoned { .. } => current.stop == Some(Stop::Abandon),
            CopyError::Source(_) => current.fails,
            CopyError::Destination(_) | CopyError::Flush(_) => {
                let cause =
                    error.device().and_then(DeviceError::source_as::<iscsi_initiator::Error>);
                !current.is_strict && cause.is_some()
            }
            CopyError::Digests(cause) => {
                !current.is_strict && cause.kind() == ErrorKind::StorageFull
            }
            CopyError::TooSmall { .. } | CopyError::Overflow { .. } | CopyError::Shrunk | _ => {
                false
            }
        };
        if may_fail {
            return Ok(Ended::Badly);
        }
        Err(format!("a copy has failed without a reason: {error}"))
    }

    /// Verifies the destination as the command line says. After a mismatch all digests are dropped.
    async fn verify(
        &mut self,
        current: &CurrentRun,
        copied: Copied,
        keeping: &Keeping,
    ) -> Result<Ended, String> {
        let verify = match (self.line.verifies, copied.checksums) {
            (Verifies::Read, Some(sums)) => {
                let verify = Verify::new(current.source.clone(), &current.destination, sums);
                verify.map(|verify| verify.with_earlier(keeping.done.clone().unwrap_or_default()))
            }
            (Verifies::Digests, _) => {
                let destination = self.copies.destination()?;
                let known = Digests::load_on(&current.process, DIGESTS, &destination);
                let known = known.map_err(|error| format!("digests that were kept: {error}"))?;
                let known = known.ok_or("there are no digests")?;
                Verify::by_digests(&current.destination, known)
            }
            (Verifies::Nothing | Verifies::Read, _) => return Ok(Ended::Well),
        };
        let verify = verify.map_err(|error| error.to_string())?;
        let by_others = self.vouching.by_others();
        match self.copies.in_time("a verification", verify.run()).await? {
            Ok(_) => Ok(Ended::Well),
            Err(VerifyError::Mismatch(_)) if !by_others.is_empty() => {
                self.forget(current, keeping).await
            }
            Err(VerifyError::Mismatch(_)) if self.vouching.is_unproven() => Ok(Ended::Badly),
            Err(VerifyError::Destination(_)) if !current.is_strict => Ok(Ended::Badly),
            Err(VerifyError::Source(_)) if current.fails => Ok(Ended::Badly),
            Err(error) => Err(format!("a copy has ended well, but: {error}")),
        }
    }

    async fn forget(&mut self, current: &CurrentRun, keeping: &Keeping) -> Result<Ended, String> {
        self.count("a copy differs");
        if let Some(file) = keeping.checkpoint.clone() {
            let total = self.image.bytes.len() as u64;
            let forget = move || file.store(RangeSet::new(), RangeSet::new(), total);
            if work(&current.process, forget).await.is_err() {
                return Ok(Ended::Badly);
            }
        }
        let file = keeping.digests.clone();
        if work(&current.process, move || file.forget()).await.is_ok() {
            self.vouching.has_forgotten();
            self.count("all is forgotten");
        }
        Ok(Ended::Badly)
    }
}

/// Makes a target execute one of the next writes late, so that another process may write before it.
fn put_off(world: &mut World, rng: &mut Rng) {
    let target = rng.index(0..world.targets.len());
    world.trace.record("the target puts a write off", &[target as u64]);
    let fault = Fault::execute_late(.., rng.millis(20_000..MAX_LATE)).times(1);
    world.targets[target].config_mut().faults.push(fault);
}

/// Waits until a target has delayed a write, and up to 2 s more. The caller then kills the process.
async fn die_with_late_writes(watch: &Watch, mut rng: Rng) {
    let has_some =
        || watch.shared.lock().targets.iter().any(|target| target.put_off_commands() > 0);
    while !has_some() {
        sleep(POLL_INTERVAL).await;
    }
    sleep(rng.any_scale(2000)).await;
}
