//! What an error says of the path that carried the command: the session, its connection, the port.

use iscsi_multipath::Access;
use iscsi_multipath::requests::end::End;
use iscsi_pdu::scsi::Status;
use iscsi_session::TaskError;

use crate::error::login::LoginFailure;
use crate::error::{Cause, Consequence, Error, SessionCause, SessionFailure, UnitCause, sense};

impl Error {
    /// Whether the status is RESERVATION CONFLICT: another initiator's reservation, or a key that is not registered.
    pub(crate) fn is_reservation_conflict(&self) -> bool {
        self.status() == Some(Status::RESERVATION_CONFLICT)
    }

    /// Whether the unit is not served this way to it, while it may be another way.
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

    /// Whether it is about the way to the unit, and no word of the unit about the command.
    pub(crate) fn is_of_way(&self) -> bool {
        self.is_of_session() || self.is_of_connection() || self.is_of_path()
    }

    /// Whether the unit may refuse a command that each disk takes for the state of the port alone.
    pub(crate) fn may_be_of_port(&self) -> bool {
        self.refusing_port().or_else(|| self.suspected_port()).is_some()
    }

    /// The end of an attempt that this error stands for.
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

    /// The state of a port that refused the command because of it.
    pub(crate) fn refusing_port(&self) -> Option<Access> {
        self.sense().and_then(Access::of_refusal)
    }

    /// The state of a port, if nothing else explains why a command was refused that every disk knows.
    pub(crate) fn suspected_port(&self) -> Option<Access> {
        self.sense().and_then(Access::suspected)
    }

    /// Whether one connection of several was lost, not the session.
    pub(crate) fn is_of_connection(&self) -> bool {
        matches!(
            self.cause(),
            Cause::Session(SessionCause::Task { cause: TaskError::ConnectionLost { .. }, .. })
        )
    }

    /// The same for a request that was never sent.
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

    /// The same for a request that was in flight when a session was lost by `lost`, and for which no other session
    /// came.
    pub(crate) fn after_loss(&self, lost: Self) -> Self {
        match self.reconnect_error() {
            Some(why) => Consequence::NotReopened { lost, why: why.clone() }.into(),
            None => lost,
        }
    }

    /// The portal group that the portal of a login is of, if not of that which was insisted on
    /// (RFC 7143 §13.9).
    pub(crate) fn other_portal_group(&self) -> Option<u16> {
        self.login()?.other_portal_group()
    }

    /// Whether the target says that it cannot take the login now (Status-Class 3).
    pub(crate) fn is_targets_at_login(&self) -> bool {
        self.login().is_some_and(|failure| matches!(failure.status(), Some((3, _))))
    }

    /// Whether the target has no logical unit by that number.
    pub(crate) fn is_no_such_unit(&self) -> bool {
        matches!(self.cause(), Cause::Unit(UnitCause::NoSuchUnit { .. }))
    }

    /// The login that failed, if that is the error.
    pub(crate) fn login(&self) -> Option<&LoginFailure> {
        if let Cause::Session(SessionCause::Login(failure)) = self.cause() {
            Some(failure)
        } else {
            None
        }
    }
}
