//! What an error means to a caller: what went wrong, and what can be done about it.

use std::io;

/// What an [`Error`](crate::Error) means to a caller.
///
/// The kind names the cause. Whether the request may have been carried out all the same is for
/// [`Error::may_have_executed`](crate::Error::may_have_executed) to say, whatever the kind; whose
/// fault it is, for [`Error::fault`](crate::Error::fault).
///
/// | kind | [`io::ErrorKind`] | transient |
/// |---|---|---|
/// | [`Authentication`](Self::Authentication) | `PermissionDenied` | |
/// | [`NotFound`](Self::NotFound) | `NotFound` | |
/// | [`Refused`](Self::Refused) | `ConnectionRefused` | yes |
/// | [`Unreachable`](Self::Unreachable) | `HostUnreachable` | yes |
/// | [`Transient`](Self::Transient) | `ResourceBusy` | yes |
/// | [`ConnectionLost`](Self::ConnectionLost) | `BrokenPipe` | yes |
/// | [`MayHaveExecuted`](Self::MayHaveExecuted) | `ConnectionReset` | yes |
/// | [`TimedOut`](Self::TimedOut) | `TimedOut` | yes |
/// | [`Closed`](Self::Closed) | `NotConnected` | |
/// | [`Aborted`](Self::Aborted) | `ConnectionAborted` | |
/// | [`WriteProtected`](Self::WriteProtected) | `ReadOnlyFilesystem` | |
/// | [`OutOfSpace`](Self::OutOfSpace) | `StorageFull` | |
/// | [`Medium`](Self::Medium) | `Other` | |
/// | [`UnitChanged`](Self::UnitChanged) | `StaleNetworkFileHandle` | |
/// | [`ReservationConflict`](Self::ReservationConflict) | `PermissionDenied` | |
/// | [`Preempted`](Self::Preempted) | `PermissionDenied` | |
/// | [`UnflushedWritesLost`](Self::UnflushedWritesLost) | `Other` | |
/// | [`Unsettled`](Self::Unsettled) | `ResourceBusy` | |
/// | [`Protocol`](Self::Protocol) | `InvalidData` | |
/// | [`InvalidInput`](Self::InvalidInput) | `InvalidInput` | |
/// | [`Unsupported`](Self::Unsupported) | `Unsupported` | |
/// | [`Other`](Self::Other) | `Other` | |
///
/// None becomes `Interrupted` or `WouldBlock`, after which callers of the standard library would try
/// again without an end.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The target does not admit the initiator, or one side could not prove itself: check user,
    /// passwords, the initiator's name and the target's access list. Or it names a host that it may not send the initiator to.
    Authentication,
    /// There is no such host, target or logical unit: check the name.
    NotFound,
    /// The host is there, but nothing listens at the port: check the port, and whether the target
    /// is running.
    Refused,
    /// No way leads to the portal, or the unit does not serve the one that there is: check address,
    /// route and firewall, or use another portal.
    Unreachable,
    /// The target or its unit does not take the request now (busy, becoming ready, a port that
    /// changes its state), or its data came damaged: try again later.
    Transient,
    /// The connection was lost before the request was sent, so it was not carried out: connect again,
    /// and repeat it.
    ConnectionLost,
    /// The request was sent, and its session or connection was lost before the answer; or the target
    /// says that it could not deliver the answer. Nobody knows whether it was carried out: connect
    /// again, and repeat it only if that does no harm.
    MayHaveExecuted,
    /// No answer in time: check the target and the link, or allow more time. A command that was sent
    /// may have been carried out.
    TimedOut,
    /// The session or the disk was logged out, or its class closed, before the request was sent: connect
    /// again.
    Closed,
    /// The request was given up because somebody wanted that. It may have been carried out.
    Aborted,
    /// The unit takes no writes (DATA PROTECT): make it writable on the target.
    WriteProtected,
    /// The unit has no space left for the data (SPACE ALLOCATION FAILED WRITE PROTECT, VOLUME
    /// OVERFLOW): make room on the target, then write again.
    OutOfSpace,
    /// The unit cannot read or write its medium, or is defective (MEDIUM ERROR, HARDWARE ERROR): what
    /// was asked for is lost there; other blocks may be well.
    Medium,
    /// The unit has another capacity or block size than when it was opened, or maybe another medium, or is another unit, or is
    /// gone, or nothing proves that it is the same: do not go on; open it anew and look.
    UnitChanged,
    /// Another initiator holds a reservation of the unit, or a nexus of this one that the disk does not use now: end it
    /// there.
    ReservationConflict,
    /// Another host has ended the registration of the disk by its reservation key: make sure that none uses the
    /// unit, then open it anew.
    Preempted,
    /// Writes that were not flushed may be gone from the unit's cache: write them again.
    UnflushedWritesLost,
    /// The target may still carry out what a lost session was writing: write nothing there before it has
    /// dropped that session.
    Unsettled,
    /// The target broke the protocol, contradicts itself, or ends each session that carries the
    /// command: check that an iSCSI target listens there; otherwise it has a defect.
    Protocol,
    /// The caller asked for what cannot be, or the unit refuses the command as it is: ask for
    /// something else.
    InvalidInput,
    /// The target, the unit or this initiator does not support what was asked for: go another way.
    Unsupported,
    /// Anything else; the message says what.
    Other,
}

impl ErrorKind {
    /// Whether the same request may go well later, or over a new session, without a change of what
    /// was asked for. If the first one [may have been
    /// carried out](crate::Error::may_have_executed), repeat only what does no harm the second time.
    pub const fn is_transient(self) -> bool {
        match self {
            Self::Refused
            | Self::Unreachable
            | Self::Transient
            | Self::ConnectionLost
            | Self::MayHaveExecuted
            | Self::TimedOut => true,
            Self::Authentication
            | Self::NotFound
            | Self::Closed
            | Self::Aborted
            | Self::WriteProtected
            | Self::OutOfSpace
            | Self::Medium
            | Self::UnitChanged
            | Self::ReservationConflict
            | Self::Preempted
            | Self::UnflushedWritesLost
            | Self::Unsettled
            | Self::Protocol
            | Self::InvalidInput
            | Self::Unsupported
            | Self::Other => false,
        }
    }
}

impl From<ErrorKind> for io::ErrorKind {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Authentication | ErrorKind::ReservationConflict | ErrorKind::Preempted => {
                Self::PermissionDenied
            }
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::Refused => Self::ConnectionRefused,
            ErrorKind::Unreachable => Self::HostUnreachable,
            ErrorKind::Transient | ErrorKind::Unsettled => Self::ResourceBusy,
            ErrorKind::ConnectionLost => Self::BrokenPipe,
            ErrorKind::MayHaveExecuted => Self::ConnectionReset,
            ErrorKind::TimedOut => Self::TimedOut,
            ErrorKind::Closed => Self::NotConnected,
            ErrorKind::Aborted => Self::ConnectionAborted,
            ErrorKind::WriteProtected => Self::ReadOnlyFilesystem,
            ErrorKind::OutOfSpace => Self::StorageFull,
            ErrorKind::UnitChanged => Self::StaleNetworkFileHandle,
            ErrorKind::Protocol => Self::InvalidData,
            ErrorKind::InvalidInput => Self::InvalidInput,
            ErrorKind::Unsupported => Self::Unsupported,
            ErrorKind::Medium | ErrorKind::UnflushedWritesLost | ErrorKind::Other => Self::Other,
        }
    }
}
