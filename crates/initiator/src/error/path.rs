//! Finds out from an error what it says about the path that carried the command: the session, its connection,
//! the port.

use iscsi_multipath::Access;
use iscsi_multipath::requests::end::End;
use iscsi_pdu::scsi::Status;
use iscsi_session::TaskError;

use crate::error::login::LoginFailure;
use crate::error::{Cause, Consequence, Error, SessionCause, SessionFailure, UnitCause, sense};

impl Error {
    /// Returns whether the status is RESERVATION CONFLICT: another initiator holds a reservation, or the key
    /// of the disk is not registered.
    pub(crate) fn is_reservation_conflict(&self) -> bool {
        self.status() == Some(Status::RESERVATION_CONFLICT)
    }

    /// Returns whether the unit is not served over this path, but may be served over another path.
    pub(crate) fn is_of_path(&self) -> bool {
        self.leads_elsewhere() || self.sense().is_some_and(sense::is_of_path)
    }

    fn leads_elsewhere(&self) -> bool {
        matches!(
            self.cause(),
            Cause::Unit(
                UnitCause::DifferentUnits { .. }
                    | UnitCause::UnprovenUnit { .. }
                    | UnitCause::BlockSizeChanged { .. }
            )
        )
    }

    /// Returns whether the error is about the path to the unit, and not a response of the unit to the
    /// command.
    pub(crate) fn is_of_way(&self) -> bool {
        self.is_of_session() || self.is_of_connection() || self.is_of_path()
    }

    /// Returns whether the state of the port may be the reason why the unit refused a command that every disk
    /// supports.
    pub(crate) fn may_be_of_port(&self) -> bool {
        self.refusing_port().or_else(|| self.suspected_port()).is_some()
    }

    /// Classifies the error as the [`End`] of an attempt.
    pub(crate) fn end(&self) -> End {
        match self.cause() {
            Cause::Unit(UnitCause::CheckCondition { sense, .. }) => End::of_sense(sense),
            Cause::Unit(UnitCause::Status { status, .. }) => End::of_status(*status, None),
            Cause::Unit(_) if self.leads_elsewhere() => End::OtherUnit,
            Cause::Session(SessionCause::Task { cause, .. }) => End::of_failure(cause),
            Cause::Session(SessionCause::Ended(_) | SessionCause::Closed) => End::SessionLost,
            Cause::Caller(_)
            | Cause::Unit(_)
            | Cause::Session(_)
            | Cause::Link(_)
            | Cause::Consequence(_) => End::Refused,
        }
    }

    /// Returns the state of the port, if the port refused the command because of its state.
    pub(crate) fn refusing_port(&self) -> Option<Access> {
        self.sense().and_then(Access::of_refusal)
    }

    /// Returns the state of a port, if only that state explains why a command was refused that every disk
    /// supports.
    pub(crate) fn suspected_port(&self) -> Option<Access> {
        self.sense().and_then(Access::suspected)
    }

    /// Returns whether one connection of several was lost, not the session.
    pub(crate) fn is_of_connection(&self) -> bool {
        matches!(
            self.cause(),
            Cause::Session(SessionCause::Task { cause: TaskError::ConnectionLost { .. }, .. })
        )
    }

    /// Returns the error with the same cause for a request that was never sent.
    pub(crate) fn as_not_executed(&self) -> Self {
        if let Cause::Session(SessionCause::Ended(failure)) = self.cause() {
            let failure = SessionFailure { may_have_executed: false, ..failure.clone() };
            return SessionCause::Ended(failure).into();
        }
        if let Cause::Consequence(Consequence::NotReopened { lost, why }) = self.cause() {
            let (lost, why) = (lost.as_not_executed(), why.clone());
            return Consequence::NotReopened { lost, why }.into();
        }
        self.clone()
    }

    /// Returns the error for a request that was in flight when its session was lost. `lost` is the error that
    /// ended the session, and `self` is the error for requests after that. If `self` has no reason why the
    /// session could not be reconnected, returns `lost`.
    pub(crate) fn after_loss(&self, lost: Self) -> Self {
        match self.reconnect_error() {
            Some(why) => Consequence::NotReopened { lost, why: why.clone() }.into(),
            None => lost,
        }
    }

    /// Returns the portal group of the portal of a login, if it differs from the group that the login
    /// required (RFC 7143 §13.9).
    pub(crate) fn other_portal_group(&self) -> Option<u16> {
        self.login()?.other_portal_group()
    }

    /// Returns whether the target reports that it cannot take the login at present (Status-Class 3).
    pub(crate) fn is_targets_at_login(&self) -> bool {
        self.login().is_some_and(|failure| matches!(failure.status(), Some((3, _))))
    }

    /// Returns whether the target has no logical unit with that number.
    pub(crate) fn is_no_such_unit(&self) -> bool {
        matches!(self.cause(), Cause::Unit(UnitCause::NoSuchUnit { .. }))
    }

    /// Returns the login that failed, if the error is a failed login.
    pub(crate) fn login(&self) -> Option<&LoginFailure> {
        if let Cause::Session(SessionCause::Login(failure)) = self.cause() {
            Some(failure)
        } else {
            None
        }
    }
}
