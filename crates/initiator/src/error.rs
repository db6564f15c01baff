//! Defines [`Error`], the error that callers receive: what failed, whose fault it is, and what to do about
//! it.
//!
//! Internally, the cause of an error lies with one of four sides: the [caller](caller), the [unit](unit), the
//! [session](session) or the [link](link) to the target. Each side has a file with its messages. An error may
//! also follow from another error.

pub(crate) mod advice;
mod caller;
mod ended;
mod fault;
mod kind;
mod link;
mod login;
pub(crate) mod outlook;
mod path;
#[cfg(any(test, feature = "samples"))]
pub mod samples;
pub(crate) mod sense;
mod session;
mod unit;

use std::ops::Range;
use std::sync::Arc;
use std::{fmt, io};

use iscsi_multipath::BlockError;
use iscsi_pdu::NameError;
use iscsi_pdu::keys::TextError;
use iscsi_pdu::scsi::reservation::ReservationKey;
use iscsi_pdu::scsi::{FormatError, Sense, Status};
use iscsi_session::SubmitError;
use thiserror::Error as ThisError;

use crate::url::UrlError;
pub use advice::Advice;
pub(crate) use caller::CallerCause;
pub(crate) use ended::SessionFailure;
use ended::kind_of_loss;
pub use fault::Fault;
pub use kind::ErrorKind;
pub(crate) use link::LinkCause;
pub(crate) use login::LoginFailure;
pub(crate) use session::SessionCause;
pub(crate) use unit::{UnitCause, of_blocks};

/// Reason why a request failed.
///
/// Programs decide by the error's [`kind`](Self::kind); [`fault`](Self::fault) names the side that can
/// correct it. [`sense`](Self::sense) and [`status`](Self::status) return what the unit has reported. The
/// text only states what failed; [`advice`](Self::advice) says what can be done. Neither contains a secret.
///
/// The [source](std::error::Error::source) is the error of the layer below, which the text already includes: a
/// [`UrlError`], a [`LoginError`](iscsi_session::LoginError), a [`SessionError`](iscsi_session::SessionError), a
/// [`TaskError`](iscsi_session::TaskError), or another `Error` where one followed from another.
///
/// An error is one pointer wide, so that it costs a successful request nothing. Clones share the same error.
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
/// // The unit's answer, here to a block after its last one.
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

/// Reason of an error, by the side that causes it.
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
    #[error(transparent)]
    Consequence(Consequence),
}

/// An error that follows from another error.
#[derive(Clone, Debug, ThisError)]
pub(crate) enum Consequence {
    /// The last session of a disk was lost, and could not be reconnected.
    #[error("{lost}; the session could not be reconnected: {why}")]
    NotReopened {
        /// Error that ended the session.
        lost: Error,
        /// Error of the last attempt to reconnect.
        #[source]
        why: Error,
    },
    /// Each session that carried the command ended before the answer, the last ones with nothing
    /// else in flight: the target, or something on the network path, fails at this command or its
    /// data.
    #[error(
        "{command}{} ended its session each time, {times} times in a row with nothing else in flight \
         there, and is not sent again: {cause}",
        of_blocks(.blocks.as_ref())
    )]
    EndsSessions {
        /// Name of the command in the standard.
        command: &'static str,
        /// Blocks that the command addresses.
        blocks: Option<Range<u64>>,
        /// Number of sessions in a row that ended with nothing else in flight.
        times: u32,
        /// Error that ended the last of these sessions.
        #[source]
        cause: Error,
    },
    /// A disk was closed, and it is not proved that the target will not carry out a write of a lost
    /// session later. Flushed data is safe until other data is written to the same blocks.
    #[error(
        "the target may still carry out writes of a lost session, over what is written there later: {why}"
    )]
    Unsettled {
        /// Reason why this is not known: the error that ended the session, or why the session could not be
        /// reconnected.
        #[source]
        why: Error,
    },
    /// The disk is closed, and the unit may still know its key: a session that is lost, or whose
    /// port refused the command, could not end its registration. The registration outlives the
    /// disk, and so does a reservation that it holds.
    #[error(
        "the unit may still know the reservation key {key} of this disk, and a reservation by it: {why}"
    )]
    StillRegistered {
        /// Key of the disk.
        key: ReservationKey,
        /// Error that prevented the end of the registration.
        #[source]
        why: Error,
    },
}

