//! Steps, commands and failures of a flush.

use std::time::Duration;

use iscsi_pdu::scsi::{Sense, Status};

use crate::{CommandNumber, PathId};

/// Identifies the [`Durability`](crate::Durability) that a flush is for. Each has one flush in progress at a time.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct FlushOwner(pub u64);

/// Facts about the unit, and limits, for a flush.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Terms {
    /// Whether the unit has reported a volatile cache (WCE); `None` if the unit does not report this.
    pub write_cache: Option<bool>,
    /// Time limit of the wait for commands that were sent before the flush, and for a witness that refuses
    /// TEST UNIT READY.
    pub retry_timeout: Duration,
}

/// Next step of a flush.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// Do nothing: another flush has its turn, or a command has not ended.
    Wait,
    /// Do nothing until the commands of this path have ended that were sent before this one
    /// ([`Unit::have_ended_before`](crate::Unit::have_ended_before)), or until
    /// [`poll_timeout`](super::Flushes::poll_timeout).
    AwaitCommands(PathId, CommandNumber),
    /// Send this command, and pass its end to [`Flushes::on_end`](super::Flushes::on_end).
    Ask(Question),
    /// Choose the most suitable witness: the path with the lowest
    /// [`witness_rank`](crate::Durability::witness_rank) except the path of the flush. Pass it to
    /// [`Flushes::on_witness`](super::Flushes::on_witness). The step is repeated if the witness does not show
    /// whether there was a reset, for example because its session is lost. If the previous witness is passed
    /// again, the flush continues as if there were no other witness.
    ChooseWitness,
    /// The flush has ended, and its number is forgotten. `Ok` does not mean that nothing was lost: see
    /// [`losses`](crate::Durability::losses).
    Done(Result<(), Failure>),
}

/// A command whose end a flush needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Question {
    /// Number of the command within its flush, from 0.
    pub number: u32,
    /// The path to send the command over.
    pub path: PathId,
    /// The command.
    pub command: Command,
}

/// A command of a flush.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Command {
    /// SYNCHRONIZE CACHE of the whole medium. Report GOOD only when it is confirmed that the known unit has
    /// executed the command.
    SynchronizeCache,
    /// TEST UNIT READY. The command runs to its end, even if the flush has ended meanwhile, because it may
    /// report a reset.
    TestUnitReady,
    /// MODE SENSE (6) of all pages. Send it also while the unit is being identified.
    ModeSense,
}

/// End of a command of a flush, after the retries that every command has.
#[derive(Clone, Copy, Debug)]
pub enum End<'a> {
    /// GOOD, with the number of the command on its path, and the received data.
    Good(CommandNumber, &'a [u8]),
    /// CHECK CONDITION with these sense data.
    Check(&'a Sense),
    /// Another status, or CHECK CONDITION without readable sense data.
    Status(Status),
    /// No status, or a status that must be ignored.
    NoAnswer,
}

/// Reason why a flush has failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Failure {
    /// The question with this number has failed; its [`End`] is the reason.
    #[error("question {0} has failed")]
    Question(u32),
    /// The flush was abandoned, or has already returned its result.
    #[error("the flush was given up")]
    GivenUp,
}
