//! Interprets the completion of a command.

use iscsi_pdu::scsi::{Sense, SenseKey, Status};
use iscsi_session::Completion;

use crate::error::{Error, UnitCause};

/// Returns the sense data of a CHECK CONDITION, if it can be decoded.
pub(crate) fn sense_of(completion: &Completion) -> Option<Sense> {
    let check = completion.status == Status::CHECK_CONDITION;
    check.then(|| Sense::decode(&completion.sense).ok()).flatten()
}

/// Returns the unit attention that a unit has reported instead of executing a command (SAM-5 §5.14).
pub(crate) fn attention_of(completion: &Completion) -> Option<Sense> {
    sense_of(completion).filter(|sense| sense.key == SenseKey::UnitAttention)
}

/// Returns the error of a completion that is not a success.
pub(crate) fn failure_of(command: &'static str, completion: &Completion) -> Error {
    match sense_of(completion) {
        Some(sense) => Error::from(UnitCause::CheckCondition { command, sense }),
        None => Error::from(UnitCause::Status { command, status: completion.status }),
    }
}

/// Turns an error that the unit has reported into `None`. Other errors, such as a lost session, remain errors,
/// because they say nothing about the unit.
pub(crate) fn tolerate<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(data) => Ok(Some(data)),
        Err(error) if error.status().is_some() => Ok(None),
        Err(error) => Err(error),
    }
}
