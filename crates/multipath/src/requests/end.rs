//! Classifies the ends of attempts, as far as the consequences depend on them.

use iscsi_pdu::RejectReason;
use iscsi_pdu::scsi::{AccessState, AdditionalSense, Sense, SenseKey, Status};
use iscsi_session::{Completion, TaskError};

use crate::access::Access;

/// End of one attempt to execute a command over one path.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum End {
    /// The unit succeeded: GOOD, CONDITION MET, or RECOVERED ERROR (SPC-4 §4.5.6).
    Good,
    /// UNIT ATTENTION or a deferred error. The unit reports an event, and did not execute the
    /// command (SAM-5 §5.14, SPC-4 §4.5.5).
    Attention,
    /// BUSY or TASK SET FULL (SAM-5 §5.3): the unit did not execute the command.
    Busy,
    /// TASK ABORTED: another initiator ended the command (SAM-5 §5.3).
    TaskAborted,
    /// NOT READY for a temporary reason that does not change the data.
    BecomingReady,
    /// The target port does not serve the unit in this access state (SPC-4 §5.11.2).
    Port(AccessState),
    /// INVALID FIELD IN CDB. For a command that every disk supports, it may mean that the port is offline:
    /// LIO 6.1 returns this for every command through such a port.
    InvalidField,
    /// INVALID COMMAND OPERATION CODE.
    UnknownCommand,
    /// ABORTED COMMAND: the unit or the link has aborted the command.
    AbortedCommand,
    /// RESERVATION CONFLICT.
    ReservationConflict,
    /// Any other status or sense data: the unit refused the command, or failed.
    Refused,
    /// The data arrived damaged, or the target refused the PDU because of its digest (RFC 7143 §7.8).
    Damaged,
    /// No status within the time limit. The target has aborted the command.
    TimedOut,
    /// One of several connections was lost. The target has aborted the command.
    ConnectionLost,
    /// The session ended. The target may still execute the command if it was sent.
    SessionLost,
    /// The command was withdrawn before it was sent.
    Withdrawn,
    /// No usable result for any other reason.
    NoAnswer,
    /// The path leads to another unit, or it is not certain that it leads to this one.
    OtherUnit,
}

impl End {
    /// Classifies the status of a command.
    pub fn of_completion(completion: &Completion) -> Self {
        Self::of(completion.status, &completion.sense)
    }

    /// Classifies a status and its sense data, as bytes.
    pub fn of(status: Status, sense: &[u8]) -> Self {
        let is_check = status == Status::CHECK_CONDITION;
        let sense = if is_check { Sense::decode(sense).ok() } else { None };
        match (status, &sense) {
            (Status::GOOD | Status::CONDITION_MET, _) => Self::Good,
            (_, Some(sense)) if sense.key == SenseKey::RecoveredError && !sense.deferred => {
                Self::Good
            }
            (status, sense) => Self::of_status(status, sense.as_ref()),
        }
    }

    /// Classifies a status that is no success, with its sense data.
    pub fn of_status(status: Status, sense: Option<&Sense>) -> Self {
        match (status, sense) {
            (Status::BUSY | Status::TASK_SET_FULL, _) => Self::Busy,
            (Status::TASK_ABORTED, _) => Self::TaskAborted,
            (Status::RESERVATION_CONFLICT, _) => Self::ReservationConflict,
            (Status::CHECK_CONDITION, Some(sense)) => Self::of_sense(sense),
            _ => Self::Refused,
        }
    }

    /// Classifies the sense data of a CHECK CONDITION.
    pub fn of_sense(sense: &Sense) -> Self {
        if sense.key == SenseKey::UnitAttention || sense.deferred {
            return Self::Attention;
        }
        if let Some(access) = Access::of_refusal(sense) {
            return Self::Port(access.state);
        }
        match (sense.key, sense.additional) {
            (SenseKey::AbortedCommand, _) => Self::AbortedCommand,
            (SenseKey::NotReady, additional) if additional.is_in_progress() => Self::BecomingReady,
            (SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE) => {
                Self::UnknownCommand
            }
            (_, AdditionalSense::INVALID_FIELD_IN_CDB) => Self::InvalidField,
            _ => Self::Refused,
        }
    }

    /// Classifies the end of a command without a status.
    pub const fn of_failure(failure: &TaskError) -> Self {
        match failure {
            TaskError::Session { .. } | TaskError::Closed => Self::SessionLost,
            TaskError::ConnectionLost { .. } => Self::ConnectionLost,
            TaskError::Withdrawn => Self::Withdrawn,
            TaskError::TimedOut => Self::TimedOut,
            TaskError::DataDigest
            | TaskError::Rejected { reason: RejectReason::DATA_DIGEST_ERROR, .. } => Self::Damaged,
            TaskError::Aborted
            | TaskError::TargetFailure(_)
            | TaskError::DataMissing { .. }
            | TaskError::Rejected { .. }
            | _ => Self::NoAnswer,
        }
    }
}

#[cfg(test)]
mod tests;
