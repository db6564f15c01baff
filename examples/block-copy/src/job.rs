//! One copy from beginning to end: open, decide, copy, flush, verify, close.

use std::time::Duration;

use iscsi_initiator::tuning::Diagnosis;
use iscsi_initiator::{Initiator, Options, Reading};
use tokio::time::Instant;

use crate::args::{Args, IoSize, QueueDepth};
use crate::end::{Destination, End, Source, UnitEnd};
use crate::error::Error;
use crate::meter::Meter;
use crate::place::{Place, Side};
use crate::plan::Plan;
use crate::progress::{Progress, ProgressMode};
use crate::pump::Pump;
use crate::report::{Report, cpu_time};
use crate::size::Size;
use crate::stop::Stop;
use crate::verify::{Checksums, Comparison};

/// How long a command may take from its submission, unless the URL says otherwise: on a slow link
/// it waits for all that were submitted before. Whether the target is alive is found out by pings,
/// much sooner.
const COMMAND: Duration = Duration::from_secs(300);
/// No plan has longer reads and writes.
const LONGEST_AUTO_IO: u64 = 4 << 20;
/// The most memory that may be asked for, in one queue.
const LARGEST_QUEUE: u64 = 1 << 30;

/// Copies as the arguments say. Nothing is written before both ends are known to fit.
///
/// # Errors
/// The first thing that went wrong; what was written by then is in the message.
pub async fn run(args: &Args, stop: &Stop) -> Result<Report, Error> {
    let from = Place::parse(&args.source, Side::Source)?;
    let to = Place::parse(&args.destination, Side::Destination)?;
    check_arguments(args, &to)?;
    let initiator = initiator(args)?;
    let source = stop.unless(End::source(&from, &initiator)).await?;
    let destination = stop.unless(End::destination(&to, &initiator, args.verify)).await;
    let destination = match destination {
        Ok(destination) => destination,
        Err(error) => {
            source.close().await;
            return Err(error);
        }
    };
    let result = match check_ends(args, &source, &destination) {
        Ok(()) => Job::new(args, source.clone(), destination.clone()).run(stop).await,
        Err(error) => Err(error),
    };
    tokio::join!(source.close(), destination.close());
    result
}

const NO_WAY_BACK: Error =
    Error::Usage("a stream cannot be read back; leave --verify out, or write to a file or a unit");

fn check_arguments(args: &Args, to: &Place) -> Result<(), Error> {
    if let Place::Standard = to {
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
        IoSize::Auto => LONGEST_AUTO_IO,
    };
    depth.saturating_mul(io_size)
}

fn initiator(args: &Args) -> Result<Initiator, Error> {
    let mut options = Options::default();
    options.timeouts.command = Some(COMMAND);
    let queue = usize::try_from(queue_bytes(args)).unwrap_or(usize::MAX);
    options.max_bytes_in_flight = options.max_bytes_in_flight.max(queue);
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
    if args.verify && Destination::is_sequential(destination) {
        return Err(NO_WAY_BACK);
    }
    match (source.length(), destination.capacity()) {
        (Some(needed), Some(capacity)) if needed > capacity => {
            Err(Error::TooSmall { capacity: Size(capacity), needed: Size(needed) })
        }
        _ => Ok(()),
    }
}

/// A copy between two ends that fit.
#[derive(Debug)]
struct Job<'a> {
    args: &'a Args,
    source: End,
    destination: End,
    plan: Plan,
}

impl<'a> Job<'a> {
    fn new(args: &'a Args, source: End, destination: End) -> Self {
        let plan = Plan::new(args.io_size, args.queue_depth, &source, &destination);
        let io_size = plan.io_size.value;
        let source = source.with_io_size(io_size);
        Self { args, source, destination: destination.with_io_size(io_size), plan }
    }