impl Error {
    /// Returns what the error means to the caller, and so what to do about it.
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
            Cause::Consequence(cause) => cause.kind(),
        }
    }

    /// Returns whether the same request may succeed later or over a new session: see
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
            Cause::Consequence(cause) => cause.fault(),
        }
    }

    /// Returns what can be done about the error; `None` if there is no advice beyond the text.
    ///
    /// If the error follows from another error, the advice is about that other error.
    pub fn advice(&self) -> Option<Advice> {
        match self.cause() {
            Cause::Caller(cause) => cause.advice(),
            Cause::Unit(cause) => cause.advice(),
            Cause::Session(cause) => cause.advice(),
            Cause::Link(cause) => cause.advice(),
            Cause::Consequence(cause) => cause.advice(),
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

    /// Returns the status of the command, if it is not GOOD (SAM-5 §5.3).
    pub fn status(&self) -> Option<Status> {
        match self.cause() {
            Cause::Unit(cause) => cause.status(),
            Cause::Caller(_) | Cause::Session(_) | Cause::Link(_) | Cause::Consequence(_) => None,
        }
    }

    /// Returns the name of the command in the standard, such as `"WRITE (16)"`, if a command failed.
    pub fn command(&self) -> Option<&'static str> {
        match self.cause() {
            Cause::Unit(cause) => cause.command(),
            Cause::Session(cause) => cause.command(),
            Cause::Consequence(Consequence::EndsSessions { command, .. }) => Some(*command),
            Cause::Caller(_) | Cause::Link(_) | Cause::Consequence(_) => None,
        }
    }

    /// Returns the portal that the error is about, as `host:port`; `None` if it is not about a portal.
    pub fn portal(&self) -> Option<String> {
        match self.cause() {
            Cause::Caller(_) => None,
            Cause::Unit(cause) => cause.portal(),
            Cause::Session(cause) => cause.portal(),
            Cause::Link(cause) => cause.portal(),
            Cause::Consequence(cause) => cause.of().portal(),
        }
    }

    /// Returns the URL of the target that lacks the logical unit, without credentials and options:
    /// `iscsi://host:port/name`. Returns `None` for other errors.
    pub fn target_url(&self) -> Option<&str> {
        if let Cause::Unit(UnitCause::NoSuchUnit { target, .. }) = self.cause() {
            return Some(target);
        }
        self.reconnect_error()?.target_url()
    }

    /// Returns the name of the feature that the unit does not support, such as `"UNMAP"`; `None` for other
    /// errors.
    pub fn unsupported_feature(&self) -> Option<&'static str> {
        if let Cause::Unit(UnitCause::Unsupported(feature)) = self.cause() {
            Some(feature)
        } else {
            None
        }
    }

    /// Returns whether the command may have been executed although it failed: it was sent, and no response
    /// was received. If a [`Disk`](crate::Disk) has retried a command and the unit has then refused it for
    /// good, the error is the refusal, and the result is about that last attempt only.
    pub fn may_have_executed(&self) -> bool {
        match self.cause() {
            Cause::Session(cause) => cause.may_have_executed(),
            Cause::Consequence(
                Consequence::NotReopened { lost: cause, .. }
                | Consequence::EndsSessions { cause, .. },
            ) => cause.may_have_executed(),
            Cause::Caller(_) | Cause::Unit(_) | Cause::Link(_) | Cause::Consequence(_) => false,
        }
    }

    /// Returns whether the session ended, or was closed, before the request was answered. The request may
    /// succeed over another session.
    pub fn is_of_session(&self) -> bool {
        matches!(self.cause(), Cause::Session(SessionCause::Ended(_) | SessionCause::Closed))
    }

    /// Returns the error of the last attempt to reconnect, if the last session of a disk was lost and could not be
    /// reconnected.
    #[doc(alias = "NotReopened")]
    pub fn reconnect_error(&self) -> Option<&Self> {
        if let Cause::Consequence(Consequence::NotReopened { why, .. }) = self.cause() {
            Some(why)
        } else {
            None
        }
    }

    /// Creates the error of a response to `command` that is not in the format of the standard. It is for
    /// programs that send commands by [`LogicalUnit::execute`](crate::LogicalUnit::execute) and decode the
    /// responses.
    pub fn malformed_answer(command: &'static str, why: FormatError) -> Self {
        UnitCause::Format { command, why }.into()
    }

    /// Returns whether the unit does not exist, or has vanished.
    pub(crate) fn is_of_no_unit(&self) -> bool {
        matches!(self.cause(), Cause::Unit(UnitCause::NoSuchUnit { .. } | UnitCause::UnitGone(_)))
    }

    pub(crate) fn cause(&self) -> &Cause {
        &self.0
    }

    /// Returns the error of a session or disk that was closed before the request was sent.
    pub(crate) fn closed() -> Self {
        SessionCause::Closed.into()
    }
}

