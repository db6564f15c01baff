//! What can go wrong, whose fault it is, and what to do about it.
//!
//! [`Error`] is what callers see. Inside, an error has one of four owners, each with its messages in a file: the
//! [caller](caller), the [unit](unit), the [session](session) and the [link](link) to the target.

pub(crate) mod advice;
mod caller;
mod ended;
mod fault;
mod kind;
mod link;
mod login;
pub(crate) mod outlook;
mod phrase;
#[cfg(any(test, feature = "simulation"))]
pub mod samples;
pub(crate) mod sense;
mod session;
mod unit;

use std::sync::Arc;
use std::{fmt, io};

use iscsi_multipath::requests::end::End;
use iscsi_multipath::{Access, BlockError};
use iscsi_pdu::NameError;
use iscsi_pdu::keys::TextError;
use iscsi_pdu::scsi::{FormatError, Sense, Status};
use iscsi_session::{SubmitError, TaskError};
use thiserror::Error as ThisError;

use crate::url::UrlError;
pub use advice::Advice;
pub(crate) use caller::CallerCause;
pub(crate) use ended::SessionFailure;
pub use fault::Fault;
pub use kind::ErrorKind;
pub(crate) use link::LinkCause;
pub(crate) use login::LoginFailure;
pub(crate) use phrase::of_blocks;
pub(crate) use session::SessionCause;
pub(crate) use unit::UnitCause;

/// Reason why a request failed.
///
/// [`kind`](Self::kind) is what a program decides by; [`fault`](Self::fault) names the side that can mend it. What the
/// unit answered is in [`sense`](Self::sense) and [`status`](Self::status). The text is the fact alone;
/// [`advice`](Self::advice) says what can be done. Neither holds a secret.
///
/// The [source](std::error::Error::source) is the error of the layer below, which the text already includes: a
/// [`UrlError`], a [`LoginError`](iscsi_session::LoginError), a [`SessionError`](iscsi_session::SessionError), a
/// [`TaskError`], or another `Error` where one followed from another.
///
/// An error is one pointer wide, so that a request that succeeds does not pay for it. A clone is the same error.
///
/// ```
/// use iscsi_initiator::scsi::{Lun, SenseKey};
/// use iscsi_initiator::{Advice, ErrorKind, Fault, Initiator};
///
/// # use iscsi_testkit::{config::TargetConfig, disk::RamDisk, serve::Server, target::Target};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let unit = RamDisk::new(512, 4096);
/// # let target = TargetConfig::new("iqn.2026-01.org.example:disk", unit);
/// # let server = Server::start(Target::new(target)).await?;
/// # let target = format!("iscsi://{}/iqn.2026-01.org.example:disk", server.address());
/// let initiator = Initiator::new("iqn.2026-01.org.example:host")?;
/// let error = initiator.disk(format!("{target}/7")).await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::NotFound);
/// assert_eq!(error.fault(), Fault::Caller);
/// assert_eq!(error.to_string(), "the target has no logical unit 7");
/// assert_eq!(error.advice(), Some(Advice::ListUnits));
///
/// // The unit's own words, here of a block behind its last one.
/// let unit = initiator.connect(target).await?.logical_unit(Lun::ZERO);
/// let error = unit.read(4096, 1).await.unwrap_err();
/// assert_eq!(error.sense().map(|sense| sense.key), Some(SenseKey::IllegalRequest));
/// assert!(!error.may_have_executed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "an error that is dropped is a failure that nothing reports"]
pub struct Error(Arc<Cause>);

/// Reason of an error, by the side that it lies with.
#[derive(Clone, ThisError)]
pub(crate) enum Cause {
    #[error(transparent)]
    Caller(CallerCause),
    #[error(transparent)]
    Unit(UnitCause),
    #[error(transparent)]
    Session(SessionCause),
    #[error(transparent)]
    Link(LinkCause),
}

