//! The command-line program.

use std::process::ExitCode;

use block_serve::log::Usually;
use block_serve::output::eprint_lines;
use block_serve::{Args, Error, Ready, Stop, command_line, output};
use iscsi_examples_common::program::{Program, ProgramError};
use serde_json::json;

const PROGRAM: Program = Program {
    name: "block-serve",
    stopping: "stopping when all requests are answered and flushed; a second signal stops immediately",
    usually: Usually::Warnings,
    show: eprint_lines,
};

fn main() -> ExitCode {
    let args: Args = command_line::parse(json!({ "complete": false }));
    PROGRAM.run(async |stop| serve(&args, &stop).await.map(|()| 0))
}

async fn serve(args: &Args, stop: &Stop) -> Result<(), Error> {
    let result = async {
        let ready = Ready::prepare(args, stop).await?;
        if args.json {
            print(&ready.to_json(args), stop).await?;
        } else {
            eprint_lines(&ready.line(args));
        }
        ready.run(stop).await
    }
    .await;
    match (result, args.json) {
        (Ok(done), true) => print(&done, &Stop::never()).await,
        (Ok(_), false) => Ok(()),
        (Err(error), true) => {
            // A failed write is ignored: the exit status and standard error report the failure.
            drop(print(&error.to_json(), &Stop::never()).await);
            Err(error)
        }
        (Err(error), false) => Err(error),
    }
}

async fn print(object: &serde_json::Value, stop: &Stop) -> Result<(), Error> {
    output::print_object(object, stop).await.map_err(|cause| ProgramError::Output { cause }.into())
}
