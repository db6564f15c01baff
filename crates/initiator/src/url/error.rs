//! Defines the faults of a URL.

use iscsi_pdu::{NameError, TargetAddressError};
use thiserror::Error;

use crate::error::advice::Advice;

/// Fault of a URL. No variant repeats a password.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum UrlError {
    /// The URL begins with neither `iscsi://` nor `iscsis://`.
    #[error("{0:?} is no iSCSI URL")]
    Scheme(String),
    /// The URL asks for iSER, which runs over RDMA; this initiator does not support it.
    #[error("iSER is not supported")]
    Iser,
    /// The URL names no host.
    #[error("the URL names no host")]
    NoHost,
    /// The portal is not a host with an optional port.
    #[error(transparent)]
    Portal(#[from] TargetAddressError),
    /// A portal has a comma, and something other than a portal group tag (0 to 65535) after it.
    #[error(
        "only a portal group tag may follow the comma in {0:?}; write each further portal as an option portal=HOST:PORT"
    )]
    PortalList(String),
    /// The URL has a second `@`.
    #[error("the URL holds a second @")]
    SecondAt,
    /// The URL has an `@` after the first `?`: the options may have begun in the middle of a
    /// password.
    #[error("an @ stands behind the first ? of the URL")]
    AtBehindQuestionMark,
    /// The URL names a logical unit, but no target.
    #[error("the URL names a logical unit but no target")]
    NoTarget,
    /// The target name is not an iSCSI name (RFC 7143 §4.2.7).
    #[error(transparent)]
    Target(#[from] NameError),
    /// The logical unit number is not a number from 0 to 16383.
    #[error("{0:?} is no logical unit number")]
    Lun(String),
    /// The URL continues after the logical unit number.
    #[error("{0:?} stands behind the logical unit number, where the URL must end")]
    Trailing(String),
    /// The URL has credentials without a user.
    #[error("the credentials before the @ name no user")]
    NoUser,
    /// The URL has a user, but there is no password, neither in the URL nor in the environment.
    #[error("user {0:?} has no password")]
    MissingPassword(String),
    /// The URL has a user of the target, but there is no password of the target, neither in the URL
    /// nor in the environment.
    #[error("the target's user {0:?} has no password, so the target would have nothing to prove")]
    MissingTargetPassword(String),
    /// The URL has a password, but there is no user, neither in the URL nor in the environment.
    #[error("there is a password (perhaps in LIBISCSI_CHAP_PASSWORD), but no user")]
    PasswordAlone,
    /// An environment variable that names a user is not UTF-8.
    #[error("the variable {0} is not UTF-8, as a user name must be")]
    Variable(&'static str),
    /// Mutual CHAP needs credentials of the initiator as well (RFC 7143 §12.1.3).
    #[error(
        "a user or password of the target (mutual CHAP) needs a user and a password of the initiator as well"
    )]
    TargetCredentialsAlone,
    /// The URL has an option that does not exist.
    #[error("there is no URL option {0:?}")]
    UnknownOption(String),
    /// The URL has an option after `target_password` that does not exist; it may be a part of the password.
    #[error("a URL option behind target_password does not exist")]
    UnknownOptionBehindPassword,
    /// The URL has an option twice that may be given only once.
    #[error("the URL option {0} stands there twice")]
    RepeatedOption(&'static str),
    /// The URL has options of TLS, but does not ask for TLS.
    #[error("the URL has options of TLS, but does not ask for it")]
    TlsNotAsked,
    /// The URL asks for TLS, but names no port. TLS has no default port.
    #[error("the URL asks for TLS, but names no port")]
    TlsPort,
    /// The URL pins the key of the peer, and sets an authority or a name as well, which would not be checked.
    #[error("with tls_pin, tls_ca and tls_name are not checked")]
    TlsPinAndName,
    /// The URL names a certificate without its private key, or the key alone.
    #[error("of tls_cert and tls_key, the URL has only one")]
    TlsHalfCertificate,
    /// The value of an option is not allowed.
    #[error("the URL option {option} must be {expected}")]
    OptionValue {
        /// Name of the option.
        option: &'static str,
        /// Values that are allowed.
        expected: &'static str,
    },
    /// A part of the URL is not UTF-8 after its escapes are decoded.
    #[error("the {0} is not UTF-8 once its %-escapes are decoded")]
    Encoding(&'static str),
    /// The URL names a target, but no logical unit of it.
    #[error("the URL names no logical unit")]
    NoUnit,
    /// The URL names only a portal, as for discovery, but a target is needed.
    #[error("the URL names no target")]
    PortalOnly,
}

impl UrlError {
    /// Returns advice on how to correct the fault.
    pub const fn advice(&self) -> Option<Advice> {
        match self {
            Self::Scheme(_) | Self::NoHost | Self::NoTarget | Self::Target(_) => {
                Some(Advice::WriteUrl)
            }
            Self::NoUnit => Some(Advice::AddLun),
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
            Self::TlsNotAsked => Some(Advice::AskForTls),
            Self::TlsPort => Some(Advice::NamePort),
            Self::TlsPinAndName => Some(Advice::OmitPinOrName),
            Self::TlsHalfCertificate => Some(Advice::GiveBoth),
            // The text of the error already says what to write.
            Self::PortalList(_)
            | Self::Variable(_)
            | Self::OptionValue { .. }
            | Self::Encoding(_) => None,
        }
    }

    /// Returns the error for a wrong scheme. The error only shows the scheme, because the rest of the text
    /// may contain a password.
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
