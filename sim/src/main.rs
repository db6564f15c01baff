//! Runs episodes of the simulation, and prints the seed of each that has found something wrong.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use iscsi_sim::{Class, Report, Settings, run};
use tracing_subscriber::EnvFilter;

/// Runs disks of the initiator over a simulated network to the test target, in virtual time.
#[derive(Debug, Parser)]
#[command(name = "sim")]
struct Arguments {
    /// The seed of the first episode; each further one has the next number
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many episodes to run
    #[arg(long, default_value_t = 1)]
    episodes: u64,
    /// Run episodes for so many seconds instead
    #[arg(long)]
    seconds: Option<u64>,
    /// Requests of an episode
    #[arg(long, default_value_t = 200)]
    operations: usize,
    /// Classes of faults to leave out; "all" leaves out all of them
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// Go on after an episode that has found something wrong
    #[arg(long)]
    keep_going: bool,
    /// Print what happens in the episodes; RUST_LOG adds what the initiator logs
    #[arg(long)]
    trace: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.trace {
        let filter = EnvFilter::from_default_env();
        let log = tracing_subscriber::fmt().with_env_filter(filter).without_time();
        log.with_writer(io::stderr).init();
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

/// Whether nothing was wrong.
fn episodes(arguments: &Arguments) -> Result<bool, Box<dyn std::error::Error>> {
    let settings = settings(arguments)?;
    let begun = Instant::now();
    let until = arguments.seconds.map(|seconds| begun + Duration::from_secs(seconds));
    let (mut wrong, mut seed, mut simulated) = (0_u64, arguments.seed, Duration::ZERO);
    let mut requests = 0;
    let is_enough = |seed: u64| match until {
        Some(until) => Instant::now() >= until,
        None => seed - arguments.seed >= arguments.episodes,
    };
    while !is_enough(seed) && (wrong == 0 || arguments.keep_going) {
        let report = run(seed, &settings)?;
        simulated += report.elapsed;
        requests += report.requests;
        wrong += u64::from(report.violation.is_some());
        print(&report, arguments)?;
        seed += 1;
    }
    writeln!(
        io::stdout(),
        "{} episodes, {wrong} of them wrong; {requests} requests; {} s of virtual time in {:.1} s",
        seed - arguments.seed,
        simulated.as_secs(),
        begun.elapsed().as_secs_f64()
    )?;
    Ok(wrong == 0)
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
