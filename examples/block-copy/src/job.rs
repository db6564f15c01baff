//! Makes one copy from beginning to end: opens, checks, copies, flushes, verifies and closes.

mod commands;
mod comparison;
mod delta;
pub(crate) mod exclusive;
mod guard;
mod in_passes;
mod later;
pub(crate) mod ranges;
mod resumption;
pub(crate) mod span;
mod transfer;
mod transferred;
mod verification;

use std::mem;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::Arc;

use iscsi_copy::{CopyError, DigestFile, Identity, RangeSet};
use iscsi_examples_common::boxed::{BoxFuture, boxed};
use iscsi_examples_common::program::ProgramError;
use iscsi_initiator::shaping::RateLimit;
use iscsi_tuner::Size;

use self::exclusive::Exclusive;
use self::span::Span;
use crate::args::{Args, ControllerArgs, RangesFrom, RateArgs, VerifyMode};
use crate::claims::named_files::{self, NamedFile};
use crate::classes::Classes;
use crate::classes::shared::SharedClass;
use crate::control::ControlSocket;
use crate::control::handle::Handle;
use crate::control::orders::Orders;
use crate::end::{Access, UnitEnd};
use crate::ends::{Ends, NO_WAY_BACK, TWO_USES, unless};
use crate::error::failure::Failure;
use crate::error::{Error, Places};
use crate::location::Location;
use crate::metrics::Metrics;
use crate::plan::CopyPlan;
use crate::progress::eprint_lines;
use crate::progress::heading::heading;
use crate::progress::json_lines::JsonLines;
use crate::progress::terminal;
use crate::report::observation::Observation;
use crate::report::own_limits::OwnLimits;
use crate::report::reach::Reach;
use crate::report::{Links, Report, cpu_time};
use crate::side::Side;
use crate::stop::Stop;
use guard::Inspection;
use resumption::Resumption;
use transferred::Transferred;

pub use later::{Verified, verify};

/// Name of the only copy of a process.
const NAME: &str = "copy";
/// Maximum number of bytes in flight that the options may set for one queue.
const MAX_QUEUE: u64 = 1 << 30;

/// Makes the copy that the arguments describe. Nothing is written before source and destination are checked.
///
/// # Errors
/// The first error, with a report of what was written by then.
pub fn run<'a>(args: &'a Args, stop: &'a Stop) -> BoxFuture<'a, Result<Report, Failure>> {
    boxed(async move {
        let RateArgs { rate_limit, share, class, control } = &args.rate;
        if let Some(path) = share {
            let (shared, _connected) =
                unless(stop, SharedClass::join(path, class.as_deref())).await?;
            let handle = Handle::sharing(NAME, shared.clone());
            let orders = Orders::sharing(shared, handle.clone());
            let copy = Box::pin(copy(args, &handle, stop));
            return obeying(control.as_deref(), &args.controller, &orders, copy).await?;
        }
        if rate_limit.is_none() && control.is_none() {
            let handle = Handle::new(NAME, None, None);
            let copy = Box::pin(copy(args, &handle, stop));
            return measured(&args.controller, slice::from_ref(&handle), false, copy).await?;
        }
        let classes =
            Classes::new(rate_limit.unwrap_or(RateLimit::Unlimited)).map_err(Error::from)?;
        let handle = Handle::new(NAME, Some(classes.clone()), None);
        let orders = Orders::new(classes, vec![handle.clone()]);
        let copy = Box::pin(copy(args, &handle, stop));
        obeying(control.as_deref(), &args.controller, &orders, copy).await?
    })
}

/// Waits for work. Meanwhile it executes commands from the socket at `path`, and serves metrics, as far as there are a
/// path and an address.
pub(crate) async fn obeying<T>(
    path: Option<&Path>,
    controller: &ControllerArgs,
    orders: &Orders,
    work: impl Future<Output = T>,
) -> Result<T, Error> {
    let work = measured(controller, orders.handles(), orders.is_of_job_file(), work);
    let Some(path) = path else { return work.await };
    let socket = ControlSocket::bind(path)?;
    tokio::select! {
        biased;
        done = work => done,
        never = socket.serve(orders) => match never {},
    }
}

