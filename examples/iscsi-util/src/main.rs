//! The command-line program.

use std::process::ExitCode;

use iscsi_examples_common::program::{Program, ProgramError};
use iscsi_util::log::Usually;
use iscsi_util::output::eprint_lines;
use iscsi_util::{Args, Error, Report, Stop, command_line, output, run};
use serde_json::json;

const PROGRAM: Program = Program {
    name: "iscsi-util",
    stopping: "stopping when the requests in flight have ended; a second signal stops immediately",
    usually: Usually::Warnings,
    show: eprint_lines,
};

fn main() -> ExitCode {
    let args: Args = command_line::parse(json!({ "complete": false }));
    PROGRAM.run(async |stop| answer(&args, &stop).await.map(|()| 0))
}

async fn answer(args: &Args, stop: &Stop) -> Result<(), Error> {
    let result = run(args, stop).await;
    if let Err(error) = &result
        && args.json
    {
        // A failed write is ignored: the exit status and standard error report the failure.
        let object = error.to_json(args.command.name());
        drop(output::print_object(&object, stop).await);
    }
    let report = result?;
    print_report(args, &report, stop).await?;
    report.end.map_or(Ok(()), Err)
}

async fn print_report(args: &Args, report: &Report, stop: &Stop) -> Result<(), Error> {
    let told = if args.json {
        output::print_object(&report.to_json(args.command.name()), stop).await
    } else {
        output::print(report.text.clone(), stop).await
    };
    told.map_err(|cause| ProgramError::Output { cause }.into())
}
