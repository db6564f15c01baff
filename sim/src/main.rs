//! Runs episodes of the simulation, and prints the seed of each episode that has found a violation.

use std::env;
use std::io::{self, Write};
use std::num::NonZero;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use iscsi_sim::{Class, Counts, Report, Settings, run};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Runs disks of the initiator over a simulated network to the test target, in virtual time.
#[derive(Debug, Parser)]
#[command(name = "sim")]
struct Arguments {
    /// Seed of the first episode; each further one has the next number.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of episodes.
    #[arg(long, default_value_t = 1)]
    episodes: u64,
    /// Run episodes for SECONDS instead.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// Number of requests of an episode.
    #[arg(long, default_value_t = 200)]
    operations: usize,
    /// Number of concurrent episodes, each in its own thread [default: the number of processors, 1 with --trace].
    #[arg(long)]
    threads: Option<NonZero<usize>>,
    /// Classes of faults to leave out; `all` leaves out all of them.
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// Print the number of requests, and of faults of each class.
    #[arg(long)]
    counts: bool,
    /// Continue after an episode that has found a violation.
    #[arg(long)]
    keep_going: bool,
    /// Print the events of the episodes; RUST_LOG adds the log of the initiator.
    #[arg(long)]
    trace: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.trace {
        let asked = env::var("RUST_LOG").ok().and_then(|filter| filter.parse().ok());
        let filter = asked.unwrap_or_else(|| Targets::new().with_default(LevelFilter::ERROR));
        let lines = tracing_subscriber::fmt::layer().without_time().with_writer(io::stderr);
        tracing_subscriber::registry().with(lines).with(filter).init();
    }
    match episodes(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "sim: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the episodes. Returns whether none of them found a violation.
fn episodes(arguments: &Arguments) -> Result<bool, Box<dyn std::error::Error>> {
    let settings = settings(arguments)?;
    let begun = Instant::now();
    let until = arguments.seconds.map(|seconds| begun + Duration::from_secs(seconds));
    let tally = Mutex::new(Tally::default());
    thread::scope(|scope| {
        let run_some = || run_while(&tally, &settings, arguments, until);
        let threads: Vec<_> = (0..threads(arguments)).map(|_| scope.spawn(run_some)).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread has panicked")))
        })
    })?;
    let Tally { begun: count, wrong, requests, elapsed, counts } =
        tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    writeln!(
        io::stdout(),
        "{count} episodes, {wrong} of them wrong; {requests} requests; {} s of virtual time in {:.1} s",
        elapsed.as_secs(),
        begun.elapsed().as_secs_f64()
    )?;
    if arguments.counts {
        let Counts { writes, reads, flushes, faults, repeated_copies, served } = counts;
        writeln!(io::stdout(), "{writes} writes, {reads} reads, {flushes} flushes")?;
        for (class, count) in faults {
            writeln!(io::stdout(), "{count:>8} {class}")?;
        }
        for (what, count) in repeated_copies.into_iter().chain(served) {
            writeln!(io::stdout(), "{count:>8} {what}")?;
        }
    }
    Ok(wrong == 0)
}

/// Results of the episodes so far.
#[derive(Debug, Default)]
struct Tally {
    begun: u64,
    wrong: u64,
    requests: usize,
    /// Total virtual time.
    elapsed: Duration,
    counts: Counts,
}

/// Runs one episode after the other, always the next seed that no thread has begun, until there are enough.
fn run_while(
    tally: &Mutex<Tally>,
    settings: &Settings,
    arguments: &Arguments,
    until: Option<Instant>,
) -> io::Result<()> {
    let lock = || tally.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let seed = {
            let mut tally = lock();
            let is_enough = match until {
                Some(until) => Instant::now() >= until,
                None => tally.begun >= arguments.episodes,
            };
            if is_enough || tally.wrong > 0 && !arguments.keep_going {
                return Ok(());
            }
            tally.begun += 1;
            arguments.seed + tally.begun - 1
        };
        let report = run(seed, settings)?;
        let mut tally = lock();
        tally.elapsed += report.elapsed;
        tally.requests += report.requests;
        tally.counts.add(&report.counts);
        tally.wrong += u64::from(report.violation.is_some());
        print(&report, arguments)?;
    }
}

/// Returns the number of threads. With a trace it is one: the logs of two initiators could not be told apart.
fn threads(arguments: &Arguments) -> usize {
    let default = if arguments.trace { NonZero::<usize>::MIN.into() } else { None };
    let found = || thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    arguments.threads.or(default).unwrap_or_else(found).get()
}

fn settings(arguments: &Arguments) -> Result<Settings, String> {
    let mut settings = Settings {
        operations: arguments.operations,
        is_traced: arguments.trace,
        ..Settings::default()
    };
    if arguments.without.iter().any(|name| name == "all") {
        return Ok(settings.without_faults());
    }
    for name in &arguments.without {
        let without: Class = name.parse()?;
        settings.classes.retain(|class| *class != without);
    }
    Ok(settings)
}

fn print(report: &Report, arguments: &Arguments) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in &report.trace {
        writeln!(out, "{line}")?;
    }
    if let Some(violation) = &report.violation {
        let without = match arguments.without.as_slice() {
            [] => String::new(),
            without => format!(" --without {}", without.join(",")),
        };
        writeln!(out, "seed {}: {violation}", report.seed)?;
        writeln!(
            out,
            "  again: sim --seed {} --operations {}{without} --trace",
            report.seed, arguments.operations
        )?;
    }
    Ok(())
}
