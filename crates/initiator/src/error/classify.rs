//! Each error's kind, whose fault it is, and whether its cause may pass while a caller waits.
//!
//! | error | while a session is reopened | while a disk is opened |
//! |---|---|---|
//! | no connection, connection lost, no answer, login class 3 | may pass | may pass |
//! | login class 2 but 0201: a target listens before its access list and its units are back | may pass | may pass |
//! | login 0201, or a target that does not prove itself | some tries | some tries |
//! | another unit at this portal | other portals only | ends |
//! | another size or block size, fenced off | ends | ends |
//! | a unit that is not there, or not ready | may pass | may pass |
//! | wrong input, unsupported, broken protocol | may pass: it was right before | ends |

use iscsi_multipath::reconnect::Outlook;
use iscsi_pdu::RejectReason;
use iscsi_pdu::scsi::{SenseKey, Status};
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

    /// The outlook for a session that was there and is lost: all that was agreed on was right before.
    pub(crate) fn outlook_of_reopening(&self) -> Outlook {
        let is_of_unit = matches!(
            self,
            Self::CapacityChanged { .. } | Self::BlockSizeChanged { .. } | Self::Preempted { .. }
        );
        if is_of_unit {
            return Outlook::Never;
        }
        if matches!(self, Self::DifferentUnits { .. }) {
            return Outlook::OtherPortal;
        }
        if self.is_of_credentials() { Outlook::Credentials } else { Outlook::MayPass }
    }

    /// The outlook for a disk or a session that was not there yet.
    pub(crate) fn outlook_of_opening(&self) -> Outlook {
        match self.outlook_of_reopening() {
            Outlook::MayPass if self.may_come() => Outlook::MayPass,
            Outlook::Credentials => Outlook::Credentials,
            Outlook::MayPass | Outlook::OtherPortal | Outlook::Never => Outlook::Never,
        }
    }

    /// Whether the login failed because one side did not prove itself. A target that does not admit the initiator (0202)
    /// has an access list, which may not be there yet.
    pub(crate) fn is_of_credentials(&self) -> bool {
        let Self::Login(failure) = self else { return false };
        match failure.status() {
            Some(status) => status == (2, 1),
            None => failure.cause.is_authentication(),
        }
    }

    /// Whether the target refused the login, for whatever reason (RFC 7143 §11.13.5).
    pub(crate) fn is_refused_login(&self) -> bool {
        matches!(self, Self::Login(failure) if failure.status().is_some())
    }

    fn may_come(&self) -> bool {
        let is_not_ready = self.sense().is_some_and(|sense| sense.key == SenseKey::NotReady);
        self.is_transient()
            || self.is_refused_login()
            || is_not_ready
            || matches!(self, Self::UnitGone(_))
            || self.kind() == ErrorKind::NotFound
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

#[cfg(test)]
mod tests {

    use super::*;
    use crate::error::ConnectError;

    /// LOG-18, LOG-19 (RFC 7143 §11.13.5): a target that starts refuses for a while what it will take.
    #[test]
    fn log_18_a_refusal_may_pass_but_that_of_a_password_seldom_does() {
        for (class, detail) in [(2, 0), (2, 2), (2, 3), (2, 4), (2, 6), (3, 0), (3, 1), (3, 2)] {
            let error = Error::refused_login(class, detail);
            assert_eq!(error.outlook_of_reopening(), Outlook::MayPass, "{error}");
            assert_eq!(error.outlook_of_opening(), Outlook::MayPass, "{error}");
        }
        assert_eq!(Error::refused_login(2, 1).outlook_of_reopening(), Outlook::Credentials);
        assert_eq!(Error::refused_login(2, 1).outlook_of_opening(), Outlook::Credentials);
    }

    #[test]
    fn what_is_wrong_with_the_request_is_not_waited_for() {
        for error in [Error::NoUnitNamed, Error::NoRuntime, Error::Unsupported("a key")] {
            assert_eq!(error.outlook_of_opening(), Outlook::Never, "{error}");
        }
        let changed = Error::CapacityChanged { before: 1, now: 2 };
        assert_eq!(changed.outlook_of_reopening(), Outlook::Never);
        assert_eq!(changed.outlook_of_opening(), Outlook::Never);
    }

    #[test]
    fn what_is_not_there_yet_is_waited_for() {
        let address = "192.0.2.1:3260".parse().unwrap();
        let host = "target.example".to_owned();
        let unknown = ConnectError::HostUnknown { host, reason: "no address".to_owned() };
        for error in [unknown.into(), ConnectError::Refused { address }.into()] {
            let error: Error = error;
            assert_eq!(error.outlook_of_opening(), Outlook::MayPass, "{error}");
        }
    }
}
