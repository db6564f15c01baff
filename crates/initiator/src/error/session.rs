//! Defines the errors of sessions: of their login, their end, and the requests that they carry.

use iscsi_pdu::RejectReason;
use iscsi_pdu::keys::TextError;
use iscsi_session::{SubmitError, TaskError};
use thiserror::Error;

use crate::error::advice::Advice;
use crate::error::ended::{SessionFailure, advice_on_end, kind_of_end};
use crate::error::fault::Fault;
use crate::error::kind::ErrorKind;
use crate::error::login::LoginFailure;

/// Reason that lies with a session: its login, its end, or a task that it carried.
#[derive(Clone, Debug, Error)]
pub(crate) enum SessionCause {
    /// The login failed (RFC 7143 §6.3).
    #[error(transparent)]
    Login(LoginFailure),
    /// The session ended before the request did.
    #[error(transparent)]
    Ended(SessionFailure),
    /// The session was logged out before the request was sent.
    #[error("the session is closed")]
    Closed,
    /// The request does not fit the session.
    #[error("{0}")]
    Submit(#[from] SubmitError),
    /// The request ended without a valid answer.
    #[error("{request} failed: {cause}")]
    Task {
        /// Name of the command in the standard.
        request: &'static str,
        /// Reason for the end of the request.
        #[source]
        cause: TaskError,
    },
    /// The target's answer to SendTargets is not a valid list of targets (RFC 7143 appendix C).
    #[error("the target's list of targets makes no sense: {0}")]
    Targets(#[from] TextError),
}

impl SessionCause {
    pub(super) fn kind(&self) -> ErrorKind {
        match self {
            Self::Login(failure) => failure.kind(),
            Self::Ended(failure) => failure.kind(),
            Self::Closed => ErrorKind::Closed,
            Self::Submit(error) => kind_of_submit(*error),
            Self::Task { cause, .. } => kind_of_task(cause),
            Self::Targets(_) => ErrorKind::Protocol,
        }
    }

    pub(super) fn fault(&self) -> Fault {
        match self {
            Self::Closed | Self::Submit(_) => Fault::Caller,
            Self::Login(failure) => failure.fault(),
            Self::Ended(failure) => failure.fault(),
            Self::Task { cause: TaskError::ConnectionLost { .. }, .. } => Fault::Network,
            Self::Task { .. } if self.is_damage() => Fault::Network,
            Self::Task { .. } | Self::Targets(_) => Fault::Target,
        }
    }

    pub(super) fn advice(&self) -> Option<Advice> {
        match self {
            Self::Login(failure) => failure.advice(),
            Self::Ended(failure) => failure.advice(),
            Self::Closed | Self::Submit(SubmitError::Closed) => Some(Advice::Reconnect),
            Self::Task { cause, .. } => advice_on_task(cause),
            Self::Targets(_) => Some(Advice::ReportTarget),
            Self::Submit(_) => None,
        }
    }

    pub(super) fn may_have_executed(&self) -> bool {
        match self {
            Self::Ended(failure) => failure.may_have_executed,
            Self::Task { cause, .. } => matches!(
                cause,
                TaskError::Aborted
                    | TaskError::TimedOut
                    | TaskError::TargetFailure(_)
                    | TaskError::Session { sent: true, .. }
                    | TaskError::ConnectionLost { sent: true, .. }
            ),
            Self::Login(_) | Self::Closed | Self::Submit(_) | Self::Targets(_) => false,
        }
    }

    /// Returns whether data was damaged in transit: either the initiator has found the damage, or the target
    /// has, and has rejected the PDU (RFC 7143 §7.8).
    pub(super) const fn is_damage(&self) -> bool {
        matches!(
            self,
            Self::Task {
                cause: TaskError::DataDigest
                    | TaskError::Rejected { reason: RejectReason::DATA_DIGEST_ERROR, .. },
                ..
            }
        )
    }

    /// Returns the name of the command in the standard, if the error is about one.
    pub(super) const fn command(&self) -> Option<&'static str> {
        if let Self::Task { request, .. } = self { Some(*request) } else { None }
    }

    /// Returns the portal of the login or the session that failed.
    pub(super) fn portal(&self) -> Option<String> {
        match self {
            Self::Login(failure) => Some(failure.portal.clone()),
            Self::Ended(failure) => Some(failure.portal.clone()),
            Self::Closed | Self::Submit(_) | Self::Task { .. } | Self::Targets(_) => None,
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
        // The target has given up the task, or has not received it, so the task can be sent again.
        TaskError::DataDigest | TaskError::Withdrawn => ErrorKind::Transient,
        TaskError::Rejected { reason, .. } => kind_of_reject(*reason),
        TaskError::DataMissing { .. } => ErrorKind::Protocol,
        _ => ErrorKind::Other,
    }
}

/// Returns the kind of a Reject, by its reason (RFC 7143 §11.17.1).
const fn kind_of_reject(reason: RejectReason) -> ErrorKind {
    match reason {
        RejectReason::COMMAND_NOT_SUPPORTED => ErrorKind::Unsupported,
        RejectReason::IMMEDIATE_COMMAND_REJECT
        | RejectReason::LONG_OPERATION_REJECT
        | RejectReason::DATA_DIGEST_ERROR => ErrorKind::Transient,
        _ => ErrorKind::Protocol,
    }
}

/// Returns what can be done about a task without a status.
const fn advice_on_task(cause: &TaskError) -> Option<Advice> {
    match cause {
        TaskError::Session { cause, .. } | TaskError::ConnectionLost { cause, .. } => {
            advice_on_end(cause)
        }
        TaskError::Closed => Some(Advice::Reconnect),
        TaskError::TimedOut => Some(Advice::MoreTime),
        TaskError::TargetFailure(_) | TaskError::Rejected { .. } => Some(Advice::ReadTargetLog),
        TaskError::DataMissing { .. } => Some(Advice::ReportTarget),
        TaskError::DataDigest => Some(Advice::CheckNetwork),
        TaskError::Aborted | TaskError::Withdrawn | _ => None,
    }
}
