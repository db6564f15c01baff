//! Runs many copies concurrently, which share one tree of traffic classes (limits of their rates).

pub(crate) mod job_file;

use std::io;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};

use clap::Parser;
use iscsi_examples_common::program::ProgramError;
use tokio::task::{JoinError, JoinSet};
use tracing::Instrument;

use self::job_file::{Entry, JobFile};
use crate::args::{ControllerArgs, OutputArgs};
use crate::claims::Claims;
use crate::claims::named_files::{self, NamedFile};
use crate::classes::Classes;
use crate::control::handle::Handle;
use crate::control::orders::Orders;
use crate::ends::unless;
use crate::error::Error;
use crate::error::failure::Failure;
use crate::job::{copy, obeying};
use crate::log;
use crate::progress::{ProgressMode, eprint_lines};
use crate::report::Report;
use crate::stop::Stop;
use iscsi_examples_common::boxed::{BoxFuture, boxed};
use iscsi_examples_common::help::heading;

/// Run the copies of a job file concurrently
///
/// A copy that fails does not stop the others. The copies share a tree of traffic classes, with guaranteed rates and
/// ceilings.
///
/// A file without copies keeps its classes for other processes until a signal: they use them by `block-copy --share
/// PATH`, with the PATH of --control.
#[derive(Clone, Debug, Parser)]
#[command(name = "block-copy", version)]
pub struct JobsArgs {
    /// TOML file of copies, and of the traffic classes that they share.
    ///
    /// Each `[[job]]` table has a source, a destination, and options of the command line by their names. The reference of
    /// block-copy, docs/reference/block-copy.md, explains the format.
    #[arg(long, value_name = "FILE", help_heading = heading::ENDS)]
    pub jobs: PathBuf,
    /// Unix socket that takes commands while the copies run.
    ///
    /// A line each: `rate [CLASS] RATE|off`, `ceil CLASS RATE|off`, `pause [JOB]`, `resume [JOB]`, `status`. Each is
    /// answered with one JSON object. Other block-copy processes share the classes there, with --share.
    #[arg(long, value_name = "PATH", help_heading = heading::RATE)]
    pub control: Option<PathBuf>,
    /// What the jobs print.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Options for a controller, such as a Job of Kubernetes.
    #[command(flatten)]
    pub controller: ControllerArgs,
}

/// The result of one copy of a job file.
#[derive(Debug)]
pub struct JobResult {
    /// Name of the copy.
    pub name: String,
    /// The report of the copy, or its failure.
    pub result: Result<Report, Failure>,
}

/// Runs all copies of a job file. Calls `report` with each result as it arrives, and returns all results in the
/// order of the file.
///
/// # Errors
/// A wrong command line, job file or control socket. Then nothing was copied.
pub fn run_jobs<'a>(
    args: &'a JobsArgs,
    stop: &'a Stop,
    report: &'a (dyn Fn(&JobResult) + Send + Sync),
) -> BoxFuture<'a, Result<Vec<JobResult>, Error>> {
    boxed(async move {
        if args.output.json_lines {
            return Err(ProgramError::usage(
                "--json-lines tells how one copy stands; with --jobs take --json, and ask status of --control meanwhile",
            ).into());
        }
        let JobFile { classes, jobs } =
            unless(stop, JobFile::read(&args.jobs, args.control.is_some())).await?;
        if let (true, Some(path)) = (jobs.is_empty(), &args.control) {
            return keep(classes, path, args, stop).await;
        }
        let claims = Claims::default();
        let job_file = NamedFile::read("job file", &args.jobs);
        claims.claim_of_run(&job_file);
        if let Some(log) = &args.controller.termination_log {
            let log = NamedFile::written("--termination-log", log);
            claims.claim_of_run(&log);
            named_files::check(&[job_file, log])?;
        }
        let handle = |job: &Entry| {
            Handle::new(&job.name, Some(classes.clone()), job.class.as_deref()).beside(&claims)
        };
        let handles: Vec<_> = jobs.iter().map(handle).collect();
        let orders = Orders::new(classes, handles.clone()).of_job_file();
        let all = async {
            let (mut running, mut results) = (JoinSet::new(), Vec::new());
            for (index, (mut job, handle)) in jobs.into_iter().zip(handles).enumerate() {
                // Bars and plans of several concurrent copies would be indistinguishable.
                job.args.output.progress = ProgressMode::None;
                // Standard output gets the object with all results, so no copy may write data to it.
                job.args.output.json = args.output.json;
                job.args.controller.grace = args.controller.grace;
                let (stop, span) = (stop.clone(), log::job(&job.name));
                let work = async move {
                    let ended = Box::pin(copy(&job.args, &handle, &stop)).await;
                    // Also if source or destination could not be opened.
                    handle.end();
                    ended
                };
                running.spawn(async move { (index, job.name, work.await) }.instrument(span));
            }
            while let Some(ended) = running.join_next().await {
                let (index, name, result) = ended.unwrap_or_else(fallen);
                let result = JobResult { name, result };
                report(&result);
                results.push((index, result));
            }
            results.sort_by_key(|(index, _)| *index);
            results.into_iter().map(|(_, result)| result).collect()
        };
        obeying(args.control.as_deref(), &args.controller, &orders, all).await
    })
}

/// Keeps the classes for other processes until a signal.
async fn keep(
    classes: Classes,
    path: &Path,
    args: &JobsArgs,
    stop: &Stop,
) -> Result<Vec<JobResult>, Error> {
    let orders = Orders::new(classes, Vec::new());
    let work = async {
        if !args.output.is_silent() {
            eprint_lines(&format!("keeping the classes at {} until a signal\n", path.display()));
        }
        stop.requested().await;
    };
    obeying(Some(path), &args.controller, &orders, work).await.map(|()| Vec::new())
}

type Ended = (usize, String, Result<Report, Failure>);

/// Returns the result for a cancelled task. If the task panicked, resumes the panic, so that the program ends.
fn fallen(error: JoinError) -> Ended {
    match error.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        Err(error) => {
            (usize::MAX, String::new(), Err(ProgramError::Runtime(io::Error::other(error)).into()))
        }
    }
}
