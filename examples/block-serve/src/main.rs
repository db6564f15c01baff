//! The command line program.

use std::process::ExitCode;

use block_serve::log::{self, Usually};
use block_serve::output::say;
use block_serve::{Args, Error, Ready, Stop, command_line, output};
use serde_json::json;
use tokio::runtime::Builder;

const STOPPING: &str =
    "block-serve: stopping when what was asked for is done and flushed; once more stops at once\n";

fn main() -> ExitCode {
    match start(&command_line::parse(json!({ "complete": false }))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("block-serve: {error}\n"));
            ExitCode::from(error.status())
        }
    }
}

fn start(args: &Args) -> Result<(), Error> {
    let status = Error::Interrupted.status();
    let stop = Stop::at_signal(|| say(STOPPING), status).map_err(Error::Runtime)?;
    let log = log::start(Usually::Warnings, say);
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(Error::Runtime)?;
    let result = runtime.block_on(serve(args, &stop));
    // A name may take long to be found; the process need not wait for it.
    runtime.shutdown_background();
    log.flush();
    result
}

async fn serve(args: &Args, stop: &Stop) -> Result<(), Error> {
    let result = async {
        let ready = Ready::prepare(args, stop).await?;
        if args.json {
            print(&ready.to_json(args), stop).await?;
        } else {
            say(&ready.line(args));
        }
        ready.run(stop).await
    }
    .await;
    match (result, args.json) {
        (Ok(done), true) => print(&done, &Stop::never()).await,
        (Ok(_), false) => Ok(()),
        (Err(error), true) => {
            // That it failed is told all the same.
            drop(print(&error.to_json(), &Stop::never()).await);
            Err(error)
        }
        (Err(error), false) => Err(error),
    }
}

async fn print(object: &serde_json::Value, stop: &Stop) -> Result<(), Error> {
    output::print(format!("{object}\n"), stop).await.map_err(Error::Output)
}
