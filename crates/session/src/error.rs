//! What can go wrong, and whose fault it is.

use bytes::Bytes;
use iscsi_pdu::{DecodeError, Itt, RejectReason, ServiceResponse, StatSn};
use thiserror::Error;

use crate::login::LoginError;
use crate::timer::Timer;

/// The caller asked for what cannot be done; nothing was sent.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum SubmitError {
    /// The number of outstanding tasks has reached the configured limit.
    #[error("too many tasks are outstanding")]
    Full,
    /// The session is logging out or has ended.
    #[error("the session takes no more requests")]
    Closed,
    /// The session has no connection of this CID, or none that it can do without.
    #[error("no such connection, or the only one")]
    NoConnection,
    /// The target gave the session no handle (TSIH), so no connection can join it
    /// (RFC 7143 §11.13.3).
    #[error("the target gave the session no TSIH, so no connection can join it")]
    NoTsih,
    /// A data length does not fit the 32-bit Expected Data Transfer Length.
    #[error("a transfer of more than 4 GiB does not fit one command")]
    TooLong,
    /// The request does not belong in this kind of session: SCSI commands need a normal session,
    /// a list of all targets a discovery session (RFC 7143 §4.3).
    #[error("the request does not belong in this kind of session")]
    WrongSession,
}

/// The target broke the protocol, so nothing it says can be trusted any more.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The header is not a legal PDU.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The header digest does not match (RFC 7143 §13.1).
    #[error("the header digest does not match")]
    HeaderDigest,
    /// The data digest of a PDU that cannot be asked for again does not match.
    #[error("the data digest of {pdu} does not match")]
    DataDigest {
        /// The PDU's name.
        pdu: &'static str,
    },
    /// A data segment is longer than was declared or makes sense.
    #[error("a data segment of {len} bytes exceeds the limit of {limit}")]
    DataSegmentLength {
        /// The DataSegmentLength of the header, bytes.
        len: usize,
        /// The largest acceptable value, bytes.
        limit: usize,
    },
    /// A PDU that is not allowed in the present state of the connection.
    #[error("{pdu} is not allowed in this state of the connection")]
    Unexpected {
        /// The PDU's name.
        pdu: &'static str,
    },
    /// StatSN jumped: a status was lost, or the counter is broken (RFC 7143 §4.2.2.2).
    #[error("StatSN {found} came where {expected} was due")]
    StatSn {
        /// The next StatSN by our count.
        expected: StatSn,
        /// The number that the target sent.
        found: StatSn,
    },
    /// A PDU names a task that does not exist, or is of the wrong kind for it.
    #[error("{pdu} names task {itt}, which it does not fit")]
    Task {
        /// The PDU's name.
        pdu: &'static str,
        /// The task it names.
        itt: Itt,
    },
    /// An R2T that cannot be honoured.
    #[error("R2T for task {itt}: {reason}")]
    R2t {
        /// The task it names.
        itt: Itt,
        /// The defect, as a phrase.
        reason: &'static str,
    },
    /// Data that cannot be placed.
    #[error("Data-In for task {itt}: {reason}")]
    DataIn {
        /// The task it names.
        itt: Itt,
        /// The defect, as a phrase.
        reason: &'static str,
    },
    /// The target wants answers to more and more NOP-Ins and Asynchronous Messages, but takes none.
    #[error("more than {limit} answers wait because it does not read them, and it asks for more")]
    Unread {
        /// The most that may wait.
        limit: usize,
    },
    /// A text exchange that breaks the rules of RFC 7143 §11.10-11.11.
    #[error("text response: {0}")]
    Text(&'static str),
}

impl ProtocolError {
    /// Whether bytes came otherwise than they were sent, by their digests (RFC 7143 §7.8).
    pub const fn is_damage(&self) -> bool {
        matches!(self, Self::HeaderDigest | Self::DataDigest { .. })
    }

    /// Whether it concerns only the connection it came on: damage on the way, or a break in a
    /// sequence that is numbered by connection or task (RFC 7143 §7.8, §7.9). A malformed PDU, or
    /// one that does not belong where it came, ends all connections of the session
    /// (RFC 7143 §7.7).
    pub(crate) const fn is_of_one_connection(&self) -> bool {
        match self {
            Self::HeaderDigest
            | Self::DataDigest { .. }
            | Self::StatSn { .. }
            | Self::R2t { .. }
            | Self::DataIn { .. }
            | Self::Unread { .. }
            | Self::Text(_) => true,
            Self::Decode(_)
            | Self::DataSegmentLength { .. }
            | Self::Unexpected { .. }
            | Self::Task { .. } => false,
        }
    }
}

