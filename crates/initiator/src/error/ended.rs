//! Defines the error of a session that ended unexpectedly.

use std::fmt;

use iscsi_session::{SessionError, TransportError};

use crate::error::advice::Advice;
use crate::error::fault::Fault;
use crate::error::kind::ErrorKind;
use crate::error::login::{advice_on_login, kind_of_login};

/// A session that ended unexpectedly.
#[derive(Clone, Debug)]
pub(crate) struct SessionFailure {
    /// Portal, `host:port`.
    pub(crate) portal: String,
    /// Reason why the session ended.
    pub(crate) cause: SessionError,
    /// Whether the request was handed to the network, so that it may have been executed.
    pub(crate) may_have_executed: bool,
}

impl SessionFailure {
    /// Creates the failure of a session with a portal.
    pub(crate) const fn new(portal: String, cause: SessionError, may_have_executed: bool) -> Self {
        Self { portal, cause, may_have_executed }
    }

    pub(super) const fn advice(&self) -> Option<Advice> {
        advice_on_end(&self.cause)
    }

    pub(super) const fn kind(&self) -> ErrorKind {
        kind_of_end(&self.cause, self.may_have_executed)
    }

    pub(super) const fn fault(&self) -> Fault {
        let is_damage =
            matches!(&self.cause, SessionError::Protocol(violation) if violation.is_damage());
        let is_lost = matches!(&self.cause, SessionError::Transport(_) | SessionError::TimedOut(_));
        if is_damage || is_lost { Fault::Network } else { Fault::Target }
    }
}

impl std::error::Error for SessionFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

impl fmt::Display for SessionFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { portal, cause, may_have_executed } = self;
        if let SessionError::Protocol(damage) = cause
            && damage.is_damage()
        {
            write!(f, "what {portal} sends comes damaged ({damage})")?;
        } else if let SessionError::Protocol(violation) = cause {
            write!(f, "{portal} does not speak iSCSI as it should ({violation})")?;
        } else if let SessionError::TimedOut(timer) = cause {
            write!(f, "{portal} did not answer in time (waiting for: {timer})")?;
        } else if let SessionError::Transport(loss) = cause {
            write!(f, "lost {portal}: {loss}")?;
        } else {
            write!(f, "the session with {portal} ended: {cause}")?;
        }
        f.write_str(if *may_have_executed { "; the command may have been executed" } else { "" })
    }
}

/// Returns what can be done about the end of a session or connection.
pub(super) const fn advice_on_end(cause: &SessionError) -> Option<Advice> {
    match cause {
        SessionError::Protocol(damage) if damage.is_damage() => Some(Advice::CheckNetwork),
        SessionError::Protocol(_) => Some(Advice::CheckListener),
        SessionError::TimedOut(_) => Some(Advice::CheckTarget),
        SessionError::Transport(_)
        | SessionError::AbortRefused
        | SessionError::DroppedByTarget { .. }
        | SessionError::LogoutRequested => Some(Advice::Reconnect),
        SessionError::RedirectLoop => Some(Advice::CorrectPortal),
        SessionError::Login(cause) => advice_on_login(cause),
        _ => None,
    }
}

/// Returns the kind of a request's error when its session or connection ended.
pub(super) const fn kind_of_end(cause: &SessionError, may_have_executed: bool) -> ErrorKind {
    match cause {
        SessionError::Login(cause) => kind_of_login(cause),
        SessionError::Protocol(violation) if !violation.is_damage() => ErrorKind::Protocol,
        // The target refuses an abort only after the request has timed out.
        SessionError::TimedOut(_) | SessionError::AbortRefused => ErrorKind::TimedOut,
        SessionError::Transport(TransportError::Connect(_)) | SessionError::RedirectLoop => {
            ErrorKind::Unreachable
        }
        SessionError::Protocol(_)
        | SessionError::Transport(_)
        | SessionError::DroppedByTarget { .. }
        | SessionError::LogoutRequested => kind_of_loss(may_have_executed),
        _ => ErrorKind::Other,
    }
}

/// Returns the kind of a request's error when its connection was lost.
pub(super) const fn kind_of_loss(may_have_executed: bool) -> ErrorKind {
    if may_have_executed { ErrorKind::MayHaveExecuted } else { ErrorKind::ConnectionLost }
}
