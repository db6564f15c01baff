//! Errors of requests, connections and sessions, with the side that caused them.

use bytes::Bytes;
use iscsi_pdu::{DecodeError, Itt, RejectReason, ServiceResponse, StatSn};
use thiserror::Error;

use crate::login::LoginError;
use crate::timer::Timer;

/// Reasons why a request cannot be accepted. Nothing was sent.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum SubmitError {
    /// The number of outstanding tasks, or the number of connections, has reached its limit; or a connection
    /// has the CID already.
    #[error("too many tasks are outstanding")]
    Full,
    /// The session is logging out or has ended, or the request needs a session that is logged in.
    #[error("the session takes no more requests")]
    Closed,
    /// The session has no connection with this CID, or no other connection that could replace it.
    #[error("no such connection, or the only one")]
    NoConnection,
    /// The target gave the session no handle (TSIH), so no connection can join it
    /// (RFC 7143 §11.13.3).
    #[error("the target gave the session no TSIH, so no connection can join it")]
    NoTsih,
    /// The data are longer than the 32-bit Expected Data Transfer Length can express.
    #[error("a transfer of more than 4 GiB does not fit one command")]
    TooLong,
    /// The request does not belong in this kind of session: SCSI commands need a normal session, and a list
    /// of all targets needs a discovery session (RFC 7143 §4.3).
    #[error("the request does not belong in this kind of session")]
    WrongSession,
}

/// Violations of the protocol by the target, and damaged PDUs. Each of them ends at least the connection.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The header of a PDU is malformed.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The header digest of a PDU does not match (RFC 7143 §13.1).
    #[error("the header digest does not match")]
    HeaderDigest,
    /// The data digest of a PDU does not match, and the PDU cannot be requested again.
    #[error("the data digest of {pdu} does not match")]
    DataDigest {
        /// Name of the PDU.
        pdu: &'static str,
    },
    /// A data segment is longer than the MaxRecvDataSegmentLength in force for this side.
    #[error("a data segment of {len} bytes exceeds the limit of {limit}")]
    DataSegmentLength {
        /// DataSegmentLength in the header, bytes.
        len: usize,
        /// The largest acceptable value, bytes.
        limit: usize,
    },
    /// The target sent a PDU that is not allowed in this state of the connection.
    #[error("{pdu} is not allowed in this state of the connection")]
    Unexpected {
        /// Name of the PDU.
        pdu: &'static str,
    },
    /// StatSN is not the expected number: a status was lost, or the target counts wrong (RFC 7143 §4.2.2.2).
    #[error("StatSN {found} came where {expected} was due")]
    StatSn {
        /// The expected StatSN.
        expected: StatSn,
        /// The number that the target sent.
        found: StatSn,
    },
    /// A PDU names a task that does not exist, or does not suit the kind of the task.
    #[error("{pdu} names task {itt}, which it does not fit")]
    Task {
        /// Name of the PDU.
        pdu: &'static str,
        /// Tag of the task that the PDU names.
        itt: Itt,
    },
    /// An R2T requests data that cannot be sent.
    #[error("R2T for task {itt}: {reason}")]
    R2t {
        /// Tag of the task that the R2T names.
        itt: Itt,
        /// The defect, as a phrase.
        reason: &'static str,
    },
    /// A Data-In PDU has data that cannot be placed in the buffer of its task.
    #[error("Data-In for task {itt}: {reason}")]
    DataIn {
        /// Tag of the task that the PDU names.
        itt: Itt,
        /// The defect, as a phrase.
        reason: &'static str,
    },
    /// The target requests answers to more and more NOP-Ins and Asynchronous Messages, but does not read
    /// them.
    #[error("more than {limit} answers wait because it does not read them, and it asks for more")]
    Unread {
        /// Maximum number of answers that may wait.
        limit: usize,
    },
    /// A text exchange violates the rules of RFC 7143 §11.10-11.11.
    #[error("text response: {0}")]
    Text(&'static str),
}

impl ProtocolError {
    /// Returns whether received bytes differ from those that were sent, by their digests (RFC 7143 §7.8).
    pub const fn is_damage(&self) -> bool {
        matches!(self, Self::HeaderDigest | Self::DataDigest { .. })
    }

