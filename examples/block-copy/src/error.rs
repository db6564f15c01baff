//! Errors of a copy.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use iscsi_copy::{Difference, NbdError, Progress};
use iscsi_examples_common::amounts::{beside, beyond_the_end, exact};
use iscsi_examples_common::credentials::CredentialsError;
use iscsi_examples_common::failure::{Kind, file_advice};
use iscsi_examples_common::program::ProgramError;
use iscsi_examples_common::sentence::Sentence;
use iscsi_examples_common::volume::VolumeError;
use iscsi_initiator::device::{DeviceError, DeviceErrorKind};
use thiserror::Error as ThisError;

use crate::classes::ClassesError;
use crate::passes::NotConverging;
use crate::refusal::Refusal;
use crate::sentence::{is_of_caller, of_device, of_export, of_ranges};
use crate::side::Side;
use iscsi_tuner::Size;

/// Reasons why a copy fails. Each message is one sentence that says what to do where something can
/// be done.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The arguments do not go together.
    #[error("{0}")]
    Usage(&'static str),
    /// The initiator cannot be what it is asked to be.
    #[error("{}", .0.sentence())]
    Initiator(#[source] iscsi_initiator::Error),
    /// A unit, or the way to it.
    #[error("{side}: {}", cause.sentence())]
    Unit {
        /// Which one.
        side: Side,
        /// The cause.
        cause: DeviceError,
    },
    /// The file of a volume, or its units.
    #[error("{side}: {cause}")]
    Volume {
        /// Which one.
        side: Side,
        /// The cause.
        cause: VolumeError,
    },
    /// An NBD server, its export or its URI.
    #[error("{side}: {}", of_export(cause))]
    Nbd {
        /// Which one.
        side: Side,
        /// The cause.
        cause: NbdError,
    },
    /// A file or stream.
    #[error("{side} {name}: {}", of_device(cause))]
    File {
        /// Which one.
        side: Side,
        /// Its name.
        name: Arc<str>,
        /// The cause.
        cause: DeviceError,
    },
    /// Something else would be overwritten or copied than was meant.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The source ended before the length that it had at the beginning.
    #[error(
        "source {0}: it became shorter while it was copied; copy again when nothing changes it"
    )]
    Shrunk(Arc<str>),
    /// More is to be copied than the destination holds.
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
        /// Where it shall begin.
        offset: Size,
        /// The length that it shall have.
        length: Option<Size>,
        /// The length of the source.
        has: Size,
    },
    /// More is to be copied than the destination holds from that place on.
    #[error(
        "destination too small: from --destination-offset {} on it holds {}, and {} are to be copied; choose a larger \
         destination, or a smaller --destination-offset",
        exact(*place), beside(*rest, *needed), beside(*needed, *rest)
    )]
    NoRoom {
        /// Where the copy shall begin.
        place: Size,
        /// The capacity of the destination from there on.
        rest: Size,
        /// The bytes to copy.
        needed: Size,
    },
    /// A stream turned out to be longer than the destination.
    #[error(
        "destination too small: it holds {capacity} and the source has more; choose a larger one"
    )]
    Overflow {
        /// The capacity of the destination.
        capacity: Size,
    },
    /// A copy onto itself.
    #[error("source and destination are the same {0}; choose another destination")]
    Same(&'static str),
    /// One file has two uses, and is written for one of them.
    #[error(
        "{one} and {other} are the same file, and each wants a file of its own; name another one"
    )]
    OneFile {
        /// The one use.
        one: &'static str,
        /// The other.
        other: &'static str,
    },
    /// Another copy of this process writes what this one reads or writes, or reads what this one writes.
    #[error(
        "{what}: it is the {as_its} of {copy} as well; name another one, or copy one after the other"
    )]
    Claimed {
        /// The end of this copy.
        what: &'static str,
        /// The name of the other copy.
        copy: Arc<str>,
        /// The end of the other copy.
        as_its: &'static str,
    },
    /// Another process of this host writes there.
    #[error(
        "{what}: {holder} of this host writes there; copy when that has ended, or name another one"
    )]
    Locked {
        /// The end of this copy.
        what: &'static str,
        /// The other process.
        holder: String,
    },
    /// A command of an earlier copy lives on.
    #[error(
        "--ranges-from: a command that process {0} has started still runs, and takes what has changed from this copy; \
         end it, and copy again"
    )]
    CommandLeft(u32),
    /// The destination holds something else than what was written.
    #[error(
        "verification failed: {difference}; everything was written and flushed; copy again, and \
         check the medium of the destination"
    )]
    Mismatch {
        /// Where.
        difference: Difference,
    },
    /// All is copied but what the medium of the source did not give.
    #[error(
        "source {source_name}: {unreadable} in {places} could not be read and are left out; \
         everything else was written and flushed{}",
        if *.has_checkpoint { "; the checkpoint says where, and --resume tries again" } else { "" }
    )]
    Unreadable {
        /// The name of the source.
        source_name: Arc<str>,
        /// The bytes.
        unreadable: Size,
        /// In how many places.
        places: Places,
        /// Whether a checkpoint has them.
        has_checkpoint: bool,
    },
    /// The destination is not what copies have left there.
    #[error(
        "verification failed: {difference}; another program has written there, or the medium is bad; the \
         digests are forgotten, so that the next copy sends all"
    )]
    Differs {
        /// Where.
        difference: Difference,
    },
    /// Some blocks have no digest.
    #[error(
        "not all of the {0} could be verified: of some of it no digest is known, because it was lost and \
         written again in parts; everything else was read back equal; copy again to send that part"
    )]
    PartlyKnown(Size),
    /// There is not a single digest to compare with.
    #[error(
        "digests {0}: they know nothing of the destination, so nothing was verified; copy again"
    )]
    NothingKnown(Arc<str>),
    /// The copy is complete, but whether the destination holds it could not be found out.
    #[error("{0}; everything was written and flushed, but not verified")]
    Unverified(Box<Self>),
    /// Everything was copied, but an end that is a unit is another one now, or does not say which.
    #[error("{0}; everything was copied, but what was copied may be of another unit")]
    Unconfirmed(Box<Self>),
    /// There is no password for it, or one for two hosts.
    #[error(transparent)]
    Password(#[from] CredentialsError),
    /// A checkpoint cannot be used, or not be written.
    #[error("checkpoint {name}: {cause}{}", file_advice(cause.kind()))]
    Checkpoint {
        /// Its name.
        name: Arc<str>,
        /// The reason.
        cause: io::Error,
    },
    /// Digests cannot be used, or not be written.
    #[error("digests {name}: {cause}{}", file_advice(cause.kind()))]
    Digests {
        /// Its name.
        name: Arc<str>,
        /// The reason.
        cause: io::Error,
    },
    /// A file names no ranges to copy.
    #[error("ranges {name}: {}", of_ranges(cause))]
    Ranges {
        /// Its name.
        name: Arc<str>,
        /// The reason.
        cause: DeviceError,
    },
    /// A command that an option names did not do what it should.
    #[error("{option}: {}", of_ranges(cause))]
    Command {
        /// The option.
        option: &'static str,
        /// The reason.
        cause: DeviceError,
    },
    /// The changes in a source in use are not known, so that no checkpoint counts any more.
    #[error(
        "{0}; what has changed is not known now, so the same command with --resume copies all again"
    )]
    Unasked(Box<Self>),
    /// A source is written to so fast that more passes do not help.
    #[error(
        "not converging: {0}; all reported changes are copied and flushed, and the source is still in use"
    )]
    NotConverging(NotConverging),
    /// A checkpoint would be lost.
    #[error(
        "checkpoint {0}: it exists; add --resume to go on from what it says, or name another file"
    )]
    CheckpointExists(Arc<str>),
    /// A unit that has no name cannot be known again.
    #[error("{0}: the unit does not say which one it is; leave --checkpoint and --digests out")]
    Nameless(Side),
    /// The copy ended before its time, and there is a checkpoint of it.
    #[error("{0}; the same command with --resume goes on from what is flushed")]
    Resumable(Box<Self>),
    /// There is no socket for orders.
    #[error("control socket {}: {cause}{}", path.display(), file_advice(cause.kind()))]
    Control {
        /// Where it was to be.
        path: PathBuf,
        /// The reason.
        cause: io::Error,
    },
    /// The socket for orders is another process's.
    #[error("control socket {}: another process listens there; end it, or choose another path", .0.display())]
    ControlTaken(PathBuf),
    /// There are no classes to share.
    #[error("share {}: {reason}", path.display())]
    Share {
        /// Where they are kept.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A job file makes no sense, or cannot be read.
    #[error("job file {}: {reason}", path.display())]
    JobFile {
        /// Its name.
        path: PathBuf,
        /// The defect.
        reason: String,
    },
    /// A rate or a class cannot be as it was asked to be.
    #[error(transparent)]
    Classes(#[from] ClassesError),
    /// A signal stopped the copy.
    #[error("interrupted")]
    Interrupted,
    /// A signal stopped the copy while writes were in flight that did not end in a moment.
    #[error("interrupted with {under_way} in flight, which may be written or not")]
    Abandoned {
        /// The bytes of those writes.
        under_way: Size,
    },
    /// All was written, but the flush failed, or was given up.
    #[error("{cause}; all of it, {written}, was written, but not flushed")]
    Unflushed {
        /// The reason.
        cause: Box<Self>,
        /// The bytes that were written.
        written: Size,
    },
    /// The copy ended after a part of it had been written.
    #[error(
        "{cause}; {}, the destination is incomplete{}",
        how_much(*.written, *.flushed, *.total),
        if *.has_full_length { " and has its full length already" } else { "" }
    )]
    Incomplete {
        /// The reason.
        cause: Box<Self>,
        /// The bytes that were written.
        written: Size,
        /// The bytes of them that were flushed.
        flushed: Size,
        /// The bytes in total, if known.
        total: Option<Size>,
        /// The destination is a file, which is as long as it will be: what is not written is a hole, or what
        /// stood there before.
        has_full_length: bool,
    },
    /// The copy is complete, but a session of this end does not answer, and the wait for it was cut short.
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
    /// The system gives no threads or no signals.
    #[error("the system does not let the program start: {0}")]
    Runtime(io::Error),
    /// A task of the program was cancelled from outside.
    #[error("the copy was cancelled")]
    Cancelled,
}

