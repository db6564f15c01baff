//! One copy from beginning to end: open, decide, copy, flush, verify, close.

use std::io;
use std::pin::pin;
use std::time::Duration;

use iscsi_copy::{
    Checksums, Copied, Copy, Error as CopyError, Event, Events, Failure as CopyFailure, Verify,
    VerifyError,
};
use iscsi_initiator::tuning::Diagnosis;
use iscsi_initiator::{Error as IscsiError, Initiator, Options};
use tokio::time::{Instant, timeout};

use crate::args::{Args, IoSize, QueueDepth};
use crate::end::{End, UnitEnd};
use crate::error::Error;
use crate::failure::Failure;
use crate::location::Location;
use crate::meter::Meter;
use crate::observation::Observation;
use crate::plan::CopyPlan;
use crate::progress::{Progress, ProgressMode, say};
use crate::reach::Reach;
use crate::report::{Report, cpu_time};
use crate::side::Side;
use crate::stop::Stop;
use iscsi_initiator::tuning::Size;

/// How long a command may take from its submission, unless the URL says otherwise: on a slow link
/// it waits for all that were submitted before. Whether the target is alive is found out by pings,
/// much sooner.
const COMMAND: Duration = Duration::from_secs(300);
/// No plan has longer reads and writes.
const MAX_AUTO_IO: u64 = 4 << 20;
/// How long an error waits for the answer whether the unit is another one.
const QUESTION: Duration = Duration::from_secs(10);
/// The least that a copy may hold of each, what is read and what is written.
const MIN_QUEUE: u64 = 64 << 20;
/// The most memory that may be asked for, in one queue.
const LARGEST_QUEUE: u64 = 1 << 30;

/// Copies as the arguments say. Nothing is written before both ends are known to fit.
///
/// # Errors
/// The first thing that went wrong, with what was written by then.
pub async fn run(args: &Args, stop: &Stop) -> Result<Report, Failure> {
    let from = Location::parse(&args.source, Side::Source)?;
    let to = Location::parse(&args.destination, Side::Destination)?;
    check_arguments(args, &to)?;
    let initiator = initiator(args)?;
    let (source, destination) = open(args, &from, &to, &initiator, stop).await?;
    let result = match check_ends(args, &source, &destination) {
        Ok(()) => Job::new(args, source.clone(), destination.clone()).run(stop).await,
        Err(error) => Err(error.into()),
    };
    let (_, closed) = tokio::join!(source.close(stop), destination.close(stop));
    let report = result?;
    match closed {
        Ok(()) => Ok(report),
        Err(error) => Err(Failure { error, report: Some(Box::new(report)) }),
    }
}

const NO_WAY_BACK: Error =
    Error::Usage("a stream cannot be read back; leave --verify out, or write to a file or a unit");

fn check_arguments(args: &Args, to: &Location) -> Result<(), Error> {
    if let Location::Standard = to {
        if args.json {
            return Err(Error::Usage(
                "--json and the destination - both need standard output; leave one of them out",
            ));
        }
        if args.verify {
            return Err(NO_WAY_BACK);
        }
    }
    if queue_bytes(args) > LARGEST_QUEUE {
        return Err(Error::Usage(
            "--io-size times --queue-depth is more than 1 GiB; ask for less of one of them",
        ));
    }
    Ok(())
}

/// What one queue may hold, as far as it was asked for.
fn queue_bytes(args: &Args) -> u64 {
    let depth = match args.queue_depth {
        QueueDepth::Fixed(depth) => depth.get() as u64,
        QueueDepth::Auto => 2,
    };
    let io_size = match args.io_size {
        IoSize::Fixed(size) => size.0,
        IoSize::Auto => MAX_AUTO_IO,
    };
    depth.saturating_mul(io_size)
}

