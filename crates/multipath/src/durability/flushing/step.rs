//! What a flush does next, what it asks the unit, and why it failed.

use std::time::Duration;

use iscsi_pdu::scsi::{Sense, Status};

use crate::{CommandNumber, PathId};

/// Identifies the [`Durability`](crate::Durability) that a flush is for. Each has one flush in progress at a time.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct FlushOwner(pub u64);

/// What is known of the unit when a flush starts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Terms {
    /// Whether the unit has reported a volatile cache (WCE); `None` if it does not report it.
    pub write_cache: Option<bool>,
    /// How long commands are waited for that were sent before the flush, and a witness that does not take the question.
    pub retry_timeout: Duration,
}

/// What a flush does next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// Nothing: another flush has its turn, or a question has not ended.
    Wait,
    /// Nothing until the commands of this path have ended that were sent before this one
    /// ([`Unit::have_ended_before`](crate::Unit::have_ended_before)), or the time has come.
    Hear(PathId, CommandNumber),
    /// Send this command, and return its end with [`Flushes::on_end`](super::Flushes::on_end).
    Ask(Question),
    /// Choose the path that is fittest to vouch for the flush, by
    /// [`witness_rank`](crate::Durability::witness_rank) and without the path of the flush, and return it with
    /// [`Flushes::on_witness`](super::Flushes::on_witness). This comes again if that path vouches for nothing: its session is
    /// lost, for example. The same path twice in a row counts as none.
    ChooseWitness,
    /// The flush has ended, and its number is forgotten. GOOD does not mean that nothing was lost:
    /// [`losses`](crate::Durability::losses) says that.
    Done(Result<(), Failure>),
}

/// A command that a flush needs the end of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Question {
    /// Number of the question within its flush, from 0.
    pub number: u32,
    /// The path to send the command over.
    pub path: PathId,
    /// The command.
    pub command: Command,
}

/// A command of a flush.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Command {
    /// SYNCHRONIZE CACHE of the whole medium. GOOD counts only once it is certain, by all that the unit has reported, that the
    /// known unit has executed the command.
    SynchronizeCache,
    /// TEST UNIT READY. The command runs to its end, also where the flush has ended meanwhile: it may report a reset.
    TestUnitReady,
    /// MODE SENSE (6) of all pages. The command waits for no other question to the unit.
    ModeSense,
}

/// How a question ended, after the retries that every command gets.
#[derive(Clone, Copy, Debug)]
pub enum End<'a> {
    /// GOOD, with the place of the command among those of its path, and the data that came.
    Good(CommandNumber, &'a [u8]),
    /// CHECK CONDITION with this sense.
    Check(&'a Sense),
    /// Another status, or CHECK CONDITION without sense that can be read.
    Status(Status),
    /// No status that counts.
    NoAnswer,
}

/// Why a flush has failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Failure {
    /// The question with this number has failed; its [`End`] is the reason.
    #[error("question {0} has failed")]
    Question(u32),
    /// The flush was given up before it had its turn.
    #[error("the flush was given up")]
    GivenUp,
}