impl Consequence {
    /// Returns the error that this error follows from. If there are two, returns the later one.
    const fn of(&self) -> &Error {
        match self {
            Self::NotReopened { why: cause, .. }
            | Self::EndsSessions { cause, .. }
            | Self::Unsettled { why: cause }
            | Self::StillRegistered { why: cause, .. } => cause,
        }
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::NotReopened { lost, why } => {
                let kind = why.kind();
                let is_loss = matches!(
                    kind,
                    ErrorKind::ConnectionLost | ErrorKind::MayHaveExecuted | ErrorKind::Closed
                );
                // The reconnect attempts never sent the request, so they do not show whether it was
                // executed.
                if is_loss { kind_of_loss(lost.may_have_executed()) } else { kind }
            }
            Self::EndsSessions { .. } => ErrorKind::Protocol,
            Self::Unsettled { .. } => ErrorKind::Unsettled,
            Self::StillRegistered { .. } => ErrorKind::StillRegistered,
        }
    }

    fn fault(&self) -> Fault {
        if let Self::EndsSessions { .. } = self { Fault::Target } else { self.of().fault() }
    }

    fn advice(&self) -> Option<Advice> {
        match self {
            Self::NotReopened { why, .. } => why.advice(),
            Self::EndsSessions { .. } => Some(Advice::ReadTargetLog),
            Self::Unsettled { .. } => Some(Advice::WriteNothing),
            Self::StillRegistered { .. } => Some(Advice::PreemptKey),
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
            Self::Consequence(cause) => fmt::Debug::fmt(cause, f),
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

impl From<Consequence> for Error {
    fn from(cause: Consequence) -> Self {
        Cause::Consequence(cause).into()
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

impl From<SubmitError> for Cause {
    fn from(error: SubmitError) -> Self {
        Self::Session(SessionCause::Submit(error))
    }
}

impl From<TextError> for Cause {
    fn from(error: TextError) -> Self {
        Self::Session(SessionCause::Targets(error))
    }
}

impl From<BlockError> for Cause {
    fn from(error: BlockError) -> Self {
        Self::Caller(match error {
            BlockError::NotWhole { len, block_size } => {
                CallerCause::NotWholeBlocks { len, block_size }
            }
            BlockError::OutOfRange { offset, len, capacity } => {
                CallerCause::OutOfRange { offset, len, capacity }
            }
        })
    }
}

impl From<Error> for io::Error {
    /// Converts the error to an [`io::Error`] of the closest [kind](ErrorKind). The new error contains the
    /// original: `get_ref` and then `downcast_ref` return it.
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
