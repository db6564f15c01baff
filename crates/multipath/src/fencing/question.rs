//! What a procedure asks the unit, and how that ends.

use std::time::Instant;

use iscsi_pdu::scsi::reservation::{PersistentReserveIn, PersistentReserveOut};
use iscsi_pdu::scsi::{Sense, Status};

use crate::PathId;

/// A command that a procedure needs the answer of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Question {
    /// Number of the question within its procedure, from 0.
    pub number: u32,
    /// The path to send the command over. PERSISTENT RESERVE OUT speaks for the nexus that it comes over.
    pub path: PathId,
    /// The command.
    pub command: ReserveCommand,
    /// When to give the question up, with [`End::NoAnswer`]; without it, what the session does about a silent
    /// target is enough.
    pub deadline: Option<Instant>,
}

/// A command about registrations and reservations.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReserveCommand {
    /// PERSISTENT RESERVE IN.
    In {
        /// What is read.
        action: PersistentReserveIn,
        /// Room for the answer, bytes.
        allocation_length: u16,
    },
    /// PERSISTENT RESERVE OUT.
    Out(PersistentReserveOut),
}

/// How a question ended, after the retries that every command gets.
#[derive(Clone, Copy, Debug)]
pub enum End<'a> {
    /// GOOD, with the data that came: none for PERSISTENT RESERVE OUT.
    Good(&'a [u8]),
    /// CHECK CONDITION with this sense.
    Check(&'a Sense),
    /// Another status, or CHECK CONDITION without sense that can be read.
    Status(Status),
    /// No status: the session has ended, or the question was given up. The unit may have carried the command out, or may
    /// still do it.
    NoAnswer,
}
