//! Steps, commands and failures of a revalidation.

use std::time::Duration;

use iscsi_pdu::scsi::{
    Cdb, DeviceType, FormatError, ModeParameters, ReadCapacity10, ReadCapacity16, Sense, Status,
};

use crate::PathId;
use crate::identity::capacity::Capacity;
use crate::identity::name::{UnitName, Unproven};
use crate::identity::reasons::Verdict;
use crate::identity::resize::Resized;
use crate::reconnect::BackOff;

/// Allocation length of the standard INQUIRY data, in bytes.
const INQUIRY_LENGTH: u16 = 96;
/// Allocation length of the mode parameters, in bytes: as much as MODE SENSE (6) can report.
const MODE_LENGTH: u8 = 252;

/// Facts about the known unit, and limits, for a revalidation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Terms {
    /// The name of the unit. Its address is not compared, because a path leads to one address.
    pub name: UnitName,
    /// The capacity of the unit when it became known.
    pub capacity: Capacity,
    /// Time limit of each caller: how long tries are repeated for it.
    pub retry_timeout: Duration,
    /// Pauses between tries.
    pub pauses: BackOff,
}

/// Identifies a caller that waits for a revalidation. No number is used twice.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct WaiterId(pub(super) u64);

/// Next step of a revalidation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// Do nothing: a command or a pause has not ended.
    Wait,
    /// Send this command before any other one to the unit, and pass its end to
    /// [`Revalidations::on_end`](super::Revalidations::on_end).
    Ask(Question),
    /// The capacity of the unit has changed.
    Resized(Resized),
    /// The wait of this caller is over: the path leads to the known unit, or a failure.
    Answer(WaiterId, Result<(), Failure>),
    /// No caller waits. The results of commands in flight are not needed any more.
    Idle,
}

/// A command whose end a revalidation needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Question {
    /// Number of the command among all revalidations of the unit, from 0.
    pub number: u32,
    /// The path to send the command over.
    pub path: PathId,
    /// The command.
    pub command: Command,
}

/// A command of a revalidation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Command {
    /// INQUIRY, for the standard data.
    Inquiry,
    /// INQUIRY, for a page of vital product data.
    Page {
        /// Page code.
        code: u8,
        /// Allocation length, in bytes.
        allocation_length: u16,
    },
    /// READ CAPACITY (16).
    ReadCapacity16,
    /// READ CAPACITY (10).
    ReadCapacity10,
    /// MODE SENSE (6) of all pages.
    ModeSense,
}

impl Command {
    /// Returns the command, and the maximum length of its data, in bytes.
    pub fn cdb_and_len(self) -> (Cdb, usize) {
        match self {
            Self::Inquiry => (Cdb::inquiry(INQUIRY_LENGTH), INQUIRY_LENGTH.into()),
            Self::Page { code, allocation_length } => {
                (Cdb::inquiry_vpd(code, allocation_length), allocation_length.into())
            }
            Self::ReadCapacity16 => {
                const LENGTH: u32 = 32;
                (Cdb::read_capacity_16(LENGTH), ReadCapacity16::LEN)
            }
            Self::ReadCapacity10 => (Cdb::read_capacity_10(), ReadCapacity10::LEN),
            Self::ModeSense => {
                let cdb = Cdb::mode_sense_6(ModeParameters::ALL_PAGES, MODE_LENGTH);
                (cdb, MODE_LENGTH.into())
            }
        }
    }
}

/// End of a command of a revalidation, after the retries that every command has.
#[derive(Clone, Copy, Debug)]
pub enum End<'a> {
    /// GOOD, with the received data.
    Good(&'a [u8]),
    /// CHECK CONDITION with these sense data.
    Check(&'a Sense),
    /// Another status, or CHECK CONDITION without readable sense data.
    Status(Status),
    /// LOGICAL UNIT NOT SUPPORTED: the LUN has no unit.
    NoUnit,
    /// The session is over.
    SessionLost,
    /// No status for another reason.
    NoAnswer,
}

/// Reasons why a revalidation has failed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Failure {
    /// The path must never be used again.
    #[error(transparent)]
    Verdict(Verdict),
    /// The question with this number has failed; its [`End`] is the reason. It is one of the last eight
    /// questions of its path.
    #[error("question {0} has failed")]
    Question(u32),
    /// The target has no unit with this LUN.
    #[error("there is no unit behind the number")]
    NoUnit,
    /// The unit is not a disk.
    #[error("the unit is no disk")]
    NotADisk(DeviceType),
    /// The answer to a command cannot be decoded.
    #[error("{1}")]
    Format(Command, FormatError),
    /// Nothing proves that the path leads to the known unit, for this reason.
    #[error(transparent)]
    Unproven(Unproven),
}