    /// Returns whether the error concerns only the connection on which it occurred: damage in transit, or a
    /// break in a sequence that is numbered per connection or task (RFC 7143 §7.8, §7.9). A malformed PDU, or
    /// one that is not allowed in the present state, ends all connections of the session (RFC 7143 §7.7).
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
    /// No connection was made.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// The target closed the connection.
    #[error("the target closed the connection")]
    Closed,
    /// Reading or writing failed.
    #[error("the connection failed: {0}")]
    Io(String),
    /// Packets of the full length that the connection uses do not arrive, but shorter packets do.
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
    /// The target violated the protocol.
    #[error("the target broke the protocol: {0}")]
    Protocol(#[from] ProtocolError),
    /// The transport connection was lost.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The target did not answer within the time limit.
    #[error("no answer from the target in time ({0})")]
    TimedOut(Timer),
    /// The target refused to abort a task that exceeded its time limit, or whose data arrived damaged. The
    /// buffers of the task are then safe only after the session has ended (RFC 7143 §11.6.1, §11.17).
    #[error("the target refused to abort a task")]
    AbortRefused,
    /// The target announced that it drops the connection or the session (RFC 7143 §11.9.1).
    #[error("the target dropped the session; it asks to wait {time2wait} s before a reconnect")]
    DroppedByTarget {
        /// Seconds to wait before a reconnect.
        time2wait: u16,
        /// Time after `time2wait` for which the target keeps the tasks, in seconds.
        time2retain: u16,
    },
    /// The target requested a logout, and the session was logged out (RFC 7143 §11.9.1).
    #[error("the target asked to log out")]
    LogoutRequested,
    /// The login was redirected too many times.
    #[error("the target redirects in a circle")]
    RedirectLoop,
}

impl SessionError {
    /// Returns whether the other connections of the session can continue.
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

/// Reasons why a task ends without a valid status from the target. Each task ends exactly once.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum TaskError {
    /// The session ended before the task.
    #[error("{cause}{}", if *.sent { "; the command may have been executed" } else { "" })]
    Session {
        /// The reason why the session ended.
        cause: SessionError,
        /// Whether any part of the command was passed to the network. Then it may have been executed.
        sent: bool,
    },
    /// The connection of the command failed, and the target does not execute the command any more; the
    /// session continues over its other connections. If `sent` is set, the command may have been executed, as
    /// a whole or in part.
    #[error("its connection failed: {cause}{}", if *.sent { "; the command may have been executed" } else { "" })]
    ConnectionLost {
        /// The reason why the connection failed.
        cause: SessionError,
        /// Whether any part of the command was passed to the network.
        sent: bool,
    },
    /// The session was closed by a logout before the command was sent.
    #[error("the session was closed")]
    Closed,
    /// The caller aborted the command: the target has aborted it, or has never received it.
    #[error("the command was aborted")]
    Aborted,
    /// The caller withdrew the command before any part of it was put in wire order.
    #[error("the command was taken back before it was sent")]
    Withdrawn,
    /// No answer arrived within the time limit of the request. The target does not execute the command any
    /// more.
    #[error("the command timed out and was aborted")]
    TimedOut,
    /// The target ended the command without a SCSI status (RFC 7143 §11.4.3).
    #[error("the target could not deliver the command: {0}")]
    TargetFailure(ServiceResponse),
    /// The status is GOOD, but fewer bytes were transferred than it reports.
    #[error("the target says GOOD for {expected} bytes, but only {transferred} were transferred")]
    DataMissing {
        /// Number of bytes that the status reports.
        expected: usize,
        /// Number of bytes that were transferred without a gap from the start.
        transferred: usize,
    },
    /// Data arrived damaged; the target has aborted the task.
    #[error("the data came damaged, for their digest does not match")]
    DataDigest,
    /// The target rejected a PDU of the request (RFC 7143 §11.17).
    #[error("the target rejected the request: {reason}")]
    Rejected {
        /// Reason that the target reports.
        reason: RejectReason,
        /// The rejected header as the target returned it; may be cut short.
        header: Bytes,
    },
}
