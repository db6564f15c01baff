//! Turns the exit of a measured program into a success, or into the reason of its failure.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::process::Command;

use crate::error::Error;
use crate::process::{Ended, run};
use crate::result::Outcome;

/// Runs a program of a Debian package to its end. Fails if the program does not exit with success within
/// `limit`.
pub(super) async fn to_end(
    command: &mut Command,
    limit: Duration,
    package: &str,
) -> Result<Ended, Outcome> {
    match run(command, limit).await {
        Ok(Some(ended)) if ended.output.status.success() => Ok(ended),
        Ok(Some(ended)) => Err(Outcome::Failed(ended.complaint())),
        Ok(None) => Err(Outcome::TimedOut),
        Err(error) => Err(not_started(error, package)),
    }
}

/// Returns the outcome of a program that did not start: skipped if it is missing, else failed.
pub(crate) fn not_started(error: Error, package: &str) -> Outcome {
    if let Error::Start { program, cause } = &error
        && cause.kind() == ErrorKind::NotFound
    {
        return missing(program, package);
    }
    Outcome::Failed(error.to_string())
}

/// Returns the outcome of a missing program, with the Debian package that provides it.
pub(crate) fn missing(program: &str, package: &str) -> Outcome {
    Outcome::Skipped(format!(
        "`{program}` is missing, which the Debian package `{package}` brings \
         (`ci/packages peers` installs it)"
    ))
}

/// Returns the outcome of a program whose output cannot be parsed.
pub(crate) fn garbled(program: &str, said: &str) -> Outcome {
    let start: String = said.chars().take(200).collect();
    Outcome::Failed(format!("{program} told what the lab cannot read: {start:?}"))
}
