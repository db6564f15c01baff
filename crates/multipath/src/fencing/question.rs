//! Commands of a procedure to the unit, and their ends.

use std::time::Instant;

use iscsi_pdu::scsi::reservation::{PersistentReserveIn, PersistentReserveOut};
use iscsi_pdu::scsi::{Sense, Status};

use crate::PathId;

/// A command whose result a procedure needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Question {
    /// Number of the command within its procedure, from 0.
    pub number: u32,
    /// The path to send the command over. PERSISTENT RESERVE OUT acts for the nexus over which it is sent.
    pub path: PathId,
    /// The command.
    pub command: ReserveCommand,
    /// When to give the command up, with [`End::NoAnswer`]. If `None`, the session's own handling of a silent
    /// target is enough.
    pub deadline: Option<Instant>,
}

/// A command about registrations and reservations.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReserveCommand {
    /// PERSISTENT RESERVE IN.
    In {
        /// The data to read.
        action: PersistentReserveIn,
        /// Allocation length, in bytes.
        allocation_length: u16,
    },
    /// PERSISTENT RESERVE OUT.
    Out(PersistentReserveOut),
}

/// End of a command of a procedure, after the retries that every command has.
#[derive(Clone, Copy, Debug)]
pub enum End<'a> {
    /// GOOD, with the received data; empty for PERSISTENT RESERVE OUT.
    Good(&'a [u8]),
    /// CHECK CONDITION with these sense data.
    Check(&'a Sense),
    /// Another status, or CHECK CONDITION without readable sense data.
    Status(Status),
    /// No status: the session has ended, or the command was given up. The unit may have executed the command,
    /// or may still execute it.
    NoAnswer,
}