/// Waits for work. Meanwhile it serves metrics of the copies, if the options name an address.
async fn measured<T>(
    controller: &ControllerArgs,
    handles: &[Handle],
    are_jobs: bool,
    work: impl Future<Output = T>,
) -> Result<T, Error> {
    let bound = Metrics::bind(controller, handles, are_jobs).await?;
    let Some(metrics) = bound else { return Ok(work.await) };
    tokio::select! {
        biased;
        done = work => Ok(done),
        never = metrics.serve() => match never {},
    }
}

/// Makes one copy. `handle` reports its status and controls it.
pub(crate) async fn copy(args: &Args, handle: &Handle, stop: &Stop) -> Result<Report, Failure> {
    let [from, mut to] = unless(stop, locate(args)).await?;
    let is_unit = [&from, &to].map(Location::has_units);
    let [reader, writer] = handle.classes(is_unit).map_err(Error::from)?;
    if is_unit == [false; 2] {
        check_rate(&args.rate, handle)?;
    }
    let (reader, writer) = (args.link.initiator(reader)?, args.link.initiator(writer)?);
    let exclusive = args.guard.exclusive.then(|| Exclusive::new(&mut to, &writer)).transpose()?;
    let writer = exclusive.map_or(Ok(writer.clone()), |it| it.register(&writer))?;
    let span = Span::new(&args.content);
    span.check_streams(matches!(from, Location::Standard), matches!(to, Location::Standard))?;
    let access = Access {
        reads_back: args.content.verify.reads_back(),
        creates: !resumption::is_continued(&args.resumption),
        overrides_use: args.guard.force,
    };
    let bitmap = args.delta.ranges.as_ref().and_then(RangesFrom::bitmap);
    let ends = Ends::open(access, span, &from, &to, [&reader, &writer], bitmap, stop).await;
    let ends = ends
        .map_err(|error| if exclusive.is_some() { exclusive::explained(error) } else { error })?;
    let ends = ends.with_ids(&args.resumption);
    handle.opened(&ends);
    // After a request to stop, `begin` has a moment more: a checkpoint or digest file that it is writing is
    // then complete, and `is_kept` below finds it.
    let files = named_files::all(args, [&from, &to]);
    let begun = Box::pin(Job::begin(args, handle, ends.clone(), files, exclusive, stop));
    let result = match stop.hurry(begun).await {
        Some(Ok(job)) => job.run_and_report(stop).await,
        Some(Err(error)) => Err(error.into()),
        None => Err(ProgramError::Interrupted.into()),
    };
    handle.end();
    let closed = ends.close(stop).await;
    let is_refused = matches!(&result, Err(failure) if failure.error.is_of_another_copy());
    if is_refused || result.is_err() && !is_kept(args) {
        ends.destination.remove_if_empty().await;
    }
    let report = result?;
    match closed {
        Ok(()) => Ok(report),
        Err(error) => Err(Failure { error, report: Some(Box::new(report)) }),
    }
}

/// Checks the arguments. Returns the source and the destination. The files that describe volumes, and the
/// password files, are read.
async fn locate(args: &Args) -> Result<[Location; 2], Error> {
    let mut from = Location::parse(&args.source, Side::Source).await?;
    let to = args.destination.as_deref().ok_or_else(|| {
        ProgramError::usage("DESTINATION is missing; only --verify=digests needs but one location")
    })?;
    let mut to = Location::parse(to, Side::Destination).await?;
    check_arguments(args, &to)?;
    named_files::check(&named_files::all(args, [&from, &to]))?;
    check_side_files(args)?;
    commands::check(args)?;
    resumption::check(&args.resumption)?;
    args.passwords.apply(Some(&mut from), &mut to).await.map_err(ProgramError::from)?;
    Ok([from, to])
}