impl Error {
    /// The exit status that stands for the error: 2 for a wrong command line, 3 where all is copied but
    /// what could not be read, 130 for an interrupt, else 1.
    pub fn status(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::OneFile { .. } | Self::JobFile { .. } | Self::Classes(_) => 2,
            Self::Password(cause) => cause.status(),
            Self::Refused(cause) => cause.status(),
            Self::Unreadable { .. } => 3,
            Self::NotConverging(_) => 4,
            Self::Interrupted | Self::Abandoned { .. } => 130,
            Self::Output { cause } if cause.kind() == io::ErrorKind::Interrupted => 130,
            Self::Incomplete { cause, .. }
            | Self::Unflushed { cause, .. }
            | Self::Resumable(cause)
            | Self::Unasked(cause)
            | Self::Unverified(cause)
            | Self::Unconfirmed(cause) => cause.status(),
            Self::Initiator(_)
            | Self::Unit { .. }
            | Self::Volume { .. }
            | Self::Nbd { .. }
            | Self::File { .. }
            | Self::Shrunk(_)
            | Self::TooSmall { .. }
            | Self::Overflow { .. }
            | Self::OutOfSource { .. }
            | Self::NoRoom { .. }
            | Self::Same(_)
            | Self::Claimed { .. }
            | Self::Locked { .. }
            | Self::CommandLeft(_)
            | Self::Checkpoint { .. }
            | Self::Digests { .. }
            | Self::Ranges { .. }
            | Self::Command { .. }
            | Self::Differs { .. }
            | Self::PartlyKnown(_)
            | Self::NothingKnown(_)
            | Self::CheckpointExists(_)
            | Self::Nameless(_)
            | Self::Mismatch { .. }
            | Self::Unsettled(_)
            | Self::Control { .. }
            | Self::ControlTaken(_)
            | Self::Share { .. }
            | Self::Output { .. }
            | Self::Runtime(_)
            | Self::Cancelled => 1,
        }
    }

    /// Returns whose fault it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Initiator(cause) => cause.fault().into(),
            Self::Unit { cause, .. } => cause.into(),
            Self::Volume { cause, .. } => cause.kind(),
            Self::Usage(_)
            | Self::Refused(_)
            | Self::OutOfSource { .. }
            | Self::NoRoom { .. }
            | Self::Password(_)
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
            Self::Mismatch { .. }
            | Self::Unreadable { .. }
            | Self::Differs { .. }
            | Self::PartlyKnown(_)
            | Self::NothingKnown(_) => Kind::Data,
            Self::Interrupted | Self::Abandoned { .. } => Kind::Interrupted,
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
            | Self::Output { .. }
            | Self::Runtime(_)
            | Self::Cancelled => Kind::System,
        }
    }

    /// Whether the copy was refused, before it began, because of another one.
    pub(crate) const fn is_of_another_copy(&self) -> bool {
        matches!(
            self,
            Self::OneFile { .. }
                | Self::Claimed { .. }
                | Self::Locked { .. }
                | Self::CommandLeft(_)
        )
    }

    /// Whether a unit is another one than was opened, or gone.
    pub fn is_changed_unit(&self) -> bool {
        let Self::Unit { cause, .. } = self else { return false };
        matches!(cause.kind(), DeviceErrorKind::AnotherDevice | DeviceErrorKind::NotFound)
    }

    /// Adds to the error of a copy with a checkpoint how to go on. What only another command line mends,
    /// and what casts doubt on the unit, stays as it is.
    #[must_use]
    pub fn resumable(self) -> Self {
        let is_in_doubt = matches!(self, Self::Unconfirmed(_)) || self.is_changed_unit();
        if is_in_doubt || self.kind() == Kind::Caller {
            return self;
        }
        Self::Resumable(Box::new(self))
    }

    /// Adds to the error the progress of the copy; `is_written` says that nothing was missing but the
    /// last flush, `has_full_length` that the destination has its final length.
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

/// A number of places.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Places(pub usize);

impl fmt::Display for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, if self.0 == 1 { "place" } else { "places" })
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

/// How much was written, and how much of that is flushed.
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
                cause: Box::new(Error::Interrupted),
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
