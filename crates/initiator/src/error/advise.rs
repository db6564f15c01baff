//! Which advice goes with which error.

use iscsi_pdu::scsi::{AdditionalSense, Sense, Status};
use iscsi_session::{SubmitError, TaskError};

use crate::error::Error;
use crate::error::advice::Advice;
use crate::error::kind::ErrorKind;
use crate::error::sense::kind_of_sense;
use crate::error::session::advice_on_end;

impl Error {
    /// What can be done about it; `None` where the text says all that is known.
    ///
    /// The advice on an error that has a cause is that on the cause.
    pub fn advice(&self) -> Option<Advice> {
        Some(match self {
            Self::Url(error) => return error.advice(),
            Self::Connect(error) => return error.advice(),
            Self::Login(failure) => return failure.advice(),
            Self::Session(failure) => return failure.advice(),
            Self::Task { cause, .. } => return advice_on_task(cause),
            Self::CheckCondition { command, sense } => return advice_on_sense(command, sense),
            Self::Status { status, .. } => return advice_on_status(*status),
            Self::NotReopened { why: cause, .. } => return cause.advice(),
            Self::InitiatorName(_) => Advice::ChooseInitiatorName,
            Self::Closed | Self::Submit(SubmitError::Closed) => Advice::Reconnect,
            Self::ClassClosed => Advice::UseOtherClass,
            Self::NoUnitNamed => Advice::AddLun,
            Self::NoSuchUnit { .. } => Advice::ListUnits,
            Self::UnitGone(_) => Advice::RestoreUnit,
            Self::NotABlockDevice { .. } => Advice::ChooseDisk,
            Self::WriteProtected(_) => Advice::MakeWritable,
            Self::SerialNumber { .. } => Advice::CheckSerialNumber,
            Self::DifferentUnits { .. } => Advice::OneUnit,
            Self::BlockSizeChanged { .. } => Advice::Reopen,
            Self::CapacityChanged { .. } => Advice::AskForLess,
            Self::MediumChanged => Advice::CheckMedium,
            Self::OverlapsUnsettled { .. } => Advice::WriteLater,
            Self::Unsettled { .. } => Advice::WriteNothing,
            Self::UnflushedWritesLost => Advice::WriteAgain,
            Self::TooManySessions => Advice::EndSessions,
            Self::NoRuntime => Advice::UseRuntime,
            Self::InsideRuntime => Advice::Await,
            Self::Preempted { .. } => Advice::CheckOtherHosts,
            Self::StillReserved { .. } => Advice::ReleaseAgain,
            Self::StillRegistered { .. } => Advice::PreemptKey,
            Self::RegisteredByAnother { .. } => Advice::StopOtherHost,
            Self::NoReservationKey => Advice::GiveKey,
            Self::Length { .. } | Self::Format { .. } | Self::Targets(_) => Advice::ReportTarget,
            Self::EndsSessions { .. } => Advice::ReadTargetLog,
            Self::Entropy(_)
            | Self::Submit(_)
            | Self::UnprovenUnit { .. }
            | Self::OutOfRange { .. }
            | Self::NotWholeBlocks { .. }
            | Self::RuntimeNotStarted(_)
            | Self::Unsupported(_) => return None,
        })
    }
}

/// What can be done about a task without a status.
const fn advice_on_task(cause: &TaskError) -> Option<Advice> {
    match cause {
        TaskError::Session { cause, .. } | TaskError::ConnectionLost { cause, .. } => {
            advice_on_end(cause)
        }
        TaskError::Closed => Some(Advice::Reconnect),
        TaskError::TimedOut => Some(Advice::MoreTime),
        TaskError::TargetFailure(_) | TaskError::Rejected { .. } => Some(Advice::ReadTargetLog),
        TaskError::DataMissing { .. } => Some(Advice::ReportTarget),
        TaskError::DataDigest => Some(Advice::CheckNetwork),
        TaskError::Aborted | TaskError::Withdrawn | _ => None,
    }
}

/// What can be done about a status that is not an error of the command itself.
const fn advice_on_status(status: Status) -> Option<Advice> {
    match status {
        Status::RESERVATION_CONFLICT => Some(Advice::FindHolder),
        Status::BUSY | Status::TASK_SET_FULL => Some(Advice::TryWithLess),
        _ => None,
    }
}

/// What can be done about a command that has failed so; `None` where the sense says all that is known.
fn advice_on_sense(command: &str, sense: &Sense) -> Option<Advice> {
    if sense.additional == AdditionalSense::LOGICAL_UNIT_COMMUNICATION_FAILURE {
        // LIO 6.1 answers every error of its store so, no space among them.
        let writes = command.starts_with("WRITE") || command.starts_with("SYNCHRONIZE");
        return Some(if writes { Advice::MakeRoomInStore } else { Advice::CheckStore });
    }
    Some(match kind_of_sense(sense) {
        ErrorKind::OutOfSpace => Advice::MakeRoom,
        ErrorKind::WriteProtected => Advice::MakeWritable,
        ErrorKind::Medium => Advice::ReadElsewhere,
        ErrorKind::NotFound => Advice::CheckLun,
        ErrorKind::Transient => Advice::TryLater,
        ErrorKind::Unreachable => Advice::UseOtherPortal,
        ErrorKind::UnitChanged => Advice::Reopen,
        ErrorKind::Authentication
        | ErrorKind::Refused
        | ErrorKind::ConnectionLost
        | ErrorKind::MayHaveExecuted
        | ErrorKind::TimedOut
        | ErrorKind::Closed
        | ErrorKind::Aborted
        | ErrorKind::ReservationConflict
        | ErrorKind::Preempted
        | ErrorKind::UnflushedWritesLost
        | ErrorKind::Unsettled
        | ErrorKind::Protocol
        | ErrorKind::InvalidInput
        | ErrorKind::Unsupported
        | ErrorKind::Other => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice_of(command: &'static str, key: u8, asc: u8, ascq: u8) -> Option<Advice> {
        let bytes = [0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0];
        let sense = Sense::decode(&bytes).unwrap().into();
        Error::CheckCondition { command, sense }.advice()
    }

    #[test]
    fn a_store_that_is_full_is_named_where_something_was_to_be_written() {
        for command in ["WRITE(10)", "WRITE(16)", "WRITE SAME(16)", "SYNCHRONIZE CACHE(10)"] {
            assert_eq!(advice_of(command, 2, 8, 0), Some(Advice::MakeRoomInStore), "{command}");
        }
        assert_eq!(advice_of("READ(10)", 2, 8, 0), Some(Advice::CheckStore));
    }

    #[test]
    fn each_sense_that_leaves_something_to_do_has_its_advice() {
        for (key, asc, ascq, advice) in [
            (7, 0x27, 7, Advice::MakeRoom),
            (0xd, 0, 0, Advice::MakeRoom),
            (7, 0x27, 0, Advice::MakeWritable),
            (3, 0x11, 0, Advice::ReadElsewhere),
            (5, 0x25, 0, Advice::CheckLun),
            (2, 4, 1, Advice::TryLater),
            (2, 4, 0xb, Advice::UseOtherPortal),
            (6, 0x2a, 9, Advice::Reopen),
        ] {
            let found = advice_of("WRITE(10)", key, asc, ascq);
            assert_eq!(found, Some(advice), "{key:x}/{asc:x}/{ascq:x}");
        }
        assert_eq!(advice_of("WRITE(10)", 5, 0x24, 0), None);
    }
}
