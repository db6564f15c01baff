//! Errors outside of measurements.

use std::io;
use std::path::PathBuf;

/// Reasons why a command of the lab fails. A failed measurement is not an error of this type: it is a figure
/// with an [`Outcome`](crate::result::Outcome) of its own.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("{path}: {cause}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
    /// A scenario is malformed.
    #[error("{path}: {reason}", path = path.display())]
    Scenario {
        /// Path of the scenario.
        path: PathBuf,
        /// The defect, with its line if that is known.
        reason: String,
    },
    /// A file is not a result file of a run.
    #[error("{path} is no result file: {cause}", path = path.display())]
    Result {
        /// The file.
        path: PathBuf,
        /// The defect, with its line.
        cause: serde_json::Error,
    },
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// This machine offers no environment in which the lab can run.
    #[error("{0}")]
    NoEnvironment(String),
    /// A program could not be started.
    #[error("{program} could not be started: {cause}")]
    Start {
        /// The program.
        program: String,
        /// Error of the system.
        cause: io::Error,
    },
    /// A program that the lab needs has failed.
    #[error("{program} failed: {message}")]
    Tool {
        /// The program with its arguments.
        program: String,
        /// Output of the program.
        message: String,
    },
    /// The job that the lab passes to its agent cannot be decoded.
    #[error("the job for the lab's agent cannot be understood: {0}")]
    Job(#[from] serde_json::Error),
    /// The runtime or its signals could not be set up.
    #[error("the system refused what the lab needs to run: {0}")]
    System(#[from] io::Error),
}

impl Error {
    /// Returns the exit status of the error: 2 for a wrong command line or scenario, 3 if the machine has no
    /// environment, 1 for all other errors.
    pub fn status(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Scenario { .. } => 2,
            Self::NoEnvironment(_) => 3,
            Self::File { .. }
            | Self::Result { .. }
            | Self::Start { .. }
            | Self::Tool { .. }
            | Self::Job(_)
            | Self::System(_) => 1,
        }
    }
}
