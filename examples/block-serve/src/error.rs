//! Errors of the program.

use std::io;

use iscsi_examples_common::exit_status::{self, AGAIN, DATA, ERROR};
use iscsi_examples_common::failure::{self, Kind};
use iscsi_examples_common::metrics::MetricsError;
use iscsi_examples_common::place::PlaceError;
use iscsi_examples_common::program::{ExitStatus, ProgramError};
use iscsi_examples_common::sentence::Sentence;
use iscsi_examples_common::volume::VolumeError;
use iscsi_initiator::device::DeviceError;
use serde_json::{Value, json};
use thiserror::Error as ThisError;

use crate::listen::Address;

/// Reasons why the program cannot serve, or cannot continue. Each message is one sentence, which says what to
/// do if something can be done.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The arguments contradict each other, a password cannot be used, a signal stopped the program, or another
    /// error that each program has.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A URL or a name is wrong, the target refuses the login, or it has no such unit.
    #[error("{}", .0.sentence())]
    Initiator(#[from] iscsi_initiator::Error),
    /// The file that describes a volume, or one of its units, cannot be used.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The program cannot listen at the address.
    #[error("cannot listen at {address}: {cause}{}", address.advice(cause.kind()))]
    Listen {
        /// The address.
        address: Address,
        /// Error of the system.
        cause: io::Error,
    },
    /// Another process listens at the address already.
    #[error(
        "cannot listen at {0}: another process listens there; end it, or choose another address"
    )]
    Taken(Address),
    /// The sockets that were handed over cannot be used.
    #[error("a socket that was handed over (LISTEN_FDS): {0}")]
    Inherited(io::Error),
    /// The files for TLS cannot be used.
    #[error("TLS of the clients cannot be used: {0}; check --tls-cert, --tls-key and --tls-ca")]
    Tls(io::Error),
    /// The metrics cannot be served.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// Writes of clients may be lost, and no client has received an error for them.
    #[error("what clients have written may be lost: {}", .0.sentence())]
    Flush(DeviceError),
}

impl Error {
    /// Returns the exit status for the error.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            Self::Program(cause) => cause.status(),
            Self::Initiator(cause) => exit_status::of_unit(cause),
            Self::Volume(cause) => cause.status(),
            Self::Listen { cause, .. } => exit_status::of_system(cause),
            Self::Metrics(cause) => cause.status(),
            Self::Taken(_) => AGAIN,
            Self::Inherited(_) | Self::Tls(_) => ERROR,
            Self::Flush(_) => DATA,
        }
    }

    /// Returns the kind of the failure, by the side at fault.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Program(cause) => cause.kind(),
            Self::Initiator(cause) => cause.fault().into(),
            Self::Volume(cause) => cause.kind(),
            Self::Flush(cause) => cause.into(),
            Self::Listen { .. }
            | Self::Taken(_)
            | Self::Inherited(_)
            | Self::Metrics(_)
            | Self::Tls(_) => Kind::System,
        }
    }

    /// Returns the error as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        failure::object(json!({ "complete": false }), &self.to_string(), self.kind())
    }
}

impl From<PlaceError> for Error {
    fn from(error: PlaceError) -> Self {
        match error {
            PlaceError::Unit(cause) => cause.into(),
            PlaceError::Volume(cause) => cause.into(),
        }
    }
}

impl ExitStatus for Error {
    fn exit_status(&self) -> u8 {
        self.status()
    }
}
