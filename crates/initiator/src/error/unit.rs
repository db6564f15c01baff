//! Defines the errors of the unit: its responses, its identity, and access to it.

use std::ops::Range;

use iscsi_pdu::scsi::reservation::ReservationKey;
use iscsi_pdu::scsi::{DeviceType, FormatError, Lun, Sense, Status};
use thiserror::Error;

use crate::error::advice::Advice;
use crate::error::fault::Fault;
use crate::error::kind::ErrorKind;
use crate::error::sense::{advice_on_sense, advice_on_status, kind_of_sense, kind_of_status};

/// Reason that lies with the logical unit: its responses, its identity, its cache, its reservations.
#[derive(Clone, Debug, Error)]
pub(crate) enum UnitCause {
    /// The unit answered CHECK CONDITION, with sense data that names the reason (SPC-4 §4.5).
    #[error("{command} failed: {sense}")]
    CheckCondition {
        /// Name of the command in the standard.
        command: &'static str,
        /// Sense data of the unit.
        sense: Sense,
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
        /// Number of bytes that the command requested.
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
        #[source]
        why: FormatError,
    },
    /// The target has no such logical unit.
    #[error("the target has no logical unit {lun}")]
    NoSuchUnit {
        /// Number of the logical unit.
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
        /// Identifier of the unit of the disk.
        expected: String,
        /// Identifier of the other unit.
        found: String,
    },
    /// Nothing proves that a session leads to the unit of the disk, so nothing is written through this
    /// session.
    #[error("nothing proves that {portal} leads to the unit of the disk ({expected}): {why}")]
    UnprovenUnit {
        /// Portal of the session, `host:port`.
        portal: String,
        /// Identifier of the unit of the disk.
        expected: String,
        /// Reason why the unit is not confirmed.
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
    /// Writes that were not flushed may be lost: the unit was reset, could not write them to the
    /// medium, or has no session left that would report a reset (a session reports only resets
    /// after its own login). Each handle returns this once for each loss.
    #[error(
        "writes that were not flushed may be lost, for the unit was reset, could not keep them, or \
         no session is left that would know"
    )]
    UnflushedWritesLost,
    /// A session was lost while it wrote to the range, and it could not be proved within the time
    /// limit of the disk that the target will not carry out that write later. So the new write was
    /// not sent.
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
    /// Another host has ended the registration of this disk with the unit, most often to fence this
    /// host off (PREEMPT or CLEAR, SPC-4 §5.13.11), or the unit has lost it in a power failure. The
    /// disk reads and writes nothing any more.
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
    /// Another initiator is registered with the unit, or has reserved it.
    /// [`Disk::reserve_exclusively`](crate::Disk::reserve_exclusively) reports this.
    #[error("another host is registered with the unit by the key {key} and may write to it")]
    RegisteredByAnother {
        /// Key of the other initiator; [`NONE`](ReservationKey::NONE) if the unit does not report
        /// it.
        key: ReservationKey,
    },
    /// The unit does not support the request.
    #[error("the unit does not support {0}")]
    Unsupported(&'static str),
}

impl UnitCause {
    pub(super) fn kind(&self) -> ErrorKind {
        match self {
            Self::CheckCondition { sense, .. } => kind_of_sense(sense),
            Self::Status { status, .. } => kind_of_status(*status),
            Self::Length { .. } | Self::Format { .. } => ErrorKind::Protocol,
            Self::NoSuchUnit { .. } => ErrorKind::NotFound,
            Self::NotABlockDevice { .. } => ErrorKind::InvalidInput,
            Self::WriteProtected(_) => ErrorKind::WriteProtected,
            Self::UnitGone(_)
            | Self::SerialNumber { .. }
            | Self::DifferentUnits { .. }
            | Self::UnprovenUnit { .. }
            | Self::BlockSizeChanged { .. }
            | Self::CapacityChanged { .. }
            | Self::MediumChanged => ErrorKind::UnitChanged,
            Self::UnflushedWritesLost => ErrorKind::UnflushedWritesLost,
            Self::OverlapsUnsettled { .. } => ErrorKind::Unsettled,
            Self::Preempted { .. } => ErrorKind::Preempted,
            Self::StillReserved { .. } | Self::RegisteredByAnother { .. } => {
                ErrorKind::ReservationConflict
            }
            Self::Unsupported(_) => ErrorKind::Unsupported,
        }
    }

