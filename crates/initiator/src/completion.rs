//! What the end of a command says.

use iscsi_pdu::scsi::{Sense, SenseKey, Status};
use iscsi_session::Completion;

use crate::error::{Error, UnitCause};

/// The sense data of a CHECK CONDITION that can be read.
pub(crate) fn sense_of(completion: &Completion) -> Option<Sense> {
    let check = completion.status == Status::CHECK_CONDITION;
    check.then(|| Sense::decode(&completion.sense).ok()).flatten()
}

/// What a unit has told instead of executing a command (SAM-5 §5.14).
pub(crate) fn attention_of(completion: &Completion) -> Option<Sense> {
    sense_of(completion).filter(|sense| sense.key == SenseKey::UnitAttention)
}

/// The error that the completion of a command stands for which has not succeeded.
pub(crate) fn failure_of(command: &'static str, completion: &Completion) -> Error {
    match sense_of(completion) {
        Some(sense) => Error::from(UnitCause::CheckCondition { command, sense }),
        None => Error::from(UnitCause::Status { command, status: completion.status }),
    }
}

/// Turns a refusal of the unit into `None`; without a session there is no answer at all.
pub(crate) fn tolerate<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(data) => Ok(Some(data)),
        Err(error) if error.status().is_some() => Ok(None),
        Err(error) => Err(error),
    }
}
