//! What can go wrong, whose fault it is, and what to do about it.

pub(crate) mod advice;
mod advise;
mod classify;
mod connect;
mod fault;
mod kind;
mod login;
pub(crate) mod outlook;
mod phrase;
pub(crate) mod sense;
mod session;

use std::io;
use std::ops::Range;

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

/// Why a request failed.
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
    /// The initiator's own name is not an iSCSI name (RFC 7143 §4.2.7).
    #[error(transparent)]
    InitiatorName(#[from] NameError),
    /// The system gave no random bytes.
    #[error("the system gives no random bytes: {0}")]
    Entropy(String),
    /// No TCP connection came about.
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
    /// The request ended without an answer that counts.
    #[error("{request} failed: {cause}")]
    Task {
        /// What was asked for: the command's name in the standard.
        request: &'static str,
        /// How it ended.
        cause: TaskError,
    },
    /// The unit answered CHECK CONDITION, and says why (SPC-4 §4.5).
    #[error("{command} failed: {sense}")]
    CheckCondition {
        /// The command's name in the standard.
        command: &'static str,
        /// What the unit says.
        sense: Box<Sense>,
    },
    /// The unit answered with another status than GOOD (SAM-5 §5.3).
    #[error("{command} ended in {status}{}", meaning(*.status))]
    Status {
        /// The command's name in the standard.
        command: &'static str,
        /// The status.
        status: Status,
    },
    /// Status GOOD, but the unit moved another number of bytes than it was asked to.
    #[error("{command} moved {moved} bytes instead of {expected}")]
    Length {
        /// The command's name in the standard.
        command: &'static str,
        /// Bytes asked for.
        expected: usize,
        /// Bytes moved, by the target's account.
        moved: usize,
    },
    /// The answer is not in the format of the standard.
    #[error("the answer to {command} makes no sense: {why}")]
    Format {
        /// The command's name in the standard.
        command: &'static str,
        /// What is wrong with it.
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
    /// The target has no such logical unit any more: it had when the unit was opened.
    #[error("the target has no logical unit {0} any more")]
    UnitGone(Lun),
    /// The logical unit is there, but it is no disk.
    #[error("logical unit {lun} is a {device_type}, not a block device")]
    NotABlockDevice {
        /// Which one.
        lun: Lun,
        /// What it is.
        device_type: DeviceType,
    },
    /// The unit does not allow writing.
    #[error("logical unit {0} is write protected")]
    WriteProtected(Lun),
    /// The unit's serial number is not the one that `force_usn` insists on.
    #[error("the unit's serial number is {found:?}, not {expected:?}: it is another unit")]
    SerialNumber {
        /// What the URL insists on.
        expected: String,
        /// What the unit says; empty if it has none.
        found: String,
    },
    /// Two sessions that were to be one disk lead to different units, or one of them leads to another
    /// unit than before: nothing is sent to that.
    #[error(
        "{portal} leads to another unit ({found}) than the first session ({expected}) when the disk \
         was opened"
    )]
    DifferentUnits {
        /// The portal of the one that leads elsewhere, `host:port`.
        portal: String,
        /// The name of the unit of the disk.
        expected: String,
        /// The name of the other one.
        found: String,
    },
    /// Nothing tells whether a session leads to the unit of the disk, so nothing is written over it.
    #[error("nothing proves that {portal} leads to the unit of the disk ({expected}): {why}")]
    UnprovenUnit {
        /// The portal of the session, `host:port`.
        portal: String,
        /// What the unit is known by.
        expected: String,
        /// What is missing.
        why: String,
    },
    /// The unit has blocks of another size than when it was opened.
    #[error("the unit has blocks of {now} bytes now, and had {before}")]
    BlockSizeChanged {
        /// What it had, bytes.
        before: u32,
        /// What it has, bytes.
        now: u32,
    },
    /// The unit has become smaller than what was asked for, or was found with another size and no name to know it
    /// by.
    #[error("the unit has {now} bytes now, and had {before}")]
    CapacityChanged {
        /// What it had, bytes.
        before: u64,
        /// What it has, bytes.
        now: u64,
    },
    /// A unit whose medium can be taken out has become ready again (NOT READY TO READY CHANGE), maybe with another one:
    /// nothing is sent to it any more.
    #[error(
        "the unit may have another medium than when it was opened, and its name does not tell them apart"
    )]
    MediumChanged,
    /// The last session of a disk was lost, and could not be opened anew.
    #[error("{lost}; the session could not be opened anew: {why}")]
    NotReopened {
        /// What ended it.
        lost: Box<Self>,
        /// Why the last try to open it anew failed.
        why: Box<Self>,
    },
    /// Each session that the command went over ended under it, at last with nothing else under way
    /// there: the target, or something on the way to it, cannot bear the command or its data.
    #[error(
        "{command}{} ended its session each time, {times} times in a row with nothing else under \
         way there, and is not sent again: {cause}",
        of_blocks(.blocks.as_ref())
    )]
    EndsSessions {
        /// The command's name in the standard.
        command: &'static str,
        /// The blocks that it is about.
        blocks: Option<Range<u64>>,
        /// How many sessions in a row it has ended with nothing else under way there.
        times: u32,
        /// How the last one ended.
        cause: Box<Self>,
    },
    /// A session was lost while it was writing in that range, and nothing has proved, for as long as the
    /// disk's patience lasts, that the target will not carry that out later: it was not written again.
    #[error(
        "{len} bytes at offset {offset} were not written: a lost session was writing there, and the \
         target may still carry that out"
    )]
    OverlapsUnsettled {
        /// Where the range begins, bytes.
        offset: u64,
        /// How long it is, bytes.
        len: u64,
    },
    /// A disk was closed, and nothing has proved that the target will not carry out later what a lost
    /// session was writing. What was flushed is safe until other data is written there.
    #[error(
        "the target may still carry out writes of a lost session, over what is written there later: {why}"
    )]
    Unsettled {
        /// Why it is not known: what ended the session, or why it could not be opened anew.
        why: Box<Self>,
    },
    /// A unit that is a part of a larger device failed. What this error says of itself, its kind, its fault and its
    /// sense data, is what the cause says.
    #[error("{member}: {cause}")]
    Member {
        /// Which part of the device it is.
        member: String,
        /// What the unit says.
        cause: Box<Self>,
    },
    /// The range does not lie on the disk.
    #[error("{len} bytes at offset {offset} do not fit a disk of {capacity} bytes")]
    OutOfRange {
        /// Where the range begins, bytes.
        offset: u64,
        /// How long it is, bytes.
        len: u64,
        /// The disk's capacity, bytes.
        capacity: u64,
    },
    /// A number of bytes that is not a whole number of blocks, where only blocks can be moved.
    #[error("{len} bytes are not a whole number of blocks of {block_size} bytes")]
    NotWholeBlocks {
        /// The length, bytes.
        len: usize,
        /// The unit's block size, bytes.
        block_size: u32,
    },
    /// The unit was reset while it held writes that had not been flushed, or could not bring them onto
    /// the medium, or no session is left that would have been told: each is told of resets since its own
    /// login only, also where that was in place of a lost one. Each handle is told once.
    #[error(
        "writes that were not flushed may be lost, for the unit was reset, could not keep them, or \
         no session is left that would know"
    )]
    UnflushedWritesLost,
    /// The initiator has as many sessions as its ISIDs tell apart: 65,536 (RFC 7143 §11.12.5).
    #[error("the initiator has 65,536 sessions, and no name for another")]
    TooManySessions,
    /// A request outside of a tokio runtime, which would run it.
    #[error("no tokio runtime is there")]
    NoRuntime,
    /// A blocking call in an async task, whose thread it would stop.
    #[error("a blocking call would stop the runtime of the async task that makes it")]
    InsideRuntime,
    /// The runtime of a blocking initiator could not be started.
    #[error("no thread or file is left for the initiator's runtime: {0}")]
    RuntimeNotStarted(String),
    /// Another host has ended the registration of this disk with the unit, most often to fence it off
    /// (PREEMPT or CLEAR, SPC-4 §5.13.11), or the unit has lost it with its power. Nothing is read or
    /// written any more.
    #[error(
        "the unit does not know the reservation key {key} of this disk any more: another host has taken \
         the unit over"
    )]
    Preempted {
        /// The key of the disk.
        key: ReservationKey,
    },
    /// The unit is reserved by the key of the disk after each session was asked to release it: what holds the reservation
    /// is a nexus of a session that is lost, or that went through a port which none goes through now.
    #[error(
        "the unit is still reserved by the key {key}, over a nexus that the disk does not use now"
    )]
    StillReserved {
        /// The key of the disk.
        key: ReservationKey,
    },
    /// The disk has ended, and the unit may still know its key: a session that is lost, or whose port did not take the
    /// command, could not end its registration, which outlives it, and so does a reservation that it holds.
    #[error(
        "the unit may still know the reservation key {key} of this disk, and a reservation by it: {why}"
    )]
    StillRegistered {
        /// The key of the disk.
        key: ReservationKey,
        /// Why the registration could not be ended.
        why: Box<Self>,
    },
    /// [`Disk::reserve_exclusively`](crate::Disk::reserve_exclusively): another initiator is registered with the unit, or holds it.
    #[error("another host is registered with the unit by the key {key} and may write to it")]
    RegisteredByAnother {
        /// Its key; [`NONE`](ReservationKey::NONE) if the unit does not tell it.
        key: ReservationKey,
    },
    /// A reservation by the key of a disk that has none.
    #[error("the disk has no reservation key")]
    NoReservationKey,
    /// The unit cannot do that.
    #[error("the unit does not support {0}")]
    Unsupported(&'static str),
}

