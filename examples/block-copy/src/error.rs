//! Errors of a copy.

pub(crate) mod failure;
pub(crate) mod refusal;
pub mod sentence;
mod status;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use iscsi_copy::{Difference, NbdError, Progress};
use iscsi_examples_common::amounts::{beside, beyond_the_end, exact};
use iscsi_examples_common::exit_status::{self, AGAIN, DATA, ERROR, INTERRUPTED, USAGE};
use iscsi_examples_common::failure::{Kind, file_advice};
use iscsi_examples_common::metrics::MetricsError;
use iscsi_examples_common::program::{ExitStatus, ProgramError};
use iscsi_examples_common::sentence::Sentence;
use iscsi_examples_common::volume::VolumeError;
use iscsi_initiator::device::{DeviceError, DeviceErrorKind};
use thiserror::Error as ThisError;

use self::refusal::Refusal;
use self::sentence::{is_of_caller, of_device, of_export, of_ranges};
use self::status::{NOT_CONVERGING, UNREADABLE, status_of_device, status_of_export};
use crate::classes::ClassesError;
use crate::report::passes::NotConverging;
use crate::side::Side;
use iscsi_tuner::Size;

/// Reasons why a copy fails. Each message is one sentence, which says what to do if something can be done.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The arguments contradict each other, a password cannot be used, a signal stopped the program, or another
    /// error that each program has.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The initiator cannot have the requested name or options.
    #[error("{}", .0.sentence())]
    Initiator(#[source] iscsi_initiator::Error),
    /// The URL of a unit is wrong, the unit cannot be opened, or a request to it failed.
    #[error("{side}: {}", cause.sentence())]
    Unit {
        /// The side of the copy.
        side: Side,
        /// The cause.
        cause: DeviceError,
    },
    /// The file that describes a volume, or one of its units, cannot be used.
    #[error("{side}: {cause}")]
    Volume {
        /// The side of the copy.
        side: Side,
        /// The cause.
        cause: VolumeError,
    },
    /// The URI of an NBD export is wrong, or the export cannot be opened.
    #[error("{side}: {}", of_export(cause))]
    Nbd {
        /// The side of the copy.
        side: Side,
        /// The cause.
        cause: NbdError,
    },
    /// A file, a stream, an NBD export or a volume cannot be opened, read or written.
    #[error("{side} {name}: {}", of_device(cause))]
    File {
        /// The side of the copy.
        side: Side,
        /// Name of the source or destination.
        name: Arc<str>,
        /// The cause.
        cause: DeviceError,
    },
    /// The copy would read or overwrite something else than the user probably meant.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The source ended before the length that it had at the beginning.
    #[error(
        "source {0}: it became shorter while it was copied; copy again when nothing changes it"
    )]
    Shrunk(Arc<str>),
    /// The destination is smaller than the data to copy.
    #[error(
        "destination too small: it holds {} and the source has {}; choose a larger one, or copy a part with --length",
        beside(*capacity, *needed), beside(*needed, *capacity)
    )]
    TooSmall {
        /// The capacity of the destination.
        capacity: Size,
        /// The length of the source.
        needed: Size,
    },
    /// The part to copy does not lie in the source.
    #[error("source too short: {}", beyond_the_end(*offset, *length, *has))]
    OutOfSource {
        /// The offset of the part.
        offset: Size,
        /// The length of the part, if one was given.
        length: Option<Size>,
        /// The length of the source.
        has: Size,
    },
    /// The destination has less space after the destination offset than the copy needs.
    #[error(
        "destination too small: from --destination-offset {} on it holds {}, and {} are to be copied; choose a larger \
         destination, or a smaller --destination-offset",
        exact(*place), beside(*rest, *needed), beside(*needed, *rest)
    )]
    NoRoom {
        /// The offset of the copy in the destination.
        place: Size,
        /// The capacity of the destination from there on.
        rest: Size,
        /// The bytes to copy.
        needed: Size,
    },
    /// The source is a stream, and is longer than the destination.
    #[error(
        "destination too small: it holds {capacity} and the source has more; choose a larger one"
    )]
    Overflow {
        /// The capacity of the destination.
        capacity: Size,
    },
    /// Source and destination are the same.
    #[error("source and destination are the same {0}; choose another destination")]
    Same(&'static str),
    /// One file has two uses in the copy, and at least one of them writes to it.
    #[error(
        "{one} and {other} are the same file, and each wants a file of its own; name another one"
    )]
    OneFile {
        /// The first use.
        one: &'static str,
        /// The second use.
        other: &'static str,
    },
    /// Another copy of this process writes what this copy reads or writes, or reads what this copy writes.
    #[error(
        "{what}: it is the {as_its} of {copy} as well; name another one, or copy one after the other"
    )]
    Claimed {
        /// Role of the file or unit in this copy.
        what: &'static str,
        /// The name of the other copy.
        copy: Arc<str>,
        /// Role of the file or unit in the other copy.
        as_its: &'static str,
    },
    /// Another process of this host writes to the destination or to a file of the copy.
    #[error(
        "{what}: {holder} of this host writes there; copy when that has ended, or name another one"
    )]
    Locked {
        /// Role of the file or unit in this copy.
        what: &'static str,
        /// The other process, as text.
        holder: String,
    },
    /// A command that an earlier copy has started is still running.
    #[error(
        "--ranges-from: a command that process {0} has started still runs, and takes what has changed from this copy; \
         end it, and copy again"
    )]
    CommandLeft(u32),
    /// The destination holds other data than were written to it.
    #[error(
        "verification failed: {difference}; everything was written and flushed; copy again, and \
         check the medium of the destination"
    )]
    Mismatch {
        /// The first difference.
        difference: Difference,
    },
    /// Everything is copied except ranges that the medium of the source could not read.
    #[error(
        "source {source_name}: {unreadable} in {places} could not be read and are left out; \
         everything else was written and flushed{}",
        if *.has_checkpoint { "; the checkpoint says where, and --resume tries again" } else { "" }
    )]
    Unreadable {
        /// The name of the source.
        source_name: Arc<str>,
        /// Number of bytes in these ranges.
        unreadable: Size,
        /// Number of these ranges.
        places: Places,
        /// Whether a checkpoint lists the ranges.
        has_checkpoint: bool,
    },
    /// The destination does not hold the data that earlier copies have written there.
    #[error(
        "verification failed: {difference}; another program has written there, or the medium is bad; the \
         digests are forgotten, so that the next copy sends all"
    )]
    Differs {
        /// The first difference.
        difference: Difference,
    },
    /// Some blocks have no digest, so they could not be verified.
    #[error(
        "not all of the {0} could be verified: of some of it no digest is known, because it was lost and \
         written again in parts; everything else was read back equal; copy again to send that part"
    )]
    PartlyKnown(Size),
    /// The file of digests has no digest of the destination, so nothing could be verified.
    #[error(
        "digests {0}: they know nothing of the destination, so nothing was verified; copy again"
    )]
    NothingKnown(Arc<str>),
    /// The copy is complete, but the destination could not be verified.
    #[error("{0}; everything was written and flushed, but not verified")]
    Unverified(Box<Self>),
    /// Everything was copied, but a unit may have been replaced by another one during the copy.
    #[error("{0}; everything was copied, but what was copied may be of another unit")]
    Unconfirmed(Box<Self>),
    /// A checkpoint cannot be used or written.
    #[error("checkpoint {name}: {cause}{}", file_advice(cause.kind()))]
    Checkpoint {
        /// Name of the checkpoint.
        name: Arc<str>,
        /// The reason.
        cause: io::Error,
    },
    /// A file of digests cannot be used or written.
    #[error("digests {name}: {cause}{}", file_advice(cause.kind()))]
    Digests {
        /// Name of the file.
        name: Arc<str>,
        /// The reason.
        cause: io::Error,
    },
    /// A list of ranges to copy cannot be used.
    #[error("ranges {name}: {}", of_ranges(cause))]
    Ranges {
        /// Name of the list.
        name: Arc<str>,
        /// The reason.
        cause: DeviceError,
    },
    /// A command that an option names has failed.
    #[error("{option}: {}", of_ranges(cause))]
    Command {
        /// The option.
        option: &'static str,
        /// The reason.
        cause: DeviceError,
    },
    /// The changes in a source in use could not be determined, so the checkpoint is not valid any more.
    #[error(
        "{0}; what has changed is not known now, so the same command with --resume copies all again"
    )]
    Unasked(Box<Self>),
    /// A source in use is written to so fast that further passes do not help.
    #[error(
        "not converging: {0}; all reported changes are copied and flushed, and the source is still in use"
    )]
    NotConverging(NotConverging),
    /// The file of the checkpoint exists already, and a new copy would overwrite it.
    #[error(
        "checkpoint {0}: it exists; add --resume to go on from what it says, or name another file"
    )]
    CheckpointExists(Arc<str>),
    /// The unit has no name, so a later run could not recognize it.
    #[error("{0}: the unit does not say which one it is; leave --checkpoint and --digests out")]
    Nameless(Side),
    /// The copy ended early, and there is a checkpoint to resume it from.
    #[error("{0}; the same command with --resume goes on from what is flushed")]
    Resumable(Box<Self>),
    /// The control socket cannot be created.
    #[error("control socket {}: {cause}{}", path.display(), file_advice(cause.kind()))]
    Control {
        /// The path of the socket.
        path: PathBuf,
        /// The reason.
        cause: io::Error,
    },
    /// Another process listens at the path of the control socket.
    #[error("control socket {}: another process listens there; end it, or choose another path", .0.display())]
    ControlTaken(PathBuf),
    /// The classes of another process cannot be shared.
    #[error("share {}: {reason}", path.display())]
    Share {
        /// Path of the control socket of the other process.
        path: PathBuf,
        /// The reason.
        reason: String,
        /// Whether no process listens there. It may be started later.
        is_away: bool,
    },
    /// The metrics cannot be served.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The result cannot be written to the file of `--termination-log`.
    #[error("termination log {}: {cause}{}", path.display(), file_advice(cause.kind()))]
    TerminationLog {
        /// Path of the file.
        path: PathBuf,
        /// The reason.
        cause: io::Error,
    },
    /// A job file cannot be read, or is malformed.
    #[error("job file {}: {reason}", path.display())]
    JobFile {
        /// Path of the job file.
        path: PathBuf,
        /// The defect.
        reason: String,
    },
    /// A rate or a traffic class cannot be set as requested.
    #[error(transparent)]
    Classes(#[from] ClassesError),
    /// A signal stopped the copy, and its writes in flight did not end in time.
    #[error("interrupted with {under_way} in flight, which may be written or not")]
    Abandoned {
        /// Number of bytes of those writes.
        under_way: Size,
    },
    /// Everything was written, but the flush failed or was abandoned.
    #[error("{cause}; all of it, {written}, was written, but not flushed")]
    Unflushed {
        /// The reason.
        cause: Box<Self>,
        /// Number of bytes that were written.
        written: Size,
    },
    /// The copy ended after it had written a part of the data.
    #[error(
        "{cause}; {}, the destination is incomplete{}",
        how_much(*.written, *.flushed, *.total),
        if *.has_full_length { " and has its full length already" } else { "" }
    )]
    Incomplete {
        /// The reason.
        cause: Box<Self>,
        /// Number of bytes that were written.
        written: Size,
        /// Number of these bytes that were flushed.
        flushed: Size,
        /// Number of bytes to copy, if known.
        total: Option<Size>,
        /// Whether the destination is a file that has its final length already. The parts that were not
        /// written are holes, or hold old data.
        has_full_length: bool,
    },
    /// The copy is complete, but a session of this end does not answer, and the program did not wait longer
    /// for it.
    #[error(
        "{0}: everything was written and flushed, but the target may still carry out writes of a session \
         that does not answer; write nothing there before it has dropped that session"
    )]
    Unsettled(Side),
    /// The result cannot be printed.
    #[error("standard output: {cause}{}; the copy itself is complete", file_advice(cause.kind()))]
    Output {
        /// The cause.
        cause: io::Error,
    },
    /// A task of the program was cancelled from outside.
    #[error("the copy was cancelled")]
    Cancelled,
}