/// Reasons why a transport connection is lost, as the layer below reports them.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum TransportError {
    /// No connection came about.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// The target closed the connection.
    #[error("the target closed the connection")]
    Closed,
    /// Reading or writing failed.
    #[error("the connection failed: {0}")]
    Io(String),
    /// Packets as long as the connection sends or asks for do not arrive, shorter ones do.
    #[error("{0}")]
    PathMtu(String),
}

/// Reasons why a session ends before a logout was requested, or loses one of its connections.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum SessionError {
    /// The login failed.
    #[error("login failed: {0}")]
    Login(#[from] LoginError),
    /// The target broke the protocol.
    #[error("the target broke the protocol: {0}")]
    Protocol(#[from] ProtocolError),
    /// The network's fault.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The target stayed silent for too long.
    #[error("no answer from the target in time ({0})")]
    TimedOut(Timer),
    /// The target refused to give up a task whose time was over, or whose data came damaged, so that its
    /// buffers are safe only without the session (RFC 7143 §11.6.1, §11.17).
    #[error("the target refused to abort a task")]
    AbortRefused,
    /// The target announced that it drops the connection or the session (RFC 7143 §11.9.1).
    #[error("the target dropped the session; it asks to wait {time2wait} s before a reconnect")]
    DroppedByTarget {
        /// Seconds to wait before a reconnect.
        time2wait: u16,
        /// Seconds after that in which tasks are kept.
        time2retain: u16,
    },
    /// The target asked for a logout, and got it (RFC 7143 §11.9.1).
    #[error("the target asked to log out")]
    LogoutRequested,
    /// A login was redirected too often.
    #[error("the target redirects in a circle")]
    RedirectLoop,
}

impl SessionError {
    /// Whether the other connections of the session can go on.
    pub(crate) const fn is_of_one_connection(&self) -> bool {
        match self {
            Self::Protocol(error) => error.is_of_one_connection(),
            Self::Login(_) | Self::Transport(_) | Self::RedirectLoop => true,
            Self::TimedOut(_)
            | Self::AbortRefused
            | Self::DroppedByTarget { .. }
            | Self::LogoutRequested => false,
        }
    }
}

/// Ends of a task without a status from the target. Each task ends exactly once.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum TaskError {
    /// The session ended first.
    #[error("{cause}{}", if *.sent { "; the command may have been executed" } else { "" })]
    Session {
        /// The reason why the session ended.
        cause: SessionError,
        /// Whether any part of the command was handed to the network: then it may have executed.
        sent: bool,
    },
    /// The connection of the command failed, and the target has given the command up; the session
    /// goes on over its other connections. The command may have been executed, as a whole or in
    /// part, unless `sent` says otherwise; it is not executed any more.
    #[error("its connection failed: {cause}{}", if *.sent { "; the command may have been executed" } else { "" })]
    ConnectionLost {
        /// The reason why the connection failed.
        cause: SessionError,
        /// Whether any part of the command was handed to the network.
        sent: bool,
    },
    /// The session was closed by a logout before the command was sent.
    #[error("the session was closed")]
    Closed,
    /// The caller's wish, carried out: the target has given the task up, or never saw it.
    #[error("the command was aborted")]
    Aborted,
    /// The caller's wish, carried out before any part of the command was put in wire order.
    #[error("the command was taken back before it was sent")]
    Withdrawn,
    /// No status within the command's time limit; the target has given the task up.
    #[error("the command timed out and was aborted")]
    TimedOut,
    /// The command ended, but not in a SCSI status (RFC 7143 §11.4.3).
    #[error("the target could not deliver the command: {0}")]
    TargetFailure(ServiceResponse),
    /// Status GOOD, but fewer bytes moved than it vouches for.
    #[error("the target says GOOD for {expected} bytes, but only {transferred} were transferred")]
    DataMissing {
        /// Bytes that the status vouches for.
        expected: usize,
        /// Bytes without a hole from the start.
        transferred: usize,
    },
    /// Data came damaged; the target has given the task up.
    #[error("the data came damaged, for their digest does not match")]
    DataDigest,
    /// The target refused the PDU (RFC 7143 §11.17).
    #[error("the target rejected the request: {reason}")]
    Rejected {
        /// The reason that the target gives.
        reason: RejectReason,
        /// The rejected header as the target returned it; may be cut short.
        header: Bytes,
    },
}