impl Error {
    /// Returns what the error means to the caller, and what to do about it.
    ///
    /// ```
    /// use iscsi_initiator::{Error, ErrorKind, Url};
    ///
    /// fn advice(error: &Error) -> &'static str {
    ///     match error.kind() {
    ///         ErrorKind::OutOfSpace => "make room on the target",
    ///         ErrorKind::WriteProtected => "make the unit writable",
    ///         _ if error.is_transient() && !error.may_have_executed() => "retry",
    ///         _ => "look at the message",
    ///     }
    /// }
    /// # assert_eq!(advice(&Url::parse("iscsi://").unwrap_err().into()), "look at the message");
    /// ```
    pub fn kind(&self) -> ErrorKind {
        match self.cause() {
            Cause::Caller(cause) => cause.kind(),
            Cause::Unit(cause) => cause.kind(),
            Cause::Session(cause) => cause.kind(),
            Cause::Link(cause) => cause.kind(),
        }
    }

    /// Returns whether the same request may succeed later, or over a new session: see
    /// [`ErrorKind::is_transient`].
    #[doc(alias("retry", "is_retryable"))]
    pub fn is_transient(&self) -> bool {
        self.kind().is_transient()
    }

    /// Returns whose fault the error is: the caller's, the target's or the network's.
    pub fn fault(&self) -> Fault {
        match self.cause() {
            Cause::Caller(_) => Fault::Caller,
            Cause::Unit(cause) => cause.fault(),
            Cause::Session(cause) => cause.fault(),
            Cause::Link(cause) => cause.fault(),
        }
    }

    /// Returns what can be done about it; `None` where the text says all that is known.
    ///
    /// The advice on an error that has a cause is that on the cause.
    pub fn advice(&self) -> Option<Advice> {
        match self.cause() {
            Cause::Caller(cause) => cause.advice(),
            Cause::Unit(cause) => cause.advice(),
            Cause::Session(cause) => cause.advice(),
            Cause::Link(cause) => cause.advice(),
        }
    }

    /// Returns the sense data, if the unit sent any (SPC-4 §4.5).
    pub fn sense(&self) -> Option<&Sense> {
        if let Cause::Unit(UnitCause::CheckCondition { sense, .. }) = self.cause() {
            Some(sense)
        } else {
            None
        }
    }

    /// Returns the status of the command, if it ended in one other than GOOD (SAM-5 §5.3).
    pub fn status(&self) -> Option<Status> {
        match self.cause() {
            Cause::Unit(cause) => cause.status(),
            Cause::Caller(_) | Cause::Session(_) | Cause::Link(_) => None,
        }
    }

