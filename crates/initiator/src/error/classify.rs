//! Each error's kind, and whose fault it is.

use iscsi_pdu::RejectReason;
use iscsi_pdu::scsi::Status;
use iscsi_session::{SubmitError, TaskError};

use crate::error::Error;
use crate::error::connect::ConnectError;
use crate::error::fault::Fault;
use crate::error::kind::ErrorKind;
use crate::error::sense::{kind_of_sense, kind_of_status};
use crate::error::session::{kind_of_end, kind_of_loss};
use crate::url::UrlError;

impl Error {
    /// Returns what the error means to the caller, and what to do about it.
    ///
    /// ```
    /// use iscsi_initiator::{Error, ErrorKind};
    ///
    /// fn advice(error: &Error) -> &'static str {
    ///     match error.kind() {
    ///         ErrorKind::OutOfSpace => "make room on the target",
    ///         ErrorKind::WriteProtected => "make the unit writable",
    ///         _ if error.is_transient() && !error.may_have_executed() => "retry",
    ///         _ => "look at the message",
    ///     }
    /// }
    /// # assert_eq!(advice(&Error::NoUnitNamed), "look at the message");
    /// ```
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Url(UrlError::Iser) | Self::Unsupported(_) => ErrorKind::Unsupported,
            Self::Url(_)
            | Self::InitiatorName(_)
            | Self::NoUnitNamed
            | Self::NoReservationKey
            | Self::NotABlockDevice { .. }
            | Self::OutOfRange { .. }
            | Self::NotWholeBlocks { .. }
            | Self::TooManySessions
            | Self::NoRuntime
            | Self::InsideRuntime => ErrorKind::InvalidInput,
            Self::Entropy(_) | Self::RuntimeNotStarted(_) => ErrorKind::Other,
            Self::Connect(error) => error.kind(),
            Self::Login(failure) => failure.kind(),
            Self::Session(failure) => failure.kind(),
            Self::Closed | Self::ClassClosed => ErrorKind::Closed,
            Self::Submit(error) => kind_of_submit(*error),
            Self::Task { cause, .. } => kind_of_task(cause),
            Self::CheckCondition { sense, .. } => kind_of_sense(sense),
            Self::Status { status, .. } => kind_of_status(*status),
            Self::Length { .. }
            | Self::Format { .. }
            | Self::Targets(_)
            | Self::EndsSessions { .. } => ErrorKind::Protocol,
            Self::NoSuchUnit { .. } => ErrorKind::NotFound,
            Self::WriteProtected(_) => ErrorKind::WriteProtected,
            Self::SerialNumber { .. }
            | Self::DifferentUnits { .. }
            | Self::UnprovenUnit { .. }
            | Self::UnitGone(_)
            | Self::BlockSizeChanged { .. }
            | Self::CapacityChanged { .. }
            | Self::MediumChanged => ErrorKind::UnitChanged,
            Self::NotReopened { lost, why } => {
                let kind = why.kind();
                let is_loss = matches!(
                    kind,
                    ErrorKind::ConnectionLost | ErrorKind::MayHaveExecuted | ErrorKind::Closed
                );
                // The request was never sent in the attempts to reconnect the session.
                if is_loss { kind_of_loss(lost.may_have_executed()) } else { kind }
            }
            Self::StillRegistered { why: cause, .. } => cause.kind(),
            Self::UnflushedWritesLost => ErrorKind::UnflushedWritesLost,
            Self::Preempted { .. } => ErrorKind::Preempted,
            Self::StillReserved { .. } | Self::RegisteredByAnother { .. } => {
                ErrorKind::ReservationConflict
            }
            Self::OverlapsUnsettled { .. } | Self::Unsettled { .. } => ErrorKind::Unsettled,
        }
    }

    /// Returns whether the same request may succeed later, or over a new session: see
    /// [`ErrorKind::is_transient`].
    #[doc(alias("retry", "is_retryable"))]
    pub fn is_transient(&self) -> bool {
        self.kind().is_transient()
    }

    /// Whether the status is RESERVATION CONFLICT: another initiator's reservation, or a key that is not registered.
    pub(crate) const fn is_reservation_conflict(&self) -> bool {
        matches!(self, Self::Status { status: Status::RESERVATION_CONFLICT, .. })
    }

    /// Returns whose fault the error is: the caller's, the target's or the network's.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Url(_)
            | Self::InitiatorName(_)
            | Self::Entropy(_)
            | Self::Closed
            | Self::ClassClosed
            | Self::Submit(_)
            | Self::NoUnitNamed
            | Self::NoReservationKey
            | Self::Preempted { .. }
            | Self::StillReserved { .. }
            | Self::RegisteredByAnother { .. }
            | Self::NoSuchUnit { .. }
            | Self::NotABlockDevice { .. }
            | Self::SerialNumber { .. }
            | Self::DifferentUnits { .. }
            | Self::OutOfRange { .. }
            | Self::NotWholeBlocks { .. }
            | Self::TooManySessions
            | Self::NoRuntime
            | Self::InsideRuntime
            | Self::RuntimeNotStarted(_) => Fault::Caller,
            Self::Connect(ConnectError::NotFollowed { .. }) => Fault::Target,
            Self::Connect(_)
            | Self::OverlapsUnsettled { .. }
            | Self::Task { cause: TaskError::ConnectionLost { .. }, .. } => Fault::Network,
            Self::Task { .. } if self.is_damage() => Fault::Network,
            Self::Login(failure) => failure.fault(),
            Self::Session(failure) => failure.fault(),
            Self::NotReopened { why: cause, .. }
            | Self::Unsettled { why: cause }
            | Self::StillRegistered { why: cause, .. } => cause.fault(),
            Self::Task { .. }
            | Self::CheckCondition { .. }
            | Self::Status { .. }
            | Self::Length { .. }
            | Self::Format { .. }
            | Self::Targets(_)
            | Self::EndsSessions { .. }
            | Self::WriteProtected(_)
            | Self::UnflushedWritesLost
            | Self::UnprovenUnit { .. }
            | Self::UnitGone(_)
            | Self::BlockSizeChanged { .. }
            | Self::CapacityChanged { .. }
            | Self::MediumChanged
            | Self::Unsupported(_) => Fault::Target,
        }
    }
}

