//! The command line program.

use std::io::{self, Write};
use std::panic::resume_unwind;
use std::process::ExitCode;
use std::sync::Arc;

use block_copy::progress::ProgressMode;
use block_copy::{Args, Error, Report, Stop, run};
use clap::Parser;
use tokio::runtime::Builder;
use tokio::task::JoinError;

const STOPPING: &str =
    "block-copy: stopping when what is under way has ended; once more stops at once";

fn main() -> ExitCode {
    match start(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("block-copy: {error}");
            ExitCode::from(error.status())
        }
    }
}

fn start(args: Args) -> Result<(), Error> {
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(Error::Runtime)?;
    let args = Arc::new(args);
    // The copy runs where the sessions do: each chunk would otherwise wake this thread and back.
    let copy = runtime.spawn(copy(Arc::clone(&args)));
    let result = runtime.block_on(copy);
    // A read of standard input may be stuck for ever; the process need not wait for it.
    runtime.shutdown_background();
    match result.map_err(JoinError::try_into_panic) {
        Ok(result) => tell(&args, &result?),
        Err(Ok(panic)) => resume_unwind(panic),
        Err(Err(_)) => Err(Error::Cancelled),
    }
}

async fn copy(args: Arc<Args>) -> Result<Report, Error> {
    let status = Error::Interrupted.status();
    let stop = Stop::at_signal(STOPPING, status).map_err(Error::Runtime)?;
    run(&args, &stop).await
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
