//! A session that ended before its time.

use std::fmt;

use iscsi_session::{SessionError, TransportError};

use crate::error::fault::Fault;
use crate::error::kind::ErrorKind;
use crate::error::login::kind_of_login;

/// A session that ended unexpectedly.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SessionFailure {
    /// Portal, `host:port`.
    pub portal: String,
    /// Reason why the session ended.
    pub cause: SessionError,
    /// Whether the request was handed to the network, so that it may have been carried out.
    pub may_have_executed: bool,
}

impl SessionFailure {
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
            write!(
                f,
                "what {portal} sends comes damaged ({damage}); connect again, and check the network \
                 if that goes on"
            )?;
        } else if let SessionError::Protocol(violation) = cause {
            write!(
                f,
                "{portal} does not speak iSCSI as it should ({violation}); check that an iSCSI \
                 target listens there"
            )?;
        } else if let SessionError::TimedOut(timer) = cause {
            write!(
                f,
                "{portal} did not answer in time (waiting for: {timer}); check that an iSCSI target \
                 listens there and is well"
            )?;
        } else if let SessionError::Transport(loss) = cause {
            write!(f, "lost {portal}: {loss}; connect again")?;
        } else {
            write!(f, "the session with {portal} ended: {cause}")?;
        }
        f.write_str(if *may_have_executed { "; the command may have been executed" } else { "" })
    }
}

/// What the end of a session or connection is to a request.
pub(super) const fn kind_of_end(cause: &SessionError, may_have_executed: bool) -> ErrorKind {
    match cause {
        SessionError::Login(cause) => kind_of_login(cause),
        SessionError::Protocol(violation) if !violation.is_damage() => ErrorKind::Protocol,
        // What the target would not abort has run out of time.
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

/// What a lost connection is to a request.
pub(super) const fn kind_of_loss(may_have_executed: bool) -> ErrorKind {
    if may_have_executed { ErrorKind::MayHaveExecuted } else { ErrorKind::ConnectionLost }
}
