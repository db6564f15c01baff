//! What can go wrong before or around a measurement.

use std::io;
use std::path::PathBuf;

/// Why the lab could not do what it was asked. A measurement that fails is no such error: it is a
/// figure with an [`Outcome`](crate::result::Outcome) of its own.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("{path}: {cause}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// A scenario cannot be understood.
    #[error("{path}: {reason}", path = path.display())]
    Scenario {
        /// The scenario's file.
        path: PathBuf,
        /// What is wrong with it, with the line where that is known.
        reason: String,
    },
    /// A file is not one that a run leaves.
    #[error("{path} is no result file: {cause}", path = path.display())]
    Result {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and in which line.
        cause: serde_json::Error,
    },
    /// The command line makes no sense.
    #[error("{0}")]
    Usage(String),
    /// This machine has no environment for a lab.
    #[error("{0}")]
    NoEnvironment(String),
    /// A program could not be started.
    #[error("{program} could not be started: {cause}")]
    Start {
        /// The program.
        program: String,
        /// What the system said.
        cause: io::Error,
    },
    /// A program that the lab stands on failed.
    #[error("{program} failed: {message}")]
    Tool {
        /// The program with its arguments.
        program: String,
        /// What it said.
        message: String,
    },
    /// What the two halves of the lab tell each other was garbled.
    #[error("the job for the lab's agent cannot be understood: {0}")]
    Job(#[from] serde_json::Error),
    /// The runtime or its signals could not be set up.
    #[error("the system refused what the lab needs to run: {0}")]
    System(#[from] io::Error),
}

impl Error {
    /// The exit status that tells the error: 2 for a wrong command line or scenario, 3 for a
    /// machine that cannot, 1 for all else.
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
