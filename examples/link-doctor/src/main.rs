//! The command line program.

use std::process::ExitCode;

use link_doctor::log::{self, Usually};
use link_doctor::output::say;
use link_doctor::{Args, Error, Report, Stop, command_line, output, run};
use serde_json::json;
use tokio::runtime::Builder;

const STOPPING: &str =
    "link-doctor: ending with what was measured so far; once more ends at once\n";

fn main() -> ExitCode {
    match start(&command_line::parse(json!({ "complete": false }))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("link-doctor: {error}\n"));
            ExitCode::from(error.status())
        }
    }
}

fn start(args: &Args) -> Result<(), Error> {
    let status = Error::Interrupted.status();
    // Before anything is said: whoever does not read it must not keep the program.
    let stop = Stop::at_signal(|| say(STOPPING), status).map_err(Error::Runtime)?;
    let log = log::start(Usually::Warnings, say);
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(Error::Runtime)?;
    let result = runtime.block_on(examine(args, &stop));
    // A name may take long to be found, or a reader to read; the process need not wait for them.
    runtime.shutdown_background();
    log.flush();
    result
}

async fn examine(args: &Args, stop: &Stop) -> Result<(), Error> {
    let result = run(args, stop).await;
    if let Err(error) = &result
        && args.json
    {
        // That it failed is told all the same.
        drop(output::print(format!("{}\n", error.to_json()), stop).await);
    }
    let report = result?;
    tell(args, &report, stop).await?;
    report.end.map_or(Ok(()), Err)
}

async fn tell(args: &Args, report: &Report, stop: &Stop) -> Result<(), Error> {
    let text = if args.json { format!("{}\n", report.to_json()) } else { report.to_string() };
    output::print(text, stop).await.map_err(Error::Output)
}