fn initiator(args: &Args) -> Result<Initiator, Error> {
    let mut options = Options::default();
    options.timeouts.command = Some(COMMAND);
    let queue = usize::try_from(queue_bytes(args)).unwrap_or(usize::MAX);
    options.max_bytes_in_flight = options.max_bytes_in_flight.max(queue);
    options.sessions = args.sessions();
    options.connections = args.connections;
    options.tuning.policy = args.tune;
    options.tuning.bandwidth = args.bandwidth;
    options.tuning.no_delay = args.nodelay.wish();
    options.tuning.congestion_control = args.congestion.clone();
    let initiator = match &args.initiator_name {
        Some(name) => Initiator::with_options(name, options),
        None => Initiator::with_default_name(options),
    };
    initiator.map_err(Error::Initiator)
}

fn check_ends(args: &Args, source: &End, destination: &End) -> Result<(), Error> {
    if let Some(kind) = source.same_as(destination) {
        return Err(Error::Same(kind));
    }
    if args.verify && destination.is_stream() {
        return Err(NO_WAY_BACK);
    }
    match (source.to_source().length(), destination.to_destination().capacity()) {
        (Some(needed), Some(capacity)) if needed > capacity => {
            Err(Error::TooSmall { capacity: Size(capacity), needed: Size(needed) })
        }
        _ => Ok(()),
    }
}

/// Opens both ends: two units side by side, otherwise nothing is made of a destination whose source
/// cannot be had.
async fn open(
    args: &Args,
    from: &Location,
    to: &Location,
    initiator: &Initiator,
    stop: &Stop,
) -> Result<(End, End), Error> {
    let source = unless(stop, End::source(from, initiator));
    let destination = unless(stop, End::destination(to, initiator, args.verify));
    let (source, destination) = if let (Location::Unit(_), Location::Unit(_)) = (from, to) {
        // The error of the source is the one to tell.
        tokio::try_join!(source, async { Ok(destination.await) })?
    } else {
        (source.await?, destination.await)
    };
    match destination {
        Ok(destination) => Ok((source, destination)),
        Err(error) => {
            // Nothing was sent that it could still carry out.
            drop(source.close(stop).await);
            Err(error)
        }
    }
}

/// Waits for some work, unless the copy shall stop before.
async fn unless<T>(stop: &Stop, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    stop.unless(work).await.unwrap_or(Err(Error::Interrupted))
}

/// A copy between two ends that fit.
#[derive(Debug)]
struct Job<'a> {
    args: &'a Args,
    source: End,
    destination: End,
    plan: CopyPlan,
}

impl<'a> Job<'a> {
    fn new(args: &'a Args, source: End, destination: End) -> Self {
        let plan = CopyPlan::new(args.io_size, args.queue_depth, &source, &destination);
        let io_size = plan.io_size.value;
        let source = source.with_io_size(io_size);
        Self { args, source, destination: destination.with_io_size(io_size), plan }
    }

    async fn run(&self, stop: &Stop) -> Result<Report, Failure> {
        self.announce();
        let cpu = cpu_time();
        let round_trip = self.units().find_map(UnitEnd::round_trip);
        let plan_json = self.plan.to_json(&self.source, &self.destination);
        let observations = unless(stop, async { Ok(self.observe().await) }).await?;
        let start = Instant::now();
        let (copied, samples) = self.copy(stop).await;
        let time = start.elapsed();
        let (progress, diagnoses) = match &copied {
            Ok(copied) => {
                let diagnoses = stop.hurry(self.diagnose(observations)).await;
                (copied.progress, diagnoses.unwrap_or_default())
            }
            Err(failure) => (failure.progress, Vec::new()),
        };
        let verified = match copied {
            Ok(Copied { checksums: Some(sums), .. }) => {
                self.verify(sums, stop).await.map(|()| true)
            }
            Ok(_) => Ok(false),
            Err(failure) => {
                let error = self.explained(self.failed(failure.error), stop).await;
                Err(error.after(&failure.progress, failure.is_written))
            }
        };
        let verified = match verified {
            Ok(verified) => self.confirm(stop).await.map(|()| verified),
            Err(error) => Err(error),
        };
        let report = Report {
            progress,
            time,
            round_trip,
            reaches: self.units().map(|unit| self.reach(unit)).collect(),
            queue_depth: self.queue_depth(),
            plan: self.plan.clone(),
            plan_json,
            diagnoses,
            retries: self.units().map(UnitEnd::retries).sum(),
            verified: matches!(verified, Ok(true)),
            cpu: cpu_time().saturating_sub(cpu),
            samples,
        };
        match verified {
            Ok(_) => Ok(report),
            Err(error) => Err(Failure { error, report: Some(Box::new(report)) }),
        }
    }

