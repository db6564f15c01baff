//! Defines the kinds of errors: what failed, and what can be done about it.

use std::io;

/// Meaning of an [`Error`](crate::Error) to a caller.
///
/// The kind names the cause. For every kind, [`Error::may_have_executed`](crate::Error::may_have_executed)
/// says whether the request may have been executed, and [`Error::fault`](crate::Error::fault) says whose
/// fault the error is.
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
/// | [`StillRegistered`](Self::StillRegistered) | `ResourceBusy` | |
/// | [`UnflushedWritesLost`](Self::UnflushedWritesLost) | `Other` | |
/// | [`Unsettled`](Self::Unsettled) | `ResourceBusy` | |
/// | [`Protocol`](Self::Protocol) | `InvalidData` | |
/// | [`InvalidInput`](Self::InvalidInput) | `InvalidInput` | |
/// | [`Unsupported`](Self::Unsupported) | `Unsupported` | |
/// | [`Other`](Self::Other) | `Other` | |
///
/// No kind becomes `Interrupted` or `WouldBlock`, because users of the standard library retry after these
/// without limit.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The target does not admit the initiator, or one side could not prove its identity: check the
    /// user, the passwords, the initiator's name and the access list of the target. Also returned
    /// for a redirection to a host that the options do not allow.
    #[doc(alias = "CHAP")]
    Authentication,
    /// There is no such host, target or logical unit: check the name.
    NotFound,
    /// Nothing listens at the port of the host: check the port, and whether the target is running.
    Refused,
    /// No network path leads to the portal, or the unit is not served through this port: check
    /// address, route and firewall, or use another portal.
    Unreachable,
    /// The target or its unit cannot take the request at present (it is busy, becomes ready, or a port
    /// changes its state), or the data was damaged in transit: retry later.
    #[doc(alias = "busy")]
    Transient,
    /// The connection was lost before the request was sent, so the request was not executed: reconnect and
    /// retry.
    #[doc(alias = "reconnect")]
    ConnectionLost,
    /// The request was sent, and its session or connection was lost before the response, or the target
    /// reports that it could not deliver the response. It is not known whether the request was executed:
    /// reconnect, and retry only requests that may be executed twice.
    MayHaveExecuted,
    /// There was no response within the time limit: check the target and the link, or set a longer time
    /// limit. A command that was sent may have been executed.
    #[doc(alias = "timeout")]
    TimedOut,
    /// The session or the disk was logged out, or its class closed, before the request was sent:
    /// connect again.
    Closed,
    /// The request was cancelled on purpose. It may have been executed.
    #[doc(alias = "cancelled")]
    Aborted,
    /// The unit refuses writes (DATA PROTECT): make it writable on the target.
    WriteProtected,
    /// The unit has no space left for the data (SPACE ALLOCATION FAILED WRITE PROTECT, VOLUME
    /// OVERFLOW): make room on the target, then write again.
    OutOfSpace,
    /// The unit cannot read or write its medium, or is defective (MEDIUM ERROR, HARDWARE ERROR):
    /// the data of this request is lost; other blocks may still be readable.
    Medium,
    /// The unit is not the one that was opened, or this cannot be confirmed: it has another capacity, block
    /// size or medium, is another unit, or is gone. Do not continue; open the unit again and inspect it.
    UnitChanged,
    /// Another initiator holds a reservation of the unit, or another session of this initiator
    /// does: release the reservation there.
    ReservationConflict,
    /// Another host has ended the registration of the disk by its reservation key: make sure that no other
    /// host uses the unit, then open the disk again.
    #[doc(alias = "fenced")]
    Preempted,
    /// The disk is closed, and the unit may still have its reservation key: open the disk again, and end the
    /// registration with [`Disk::preempt`](crate::Disk::preempt).
    StillRegistered,
    /// Unflushed writes may be lost from the unit's cache: write the data again.
    #[doc(alias = "lost write")]
    UnflushedWritesLost,
    /// The target may still execute a write of a lost session: write nothing to the range of that write until
    /// the target has dropped the session.
    Unsettled,
    /// The target broke the protocol, contradicts itself, or ends each session that carries the
    /// command: check that an iSCSI target listens at the port; if so, it has a defect.
    Protocol,
    /// The caller made a request that cannot be executed, or the unit refuses the command in this form:
    /// change the request.
    InvalidInput,
    /// The target, the unit or this initiator does not support the request: use another method.
    Unsupported,
    /// Anything else; the message describes it.
    Other,
}

impl ErrorKind {
    /// Returns whether the same request may succeed later or over a new session. If the first request [may
    /// have been executed](crate::Error::may_have_executed), retry it only if it may be executed twice.
    #[doc(alias("retry", "is_retryable"))]
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
            | Self::StillRegistered
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
            ErrorKind::Transient | ErrorKind::StillRegistered | ErrorKind::Unsettled => {
                Self::ResourceBusy
            }
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