    async fn run(&self, stop: &Stop) -> Result<Report, Error> {
        self.announce();
        let cpu = cpu_time();
        let round_trip = self.units().find_map(UnitEnd::round_trip);
        let plan_json = self.plan.to_json(&self.source, &self.destination);
        let before = self.readings().await;
        let start = Instant::now();
        let meter = Meter::default();
        let (sums, samples) = self.copy(&meter, stop).await?;
        let time = start.elapsed();
        let diagnoses = Self::diagnose(&before, &self.readings().await);
        let (bytes, verified) = (meter.bytes(), sums.is_some());
        if let Some(sums) = sums {
            self.verify(bytes, sums, stop).await?;
        }
        Ok(Report {
            bytes,
            time,
            round_trip,
            sessions: self.units().count().min(1),
            plan: self.plan.clone(),
            plan_json,
            diagnoses,
            retries: self.units().map(UnitEnd::retries).sum(),
            reconnects: 0,
            verified,
            cpu: cpu_time().saturating_sub(cpu),
            samples,
        })
    }

    fn units(&self) -> impl Iterator<Item = &UnitEnd> {
        [&self.destination, &self.source].into_iter().filter_map(End::unit)
    }

    /// What the connections of both ends do, by the end they are of.
    async fn readings(&self) -> Vec<(Side, Reading)> {
        let mut readings = Vec::new();
        for (side, end) in [(Side::Source, &self.source), (Side::Destination, &self.destination)] {
            if let Some(unit) = end.unit() {
                // A session that has ended tells so to the next command.
                readings.extend(unit.reading().await.map(|reading| (side, reading)));
            }
        }
        readings
    }

    /// What held each connection back between two readings.
    fn diagnose(before: &[(Side, Reading)], after: &[(Side, Reading)]) -> Vec<(Side, Diagnosis)> {
        let pairs = after.iter().filter_map(|(side, after)| {
            let (_, before) = before.iter().find(|(of, _)| of == side)?;
            Some((*side, after.diagnose_since(before)))
        });
        pairs.collect()
    }

    /// Tells people what will be done, and why.
    fn announce(&self) {
        if self.args.progress == ProgressMode::None {
            return;
        }
        let Plan { io_size, queue_depth } = &self.plan;
        for (word, end) in [("from", &self.source), ("to", &self.destination)] {
            eprintln!("{word} {end}");
            if let Some(plan) = end.unit().and_then(UnitEnd::plan) {
                eprintln!("{plan}");
            }
        }
        eprintln!("io size {}: {}", Size(io_size.value as u64), io_size.reason);
        eprintln!("queue depth {}: {}", queue_depth.value, queue_depth.reason);
    }

    /// Copies and flushes. The result has checksums if there is something to verify.
    async fn copy(
        &self,
        meter: &Meter,
        stop: &Stop,
    ) -> Result<(Option<Checksums>, Vec<f64>), Error> {
        let total = self.source.length();
        // What a stream is said to hold is good for the display; it ends where it ends.
        let end = total.filter(|_| !Source::is_sequential(&self.source));
        let (source, destination) = (self.source.clone(), self.destination.clone());
        let pump = Pump::new(source, destination, self.plan.shape(), end);
        let pump = if self.args.verify { pump.with_checksums() } else { pump };
        let progress = Progress::new(self.args.progress, "copied", total);
        let work = async {
            let sums = pump.run(meter, stop).await?;
            stop.unless(self.destination.flush(meter.bytes())).await?;
            Ok(sums)
        };
        let (result, samples) = meter.follow(&progress, work).await;
        match result {
            Ok(sums) => Ok((sums, samples)),
            Err(error) if meter.bytes() == 0 => Err(error),
            Err(error) => Err(error.after(meter.bytes(), total)),
        }
    }

    /// Reads the destination back and compares.
    async fn verify(&self, bytes: u64, sums: Checksums, stop: &Stop) -> Result<(), Error> {
        let comparison = Comparison::new(self.source.clone(), sums);
        let shape = self.plan.shape();
        let pump = Pump::new(self.destination.clone(), comparison, shape, Some(bytes));
        let progress = Progress::new(self.args.progress, "verified", Some(bytes));
        let meter = Meter::default();
        match meter.follow(&progress, pump.run(&meter, stop)).await.0 {
            Ok(_) => Ok(()),
            Err(error @ Error::Mismatch { .. }) => Err(error),
            Err(error) => Err(Error::Unverified(Box::new(error))),
        }
    }
}
