//! The command line program.

use std::process::ExitCode;

use iscsi_util::log::{self, Usually};
use iscsi_util::output::say;
use iscsi_util::{Args, Error, Report, Stop, command_line, output, run};
use serde_json::json;
use tokio::runtime::Builder;

const STOPPING: &str =
    "iscsi-util: stopping when what is under way has ended; once more stops at once\n";

fn main() -> ExitCode {
    match start(&command_line::parse(json!({ "complete": false }))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("iscsi-util: {error}\n"));
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
    let result = runtime.block_on(answer(args, &stop));
    // A name may take long to be found, or a reader to read; the process need not wait for them.
    runtime.shutdown_background();
    log.flush();
    result
}

async fn answer(args: &Args, stop: &Stop) -> Result<(), Error> {
    let result = run(args, stop).await;
    if let Err(error) = &result
        && args.json
    {
        // That it failed is told all the same.
        let object = error.to_json(args.command.name());
        drop(output::print(format!("{object}\n"), stop).await);
    }
    let report = result?;
    tell(args, &report, stop).await?;
    report.end.map_or(Ok(()), Err)
}

async fn tell(args: &Args, report: &Report, stop: &Stop) -> Result<(), Error> {
    let text = if args.json {
        format!("{}\n", report.to_json(args.command.name()))
    } else {
        report.text.clone()
    };
    output::print(text, stop).await.map_err(Error::Output)
}
