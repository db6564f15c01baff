//! The command-line program.

use std::env;
use std::os::unix::ffi::OsStrExt;
use std::panic::resume_unwind;
use std::process::ExitCode;

use block_copy::args::{ControllerArgs, OutputArgs};
use block_copy::log;
use block_copy::progress::eprint_lines;
use block_copy::{
    Args, Error, Failure, JobResult, JobsArgs, Report, Stop, command_line, output, run, run_jobs,
    standard_output, verify,
};
use iscsi_examples_common::boxed::{BoxFuture, boxed};
use iscsi_examples_common::program::Program;
use iscsi_examples_common::termination_log::TerminationLog;
use iscsi_examples_common::{exit_status, failure};
use iscsi_pdu::keys::printable;
use serde_json::{Value, json};
use tokio::task::JoinError;

fn main() -> ExitCode {
    if has_jobs() {
        let args: JobsArgs = command_line::parse(json!({ "jobs": [] }));
        program(&args.output).run(|stop| in_a_task(boxed(jobs(args, stop))))
    } else {
        let args: Args = command_line::parse(json!({ "bytes": 0, "verified": false }));
        program(&args.output).run(|stop| in_a_task(boxed(copy(args, stop))))
    }
}

fn program(output: &OutputArgs) -> Program {
    Program {
        name: "block-copy",
        stopping: "stopping when the requests in flight have ended; a second signal stops immediately",
        usually: output.usually(),
        show: eprint_lines,
    }
}

/// Returns whether the command line has `--jobs`.
fn has_jobs() -> bool {
    let words = env::args_os().skip(1).take_while(|word| word != "--");
    words.into_iter().any(|word| word == "--jobs" || word.as_bytes().starts_with(b"--jobs="))
}

/// Runs the copy on a worker thread, where the sessions are: otherwise each chunk would wake the main thread
/// and then a worker.
async fn in_a_task(work: BoxFuture<'static, Result<u8, Error>>) -> Result<u8, Error> {
    match tokio::spawn(work).await.map_err(JoinError::try_into_panic) {
        Ok(result) => result,
        Err(Ok(panic)) => resume_unwind(panic),
        Err(Err(_)) => Err(Error::Cancelled),
    }
}

async fn copy(args: Args, stop: Stop) -> Result<u8, Error> {
    let (log, result) = match open_log(&args.controller) {
        Ok(log) => (log, copied(&args, &stop).await),
        Err(error) => (None, Err(error.into())),
    };
    let known = match &result {
        Ok((_, json)) => json.clone(),
        Err(failure) => failure.to_json(),
    };
    let ended = tell(&args, result, &stop).await;
    write_log(log, &ended, known);
    ended
}

/// Makes the copy, or the comparison. Returns what to say of it, as text and as JSON.
async fn copied(args: &Args, stop: &Stop) -> Result<(String, Value), Failure> {
    if args.destination.is_none() {
        let verified = verify(args, stop).await?;
        return Ok((verified.to_string(), verified.to_json()));
    }
    let report = run(args, stop).await?;
    let json = report.to_json();
    let told = if log::has_warnings() { report.without_notes() } else { report };
    Ok((told.text(args.output.is_verbose()), json))
}

/// Prints the result, or returns the error of the copy.
async fn tell(
    args: &Args,
    result: Result<(String, Value), Failure>,
    stop: &Stop,
) -> Result<u8, Error> {
    match result {
        Ok((text, json)) => print_result(args, &text, &json, stop).await.map(|()| 0),
        Err(failure) => {
            // If both the JSON object and the data would go to standard output, the object is omitted.
            let destination = args.destination.as_deref().unwrap_or(&args.source);
            let has_data = standard_output::is_named_by(destination);
            if args.output.wants_json() && !has_data {
                // A failed write is ignored: the exit status reports the failure as well.
                drop(output::print_object(&failure.to_json(), stop).await);
            }
            Err(failure.error)
        }
    }
}

/// Opens the file that a controller reads, before anything is copied.
fn open_log(args: &ControllerArgs) -> Result<Option<TerminationLog>, Error> {
    let Some(path) = &args.termination_log else { return Ok(None) };
    let opened = TerminationLog::open(path);
    opened.map(Some).map_err(|cause| Error::TerminationLog { path: path.clone(), cause })
}

/// Writes the result to the file that a controller reads: `known`, and how the program ends. A failure is only a warning: the
/// copy is what it is.
fn write_log(log: Option<TerminationLog>, ended: &Result<u8, Error>, known: Value) {
    let Some(log) = log else { return };
    let (status, result) = match ended {
        Ok(status) => (*status, known),
        Err(error) => (error.status(), failure::object(known, &error.to_string(), error.kind())),
    };
    if let Err(error) = log.write(status, &result) {
        tracing::warn!("the termination log cannot be written: {error}");
    }
}

async fn print_result(args: &Args, text: &str, json: &Value, stop: &Stop) -> Result<(), Error> {
    if !args.output.is_silent() {
        eprint_lines(&format!("{text}\n"));
    }
    if args.output.wants_json() {
        output::print_object(json, stop).await.map_err(|cause| Error::Output { cause })?;
    }
    Ok(())
}

async fn jobs(args: JobsArgs, stop: Stop) -> Result<u8, Error> {
    let (log, results) = match open_log(&args.controller) {
        Ok(log) => (log, run_jobs(&args, &stop, &|job| print_job_result(&args, job)).await),
        Err(error) => (None, Err(error)),
    };
    let object = results.as_ref().map_or_else(
        |error| failure::object(json!({ "jobs": [] }), &error.to_string(), error.kind()),
        |results| jobs_object(results),
    );
    let printed = if args.output.wants_json() {
        output::print_object(&object, &stop).await.map_err(|cause| Error::Output { cause })
    } else {
        Ok(())
    };
    let status = results.map(|results| exit_status::of_all(results.iter().map(status)));
    let ended = printed.and(status);
    write_log(log, &ended, object);
    ended
}

fn status(job: &JobResult) -> u8 {
    job.result.as_ref().map_or_else(|failure| failure.error.status(), |_| 0)
}

/// Prints the result of a copy of a job file, with the name of the copy.
fn print_job_result(args: &JobsArgs, JobResult { name, result }: &JobResult) {
    match result {
        Ok(report) if !args.output.is_silent() => {
            eprint_lines(&format!("{name}: {}\n", report.text(args.output.is_verbose())));
        }
        Ok(_) => {}
        // The error may contain text of a target or a server.
        Err(failure) => {
            eprint_lines(&format!("block-copy: {name}: {}\n", printable(&failure.to_string())))
        }
    }
}

/// Returns the results of all copies as JSON, with the error of the first copy that failed.
fn jobs_object(results: &[JobResult]) -> Value {
    let jobs = results.iter().map(|JobResult { name, result }| {
        let mut object = result.as_ref().map_or_else(Failure::to_json, Report::to_json);
        object["name"] = json!(name);
        object
    });
    let object = json!({ "jobs": jobs.collect::<Vec<_>>(), "error": null, "kind": null });
    let failed = results.iter().find_map(|job| Some((&job.name, job.result.as_ref().err()?)));
    match failed {
        Some((name, failure)) => {
            failure::object(object, &format!("{name}: {failure}"), failure.error.kind())
        }
        None => object,
    }
}
