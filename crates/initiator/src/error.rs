//! What can go wrong, whose fault it is, and what to do about it.

pub(crate) mod advice;
mod advise;
mod classify;
mod connect;
mod fault;
mod kind;
mod login;
mod phrase;
pub(crate) mod sense;
mod session;

use std::io;
use std::ops::Range;

use iscsi_multipath::requests::end::End;
use iscsi_multipath::{Access, BlockError};
use iscsi_pdu::keys::TextError;
use iscsi_pdu::scsi::reservation::ReservationKey;
use iscsi_pdu::scsi::{DeviceType, FormatError, Lun, Sense, Status};
use iscsi_pdu::{NameError, RejectReason};
use iscsi_session::{SubmitError, TaskError};
use thiserror::Error as ThisError;

use crate::url::UrlError;
pub use advice::Advice;
pub use connect::ConnectError;
pub use fault::Fault;
pub use kind::ErrorKind;
pub use login::LoginFailure;
use phrase::meaning;
pub(crate) use phrase::of_blocks;
pub use session::SessionFailure;

/// Reason why a request failed.
///
/// Its text is the fact alone; [`advice`](Self::advice) says what can be done. No variant holds a secret.
///
/// ```
/// use iscsi_initiator::scsi::{Lun, SenseKey};
/// use iscsi_initiator::{Advice, Error, Fault, Initiator};
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
/// assert!(matches!(error, Error::NoSuchUnit { .. }));
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
#[derive(Clone, Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The URL is malformed or asks for what does not exist.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The initiator's own name is not a valid iSCSI name (RFC 7143 §4.2.7).
    #[error(transparent)]
    InitiatorName(#[from] NameError),
    /// The system returned no random bytes.
    #[error("the system gives no random bytes: {0}")]
    Entropy(String),
    /// No TCP connection was made.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The login failed (RFC 7143 §6.3).
    #[error(transparent)]
    Login(Box<LoginFailure>),
    /// The session ended before the request did.
    #[error(transparent)]
    Session(Box<SessionFailure>),
    /// The session was logged out before the request was sent.
    #[error("the session is closed")]
    Closed,
    /// The class of the disk was closed before the request was sent
    /// ([`TrafficClass::close`](crate::TrafficClass::close)).
    #[error("the class of the disk is closed")]
    ClassClosed,
    /// The request does not fit the session.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The request ended without a valid answer.
    #[error("{request} failed: {cause}")]
    Task {
        /// Name of the command in the standard.
        request: &'static str,
        /// Reason for the end of the request.
        cause: TaskError,
    },
    /// The unit answered CHECK CONDITION, with sense data that names the reason (SPC-4 §4.5).
    #[error("{command} failed: {sense}")]
    CheckCondition {
        /// Name of the command in the standard.
        command: &'static str,
        /// Sense data of the unit.
        sense: Box<Sense>,
    },
    /// The unit answered with a status other than GOOD (SAM-5 §5.3).
    #[error("{command} ended in {status}{}", meaning(*.status))]
    Status {
        /// Name of the command in the standard.
        command: &'static str,
        /// Status of the command.
        status: Status,
    },
    /// The status is GOOD, but the unit moved another number of bytes than the command asked for.
    #[error("{command} moved {moved} bytes instead of {expected}")]
    Length {
        /// Name of the command in the standard.
        command: &'static str,
        /// Bytes that the command asked for.
        expected: usize,
        /// Bytes moved, as the target reports.
        moved: usize,
    },
    /// The answer is not in the format of the standard.
    #[error("the answer to {command} makes no sense: {why}")]
    Format {
        /// Name of the command in the standard.
        command: &'static str,
        /// Fault in the format.
        why: FormatError,
    },
    /// The answer to SendTargets is no list of targets (RFC 7143 appendix C).
    #[error("the target's list of targets makes no sense: {0}")]
    Targets(#[from] TextError),
    /// The URL names no logical unit.
    #[error("the URL names no logical unit")]
    NoUnitNamed,
    /// The target has no such logical unit.
    #[error("the target has no logical unit {lun}")]
    NoSuchUnit {
        /// Its number.
        lun: Lun,
        /// The URL of the target, without credentials and options: `iscsi://host:port/name`.
        target: String,
    },
    /// The target had this logical unit when the unit was opened, and does not have it any more.
    #[error("the target has no logical unit {0} any more")]
    UnitGone(Lun),
    /// The logical unit exists, but it is not a disk.
    #[error("logical unit {lun} is a {device_type}, not a block device")]
    NotABlockDevice {
        /// LUN of the unit.
        lun: Lun,
        /// Type of the unit.
        device_type: DeviceType,
    },
    /// The unit is write protected.
    #[error("logical unit {0} is write protected")]
    WriteProtected(Lun),
    /// The unit's serial number differs from the one that the URL requires (`force_usn`).
    #[error("the unit's serial number is {found:?}, not {expected:?}: it is another unit")]
    SerialNumber {
        /// Serial number in the URL.
        expected: String,
        /// Serial number that the unit reports; empty if it has none.
        found: String,
    },
    /// Two sessions of one disk lead to different units, or one of them leads to another unit than
    /// before: nothing is sent to the other unit.
    #[error(
        "{portal} leads to another unit ({found}) than the first session ({expected}) when the disk \
         was opened"
    )]
    DifferentUnits {
        /// Portal of the session that leads to another unit, `host:port`.
        portal: String,
        /// Name of the unit of the disk.
        expected: String,
        /// Name of the other unit.
        found: String,
    },
    /// Nothing proves that a session leads to the unit of the disk, so nothing is written over it.
    #[error("nothing proves that {portal} leads to the unit of the disk ({expected}): {why}")]
    UnprovenUnit {
        /// Portal of the session, `host:port`.
        portal: String,
        /// Name of the unit of the disk.
        expected: String,
        /// Reason why there is no proof.
        why: String,
    },
    /// The block size of the unit has changed since it was opened.
    #[error("the unit has blocks of {now} bytes now, and had {before}")]
    BlockSizeChanged {
        /// Block size when the unit was opened, in bytes.
        before: u32,
        /// Block size now, in bytes.
        now: u32,
    },
    /// The unit has shrunk, and the request ends beyond its end; or it was found with another size
    /// and has no name that proves that it is the same unit.
    #[error("the unit has {now} bytes now, and had {before}")]
    CapacityChanged {
        /// Capacity before, in bytes.
        before: u64,
        /// Capacity now, in bytes.
        now: u64,
    },
    /// A unit with a removable medium has become ready again (NOT READY TO READY CHANGE), perhaps
    /// with another medium: nothing more is sent to it.
    #[error(
        "the unit may have another medium than when it was opened, and its name does not tell them apart"
    )]
    MediumChanged,
    /// The last session of a disk was lost, and could not be reconnected.
    #[doc(alias = "reconnect")]
    #[error("{lost}; the session could not be reconnected: {why}")]
    NotReopened {
        /// Error that ended the session.
        lost: Box<Self>,
        /// Error of the last attempt to reconnect.
        why: Box<Self>,
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
        cause: Box<Self>,
    },
    /// A session was lost while it wrote to that range, and it could not be proved within the
    /// time limit of the disk that the target will not carry out that write later: the range was not
    /// written again.
    #[error(
        "{len} bytes at offset {offset} were not written: a lost session was writing there, and the \
         target may still carry that out"
    )]
    OverlapsUnsettled {
        /// Offset of the range, in bytes.
        offset: u64,
        /// Length of the range, in bytes.
        len: u64,
    },
    /// A disk was closed, and it is not proved that the target will not carry out a write of a lost
    /// session later. What was flushed is safe until other data is written there.
    #[error(
        "the target may still carry out writes of a lost session, over what is written there later: {why}"
    )]
    Unsettled {
        /// Reason why this is not known: what ended the session, or why it could not be
        /// reconnected.
        why: Box<Self>,
    },
    /// The range does not lie on the disk.
    #[error("{len} bytes at offset {offset} do not fit a disk of {capacity} bytes")]
    OutOfRange {
        /// Offset of the range, in bytes.
        offset: u64,
        /// Length of the range, in bytes.
        len: u64,
        /// Capacity of the disk, in bytes.
        capacity: u64,
    },
    /// The length is not a whole number of blocks, and the method moves only whole blocks.
    #[error("{len} bytes are not a whole number of blocks of {block_size} bytes")]
    NotWholeBlocks {
        /// Length of the data, in bytes.
        len: usize,
        /// Block size of the unit, in bytes.
        block_size: u32,
    },
    /// Writes that were not flushed may be lost: the unit was reset, could not write them to the
    /// medium, or has no session left that would report a reset (a session reports resets only
    /// since its own login). Each handle returns this once for each loss.
    #[doc(alias = "lost write")]
    #[error(
        "writes that were not flushed may be lost, for the unit was reset, could not keep them, or \
         no session is left that would know"
    )]
    UnflushedWritesLost,
    /// The initiator has no free ISID: it has 65,536 sessions (RFC 7143 §11.12.5).
    #[error("the initiator has 65,536 sessions, and no name for another")]
    TooManySessions,
    /// A request was made outside of a tokio runtime, which would run it.
    #[error("no tokio runtime is there")]
    NoRuntime,
    /// A blocking method was called in an async task, whose thread it would stop.
    #[error("a blocking call would stop the runtime of the async task that makes it")]
    InsideRuntime,
    /// The runtime of a blocking initiator could not be started.
    #[error("no thread or file is left for the initiator's runtime: {0}")]
    RuntimeNotStarted(String),
    /// Another host has ended the registration of this disk with the unit, most often to fence this
    /// host off (PREEMPT or CLEAR, SPC-4 §5.13.11), or the unit has lost it in a power failure. The
    /// disk reads and writes nothing any more.
    #[doc(alias = "fenced")]
    #[error(
        "the unit does not know the reservation key {key} of this disk any more: another host has taken \
         the unit over"
    )]
    Preempted {
        /// Key of the disk.
        key: ReservationKey,
    },
    /// The reservation by the key of the disk is still in force after each session asked the unit
    /// to release it: its holder is a session that is lost, or one that used a port which no
    /// session uses now.
    #[error(
        "the unit is still reserved by the key {key}, over a nexus that the disk does not use now"
    )]
    StillReserved {
        /// Key of the disk.
        key: ReservationKey,
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
        why: Box<Self>,
    },
    /// [`Disk::reserve_exclusively`](crate::Disk::reserve_exclusively) failed: another initiator is
    /// registered with the unit, or holds it.
    #[error("another host is registered with the unit by the key {key} and may write to it")]
    RegisteredByAnother {
        /// Key of the other initiator; [`NONE`](ReservationKey::NONE) if the unit does not report
        /// it.
        key: ReservationKey,
    },
    /// A reservation was requested for a disk that has no reservation key.
    #[error("the disk has no reservation key")]
    NoReservationKey,
    /// The unit does not support the request.
    #[error("the unit does not support {0}")]
    Unsupported(&'static str),
}

