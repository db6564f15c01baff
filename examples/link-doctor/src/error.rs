//! Errors of an examination.

use iscsi_examples_common::exit_status::{USAGE, of_unit};
use iscsi_examples_common::failure::{self, Kind};
use iscsi_examples_common::program::{ExitStatus, ProgramError};
use iscsi_examples_common::sentence::Sentence;
use serde_json::{Value, json};
use thiserror::Error as ThisError;

/// Reasons why an examination fails, or is not complete. Each message is one sentence, which says what to do
/// if something can be done.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The arguments contradict each other, a password cannot be used, a signal stopped the program, or another
    /// error that each program has.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// No session was established: the URL or a name is wrong, there is no target, or it refuses the login.
    #[error("{}", .0.sentence())]
    Session(#[from] iscsi_initiator::Error),
    /// The argument names a volume, whose units may have different links. One unit is needed.
    #[error("a volume has a link for each of its units; name the URL of one of them")]
    Volume,
    /// The session ended, or its pings were not answered.
    #[error("the link was examined in part: {}", .0.sentence())]
    Link(iscsi_initiator::Error),
    /// The unit cannot be opened for the read test.
    #[error("the link was examined, but not by reading: {}", .0.sentence())]
    Unit(iscsi_initiator::Error),
    /// The unit has a capacity of 0 bytes.
    #[error("the link was examined, but not by reading: the unit is empty; name another one")]
    Empty,
    /// A read failed during the read test.
    #[error("the read test ended early: {}", .0.sentence())]
    Read(iscsi_initiator::Error),
}

impl Error {
    /// Returns the exit status for the error.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            Self::Program(cause) => cause.status(),
            Self::Volume | Self::Empty => USAGE,
            Self::Session(cause) | Self::Link(cause) | Self::Unit(cause) | Self::Read(cause) => {
                of_unit(cause)
            }
        }
    }

    /// Returns the kind of the failure, by the side at fault.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Session(cause) | Self::Link(cause) | Self::Unit(cause) | Self::Read(cause) => {
                cause.fault().into()
            }
            Self::Program(cause) => cause.kind(),
            Self::Empty | Self::Volume => Kind::Caller,
        }
    }

    /// Returns the error as JSON, for an examination without a report.
    #[must_use]
    pub fn to_json(&self) -> Value {
        failure::object(json!({ "complete": false }), &self.to_string(), self.kind())
    }
}

impl ExitStatus for Error {
    fn exit_status(&self) -> u8 {
        self.status()
    }
}
