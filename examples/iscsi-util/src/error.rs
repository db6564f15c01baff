//! Errors of the program.

use std::io;
use std::path::PathBuf;

use iscsi_examples_common::amounts::beyond_the_end;
use iscsi_examples_common::credentials::CredentialsError;
use iscsi_examples_common::failure::{self, Kind, file_advice};
use iscsi_examples_common::program::ProgramError;
use iscsi_examples_common::sentence::Sentence;
use iscsi_examples_common::volume::VolumeError;
use iscsi_initiator::Disk;
use iscsi_tuner::Size;
use serde_json::{Value, json};
use thiserror::Error as ThisError;

/// Reasons why there is no complete answer. Each message is one sentence that says what to do where
/// something can be done.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The arguments do not go together, or not with the unit.
    #[error("{0}")]
    Usage(String),
    /// A wrong URL or name, no target, no admission, no unit, or a command that failed.
    #[error("{}", .0.sentence())]
    Initiator(#[from] iscsi_initiator::Error),
    /// Units that are no volume.
    #[error("{}", .0.sentence())]
    Volume(#[source] Box<iscsi_volume::Error>),
    /// A file that describes a volume, or its units.
    #[error(transparent)]
    Described(#[from] VolumeError),
    /// There is no password for it.
    #[error(transparent)]
    Password(#[from] CredentialsError),
    /// A file that cannot be written.
    #[error("{}: {cause}{}", path.display(), file_advice(cause.kind()))]
    File {
        /// Which one.
        path: PathBuf,
        /// The reason.
        cause: io::Error,
    },
    /// The range does not lie on the unit.
    #[error("the unit is too short: {}", beyond_the_end(*offset, *length, *has))]
    OutOfUnit {
        /// Where the range begins.
        offset: Size,
        /// Bytes of the range, if they are given.
        length: Option<Size>,
        /// Bytes of the unit.
        has: Size,
    },
    /// A page of vital product data that the unit refuses.
    #[error(
        "the unit refuses VPD page {page:02x}: {cause}; iscsi-util inquiry URL --page 0 lists its pages"
    )]
    Page {
        /// Its code.
        page: u8,
        /// The reason.
        cause: iscsi_initiator::Error,
    },
    /// A unit that tells more extents than were asked for.
    #[error(
        "the unit reports more than {told} extents: --offset {next} shows those behind them, and --max N shows more together"
    )]
    MoreExtents {
        /// The number that it has printed.
        told: usize,
        /// Where they end.
        next: u64,
    },
    /// The unit does not take a change of reservations from this initiator.
    #[error(
        "{command} ended in RESERVATION CONFLICT: this initiator is not registered by that key, or another one \
         holds the unit; reservations shows who does, register registers"
    )]
    Conflict {
        /// The command's name in the standard.
        command: &'static str,
    },
    /// A signal stopped the program.
    #[error("interrupted")]
    Interrupted,
    /// A signal stopped the program while it changed the unit, and the requests in flight did not end
    /// in a moment.
    #[error("interrupted with {0} in flight, which may still be executed")]
    Abandoned(&'static str),
    /// The answer cannot be printed.
    #[error("standard output: {0}")]
    Output(io::Error),
    /// The system gives no threads or no signals.
    #[error("the system does not let the program start: {0}")]
    Runtime(io::Error),
}

impl Error {
    /// Makes sure that a unit has a range; without a length it is one up to the end.
    pub(crate) fn check_range(offset: Size, length: Option<Size>, disk: &Disk) -> Result<(), Self> {
        let has = Size(disk.capacity());
        let end = offset.0.checked_add(length.map_or(1, |length| length.0));
        let fits = end.is_some_and(|end| end <= has.0);
        fits.then_some(()).ok_or(Self::OutOfUnit { offset, length, has })
    }

    /// The exit status that stands for the error: 2 for a wrong command line, 130 for an interrupt,
    /// else 1.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Password(cause) => cause.status(),
            Self::Interrupted | Self::Abandoned(_) => 130,
            Self::Output(cause) if cause.kind() == io::ErrorKind::Interrupted => 130,
            Self::Volume(cause) if is_usage(cause) => 2,
            Self::Initiator(_)
            | Self::Volume(_)
            | Self::Described(_)
            | Self::File { .. }
            | Self::OutOfUnit { .. }
            | Self::Page { .. }
            | Self::MoreExtents { .. }
            | Self::Conflict { .. }
            | Self::Output(_)
            | Self::Runtime(_) => 1,
        }
    }

    /// Returns whose fault it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Usage(_)
            | Self::Password(_)
            | Self::OutOfUnit { .. }
            | Self::MoreExtents { .. }
            | Self::Conflict { .. } => Kind::Caller,
            Self::Initiator(cause) | Self::Page { cause, .. } => cause.fault().into(),
            Self::Volume(cause) => (&**cause).into(),
            Self::Described(cause) => cause.kind(),
            Self::Interrupted | Self::Abandoned(_) => Kind::Interrupted,
            Self::File { .. } | Self::Output(_) | Self::Runtime(_) => Kind::System,
        }
    }

    /// The error for programs, where there is no report of this subcommand.
    #[must_use]
    pub fn to_json(&self, command: &str) -> Value {
        let known = json!({ "command": command, "complete": false });
        failure::object(known, &self.to_string(), self.kind())
    }
}

/// Whether it is the command line that is wrong, and not a unit that it names.
const fn is_usage(error: &iscsi_volume::Error) -> bool {
    matches!(error, iscsi_volume::Error::Chunk(_) | iscsi_volume::Error::MemberCount(_))
}

impl From<iscsi_volume::Error> for Error {
    fn from(cause: iscsi_volume::Error) -> Self {
        Self::Volume(cause.into())
    }
}

impl ProgramError for Error {
    fn exit_status(&self) -> u8 {
        self.status()
    }

    fn no_start(cause: io::Error) -> Self {
        Self::Runtime(cause)
    }
}