impl Error {
    /// Returns the exit status for the error.
    pub fn status(&self) -> u8 {
        match self {
            Self::Program(cause) => cause.status(),
            Self::Initiator(cause) => exit_status::of_unit(cause),
            Self::Unit { cause, .. } | Self::File { cause, .. } => status_of_device(cause),
            Self::Nbd { cause, .. } => status_of_export(cause),
            Self::Volume { cause, .. } => cause.status(),
            Self::Ranges { cause, .. } if cause.kind() == DeviceErrorKind::Protocol => USAGE,
            Self::Ranges { cause, .. } => status_of_device(cause),
            Self::Unreadable { .. } => UNREADABLE,
            Self::NotConverging(_) => NOT_CONVERGING,
            Self::Abandoned { .. } => INTERRUPTED,
            Self::Checkpoint { cause, .. } | Self::Digests { cause, .. }
                if cause.kind() == io::ErrorKind::InvalidData =>
            {
                USAGE
            }
            Self::Checkpoint { cause, .. }
            | Self::Digests { cause, .. }
            | Self::Control { cause, .. }
            | Self::Output { cause } => exit_status::of_system(cause),
            Self::Metrics(cause) => cause.status(),
            Self::TerminationLog { cause, .. } if cause.kind() == io::ErrorKind::InvalidInput => {
                USAGE
            }
            Self::TerminationLog { cause, .. } => exit_status::of_system(cause),
            Self::Incomplete { cause, .. }
            | Self::Unflushed { cause, .. }
            | Self::Resumable(cause)
            | Self::Unasked(cause)
            | Self::Unverified(cause)
            | Self::Unconfirmed(cause) => cause.status(),
            Self::Locked { .. }
            | Self::CommandLeft(_)
            | Self::ControlTaken(_)
            | Self::Share { is_away: true, .. }
            | Self::Unsettled(_) => AGAIN,
            Self::Mismatch { .. }
            | Self::Differs { .. }
            | Self::PartlyKnown(_)
            | Self::NothingKnown(_) => DATA,
            Self::OneFile { .. }
            | Self::Claimed { .. }
            | Self::JobFile { .. }
            | Self::Classes(_)
            | Self::Refused(_)
            | Self::TooSmall { .. }
            | Self::Overflow { .. }
            | Self::OutOfSource { .. }
            | Self::NoRoom { .. }
            | Self::Same(_)
            | Self::CheckpointExists(_)
            | Self::Nameless(_)
            | Self::Share { .. } => USAGE,
            Self::Command { .. } | Self::Shrunk(_) | Self::Cancelled => ERROR,
        }
    }