const fn kind_of_submit(error: SubmitError) -> ErrorKind {
    match error {
        SubmitError::Full => ErrorKind::Transient,
        SubmitError::Closed => ErrorKind::Closed,
        SubmitError::NoTsih => ErrorKind::Unsupported,
        SubmitError::NoConnection | SubmitError::TooLong | SubmitError::WrongSession => {
            ErrorKind::InvalidInput
        }
        _ => ErrorKind::Other,
    }
}

const fn kind_of_task(cause: &TaskError) -> ErrorKind {
    match cause {
        TaskError::Session { cause, sent } | TaskError::ConnectionLost { cause, sent } => {
            kind_of_end(cause, *sent)
        }
        TaskError::Closed => ErrorKind::Closed,
        TaskError::Aborted => ErrorKind::Aborted,
        TaskError::TimedOut => ErrorKind::TimedOut,
        TaskError::TargetFailure(_) => ErrorKind::MayHaveExecuted,
        // The target has given the task up, or has not seen it, so it can be sent again.
        TaskError::DataDigest | TaskError::Withdrawn => ErrorKind::Transient,
        TaskError::Rejected { reason, .. } => kind_of_reject(*reason),
        TaskError::DataMissing { .. } => ErrorKind::Protocol,
        _ => ErrorKind::Other,
    }
}

/// A Reject, by its reason (RFC 7143 §11.17.1).
const fn kind_of_reject(reason: RejectReason) -> ErrorKind {
    match reason {
        RejectReason::COMMAND_NOT_SUPPORTED => ErrorKind::Unsupported,
        RejectReason::IMMEDIATE_COMMAND_REJECT
        | RejectReason::LONG_OPERATION_REJECT
        | RejectReason::DATA_DIGEST_ERROR => ErrorKind::Transient,
        _ => ErrorKind::Protocol,
    }
}
