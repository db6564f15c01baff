//! Goals, steps and failures of procedures.

use iscsi_pdu::scsi::FormatError;

use super::question::Question;

/// Goal of a procedure for its path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Goal {
    /// Registers the first path of the disk.
    Register,
    /// Registers a further path, or one that has reconnected, if no other host has ended the registrations.
    Join,
    /// Checks after a RESERVATION CONFLICT whether the path is still registered.
    Prove,
    /// Ends the registration of the path, without waiting for a turn.
    End,
    /// Ends the registration of the path, unless a reservation may end with it.
    EndUnlessReserved,
}

/// Next step of a procedure.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// Do nothing: another procedure has its turn, or a command has not ended.
    Wait,
    /// Send this command, and pass its end to [`Fencing::on_end`](super::Fencing::on_end).
    Ask(Question),
    /// The procedure has ended, and its number is forgotten.
    Done(Result<(), Failure>),
}

/// Reason why a procedure failed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Failure {
    /// Another host has ended a registration of the disk.
    #[error("another host has ended the registration of the disk")]
    Preempted,
    /// The unit refuses every form of REGISTER.
    #[error("the unit has no persistent reservations")]
    NoReservations,
    /// The counter PRGENERATION does not show which changes there were: other hosts change registrations all
    /// the time, or the unit does not count changes.
    #[error("the unit does not count the changes of its registrations (PRGENERATION)")]
    NoGeneration,
    /// Some registrations were sent and not answered, and the unit does not show whether one of them has set
    /// the key that it knows. The disk may be fenced off, or not.
    #[error("the unit does not show which nexuses are registered (READ FULL STATUS)")]
    Unproven,
    /// The question with this number has failed; its [`End`](super::End) is the reason.
    #[error("question {0} has failed")]
    Question(u32),
    /// The answer to PERSISTENT RESERVE IN cannot be decoded.
    #[error(transparent)]
    Format(FormatError),
    /// The procedure was [cancelled](super::Fencing::cancel), or its path was removed.
    #[error("the procedure was given up")]
    GivenUp,
}
