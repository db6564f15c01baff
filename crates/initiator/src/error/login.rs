//! A login that failed (RFC 7143 §6.3).

use std::fmt;

use iscsi_session::LoginError;

use crate::error::fault::Fault;
use crate::error::kind::ErrorKind;

/// A login that failed, with the names that took part in it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoginFailure {
    /// Portal, `host:port`.
    pub portal: String,
    /// Name of the target; `None` for discovery.
    pub target: Option<String>,
    /// Name of the initiator.
    pub initiator: String,
    /// CHAP user, if CHAP was configured.
    pub user: Option<String>,
    /// Reason why the login failed.
    pub cause: LoginError,
}

impl LoginFailure {
    pub(super) fn fault(&self) -> Fault {
        let refused = self.cause.is_authentication() && !self.cause.is_authentication_violation();
        if refused || self.cause.is_target_not_found() { Fault::Caller } else { Fault::Target }
    }

    pub(super) const fn kind(&self) -> ErrorKind {
        kind_of_login(&self.cause)
    }

    /// The portal group that the portal is of, if another one was insisted on.
    pub(super) const fn other_portal_group(&self) -> Option<u16> {
        if let LoginError::PortalGroup { found, .. } = &self.cause { Some(*found) } else { None }
    }

    /// The target's status class and detail, if it gave one (RFC 7143 §11.13.5).
    pub(crate) const fn status(&self) -> Option<(u8, u8)> {
        if let LoginError::Status(status) = &self.cause {
            Some((status.class, status.detail))
        } else {
            None
        }
    }
}

#[cfg(test)]
impl crate::error::Error {
    /// A login that the target refused with this status class and detail.
    pub(crate) fn refused_login(class: u8, detail: u8) -> Self {
        Self::Login(Box::new(LoginFailure {
            portal: "192.0.2.1:3260".to_owned(),
            target: None,
            initiator: "iqn.2026-01.org.example:host".to_owned(),
            user: None,
            cause: LoginError::Status(iscsi_pdu::LoginStatus { class, detail }),
        }))
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
            (Some((2, 1)), Some(user)) => write!(
                f,
                "{portal} refused the user {user:?} or the password ({cause}); check both"
            ),
            (Some((2, 1)), None) => write!(
                f,
                "{portal} wants a user name and a password ({cause}); name the user as in iscsi://USER@HOST/..., and put the \
                 password into a password file, or into the variable LIBISCSI_CHAP_PASSWORD"
            ),
            (Some((2, 2)), _) => write!(
                f,
                "{portal} does not admit {initiator} to {target} ({cause}); add it to the target's \
                 access list or use another initiator name"
            ),
            (Some((2, 3 | 4)), _) => write!(
                f,
                "{portal} has no target {target} ({cause}); list its targets by discovery at \
                 iscsi://{portal}"
            ),
            (Some((3, _)), _) => {
                write!(
                    f,
                    "{portal} cannot take the login now ({cause}); try again later, or wait \
                     for it (open_patience)"
                )
            }
            _ => write!(f, "the login to {target} at {portal} failed: {cause}"),
        }
    }
}

/// A login that failed, by its cause.
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