    /// Returns the kind of the failure, by the side at fault.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Initiator(cause) => cause.fault().into(),
            Self::Unit { cause, .. } => cause.into(),
            Self::Volume { cause, .. } => cause.kind(),
            Self::Program(cause) => cause.kind(),
            Self::Refused(_)
            | Self::OutOfSource { .. }
            | Self::NoRoom { .. }
            | Self::TooSmall { .. }
            | Self::Overflow { .. }
            | Self::Same(_)
            | Self::OneFile { .. }
            | Self::Claimed { .. }
            | Self::Locked { .. }
            | Self::CommandLeft(_)
            | Self::JobFile { .. }
            | Self::Classes(_)
            | Self::ControlTaken(_)
            | Self::Share { .. }
            | Self::CheckpointExists(_)
            | Self::Ranges { .. }
            | Self::NotConverging(_)
            | Self::Nameless(_) => Kind::Caller,
            Self::Checkpoint { cause, .. } | Self::Digests { cause, .. }
                if cause.kind() == io::ErrorKind::InvalidData =>
            {
                Kind::Caller
            }
            Self::TerminationLog { cause, .. } if cause.kind() == io::ErrorKind::InvalidInput => {
                Kind::Caller
            }
            Self::Mismatch { .. }
            | Self::Unreadable { .. }
            | Self::Differs { .. }
            | Self::PartlyKnown(_)
            | Self::NothingKnown(_) => Kind::Data,
            Self::Abandoned { .. } => Kind::Interrupted,
            Self::Unsettled(_) => Kind::Network,
            Self::Unflushed { cause, .. }
            | Self::Incomplete { cause, .. }
            | Self::Resumable(cause)
            | Self::Unasked(cause)
            | Self::Unverified(cause)
            | Self::Unconfirmed(cause) => cause.kind(),
            Self::Nbd { cause, .. } if is_of_caller(cause) => Kind::Caller,
            Self::Nbd { .. } => Kind::Network,
            Self::File { .. }
            | Self::Command { .. }
            | Self::Digests { .. }
            | Self::Checkpoint { .. }
            | Self::Shrunk(_)
            | Self::Control { .. }
            | Self::Metrics(_)
            | Self::TerminationLog { .. }
            | Self::Output { .. }
            | Self::Cancelled => Kind::System,
        }
    }

    /// Returns whether the copy was refused before it began, because of another copy or another use of a file.
    pub(crate) const fn is_of_another_copy(&self) -> bool {
        matches!(
            self,
            Self::OneFile { .. }
                | Self::Claimed { .. }
                | Self::Locked { .. }
                | Self::CommandLeft(_)
        )
    }

    /// Returns whether a source or destination has nothing by which a later run could recognise it.
    pub(crate) fn is_of_no_identity(&self) -> bool {
        if let Self::File { cause, .. } = self {
            return cause.kind() == DeviceErrorKind::Unsupported;
        }
        matches!(self, Self::Nameless(_) | Self::Program(ProgramError::Usage(_)))
    }

    /// Returns whether a unit is gone, or is not the one that was opened.
    pub fn is_changed_unit(&self) -> bool {
        let Self::Unit { cause, .. } = self else { return false };
        matches!(cause.kind(), DeviceErrorKind::AnotherDevice | DeviceErrorKind::NotFound)
    }

    /// Adds to the error of a copy with a checkpoint how to resume the copy. An error that needs another
    /// command line, or that suggests a wrong unit, stays unchanged.
    #[must_use]
    pub fn resumable(self) -> Self {
        let is_in_doubt = matches!(self, Self::Unconfirmed(_)) || self.is_changed_unit();
        if is_in_doubt || self.kind() == Kind::Caller {
            return self;
        }
        Self::Resumable(Box::new(self))
    }

    /// Adds the progress of the copy to the error. `is_written`: everything was written, and only the last
    /// flush is missing. `has_full_length`: the destination has its final length.
    #[must_use]
    pub fn after(self, progress: &Progress, is_written: bool, has_full_length: bool) -> Self {
        let (written, flushed) = (Size(progress.done), Size(progress.flushed));
        if is_written && self.is_changed_unit() {
            return Self::Unconfirmed(Box::new(self));
        }
        if is_written {
            return Self::Unflushed { cause: Box::new(self), written };
        }
        if written.0 == 0 && !has_full_length {
            return self;
        }
        Self::Incomplete {
            cause: Box::new(self),
            written,
            flushed,
            total: progress.total.map(Size),
            has_full_length,
        }
    }
}

