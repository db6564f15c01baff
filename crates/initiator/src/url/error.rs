//! What can be wrong with a URL.

use iscsi_pdu::{NameError, TargetAddressError};
use thiserror::Error;

/// What is wrong with a URL. No variant repeats a password.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum UrlError {
    /// It does not begin as it should.
    #[error("{0:?} is no iSCSI URL; write iscsi://host/target/lun")]
    Scheme(String),
    /// iSER runs over RDMA, which this initiator does not.
    #[error("iSER is not supported; use an iscsi:// URL without the option iser")]
    Iser,
    /// No host is named.
    #[error("the URL names no host; write iscsi://host/target/lun")]
    NoHost,
    /// The portal is not a host with an optional port.
    #[error("{0}; write host, host:port or [ipv6]:port")]
    Portal(#[from] TargetAddressError),
    /// A second `@`.
    #[error("the URL holds a second @; write one in a user name or password as %40")]
    SecondAt,
    /// An `@` behind the first `?`: the options may have begun in the middle of a password.
    #[error(
        "an @ stands behind the first ? of the URL; write ? in a user name or password as %3F, \
         and @ in an option as %40"
    )]
    AtBehindQuestionMark,
    /// A logical unit, but no target.
    #[error("the URL names a logical unit but no target; write iscsi://host/target/lun")]
    NoTarget,
    /// The target name is not an iSCSI name (RFC 7143 §4.2.7).
    #[error("{0}; write iscsi://host/target/lun")]
    Target(#[from] NameError),
    /// The logical unit number is not one.
    #[error("{0:?} is no logical unit number; use 0 to 16383")]
    Lun(String),
    /// Something stands behind the logical unit number.
    #[error("{0:?} stands behind the logical unit number, where the URL must end")]
    Trailing(String),
    /// Credentials without a user.
    #[error("the credentials before the @ name no user; write iscsi://USER@HOST/...")]
    NoUser,
    /// A user, but no password, neither in the URL nor in the environment.
    #[error(
        "user {0:?} has no password; put it into a password file, or into the variable LIBISCSI_CHAP_PASSWORD"
    )]
    MissingPassword(String),
    /// A user of the target, but no password of the target, neither in the URL nor in the environment.
    #[error(
        "the target's user {0:?} has no password, so the target would have nothing to prove; put the password into a file \
         for the target's password, or into the variable LIBISCSI_CHAP_TARGET_PASSWORD"
    )]
    MissingTargetPassword(String),
    /// A password, but no user, neither in the URL nor in the environment.
    #[error(
        "there is a password (perhaps in LIBISCSI_CHAP_PASSWORD), but no user; name the user as in iscsi://USER@HOST/..., \
         or in the variable LIBISCSI_CHAP_USERNAME, or remove the password"
    )]
    PasswordAlone,
    /// A variable of the environment that names a user and is not UTF-8.
    #[error("the variable {0} is not UTF-8, as a user name must be")]
    Variable(&'static str),
    /// Mutual CHAP needs credentials of the initiator as well (RFC 7143 §12.1.3).
    #[error(
        "a user or password of the target (mutual CHAP) needs a user and a password of the initiator as well; name the \
         user as in iscsi://USER@HOST/..., or in the variable LIBISCSI_CHAP_USERNAME"
    )]
    TargetCredentialsAlone,
    /// An option that does not exist.
    #[error("there is no URL option {0:?}; check its spelling")]
    UnknownOption(String),
    /// An option that does not exist behind `target_password`, of which it may be a part.
    #[error(
        "a URL option behind target_password does not exist; check its spelling, and write & in \
         a password as %26"
    )]
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
    #[error("the URL names no target; write iscsi://host/target/lun, or use discovery")]
    PortalOnly,
}

impl UrlError {
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