    fn units(&self) -> impl Iterator<Item = &UnitEnd> {
        [&self.destination, &self.source].into_iter().filter_map(End::unit)
    }

    /// Looks at the sessions of both ends.
    async fn observe(&self) -> Vec<Observation> {
        let mut observations = Vec::new();
        for unit in self.units() {
            observations.push(Observation::begin(unit).await);
        }
        observations
    }

    /// What has held each end back since then.
    async fn diagnose(&self, observations: Vec<Observation>) -> Vec<(Side, Diagnosis)> {
        let mut diagnoses = Vec::new();
        for (unit, observation) in self.units().zip(observations) {
            diagnoses.extend(observation.end(unit).await);
        }
        // In the order of the way.
        diagnoses.reverse();
        diagnoses
    }

    fn reach(&self, unit: &UnitEnd) -> Reach {
        let mut spread = unit.spread();
        if let Some(reason) = self.args.why_one_session() {
            reason.clone_into(&mut spread.reason);
        }
        Reach { side: unit.side(), spread, connections: unit.connections() }
    }

    /// How deep the queues are by now.
    fn queue_depth(&self) -> usize {
        let CopyPlan { io_size, queue_depth, follows, .. } = &self.plan;
        let depths = self.units().map(|unit| unit.queue_depth(io_size.value));
        depths.max().filter(|_| *follows).unwrap_or(queue_depth.value)
    }

    /// Tells people what will be done, and why.
    fn announce(&self) {
        if self.args.progress == ProgressMode::None {
            return;
        }
        for (word, end) in [("from", &self.source), ("to", &self.destination)] {
            say(&format!("{word} {end}\n"));
            if let Some(unit) = end.unit() {
                unit.plan().inspect(|plan| say(&format!("{plan}\n")));
                // What is noted by now is in the report as well.
                say(&format!("{}\n", self.reach(unit).without_notes()));
            }
        }
        let CopyPlan { io_size, queue_depth, .. } = &self.plan;
        say(&format!("io size {}: {}\n", Size(io_size.value as u64), io_size.reason));
        say(&format!("queue depth {}: {}\n", queue_depth.value, queue_depth.reason));
    }

    /// Copies and flushes, and says how fast each second went.
    async fn copy(&self, stop: &Stop) -> (Result<Copied, CopyFailure>, Vec<f64>) {
        let (source, destination) = (self.source.to_source(), self.destination.to_destination());
        let progress = Progress::new(self.args.progress, "copied", source.length());
        let copy = Copy::new(source, destination).with_options(self.options());
        let meter = Meter::new(copy.control());
        let remarks = remark_losses(copy.events(), &progress);
        let work = async { tokio::join!(obey(copy, stop), remarks).0 };
        meter.follow(&progress, Box::pin(work)).await
    }

    fn options(&self) -> iscsi_copy::Options {
        let Args { verify, zero_granularity, destination_is_zero, .. } = *self.args;
        let memory = queue_bytes(self.args).max(MIN_QUEUE).saturating_mul(2);
        let options = iscsi_copy::Options::default()
            .with_io_size(self.plan.io_size.value)
            .with_max_memory(usize::try_from(memory).unwrap_or(usize::MAX))
            .with_zero_granularity(zero_granularity.bytes())
            .with_destination_is_zero(destination_is_zero)
            .with_checksums(verify);
        match self.args.queue_depth {
            QueueDepth::Fixed(depth) => options.with_queue_depth(depth.get()),
            QueueDepth::Auto => options,
        }
    }

