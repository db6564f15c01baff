//! What can be wrong with a URL.

use iscsi_pdu::{NameError, TargetAddressError};
use thiserror::Error;

use crate::error::advice::Advice;

/// What is wrong with a URL. No variant repeats a password. [`advice`](Self::advice) says what can be done.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum UrlError {
    /// It does not begin as it should.
    #[error("{0:?} is no iSCSI URL")]
    Scheme(String),
    /// iSER runs over RDMA, which this initiator does not.
    #[error("iSER is not supported")]
    Iser,
    /// No host is named.
    #[error("the URL names no host")]
    NoHost,
    /// The portal is not a host with an optional port.
    #[error(transparent)]
    Portal(#[from] TargetAddressError),
    /// A second `@`.
    #[error("the URL holds a second @")]
    SecondAt,
    /// An `@` behind the first `?`: the options may have begun in the middle of a password.
    #[error("an @ stands behind the first ? of the URL")]
    AtBehindQuestionMark,
    /// A logical unit, but no target.
    #[error("the URL names a logical unit but no target")]
    NoTarget,
    /// The target name is not an iSCSI name (RFC 7143 §4.2.7).
    #[error(transparent)]
    Target(#[from] NameError),
    /// The logical unit number is not one.
    #[error("{0:?} is no logical unit number")]
    Lun(String),
    /// Something stands behind the logical unit number.
    #[error("{0:?} stands behind the logical unit number, where the URL must end")]
    Trailing(String),
    /// Credentials without a user.
    #[error("the credentials before the @ name no user")]
    NoUser,
    /// A user, but no password, neither in the URL nor in the environment.
    #[error("user {0:?} has no password")]
    MissingPassword(String),
    /// A user of the target, but no password of the target, neither in the URL nor in the environment.
    #[error("the target's user {0:?} has no password, so the target would have nothing to prove")]
    MissingTargetPassword(String),
    /// A password, but no user, neither in the URL nor in the environment.
    #[error("there is a password (perhaps in LIBISCSI_CHAP_PASSWORD), but no user")]
    PasswordAlone,
    /// A variable of the environment that names a user and is not UTF-8.
    #[error("the variable {0} is not UTF-8, as a user name must be")]
    Variable(&'static str),
    /// Mutual CHAP needs credentials of the initiator as well (RFC 7143 §12.1.3).
    #[error(
        "a user or password of the target (mutual CHAP) needs a user and a password of the initiator as well"
    )]
    TargetCredentialsAlone,
    /// An option that does not exist.
    #[error("there is no URL option {0:?}")]
    UnknownOption(String),
    /// An option that does not exist behind `target_password`, of which it may be a part.
    #[error("a URL option behind target_password does not exist")]
    UnknownOptionBehindPassword,
    /// An option that was given before.
    #[error("the URL option {0} stands there twice")]
    RepeatedOption(&'static str),
    /// The value of an option is none it can have.
    #[error("the URL option {option} must be {expected}")]
    OptionValue {
        /// The option's name.
        option: &'static str,
        /// What it may be.
        expected: &'static str,
    },
    /// A part is not UTF-8 once its escapes are decoded.
    #[error("the {0} is not UTF-8 once its %-escapes are decoded")]
    Encoding(&'static str),
    /// A URL for discovery where a target is needed.
    #[error("the URL names no target")]
    PortalOnly,
}

impl UrlError {
    /// What can be done about it.
    pub const fn advice(&self) -> Option<Advice> {
        match self {
            Self::Scheme(_) | Self::NoHost | Self::NoTarget | Self::Target(_) => {
                Some(Advice::WriteUrl)
            }
            Self::PortalOnly => Some(Advice::NameTarget),
            Self::Iser => Some(Advice::OmitIser),
            Self::Portal(_) => Some(Advice::WritePortal),
            Self::SecondAt => Some(Advice::EscapeAt),
            Self::AtBehindQuestionMark => Some(Advice::EscapeQuestionMark),
            Self::Lun(_) => Some(Advice::UseLunRange),
            Self::Trailing(_) => Some(Advice::OmitRest),
            Self::NoUser => Some(Advice::NameUser),
            Self::MissingPassword(_) => Some(Advice::GivePassword),
            Self::MissingTargetPassword(_) => Some(Advice::GiveTargetPassword),
            Self::PasswordAlone => Some(Advice::NameUserOrOmitPassword),
            Self::TargetCredentialsAlone => Some(Advice::GiveOwnUser),
            Self::UnknownOption(_) => Some(Advice::CheckSpelling),
            Self::UnknownOptionBehindPassword => Some(Advice::EscapeAmpersand),
            Self::RepeatedOption(_) => Some(Advice::OmitRepetition),
            // The fact says what it must be.
            Self::Variable(_) | Self::OptionValue { .. } | Self::Encoding(_) => None,
        }
    }

    /// Shows the scheme alone: what follows it may hold a password.
    pub(super) fn scheme(text: &str) -> Self {
        if text.starts_with("iser://") {
            return Self::Iser;
        }
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        match text.split_once("://") {
            Some((scheme, _)) if scheme.chars().all(is_scheme) => {
                Self::Scheme(format!("{scheme}://..."))
            }
            None if !text.contains('@') => Self::Scheme(text.to_owned()),
            _ => Self::Scheme("...".to_owned()),
        }
    }
}
