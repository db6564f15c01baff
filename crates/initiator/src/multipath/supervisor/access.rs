//! Classifies the errors of queries for the access states of target ports (SPC-4 §5.11.2).

use iscsi_multipath::port_groups::NoAnswer;
use iscsi_pdu::scsi::SenseKey;

use crate::error::Error;

/// Returns why a path has not reported the states of the ports, from the error of the query.
pub(crate) fn no_answer(error: &Error) -> NoAnswer {
    let sense = error.sense().filter(|sense| !sense.deferred);
    if sense.is_some_and(|sense| sense.key == SenseKey::IllegalRequest) {
        return NoAnswer::Unknown;
    }
    match error.refusing_port() {
        Some(access) => NoAnswer::Refused(access),
        None if error.is_of_session() => NoAnswer::SessionEnded,
        None => NoAnswer::MayPass,
    }
}

#[cfg(test)]
mod tests {
    use iscsi_multipath::Access;
    use iscsi_pdu::scsi::{AccessState, Sense, Status};

    use super::*;
    use crate::error::UnitCause;

    /// Each error of REPORT TARGET PORT GROUPS is classified by whether a later query may succeed.
    #[test]
    fn an_error_says_whether_another_question_is_of_use() {
        let check = |response, key, asc, ascq| {
            let bytes = [response, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0];
            let sense = Sense::decode(&bytes).unwrap();
            Error::from(UnitCause::CheckCondition { command: "REPORT TARGET PORT GROUPS", sense })
        };
        let offline = Access { state: AccessState::Offline, preferred: false };
        let busy = Error::from(UnitCause::Status { command: "INQUIRY", status: Status::BUSY });
        for (error, expected) in [
            (check(0x70, 0x5, 0x20, 0x00), NoAnswer::Unknown),
            (check(0x71, 0x5, 0x20, 0x00), NoAnswer::MayPass),
            (check(0x70, 0x2, 0x04, 0x12), NoAnswer::Refused(offline)),
            (check(0x70, 0x2, 0x04, 0x01), NoAnswer::MayPass),
            (busy, NoAnswer::MayPass),
            (Error::closed(), NoAnswer::SessionEnded),
        ] {
            assert_eq!(no_answer(&error), expected, "{error}");
        }
    }
}
