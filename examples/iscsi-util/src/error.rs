//! Errors of the program.

use std::io;
use std::path::PathBuf;

use iscsi_examples_common::amounts::beyond_the_end;
use iscsi_examples_common::exit_status::{self, INTERRUPTED, REFUSED, USAGE};
use iscsi_examples_common::failure::{self, Kind, file_advice};
use iscsi_examples_common::program::{ExitStatus, ProgramError};
use iscsi_examples_common::sentence::Sentence;
use iscsi_examples_common::volume::VolumeError;
use iscsi_initiator::Disk;
use iscsi_tuner::Size;
use serde_json::{Value, json};
use thiserror::Error as ThisError;

/// Reasons why a command fails, or prints only a part of its result. Each message is one sentence, which says
/// what to do if something can be done.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The arguments contradict each other, a password cannot be used, a signal stopped the program, or another
    /// error that each program has.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A URL or a name is wrong, the target refuses the login, it has no such unit, or a command failed.
    #[error("{}", .0.sentence())]
    Initiator(#[from] iscsi_initiator::Error),
    /// The units do not form a volume.
    #[error("{}", .0.sentence())]
    Volume(#[source] Box<iscsi_volume::Error>),
    /// The file that describes a volume, or one of its units, cannot be used.
    #[error(transparent)]
    Described(#[from] VolumeError),
    /// A file cannot be written.
    #[error("{}: {cause}{}", path.display(), file_advice(cause.kind()))]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The reason.
        cause: io::Error,
    },
    /// The range does not lie on the unit.
    #[error("the unit is too short: {}", beyond_the_end(*offset, *length, *has))]
    OutOfUnit {
        /// Offset of the range.
        offset: Size,
        /// Length of the range, if one was given.
        length: Option<Size>,
        /// Capacity of the unit.
        has: Size,
    },
    /// The unit refuses a page of vital product data (VPD).
    #[error(
        "the unit refuses VPD page {page:02x}: {cause}; iscsi-util inquiry URL --page 0 lists its pages"
    )]
    Page {
        /// Code of the page.
        page: u8,
        /// The reason.
        cause: iscsi_initiator::Error,
    },
    /// The unit reports more extents than may be printed.
    #[error(
        "the unit reports more than {told} extents: --offset {next} shows those behind them, and --max N shows more together"
    )]
    MoreExtents {
        /// Maximum number of extents.
        told: usize,
        /// End of the last printed extent, in bytes.
        next: u64,
    },
    /// The unit refuses a change of reservations by this initiator.
    #[error(
        "{command} ended in RESERVATION CONFLICT: this initiator is not registered by that key, or another one \
         holds the unit; reservations shows who does, register registers"
    )]
    Conflict {
        /// Name of the command in the standard.
        command: &'static str,
    },
    /// A signal stopped the program while it changed the unit, and its requests in flight did not end in
    /// time.
    #[error("interrupted with {0} in flight, which may still be executed")]
    Abandoned(&'static str),
}

impl Error {
    /// Checks that a range is on the unit. Without a length, the range has one byte.
    pub(crate) fn check_range(offset: Size, length: Option<Size>, disk: &Disk) -> Result<(), Self> {
        let has = Size(disk.capacity());
        let end = offset.0.checked_add(length.map_or(1, |length| length.0));
        let fits = end.is_some_and(|end| end <= has.0);
        fits.then_some(()).ok_or(Self::OutOfUnit { offset, length, has })
    }

    /// Returns the exit status for the error.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            Self::Program(cause) => cause.status(),
            Self::Abandoned(_) => INTERRUPTED,
            Self::OutOfUnit { .. } | Self::MoreExtents { .. } => USAGE,
            Self::Initiator(cause) | Self::Page { cause, .. } => exit_status::of_unit(cause),
            Self::Volume(cause) => exit_status::of_volume(cause),
            Self::Described(cause) => cause.status(),
            Self::File { cause, .. } => exit_status::of_system(cause),
            Self::Conflict { .. } => REFUSED,
        }
    }

    /// Returns the kind of the failure, by the side at fault.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Program(cause) => cause.kind(),
            Self::OutOfUnit { .. } | Self::MoreExtents { .. } | Self::Conflict { .. } => {
                Kind::Caller
            }
            Self::Initiator(cause) | Self::Page { cause, .. } => cause.fault().into(),
            Self::Volume(cause) => (&**cause).into(),
            Self::Described(cause) => cause.kind(),
            Self::Abandoned(_) => Kind::Interrupted,
            Self::File { .. } => Kind::System,
        }
    }

    /// Returns the error as JSON, for a command that has no report.
    #[must_use]
    pub fn to_json(&self, command: &str) -> Value {
        let known = json!({ "command": command, "complete": false });
        failure::object(known, &self.to_string(), self.kind())
    }
}

impl From<iscsi_volume::Error> for Error {
    fn from(cause: iscsi_volume::Error) -> Self {
        Self::Volume(cause.into())
    }
}

impl ExitStatus for Error {
    fn exit_status(&self) -> u8 {
        self.status()
    }
}