/// Checks that the checkpoint and the digest file are regular files: to write them to a device would destroy a
/// user's data.
fn check_side_files(args: &Args) -> Result<(), Error> {
    let kept = [
        (&args.resumption.checkpoint, "--checkpoint is no regular file; name another path"),
        (&args.delta.digests, "--digests is no regular file; name another path"),
    ];
    let is_other = |path: &PathBuf| path.metadata().is_ok_and(|file| !file.is_file());
    for (path, complaint) in kept {
        if path.as_ref().is_some_and(is_other) {
            return Err(ProgramError::usage(complaint).into());
        }
    }
    Ok(())
}

/// Checks that source and destination have identities, if a checkpoint or digests need them.
fn check_kept(args: &Args, ends: &Ends, is_in_use: bool) -> Result<(), Error> {
    if args.resumption.checkpoint.is_some() {
        ends.identities(is_in_use)?;
    }
    if args.delta.digests.is_some() {
        delta::identity(ends)?;
    }
    Ok(())
}

/// Returns whether a checkpoint or digest file may refer to the destination.
fn is_kept(args: &Args) -> bool {
    [&args.resumption.checkpoint, &args.delta.digests]
        .into_iter()
        .flatten()
        .any(|path| path.exists())
}

/// Checks the options of the rate: without a unit there is no rate to limit.
fn check_rate(args: &RateArgs, handle: &Handle) -> Result<(), Error> {
    if args.rate_limit.is_some() {
        return Err(ProgramError::usage(
            "--rate-limit holds for what is read from units and written to them, and neither end is one; leave it out",
        ).into());
    }
    if args.share.is_some() {
        return Err(ProgramError::usage(
            "--share holds for what is read from units and written to them, and neither end is one; leave it out",
        ).into());
    }
    if handle.has_class() {
        return Err(ProgramError::usage(
            "a class holds for what is read from units and written to them, and neither end is one; leave it out",
        ).into());
    }
    Ok(())
}

fn check_arguments(args: &Args, to: &Location) -> Result<(), Error> {
    if let Location::Standard = to {
        if args.output.wants_json() {
            return Err(TWO_USES);
        }
        if args.content.verify.reads_back() {
            return Err(NO_WAY_BACK);
        }
    }
    if args.content.verify == VerifyMode::Digests && args.delta.digests.is_none() {
        return Err(ProgramError::usage(
            "--verify=digests compares with what --digests FILE knows; add it",
        )
        .into());
    }
    if args.link.queue_bytes() > MAX_QUEUE {
        return Err(ProgramError::usage(
            "--io-size times --queue-depth is more than 1 GiB; ask for less of one of them",
        )
        .into());
    }
    Ok(())
}

/// A copy whose source and destination were checked.
#[derive(Debug)]
struct Job<'a> {
    args: &'a Args,
    handle: &'a Handle,
    ends: Ends,
    plan: CopyPlan,
    resumption: Option<Resumption>,
    ranges: Option<RangeSet>,
    lines: Option<Arc<JsonLines>>,
    /// Identity of the source before the copy, if it is a file.
    before: Option<Identity>,
    digests: Option<DigestFile>,
    /// Findings about the source and the destination.
    inspection: Inspection,
    /// Counters of the sessions at the beginning.
    observations: Vec<Observation>,
}