impl Error {
    /// Whether the command may have been executed although it failed: it was sent, and no answer
    /// came. Where a [`Disk`](crate::Disk) has sent it again and the unit has then refused it for good,
    /// the refusal is the error, and this speaks of that last try alone.
    pub fn may_have_executed(&self) -> bool {
        if let Self::Session(failure) = self {
            return failure.may_have_executed;
        }
        if let Self::NotReopened { lost: cause, .. }
        | Self::EndsSessions { cause, .. }
        | Self::Member { cause, .. } = self
        {
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
        let leads_elsewhere = matches!(
            self,
            Self::DifferentUnits { .. } | Self::UnprovenUnit { .. } | Self::BlockSizeChanged { .. }
        );
        leads_elsewhere || self.sense().is_some_and(sense::is_of_path)
    }

    /// Whether it is about the way to the unit, and no word of the unit about the command.
    pub(crate) fn is_of_way(&self) -> bool {
        self.is_of_session() || self.is_of_connection() || self.is_of_path()
    }

    /// Whether the unit may refuse a command that each disk takes for the state of the port alone.
    pub(crate) fn may_be_of_port(&self) -> bool {
        self.sense().is_some_and(|sense| {
            sense::state_of_port(sense).is_some() || sense::is_senseless(sense)
        })
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

    /// The sense data, if the unit gave any.
    pub fn sense(&self) -> Option<&Sense> {
        if let Self::CheckCondition { sense, .. } = self.root() { Some(sense) } else { None }
    }

    /// The same without the name of the part of a device that it is of.
    fn root(&self) -> &Self {
        if let Self::Member { cause, .. } = self { cause.root() } else { self }
    }
}

impl From<Error> for io::Error {
    /// Of the [kind](ErrorKind) that is closest to that of the error, which is still there:
    /// `get_ref` and then `downcast_ref` give it back.
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
