//! Defines the errors of the calling program: invalid requests, and missing resources of its own.

use iscsi_pdu::NameError;
use thiserror::Error;

use crate::error::advice::Advice;
use crate::error::kind::ErrorKind;
use crate::url::UrlError;

/// Reason that lies with the caller: its arguments, its runtime, its system.
#[derive(Clone, Debug, Error)]
pub(crate) enum CallerCause {
    /// The URL is malformed, or asks for something that does not exist.
    #[error("{0}")]
    Url(#[from] UrlError),
    /// The initiator's own name is not a valid iSCSI name (RFC 7143 §4.2.7).
    #[error("{0}")]
    InitiatorName(#[from] NameError),
    /// The system returned no random bytes.
    #[error("the system gives no random bytes: {0}")]
    Entropy(String),
    /// The traffic class of the disk was closed before the request was sent. See
    /// [`TrafficClass::close`](crate::TrafficClass::close).
    #[error("the class of the disk is closed")]
    ClassClosed,
    /// The range does not lie on the disk.
    #[error("{len} bytes at offset {offset} do not fit a disk of {capacity} bytes")]
    OutOfRange {
        /// Offset of the range, in bytes.
        offset: u64,
        /// Length of the range, in bytes.
        len: u64,
        /// Capacity of the disk, in bytes.
        capacity: u64,
    },
    /// The length is not a whole number of blocks, and the method moves only whole blocks.
    #[error("{len} bytes are not a whole number of blocks of {block_size} bytes")]
    NotWholeBlocks {
        /// Length of the data, in bytes.
        len: usize,
        /// Block size of the unit, in bytes.
        block_size: u32,
    },
    /// A reservation was requested for a disk that has no reservation key.
    #[error("the disk has no reservation key")]
    NoReservationKey,
    /// The initiator has no free ISID: it has 65,536 sessions (RFC 7143 §11.12.5).
    #[error("the initiator has 65,536 sessions, and no name for another")]
    TooManySessions,
    /// A request was made outside of a tokio runtime, which is needed to run it.
    #[error("no tokio runtime is there")]
    NoRuntime,
    /// A blocking method was called in an async task, and would block the thread of the runtime.
    #[error("a blocking call would stop the runtime of the async task that makes it")]
    InsideRuntime,
    /// The runtime of a blocking initiator could not be started.
    #[error("no thread or file is left for the initiator's runtime: {0}")]
    RuntimeNotStarted(String),
}

impl CallerCause {
    pub(super) const fn kind(&self) -> ErrorKind {
        match self {
            Self::Url(UrlError::Iser) => ErrorKind::Unsupported,
            Self::Url(_)
            | Self::InitiatorName(_)
            | Self::OutOfRange { .. }
            | Self::NotWholeBlocks { .. }
            | Self::NoReservationKey
            | Self::TooManySessions
            | Self::NoRuntime
            | Self::InsideRuntime => ErrorKind::InvalidInput,
            Self::ClassClosed => ErrorKind::Closed,
            Self::Entropy(_) | Self::RuntimeNotStarted(_) => ErrorKind::Other,
        }
    }

    pub(super) const fn advice(&self) -> Option<Advice> {
        Some(match self {
            Self::Url(error) => return error.advice(),
            Self::InitiatorName(_) => Advice::ChooseInitiatorName,
            Self::ClassClosed => Advice::UseOtherClass,
            Self::NoReservationKey => Advice::GiveKey,
            Self::TooManySessions => Advice::EndSessions,
            Self::NoRuntime => Advice::UseRuntime,
            Self::InsideRuntime => Advice::Await,
            Self::Entropy(_)
            | Self::OutOfRange { .. }
            | Self::NotWholeBlocks { .. }
            | Self::RuntimeNotStarted(_) => return None,
        })
    }
}