impl<'a> Job<'a> {
    /// Checks source, destination and options, and prepares the copy.
    async fn begin(
        args: &'a Args,
        handle: &'a Handle,
        ends: Ends,
        files: Vec<NamedFile>,
        exclusive: Option<Exclusive>,
        stop: &Stop,
    ) -> Result<Self, Error> {
        let is_in_use = args.passes.ranges_from.is_some();
        ends.check(args)?;
        // This check of the names is repeated, because opening may have created the destination: only names of
        // existing files can be compared as files.
        named_files::check(&files)?;
        handle.claim(&ends, &files).await?;
        if let Some(exclusive) = exclusive {
            // After the claim: while this process holds the lock, other keys of this initiator can only belong
            // to ended processes.
            unless(stop, exclusive.reserve(&ends.destination)).await?;
        }
        commands::check_ends(&args.passes, &ends)?;
        check_kept(args, &ends, is_in_use)?;
        let ranges = ranges::load(args.delta.ranges.as_ref(), &ends).await?;
        // `observe` and `inspect` send requests to the units, so they run concurrently.
        let asking = async { Ok(tokio::join!(ends.observe(), guard::inspect(args, &ends))) };
        let (observations, inspection) = unless(stop, asking).await?;
        let inspection = inspection?;
        // The length is checked after the inspection: for an image of another format, report the format and not
        // a wrong length.
        ends.check_room()?;
        inspection.log_warnings();
        let resumption = Resumption::begin(&args.resumption, &ends, is_in_use).await?;
        // The bytes that earlier passes have left to copy may be anywhere, so --ranges does not limit a resumed
        // copy of a source in use.
        let is_continued = resumption.as_ref().is_some_and(Resumption::is_continued);
        let ranges = ranges.filter(|_| !(is_in_use && is_continued));
        let digests = delta::open(args.delta.digests.as_deref(), &ends).await?;
        let plan = CopyPlan::new(args.link.io_size, args.link.queue_depth, &ends);
        let ends = ends.with_io_size(plan.io_size.value);
        let lines = args.output.json_lines.then(JsonLines::start).transpose();
        let lines = lines.map_err(ProgramError::Runtime)?;
        let before = ends.source.file_identity();
        Ok(Self {
            args,
            handle,
            ends,
            plan,
            resumption,
            digests,
            ranges,
            lines,
            before,
            inspection,
            observations,
        })
    }

    /// Makes the copy, and waits until its last line of JSON is written.
    async fn run_and_report(mut self, stop: &Stop) -> Result<Report, Failure> {
        let lines = self.lines.clone();
        let result = self.run(stop).await;
        self.lines = None;
        if let Some(lines) = lines {
            JsonLines::finish(lines, stop).await;
        }
        result
    }

