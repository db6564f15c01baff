//! Errors of a copy.

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
    /// A flush of the destination failed, so the written data may not be on its medium.
    #[error("destination: {0}, at a flush")]
    Flush(#[source] DeviceError),
    /// The file of digests cannot be written, and must not list blocks that the copy overwrites; or the
    /// destination is a stream, which has no digests.
    #[error("digests: {0}")]
    Digests(#[source] io::Error),
    /// The checkpoint cannot be read or written, or is not of a copy between this source and this
    /// destination.
    #[error("checkpoint {path}: {cause}", path = path.display())]
    Checkpoint {
        /// Path of the checkpoint.
        path: PathBuf,
        /// Reason; [`InvalidData`](io::ErrorKind::InvalidData) with a
        /// [`CheckpointError`](crate::CheckpointError) if the checkpoint is not valid for this copy.
        #[source]
        cause: io::Error,
    },
    /// The destination refuses every write.
    #[error("destination: it is read-only")]
    ReadOnly,
    /// The destination is smaller than the data to copy.
    #[error("destination too small: it holds {capacity} bytes and the source has {needed}")]
    TooSmall {
        /// Bytes that the destination holds.
        capacity: u64,
        /// Bytes that the source has.
        needed: u64,
    },
    /// The source is a stream, and is longer than the destination.
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
        /// Number of bytes of the writes in flight.
        in_flight: u64,
    },
}

impl CopyError {
    /// Returns the error of the device that failed, source or destination; `None` if the copy failed for
    /// another reason.
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

/// Returns whether the device reports that unflushed writes may be lost. Then it is enough to write them
/// again.
pub(crate) fn is_loss(error: &DeviceError) -> bool {
    error.kind() == DeviceErrorKind::LostWrites
}

/// The failure of a copy.
#[derive(Debug, ThisError)]
#[error("{error}")]
pub struct Failure {
    /// The reason.
    pub error: CopyError,
    /// The progress of the copy up to the failure.
    pub progress: Box<Progress>,
    /// Ranges that the medium of the source could not read.
    pub unreadable: RangeSet,
    /// Whether everything was written, so that only the last flush is missing.
    pub is_written: bool,
    /// Whether the destination is a file that already has its final length, however much of its data is
    /// missing.
    pub has_full_length: bool,
}
