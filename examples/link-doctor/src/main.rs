//! The command-line program.

use std::process::ExitCode;

use iscsi_examples_common::program::{Program, ProgramError};
use link_doctor::log::Usually;
use link_doctor::output::eprint_lines;
use link_doctor::{Args, Error, Report, Stop, command_line, output, run};
use serde_json::json;

const PROGRAM: Program = Program {
    name: "link-doctor",
    stopping: "ending with what was measured so far; a second signal ends immediately",
    usually: Usually::Warnings,
    show: eprint_lines,
};

fn main() -> ExitCode {
    let args: Args = command_line::parse(json!({ "complete": false }));
    PROGRAM.run(async |stop| examine(&args, &stop).await)
}

async fn examine(args: &Args, stop: &Stop) -> Result<u8, Error> {
    let result = run(args, stop).await;
    if let Err(error) = &result
        && args.json
    {
        // A failed write is ignored: the exit status and standard error report the failure.
        drop(output::print_object(&error.to_json(), stop).await);
    }
    let report = result?;
    print_report(args, &report, stop).await?;
    let status = report.status();
    report.end.map_or(Ok(status), Err)
}

async fn print_report(args: &Args, report: &Report, stop: &Stop) -> Result<(), Error> {
    let told = if args.json {
        output::print_object(&report.to_json(), stop).await
    } else {
        output::print(report.to_string(), stop).await
    };
    told.map_err(|cause| ProgramError::Output { cause }.into())
}