    /// What went wrong with the copy, at which end.
    fn failed(&self, error: CopyError) -> Error {
        match error {
            CopyError::Source(cause) => self.source.failed(Side::Source, cause),
            CopyError::Destination(cause) | CopyError::Flush(cause) => {
                self.destination.failed(Side::Destination, cause)
            }
            CopyError::ReadOnly => {
                let cause = io::ErrorKind::ReadOnlyFilesystem.into();
                self.destination.failed(Side::Destination, cause)
            }
            CopyError::Shrunk => Error::Shrunk(self.source.name()),
            CopyError::TooSmall { capacity, needed } => {
                Error::TooSmall { capacity: Size(capacity), needed: Size(needed) }
            }
            CopyError::Overflow { capacity } => Error::Overflow { capacity: Size(capacity) },
            CopyError::Abandoned { under_way } if under_way > 0 => {
                Error::Abandoned { under_way: Size(under_way) }
            }
            CopyError::Cancelled | CopyError::Abandoned { .. } => Error::Interrupted,
            other => self.destination.failed(Side::Destination, io::Error::other(other)),
        }
    }

    /// Makes sure that the ends are still the units that were opened: not every target tells of it when
    /// it puts another one in the place of one.
    async fn confirm(&self, stop: &Stop) -> Result<(), Error> {
        for unit in self.units() {
            let confirmed = unless(stop, unit.confirm()).await;
            confirmed.map_err(|error| Error::Unconfirmed(Box::new(error)))?;
        }
        Ok(())
    }

    /// An error of a request, or its reason: what takes the place of a unit may refuse the request in any
    /// words.
    async fn explained(&self, error: Error, stop: &Stop) -> Error {
        let Error::Unit { side, cause } = &error else { return error };
        let unit = self.units().find(|unit| unit.side() == *side);
        let (Some(unit), Some(_)) = (unit, cause.sense()) else { return error };
        match timeout(QUESTION, unless(stop, unit.confirm())).await {
            Ok(Err(reason)) if reason.is_changed_unit() => reason,
            _ => error,
        }
    }

    /// Reads the destination back and compares.
    async fn verify(&self, sums: Checksums, stop: &Stop) -> Result<(), Error> {
        let progress = Progress::new(self.args.progress, "verified", Some(sums.bytes()));
        let (source, destination) = (self.source.to_source(), self.destination.to_destination());
        let verify = Verify::new(source, &destination, sums).map_err(|_| NO_WAY_BACK)?;
        let verify = match self.args.queue_depth {
            QueueDepth::Fixed(depth) => verify.with_queue_depth(depth.get()),
            QueueDepth::Auto => verify,
        };
        let meter = Meter::new(verify.control());
        let work = Box::pin(stop.unless(verify.run()));
        let unverified = |error| Err(Error::Unverified(Box::new(error)));
        match meter.follow(&progress, work).await.0 {
            Some(Ok(_)) => Ok(()),
            Some(Err(VerifyError::Mismatch(difference))) => Err(Error::Mismatch { difference }),
            Some(Err(VerifyError::Destination(cause))) => {
                let error = self.destination.failed(Side::Destination, cause);
                unverified(self.explained(error, stop).await)
            }
            // What was under way was read back only.
            Some(Err(VerifyError::Cancelled)) | None => unverified(Error::Interrupted),
            Some(Err(VerifyError::Stream)) => Err(NO_WAY_BACK),
            Some(Err(other)) => {
                unverified(self.destination.failed(Side::Destination, io::Error::other(other)))
            }
        }
    }
}

/// Runs a copy. Once it shall stop, what is under way may end and be flushed, if that takes no more than
/// a moment.
async fn obey(copy: Copy, stop: &Stop) -> Result<Copied, CopyFailure> {
    let control = copy.control();
    let mut running = pin!(copy.run());
    if let Some(ended) = stop.unless(&mut running).await {
        return ended;
    }
    control.cancel();
    if let Some(ended) = stop.hurry(&mut running).await {
        return ended;
    }
    control.abandon();
    running.await
}

/// Tells people what is written again.
async fn remark_losses(mut events: Events, progress: &Progress) {
    while let Some(event) = events.next().await {
        if let Event::Lost { bytes } = event {
            let cause = IscsiError::UnflushedWritesLost;
            let side = Side::Destination;
            progress.remark(&format!("{side}: {cause}; {} are written again", Size(bytes)));
        }
    }
}
