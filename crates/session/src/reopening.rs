//! The times for the reconnect of a session that has ended (RFC 7143 §7.4, §11.15.3-11.15.4).

use std::time::Duration;

use iscsi_pdu::{LogoutCode, LogoutResponse};

use crate::error::SessionError;
use crate::params::Negotiated;

/// The times for the reconnect of a session, which depend on how it ended (RFC 7143 §7.4).
///
/// If the target announced the end, its message states the times; otherwise the times negotiated at login
/// apply.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Reopening {
    /// Time2Wait: the least time from the end of the session to the next login.
    pub time2wait: Duration,
    /// Time2Retain: how long after Time2Wait the target keeps the tasks; zero means that the tasks are gone.
    pub time2retain: Duration,
}

impl Reopening {
    const fn new(time2wait: u16, time2retain: u16) -> Self {
        Self {
            time2wait: Duration::from_secs(time2wait as u64),
            time2retain: Duration::from_secs(time2retain as u64),
        }
    }

    /// Returns the times that were agreed at login.
    pub(crate) const fn agreed(terms: &Negotiated) -> Self {
        Self::new(terms.default_time2wait, terms.default_time2retain)
    }

    /// Returns the times after a logout response that ends the session. After a success there is no wait:
    /// below ErrorRecoveryLevel 2 the fields have no meaning. A response for an unknown connection, or with a
    /// reserved code, gives no times.
    pub(crate) const fn after_logout(response: &LogoutResponse) -> Option<Self> {
        match response.response {
            LogoutCode::SUCCESS => Some(Self::new(0, 0)),
            LogoutCode::RECOVERY_NOT_SUPPORTED | LogoutCode::CLEANUP_FAILED => {
                Some(Self::new(response.time2wait, response.time2retain))
            }
            _ => None,
        }
    }

    /// Returns the times that the target stated when it dropped the connection or the session.
    pub(crate) const fn announced(cause: &SessionError) -> Option<Self> {
        match cause {
            SessionError::DroppedByTarget { time2wait, time2retain } => {
                Some(Self::new(*time2wait, *time2retain))
            }
            SessionError::Login(_)
            | SessionError::Protocol(_)
            | SessionError::Transport(_)
            | SessionError::TimedOut(_)
            | SessionError::AbortRefused
            | SessionError::LogoutRequested
            | SessionError::RedirectLoop => None,
        }
    }
}
