//! What can go wrong with a copy.

use std::io;
use std::path::PathBuf;

use iscsi_block_device::{DeviceError, DeviceErrorKind, RangeSet};
use thiserror::Error as ThisError;

use crate::progress::Progress;

/// The reason why a copy failed. The text is the fact alone; [`advice`](Self::advice) says what can be done.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum CopyError {
    /// The source could not be read.
    #[error("source: {0}")]
    Source(#[source] DeviceError),
    /// The source ended before the length that it had at the beginning.
    #[error("source: it became shorter while it was copied")]
    Shrunk,
    /// The destination could not be written.
    #[error("destination: {0}")]
    Destination(#[source] DeviceError),
    /// What was written could not be brought onto the medium.
    #[error("destination: {0}, at a flush")]
    Flush(#[source] DeviceError),
    /// The file of digests still lists blocks that are to be overwritten, and cannot be written; or
    /// the destination is a stream, which has none.
    #[error("digests: {0}")]
    Digests(#[source] io::Error),
    /// The checkpoint cannot be read or written, or is not of a copy between these ends.
    #[error("checkpoint {path}: {cause}", path = path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// Why; [`InvalidData`](io::ErrorKind::InvalidData) with a [`CheckpointError`](crate::CheckpointError) for one that
        /// does not hold.
        #[source]
        cause: io::Error,
    },
    /// The destination refuses every write.
    #[error("destination: it is read-only")]
    ReadOnly,
    /// More is to be copied than the destination holds.
    #[error("destination too small: it holds {capacity} bytes and the source has {needed}")]
    TooSmall {
        /// Bytes that the destination holds.
        capacity: u64,
        /// Bytes that the source has.
        needed: u64,
    },
    /// A stream turned out to be longer than the destination.
    #[error("destination too small: it holds {capacity} bytes and the source has more")]
    Overflow {
        /// Bytes that the destination holds.
        capacity: u64,
    },
    /// The copy was [cancelled](crate::Control::cancel).
    #[error("cancelled")]
    Cancelled,
    /// The copy was [abandoned](crate::Control::abandon) while writes were in flight.
    #[error("abandoned with {in_flight} bytes in flight, which may be written or not")]
    Abandoned {
        /// The bytes of those writes.
        in_flight: u64,
    },
}

impl CopyError {
    /// Returns the error of a device, if one failed: the source, or the destination at a write or a flush.
    pub const fn device(&self) -> Option<&DeviceError> {
        match self {
            Self::Source(cause) | Self::Destination(cause) | Self::Flush(cause) => Some(cause),
            Self::Shrunk
            | Self::Digests(_)
            | Self::Checkpoint { .. }
            | Self::ReadOnly
            | Self::TooSmall { .. }
            | Self::Overflow { .. }
            | Self::Cancelled
            | Self::Abandoned { .. } => None,
        }
    }
}

/// Whether a device says that it may have lost writes which were not flushed, so that making them again
/// mends it.
pub(crate) fn is_loss(error: &DeviceError) -> bool {
    error.kind() == DeviceErrorKind::LostWrites
}

/// A copy that did not come to its end.
#[derive(Debug, ThisError)]
#[error("{error}")]
pub struct Failure {
    /// The reason.
    pub error: CopyError,
    /// How far it came.
    pub progress: Box<Progress>,
    /// What the medium of the source did not give.
    pub unreadable: RangeSet,
    /// All was written, and nothing was missing but the last flush.
    pub is_written: bool,
    /// The destination is a file, and has the length that it would have in the end, however much of it is
    /// missing.
    pub has_full_length: bool,
}