    async fn run(&mut self, stop: &Stop) -> Result<Report, Failure> {
        self.announce();
        let cpu = cpu_time();
        let round_trip = self.ends.units().find_map(UnitEnd::round_trip);
        let plan_json = self.plan.to_json(&self.ends);
        let observations = mem::take(&mut self.observations);
        let (transferred, result) = match &self.args.passes.ranges_from {
            Some(command) => Box::pin(self.copy_in_passes(command, stop)).await,
            None => Box::pin(self.copy(stop)).await,
        };
        let Transferred { progress, unreadable, time, samples, passes, before } = transferred;
        let mut diagnoses = match &result {
            Ok(_) => stop.hurry(self.ends.diagnose(observations)).await.unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        let limits = OwnLimits {
            rate: self.handle.limit(),
            class: self.handle.class(),
            queue_depth: self.own_queue_depth(),
        };
        limits.explain(&mut diagnoses);
        let verified = match result {
            Ok(unverified) => unverified.verify(self, progress.done, stop).await,
            Err(error) => Err(error),
        };
        let verified = match verified {
            Ok(verified) => self.ends.confirm(stop).await.map(|()| verified),
            Err(error) => Err(error),
        };
        let is_verified = matches!(verified, Ok(true)) && unreadable.is_empty();
        let complete = verified.and_then(|_| self.all_read(&unreadable));
        let links = Links {
            round_trip,
            reaches: self.ends.units().map(|unit| self.reach(unit)).collect(),
            queue_depth: self.queue_depth(),
            plan: self.plan.clone(),
            plan_json,
            diagnoses,
            retries: self.ends.units().map(UnitEnd::retries).sum(),
        };
        let report = Report {
            progress,
            unreadable,
            time,
            links,
            is_delta: self.digests.is_some(),
            passes,
            verified: is_verified,
            source_changed: before.is_some() && before != self.ends.source.file_identity(),
            cpu: cpu_time().saturating_sub(cpu),
            samples,
            notes: self.inspection.notes.clone(),
            destination_held: self.inspection.held.clone(),
        };
        match complete {
            Ok(()) => Ok(report),
            Err(error) => Err(Failure { error, report: Some(Box::new(report)) }),
        }
    }

    /// Returns an error if some bytes of the source could not be read.
    fn all_read(&self, unreadable: &RangeSet) -> Result<(), Error> {
        if unreadable.is_empty() {
            return Ok(());
        }
        Err(Error::Unreadable {
            source_name: self.ends.source.name(),
            unreadable: Size(unreadable.bytes()),
            places: Places(unreadable.iter().count()),
            has_checkpoint: self.resumption.is_some(),
        })
    }

    /// Returns the error for a failure of the copy. It names the source, the destination or the file that
    /// failed.
    fn failed(&self, error: CopyError) -> Error {
        match (error, &self.digests) {
            (CopyError::Digests(cause), Some(file)) => delta::failed(file.path(), cause),
            (error, _) => self.ends.failed(error),
        }
    }

    fn reach(&self, unit: &UnitEnd) -> Reach {
        let status = unit.status();
        let why_one = self.args.link.why_one_session();
        Reach {
            side: unit.side(),
            member: unit.member_name().cloned(),
            sessions: status.sessions,
            peak: status.peak,
            reconnects: status.reconnects,
            reason: why_one.map_or_else(|| status.explain(), str::to_owned),
            notes: status.notes.iter().map(ToString::to_string).collect(),
            portals: unit.portals(),
            connections: unit.connections(),
        }
    }

    /// Returns the current queue depth: the number that the sessions of the units need, or the number in the
    /// plan if it is fixed.
    fn queue_depth(&self) -> usize {
        let CopyPlan { io_size, queue_depth, follows, .. } = &self.plan;
        let deepest = self.ends.deepest(io_size.value).filter(|_| *follows);
        deepest.map_or(queue_depth.value, |(_, depth)| depth)
    }

    /// Returns the queue depth that the option sets, if the links of the units need more.
    fn own_queue_depth(&self) -> Option<usize> {
        let CopyPlan { io_size, queue_depth, follows, .. } = &self.plan;
        let (_, deepest) = self.ends.deepest(io_size.value).filter(|_| !follows)?;
        (queue_depth.value < deepest).then_some(queue_depth.value)
    }

    /// Prints the line that names source and destination, and with -v the plan.
    fn announce(&self) {
        let output = &self.args.output;
        if output.is_silent() {
            return;
        }
        let Ends { source, destination, .. } = &self.ends;
        eprint_lines(&format!("{}\n", heading(source, destination, terminal::columns())));
        if output.is_verbose() {
            self.print_plan();
        }
        if let Some(file) = &self.digests {
            let (path, known) = (file.path().display(), Size(file.known().bytes()));
            match file.doubt() {
                Some(doubt) => eprint_lines(&format!("digests {path}: {doubt}; all is sent\n")),
                None if output.is_verbose() => {
                    eprint_lines(&format!(
                        "digests {path}: {known} of the destination are known\n"
                    ));
                }
                None => {}
            }
        }
        if let Some(Resumption { file, done, .. }) = &self.resumption
            && (output.is_verbose() || done.bytes() > 0)
        {
            let (path, done) = (file.path().display(), Size(done.bytes()));
            eprint_lines(&format!("checkpoint {path}: {done} are done already\n"));
        }
    }

    /// Prints what is known of source and destination, and each chosen number with its reason.
    fn print_plan(&self) {
        for (word, end) in [("from", &self.ends.source), ("to", &self.ends.destination)] {
            eprint_lines(&format!("{word} {end}\n"));
            for unit in end.units() {
                unit.plan().inspect(|plan| eprint_lines(&format!("{plan}\n")));
                // The report will contain the notes, so omit them here.
                eprint_lines(&format!("{}\n", self.reach(unit).without_notes()));
            }
        }
        let CopyPlan { io_size, queue_depth, .. } = &self.plan;
        eprint_lines(&format!("io size {}: {}\n", Size(io_size.value as u64), io_size.reason));
        eprint_lines(&format!("queue depth {}: {}\n", queue_depth.value, queue_depth.reason));
    }
}
