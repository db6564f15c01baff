//! Defines the error of a login that failed (RFC 7143 §6.3).

use std::fmt;

use iscsi_session::{AuthenticationError, LoginError};

use crate::error::advice::Advice;
use crate::error::fault::Fault;
use crate::error::kind::ErrorKind;

/// A login that failed, with the names that took part in it.
#[derive(Clone, Debug)]
pub(crate) struct LoginFailure {
    /// Portal, `host:port`.
    pub(crate) portal: String,
    /// Name of the target; `None` for discovery.
    pub(crate) target: Option<String>,
    /// Name of the initiator.
    pub(crate) initiator: String,
    /// CHAP user, if CHAP was configured.
    pub(crate) user: Option<String>,
    /// Reason why the login failed.
    pub(crate) cause: LoginError,
}

impl LoginFailure {
    pub(super) const fn advice(&self) -> Option<Advice> {
        match (self.status(), &self.user) {
            (Some((2, 1)), Some(_)) => Some(Advice::CheckCredentials),
            (Some((2, 1)), None) => Some(Advice::GiveCredentials),
            (Some((2, 2)), _) => Some(Advice::AdmitInitiator),
            (Some((2, 3 | 4)), _) => Some(Advice::ListTargets),
            (Some((3, _)), _) => Some(Advice::WaitForTarget),
            _ => advice_on_login(&self.cause),
        }
    }

    pub(super) fn fault(&self) -> Fault {
        let refused = self.cause.is_authentication() && !self.cause.is_authentication_violation();
        if refused || self.cause.is_target_not_found() { Fault::Caller } else { Fault::Target }
    }

    pub(super) const fn kind(&self) -> ErrorKind {
        kind_of_login(&self.cause)
    }

    /// Returns the portal group of the portal, if it differs from the group that the login required.
    pub(super) const fn other_portal_group(&self) -> Option<u16> {
        if let LoginError::PortalGroup { found, .. } = &self.cause { Some(*found) } else { None }
    }

    /// Returns the target's status class and detail, if it sent one (RFC 7143 §11.13.5).
    pub(crate) const fn status(&self) -> Option<(u8, u8)> {
        if let LoginError::Status(status) = &self.cause {
            Some((status.class, status.detail))
        } else {
            None
        }
    }
}

impl std::error::Error for LoginFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

impl fmt::Display for LoginFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { portal, initiator, cause, .. } = self;
        let target = self.target.as_deref().unwrap_or("discovery");
        match (self.status(), &self.user) {
            (Some((2, 1)), Some(user)) => {
                write!(f, "{portal} refused the user {user:?} or the password ({cause})")
            }
            (Some((2, 1)), None) => {
                write!(f, "{portal} wants a user name and a password ({cause})")
            }
            (Some((2, 2)), _) => {
                write!(f, "{portal} does not admit {initiator} to {target} ({cause})")
            }
            (Some((2, 3 | 4)), _) => write!(f, "{portal} has no target {target} ({cause})"),
            (Some((3, _)), _) => write!(f, "{portal} cannot take the login now ({cause})"),
            _ => write!(f, "the login to {target} at {portal} failed: {cause}"),
        }
    }
}

/// Returns what can be done about a failed login, for the reasons that [`LoginFailure::advice`] does not
/// handle itself.
pub(super) const fn advice_on_login(cause: &LoginError) -> Option<Advice> {
    Some(match cause {
        LoginError::Authentication(error) => return advice_on_authentication(*error),
        LoginError::Status(_) => Advice::ReadTargetLog,
        LoginError::Negotiation { .. }
        | LoginError::Text(_)
        | LoginError::Protocol(_)
        | LoginError::TooManyExchanges(_) => Advice::ReportTarget,
        LoginError::PortalGroup { .. } | _ => return None,
    })
}

const fn advice_on_authentication(error: AuthenticationError) -> Option<Advice> {
    Some(match error {
        AuthenticationError::MethodRefused => Advice::EnableChap,
        AuthenticationError::AlgorithmRefused => Advice::AllowAlgorithm,
        AuthenticationError::WrongResponse
        | AuthenticationError::ReflectedResponse
        | AuthenticationError::WrongName => Advice::CheckTargetPassword,
        AuthenticationError::UserName => Advice::ChooseUser,
        AuthenticationError::ShortSecret => Advice::LongerPassword,
        AuthenticationError::SameSecret => Advice::TwoPasswords,
        AuthenticationError::AlgorithmNotOffered
        | AuthenticationError::Missing(_)
        | AuthenticationError::Unexpected(_)
        | AuthenticationError::Malformed(_)
        | AuthenticationError::ReflectedChallenge
        | AuthenticationError::Incomplete => Advice::ReportTarget,
        AuthenticationError::NoAlgorithm | _ => return None,
    })
}

/// Returns the kind of a login's error, by its cause.
pub(super) const fn kind_of_login(cause: &LoginError) -> ErrorKind {
    if cause.is_authentication() && !cause.is_authentication_violation() {
        return ErrorKind::Authentication;
    }
    if cause.is_target_not_found() {
        return ErrorKind::NotFound;
    }
    match cause {
        LoginError::Status(status) => match (status.class, status.detail) {
            (2, 5 | 9) => ErrorKind::Unsupported,
            (3, _) => ErrorKind::Transient,
            _ => ErrorKind::Other,
        },
        LoginError::PortalGroup { .. } => ErrorKind::UnitChanged,
        LoginError::Authentication(_)
        | LoginError::Negotiation { .. }
        | LoginError::Text(_)
        | LoginError::Protocol(_)
        | LoginError::TooManyExchanges(_) => ErrorKind::Protocol,
        _ => ErrorKind::Other,
    }
}
