//! The command line program.

use std::panic::resume_unwind;
use std::process::ExitCode;

use block_copy::log::{self, Usually};
use block_copy::progress::{ProgressMode, say};
use block_copy::{Args, Error, Report, Stop, command_line, output, run};
use serde_json::json;
use tokio::runtime::Builder;
use tokio::task::JoinError;

const STOPPING: &str =
    "block-copy: stopping when what is under way has ended; once more stops at once\n";

fn main() -> ExitCode {
    match start(command_line::parse(json!({ "bytes": 0, "verified": false }))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("block-copy: {error}\n"));
            ExitCode::from(error.status())
        }
    }
}

fn start(args: Args) -> Result<(), Error> {
    let status = Error::Interrupted.status();
    // Before anything is said: whoever does not read it must not keep the program.
    let stop = Stop::at_signal(|| say(STOPPING), status).map_err(Error::Runtime)?;
    let usually = match args.output.progress {
        ProgressMode::None => Usually::Silence,
        ProgressMode::Auto | ProgressMode::Bar | ProgressMode::Plain => Usually::Warnings,
    };
    let log = log::start(usually, say);
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(Error::Runtime)?;
    // The copy runs where the sessions do: each chunk would otherwise wake this thread and back.
    let copy = runtime.spawn(copy(args, stop));
    let result = runtime.block_on(copy);
    // A read of standard input may be stuck for ever; the process need not wait for it.
    runtime.shutdown_background();
    log.flush();
    match result.map_err(JoinError::try_into_panic) {
        Ok(result) => result,
        Err(Ok(panic)) => resume_unwind(panic),
        Err(Err(_)) => Err(Error::Cancelled),
    }
}

async fn copy(args: Args, stop: Stop) -> Result<(), Error> {
    match run(&args, &stop).await {
        Ok(report) => tell(&args, &report, &stop).await,
        Err(failure) => {
            // Who asks for both the object and the data there gets neither.
            if args.output.json && args.destination != "-" {
                // That it failed is told all the same.
                drop(output::print(format!("{}\n", failure.to_json()), &stop).await);
            }
            Err(failure.error)
        }
    }
}

async fn tell(args: &Args, report: &Report, stop: &Stop) -> Result<(), Error> {
    if args.output.progress != ProgressMode::None {
        let told = report.clone();
        say(&format!("{}\n", if log::has_warnings() { told.without_notes() } else { told }));
    }
    if args.output.json {
        let text = format!("{}\n", report.to_json());
        output::print(text, stop).await.map_err(|cause| Error::Output { cause })?;
    }
    Ok(())
}
