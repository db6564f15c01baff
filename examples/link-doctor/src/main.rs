//! The command line program.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use link_doctor::{Args, Error, Report, Stop, run};
use tokio::runtime::Builder;

const STOPPING: &str = "link-doctor: ending with what was measured so far; once more ends at once";

fn main() -> ExitCode {
    match start(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("link-doctor: {error}");
            ExitCode::from(error.status())
        }
    }
}

fn start(args: &Args) -> Result<(), Error> {
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(Error::Runtime)?;
    let report = runtime.block_on(async {
        let status = Error::Interrupted.status();
        let stop = Stop::at_signal(STOPPING, status).map_err(Error::Runtime)?;
        run(args, &stop).await
    })?;
    tell(args, &report).map_err(Error::Output)?;
    report.end.map_or(Ok(()), Err)
}

fn tell(args: &Args, report: &Report) -> io::Result<()> {
    let mut output = io::stdout().lock();
    if args.json {
        writeln!(output, "{}", report.to_json())?;
    } else {
        write!(output, "{report}")?;
    }
    output.flush()
}
