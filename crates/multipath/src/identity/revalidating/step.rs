//! What a revalidation does next, what it asks the unit, and why it failed.

use std::time::Duration;

use iscsi_pdu::scsi::{
    Cdb, DeviceType, FormatError, ModeParameters, ReadCapacity10, ReadCapacity16, Sense, Status,
};

use crate::PathId;
use crate::identity::capacity::Capacity;
use crate::identity::name::{UnitName, Unproven};
use crate::identity::revalidation::Verdict;
use crate::identity::size::Resized;
use crate::reconnect::BackOff;

/// Length of the standard INQUIRY data that are asked for, bytes.
const INQUIRY_LENGTH: u16 = 96;
/// Length of the mode parameters that are asked for, bytes: as much as MODE SENSE (6) can report.
const MODE_LENGTH: u8 = 252;

/// What is known of the unit, and how long it is asked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Terms {
    /// The name of the unit. Its address is not compared: a path leads to one address.
    pub name: UnitName,
    /// The capacity of the unit when it became known.
    pub capacity: Capacity,
    /// How long each caller waits for an answer that proves something.
    pub retry_timeout: Duration,
    /// Pauses between tries.
    pub pauses: BackOff,
}

/// Identifies a caller that waits for a revalidation. No number is used twice.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct WaiterId(pub(super) u64);

/// What a revalidation does next.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// Nothing: a question has not ended, or a pause.
    Wait,
    /// Send this command, before any other one to the unit, and return its end with
    /// [`Revalidations::on_end`](super::Revalidations::on_end).
    Ask(Question),
    /// The unit has another capacity.
    Resized(Resized),
    /// The caller waits no longer: the path leads to the known unit, or not.
    Answer(WaiterId, Result<(), Failure>),
    /// No caller waits. Questions in flight are not needed any more.
    Idle,
}

/// A command that a revalidation needs the end of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Question {
    /// Number of the question among those of the owner, from 0.
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
        /// The page.
        code: u8,
        /// Room for the answer, bytes.
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
    /// Returns the command, and the length of the answer that there is room for, bytes.
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

/// How a question ended, after the retries that every command gets.
#[derive(Clone, Copy, Debug)]
pub enum End<'a> {
    /// GOOD, with the data that came.
    Good(&'a [u8]),
    /// CHECK CONDITION with this sense.
    Check(&'a Sense),
    /// Another status, or CHECK CONDITION without sense that can be read.
    Status(Status),
    /// LOGICAL UNIT NOT SUPPORTED: there is no unit behind the number.
    NoUnit,
    /// The session is over.
    SessionLost,
    /// No status for another reason.
    NoAnswer,
}

/// Why a revalidation has failed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Failure {
    /// The path must not be used any more, for good.
    #[error(transparent)]
    Verdict(Verdict),
    /// The question with this number has failed; its [`End`] is the reason. It is one of the last eight of its path.
    #[error("question {0} has failed")]
    Question(u32),
    /// The target has no unit behind the number.
    #[error("there is no unit behind the number")]
    NoUnit,
    /// The unit is no disk.
    #[error("the unit is no disk")]
    NotADisk(DeviceType),
    /// The answer to a command cannot be read.
    #[error("{1}")]
    Format(Command, FormatError),
    /// Nothing proves that the path leads to the known unit, for this reason.
    #[error(transparent)]
    Unproven(Unproven),
}