    /// Returns the name of the command in the standard, if a command failed: `"WRITE (16)"`.
    pub fn command(&self) -> Option<&'static str> {
        match self.cause() {
            Cause::Unit(cause) => cause.command(),
            Cause::Session(cause) => cause.command(),
            Cause::Caller(_) | Cause::Link(_) => None,
        }
    }

    /// Returns the portal that the error is about, `host:port`, if it is about one.
    pub fn portal(&self) -> Option<String> {
        match self.cause() {
            Cause::Caller(_) => None,
            Cause::Unit(cause) => cause.portal(),
            Cause::Session(cause) => cause.portal(),
            Cause::Link(cause) => cause.portal(),
        }
    }

    /// Returns the target that lacks the logical unit, if that is the error: its URL without credentials and options,
    /// `iscsi://host:port/name`.
    pub fn target_url(&self) -> Option<&str> {
        if let Cause::Unit(UnitCause::NoSuchUnit { target, .. }) = self.cause() {
            return Some(target);
        }
        self.reconnect_error()?.target_url()
    }

    /// Returns what the unit does not support, if that is the error: `"UNMAP"`.
    pub fn unsupported_feature(&self) -> Option<&'static str> {
        if let Cause::Unit(UnitCause::Unsupported(feature)) = self.cause() {
            Some(feature)
        } else {
            None
        }
    }

    /// Returns whether the command may have been executed although it failed: it was sent, and no
    /// answer came. If a [`Disk`](crate::Disk) has retried a command and the unit has then refused
    /// it for good, the refusal is the error, and this describes that last attempt only.
    pub fn may_have_executed(&self) -> bool {
        matches!(self.cause(), Cause::Session(cause) if cause.may_have_executed())
    }

    /// Returns whether the session ended, or was closed, before the request was answered. Over another session the
    /// request may succeed.
    pub fn is_of_session(&self) -> bool {
        matches!(self.cause(), Cause::Session(SessionCause::Ended(_) | SessionCause::Closed))
    }

    /// Returns the error of the last attempt to reconnect, if the last session of a disk was lost and could not be
    /// reconnected.
    #[doc(alias = "NotReopened")]
    pub fn reconnect_error(&self) -> Option<&Self> {
        if let Cause::Session(SessionCause::NotReopened { why, .. }) = self.cause() {
            Some(why)
        } else {
            None
        }
    }

    /// Creates the error of an answer to `command` that is not in the format of the standard, for programs that send
    /// commands by [`LogicalUnit::execute`](crate::LogicalUnit::execute) and decode the answers.
    pub fn malformed_answer(command: &'static str, why: FormatError) -> Self {
        UnitCause::Format { command, why }.into()
    }

    pub(crate) fn cause(&self) -> &Cause {
        &self.0
    }

    /// The session, or the disk, was closed before the request was sent.
    pub(crate) fn closed() -> Self {
        SessionCause::Closed.into()
    }

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
            Cause::Caller(_) | Cause::Unit(_) | Cause::Session(_) | Cause::Link(_) => End::Refused,
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
        let Cause::Session(cause) = self.cause() else { return self.clone() };
        if let SessionCause::Ended(failure) = cause {
            let failure = SessionFailure { may_have_executed: false, ..failure.clone() };
            return SessionCause::Ended(failure).into();
        }
        if let SessionCause::NotReopened { lost, why } = cause {
            let (lost, why) = (lost.as_not_executed(), why.clone());
            return SessionCause::NotReopened { lost, why }.into();
        }
        self.clone()
    }

    /// The same for a request that was in flight when a session was lost by `lost`, and for which no other session
    /// came.
    pub(crate) fn after_loss(&self, lost: Self) -> Self {
        match self.reconnect_error() {
            Some(why) => SessionCause::NotReopened { lost, why: why.clone() }.into(),
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

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(self.cause())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.cause(), f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.cause(), f)
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caller(cause) => fmt::Debug::fmt(cause, f),
            Self::Unit(cause) => fmt::Debug::fmt(cause, f),
            Self::Session(cause) => fmt::Debug::fmt(cause, f),
            Self::Link(cause) => fmt::Debug::fmt(cause, f),
        }
    }
}

impl From<Cause> for Error {
    fn from(cause: Cause) -> Self {
        Self(Arc::new(cause))
    }
}

impl From<CallerCause> for Error {
    fn from(cause: CallerCause) -> Self {
        Cause::Caller(cause).into()
    }
}

impl From<UnitCause> for Error {
    fn from(cause: UnitCause) -> Self {
        Cause::Unit(cause).into()
    }
}

impl From<SessionCause> for Error {
    fn from(cause: SessionCause) -> Self {
        Cause::Session(cause).into()
    }
}

impl From<LinkCause> for Error {
    fn from(cause: LinkCause) -> Self {
        Cause::Link(cause).into()
    }
}

impl From<UrlError> for Error {
    fn from(error: UrlError) -> Self {
        CallerCause::Url(error).into()
    }
}

impl From<NameError> for Error {
    fn from(error: NameError) -> Self {
        CallerCause::InitiatorName(error).into()
    }
}

impl From<SubmitError> for Error {
    fn from(error: SubmitError) -> Self {
        SessionCause::Submit(error).into()
    }
}

impl From<TextError> for Error {
    fn from(error: TextError) -> Self {
        SessionCause::Targets(error).into()
    }
}

impl From<BlockError> for Error {
    fn from(error: BlockError) -> Self {
        match error {
            BlockError::NotWhole { len, block_size } => {
                CallerCause::NotWholeBlocks { len, block_size }.into()
            }
            BlockError::OutOfRange { offset, len, capacity } => {
                CallerCause::OutOfRange { offset, len, capacity }.into()
            }
        }
    }
}

impl From<Error> for io::Error {
    /// Converts to the closest [kind](ErrorKind). The new error holds the original: `get_ref` and
    /// then `downcast_ref` return it.
    fn from(error: Error) -> Self {
        Self::new(error.kind().into(), error)
    }
}

impl From<std::convert::Infallible> for Error {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

#[cfg(test)]
mod tests;