/// A number of places, for messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Places(pub usize);

impl fmt::Display for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, if self.0 == 1 { "place" } else { "places" })
    }
}

impl ExitStatus for Error {
    fn exit_status(&self) -> u8 {
        self.status()
    }
}

/// Returns how many bytes were written, and how many of them were flushed, as text.
fn how_much(written: Size, flushed: Size, total: Option<Size>) -> String {
    let of = total.map_or_else(String::new, |total| format!(" of {total}"));
    match flushed {
        _ if written.0 == 0 => format!("nothing{of} was written"),
        Size(0) => format!("{written}{of} were written and not flushed"),
        flushed if flushed == written => format!("{written}{of} were written and flushed"),
        flushed => format!("{written}{of} were written and {flushed} of it flushed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_much_is_flushed_is_told() {
        for (written, flushed, told) in [
            (0, 0, "nothing of 4 MiB was written"),
            (2, 0, "2 MiB of 4 MiB were written and not flushed"),
            (2, 1, "2 MiB of 4 MiB were written and 1 MiB of it flushed"),
            (2, 2, "2 MiB of 4 MiB were written and flushed"),
        ] {
            let error = Error::Incomplete {
                cause: Box::new(ProgramError::Interrupted.into()),
                written: Size(written << 20),
                flushed: Size(flushed << 20),
                total: Some(Size(4 << 20)),
                has_full_length: false,
            };
            let sentence = format!("interrupted; {told}, the destination is incomplete");
            assert_eq!(error.to_string(), sentence);
        }
    }
}
