//! The command line program.

use std::io::{self, Write};
use std::process::ExitCode;

use block_copy::progress::ProgressMode;
use block_copy::{Args, Error, Report, Stop, run};
use clap::Parser;
use tokio::runtime::Builder;

const STOPPING: &str =
    "block-copy: stopping when what is under way has ended; once more stops at once";

fn main() -> ExitCode {
    match start(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("block-copy: {error}");
            ExitCode::from(error.status())
        }
    }
}

fn start(args: &Args) -> Result<(), Error> {
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(Error::Runtime)?;
    let result = runtime.block_on(async {
        let status = Error::Interrupted.status();
        let stop = Stop::at_signal(STOPPING, status).map_err(Error::Runtime)?;
        run(args, &stop).await
    });
    // A read of standard input may be stuck for ever; the process need not wait for it.
    runtime.shutdown_background();
    tell(args, &result?)
}

fn tell(args: &Args, report: &Report) -> Result<(), Error> {
    if args.progress != ProgressMode::None {
        eprintln!("{report}");
    }
    if args.json {
        let mut output = io::stdout().lock();
        writeln!(output, "{}", report.to_json())
            .and_then(|()| output.flush())
            .map_err(|cause| Error::Output { cause })?;
    }
    Ok(())
}