    pub(super) fn fault(&self) -> Fault {
        match self {
            Self::NoSuchUnit { .. }
            | Self::NotABlockDevice { .. }
            | Self::SerialNumber { .. }
            | Self::DifferentUnits { .. }
            | Self::Preempted { .. }
            | Self::StillReserved { .. }
            | Self::RegisteredByAnother { .. } => Fault::Caller,
            Self::OverlapsUnsettled { .. } => Fault::Network,
            Self::CheckCondition { .. }
            | Self::Status { .. }
            | Self::Length { .. }
            | Self::Format { .. }
            | Self::UnitGone(_)
            | Self::WriteProtected(_)
            | Self::UnprovenUnit { .. }
            | Self::BlockSizeChanged { .. }
            | Self::CapacityChanged { .. }
            | Self::MediumChanged
            | Self::UnflushedWritesLost
            | Self::Unsupported(_) => Fault::Target,
        }
    }

    pub(super) fn advice(&self) -> Option<Advice> {
        Some(match self {
            Self::CheckCondition { command, sense } => return advice_on_sense(command, sense),
            Self::Status { status, .. } => return advice_on_status(*status),
            Self::Length { .. } | Self::Format { .. } => Advice::ReportTarget,
            Self::NoSuchUnit { .. } => Advice::ListUnits,
            Self::UnitGone(_) => Advice::RestoreUnit,
            Self::NotABlockDevice { .. } => Advice::ChooseDisk,
            Self::WriteProtected(_) => Advice::MakeWritable,
            Self::SerialNumber { .. } => Advice::CheckSerialNumber,
            Self::DifferentUnits { .. } => Advice::OneUnit,
            Self::BlockSizeChanged { .. } => Advice::Reopen,
            Self::CapacityChanged { .. } => Advice::AskForLess,
            Self::MediumChanged => Advice::CheckMedium,
            Self::UnflushedWritesLost => Advice::WriteAgain,
            Self::OverlapsUnsettled { .. } => Advice::WriteLater,
            Self::Preempted { .. } => Advice::CheckOtherHosts,
            Self::StillReserved { .. } => Advice::ReleaseAgain,
            Self::RegisteredByAnother { .. } => Advice::StopOtherHost,
            Self::UnprovenUnit { .. } | Self::Unsupported(_) => return None,
        })
    }

    pub(super) const fn status(&self) -> Option<Status> {
        if let Self::Status { status, .. } = self {
            return Some(*status);
        }
        if let Self::CheckCondition { .. } = self { Some(Status::CHECK_CONDITION) } else { None }
    }

    /// Returns the name of the command in the standard, if the error is about one.
    pub(super) const fn command(&self) -> Option<&'static str> {
        if let Self::CheckCondition { command, .. }
        | Self::Status { command, .. }
        | Self::Length { command, .. }
        | Self::Format { command, .. } = self
        {
            Some(*command)
        } else {
            None
        }
    }

    /// Returns the portal that leads to a unit which is not, or may not be, the one that was opened.
    pub(super) fn portal(&self) -> Option<String> {
        if let Self::DifferentUnits { portal, .. } | Self::UnprovenUnit { portal, .. } = self {
            Some(portal.clone())
        } else {
            None
        }
    }
}

/// Returns the blocks of a command, as a part of a sentence.
pub(crate) fn of_blocks(blocks: Option<&Range<u64>>) -> String {
    blocks.map_or_else(String::new, |blocks| {
        format!(" of blocks {} to {}", blocks.start, blocks.end.saturating_sub(1))
    })
}

/// Returns the meaning of a SCSI status that is not an error of the command itself, as text to append to the
/// status's name.
const fn meaning(status: Status) -> &'static str {
    match status {
        Status::RESERVATION_CONFLICT => ": another initiator holds a reservation of the unit",
        Status::CHECK_CONDITION => ", and the unit does not say why",
        Status::BUSY | Status::TASK_SET_FULL => " again and again",
        _ => "",
    }
}