impl Error {
    /// Returns whether the command may have been executed although it failed: it was sent, and no
    /// answer came. If a [`Disk`](crate::Disk) has retried a command and the unit has then refused
    /// it for good, the refusal is the error, and this describes that last attempt only.
    pub fn may_have_executed(&self) -> bool {
        if let Self::Session(failure) = self {
            return failure.may_have_executed;
        }
        if let Self::NotReopened { lost: cause, .. } | Self::EndsSessions { cause, .. } = self {
            return cause.may_have_executed();
        }
        matches!(
            self,
            Self::Task {
                cause: TaskError::Aborted
                    | TaskError::TimedOut
                    | TaskError::TargetFailure(_)
                    | TaskError::Session { sent: true, .. }
                    | TaskError::ConnectionLost { sent: true, .. },
                ..
            }
        )
    }

    /// Whether the session ended, not the command: over another session it may go well.
    pub(crate) fn is_of_session(&self) -> bool {
        matches!(self, Self::Session(_) | Self::Closed)
    }

    /// Whether the unit is not served this way to it, while it may be another way.
    pub(crate) fn is_of_path(&self) -> bool {
        self.leads_elsewhere() || self.sense().is_some_and(sense::is_of_path)
    }

    /// Whether another unit was found where this one was to be.
    const fn leads_elsewhere(&self) -> bool {
        matches!(
            self,
            Self::DifferentUnits { .. } | Self::UnprovenUnit { .. } | Self::BlockSizeChanged { .. }
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
        if let Self::CheckCondition { sense, .. } = self {
            End::of_sense(sense)
        } else if let Self::Status { status, .. } = self {
            End::of_status(*status, None)
        } else if let Self::Task { cause, .. } = self {
            End::of_failure(cause)
        } else if self.is_of_session() {
            End::SessionLost
        } else if self.leads_elsewhere() {
            End::OtherUnit
        } else {
            End::Refused
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

    /// Whether data came damaged, here or at the target, which refuses such a PDU (RFC 7143 §7.8).
    pub(crate) const fn is_damage(&self) -> bool {
        matches!(
            self,
            Self::Task {
                cause: TaskError::DataDigest
                    | TaskError::Rejected { reason: RejectReason::DATA_DIGEST_ERROR, .. },
                ..
            }
        )
    }

    /// Whether one connection of several was lost, not the session.
    pub(crate) const fn is_of_connection(&self) -> bool {
        matches!(self, Self::Task { cause: TaskError::ConnectionLost { .. }, .. })
    }

    /// The same for a request that was never sent.
    pub(crate) fn as_not_executed(&self) -> Self {
        let mut error = self.clone();
        if let Self::Session(failure) = &mut error {
            failure.may_have_executed = false;
        } else if let Self::NotReopened { lost, .. } = &mut error {
            **lost = lost.as_not_executed();
        }
        error
    }

    /// The same for a request that was under way when a session was lost thus, and for which no
    /// other one came.
    pub(crate) fn after_loss(self, lost: Self) -> Self {
        if let Self::NotReopened { why, .. } = self {
            Self::NotReopened { lost: Box::new(lost), why }
        } else {
            lost
        }
    }

    /// The portal group that the portal of a login is of, if not of that which was insisted on
    /// (RFC 7143 §13.9).
    pub(crate) fn other_portal_group(&self) -> Option<u16> {
        if let Self::Login(failure) = self { failure.other_portal_group() } else { None }
    }

    /// Whether the target says that it cannot take the login now (Status-Class 3).
    pub(crate) fn is_targets_at_login(&self) -> bool {
        matches!(self, Self::Login(failure) if matches!(failure.status(), Some((3, _))))
    }

    /// Returns the sense data, if the unit sent any.
    pub fn sense(&self) -> Option<&Sense> {
        if let Self::CheckCondition { sense, .. } = self { Some(sense) } else { None }
    }
}

impl From<Error> for io::Error {
    /// Converts to the closest [kind](ErrorKind). The new error holds the original: `get_ref` and
    /// then `downcast_ref` return it.
    fn from(error: Error) -> Self {
        Self::new(error.kind().into(), error)
    }
}

impl From<BlockError> for Error {
    fn from(error: BlockError) -> Self {
        match error {
            BlockError::NotWhole { len, block_size } => Self::NotWholeBlocks { len, block_size },
            BlockError::OutOfRange { offset, len, capacity } => {
                Self::OutOfRange { offset, len, capacity }
            }
        }
    }
}

impl From<std::convert::Infallible> for Error {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

#[cfg(test)]
mod tests;
