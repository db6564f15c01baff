//! Interprets a unit's status and sense data for a caller (SAM-5 §5.3, SPC-4 §4.5).

use iscsi_pdu::scsi::{AdditionalSense, Sense, SenseKey, Status};

use crate::error::advice::Advice;
use crate::error::kind::ErrorKind;

/// Returns whether the unit will become ready by itself, and has kept its data.
pub(crate) const fn is_becoming_ready(sense: &Sense) -> bool {
    matches!(sense.key, SenseKey::NotReady) && sense.additional.is_in_progress()
}

/// Returns whether the port does not serve the unit, but another port may serve it.
pub(super) const fn is_of_path(sense: &Sense) -> bool {
    let state = matches!(
        sense.additional,
        AdditionalSense::TARGET_PORT_IN_STANDBY_STATE
            | AdditionalSense::TARGET_PORT_IN_UNAVAILABLE_STATE
    );
    matches!(sense.key, SenseKey::NotReady) && state
}

pub(super) const fn kind_of_status(status: Status) -> ErrorKind {
    match status {
        Status::BUSY | Status::TASK_SET_FULL | Status::TASK_ABORTED => ErrorKind::Transient,
        Status::RESERVATION_CONFLICT => ErrorKind::ReservationConflict,
        _ => ErrorKind::Other,
    }
}

pub(super) fn kind_of_sense(sense: &Sense) -> ErrorKind {
    // The additional codes take precedence over the key, because not every unit reports them with DATA
    // PROTECT.
    if sense.additional == AdditionalSense::SPACE_ALLOCATION_FAILED {
        return ErrorKind::OutOfSpace;
    }
    if sense.additional == AdditionalSense::WRITE_PROTECTED {
        return ErrorKind::WriteProtected;
    }
    let kind = match sense.key {
        SenseKey::NotReady if is_becoming_ready(sense) => ErrorKind::Transient,
        SenseKey::NotReady if is_of_path(sense) => ErrorKind::Unreachable,
        SenseKey::MediumError | SenseKey::HardwareError | SenseKey::BlankCheck => ErrorKind::Medium,
        SenseKey::IllegalRequest => kind_of_refusal(sense.additional),
        SenseKey::UnitAttention
            if sense.additional == AdditionalSense::CAPACITY_DATA_HAS_CHANGED =>
        {
            ErrorKind::UnitChanged
        }
        SenseKey::UnitAttention | SenseKey::AbortedCommand => ErrorKind::Transient,
        SenseKey::DataProtect => ErrorKind::WriteProtected,
        SenseKey::VolumeOverflow => ErrorKind::OutOfSpace,
        SenseKey::NotReady
        | SenseKey::NoSense
        | SenseKey::RecoveredError
        | SenseKey::VendorSpecific
        | SenseKey::CopyAborted
        | SenseKey::Reserved
        | SenseKey::Miscompare
        | SenseKey::Completed => ErrorKind::Other,
    };
    // A deferred error belongs to an earlier command, which had ended successfully and is not sent again.
    if sense.deferred && kind.is_transient() { ErrorKind::Other } else { kind }
}

/// Returns the kind of an ILLEGAL REQUEST. The kind depends on what the unit rejects.
const fn kind_of_refusal(additional: AdditionalSense) -> ErrorKind {
    match additional {
        AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED => ErrorKind::NotFound,
        AdditionalSense::INVALID_COMMAND_OPERATION_CODE
        | AdditionalSense::INVALID_FIELD_IN_CDB
        | AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST => ErrorKind::Unsupported,
        _ => ErrorKind::InvalidInput,
    }
}

/// Returns what can be done about a status that is not an error of the command itself.
pub(super) const fn advice_on_status(status: Status) -> Option<Advice> {
    match status {
        Status::RESERVATION_CONFLICT => Some(Advice::FindHolder),
        Status::BUSY | Status::TASK_SET_FULL => Some(Advice::TryWithLess),
        _ => None,
    }
}

/// Returns what can be done about a command that failed with this sense; `None` if there is no advice beyond
/// the sense.
pub(super) fn advice_on_sense(command: &str, sense: &Sense) -> Option<Advice> {
    if sense.additional == AdditionalSense::LOGICAL_UNIT_COMMUNICATION_FAILURE {
        // LIO 6.1 reports this sense for every error of its backing store, including no space.
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
        | ErrorKind::StillRegistered
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

    fn kind(response: u8, key: u8, asc: u8, ascq: u8) -> ErrorKind {
        let bytes = [response, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0];
        kind_of_sense(&Sense::decode(&bytes).unwrap())
    }

    #[test]
    fn every_sense_has_its_kind() {
        for (key, asc, ascq, expected) in [
            (0x0, 0x00, 0x00, ErrorKind::Other),
            (0x1, 0x17, 0x01, ErrorKind::Other),
            (0x2, 0x04, 0x01, ErrorKind::Transient),
            (0x2, 0x04, 0x07, ErrorKind::Transient),
            (0x2, 0x04, 0x0a, ErrorKind::Transient),
            (0x2, 0x04, 0x1d, ErrorKind::Transient),
            (0x2, 0x04, 0x04, ErrorKind::Other),
            (0x2, 0x04, 0x1b, ErrorKind::Other),
            (0x2, 0x04, 0x0b, ErrorKind::Unreachable),
            (0x2, 0x04, 0x0c, ErrorKind::Unreachable),
            (0x2, 0x04, 0x03, ErrorKind::Other),
            (0x2, 0x3a, 0x00, ErrorKind::Other),
            (0x3, 0x0c, 0x00, ErrorKind::Medium),
            (0x3, 0x11, 0x00, ErrorKind::Medium),
            (0x4, 0x44, 0x00, ErrorKind::Medium),
            (0x5, 0x20, 0x00, ErrorKind::Unsupported),
            (0x5, 0x21, 0x00, ErrorKind::InvalidInput),
            (0x5, 0x24, 0x00, ErrorKind::Unsupported),
            (0x5, 0x25, 0x00, ErrorKind::NotFound),
            (0x5, 0x26, 0x00, ErrorKind::Unsupported),
            (0x5, 0x27, 0x00, ErrorKind::WriteProtected),
            (0x5, 0x2c, 0x00, ErrorKind::InvalidInput),
            (0x6, 0x29, 0x00, ErrorKind::Transient),
            (0x6, 0x2a, 0x09, ErrorKind::UnitChanged),
            (0x6, 0x38, 0x07, ErrorKind::Transient),
            (0x7, 0x27, 0x00, ErrorKind::WriteProtected),
            (0x7, 0x27, 0x02, ErrorKind::WriteProtected),
            (0x7, 0x27, 0x07, ErrorKind::OutOfSpace),
            (0x8, 0x00, 0x00, ErrorKind::Medium),
            (0xb, 0x27, 0x07, ErrorKind::OutOfSpace),
            (0xb, 0x47, 0x03, ErrorKind::Transient),
            (0xd, 0x00, 0x00, ErrorKind::OutOfSpace),
            (0xe, 0x1d, 0x00, ErrorKind::Other),
        ] {
            assert_eq!(kind(0x70, key, asc, ascq), expected, "{key:02X}/{asc:02X}/{ascq:02X}");
        }
    }

    /// SPC-4 §4.5.5: a deferred error belongs to an earlier command. The data that this command has lost
    /// stays lost, so no deferred error is transient.
    #[test]
    fn no_deferred_error_passes_by_itself() {
        for key in 0..=0xf {
            assert!(!kind(0x71, key, 0x04, 0x01).is_transient(), "sense key {key:#x}");
        }
        assert_eq!(kind(0x71, 0x7, 0x27, 0x07), ErrorKind::OutOfSpace);
        assert_eq!(kind(0x71, 0x3, 0x0c, 0x00), ErrorKind::Medium);
    }

    #[test]
    fn every_status_has_its_kind() {
        for (status, expected) in [
            (Status::BUSY, ErrorKind::Transient),
            (Status::TASK_SET_FULL, ErrorKind::Transient),
            (Status::TASK_ABORTED, ErrorKind::Transient),
            (Status::RESERVATION_CONFLICT, ErrorKind::ReservationConflict),
            (Status::CHECK_CONDITION, ErrorKind::Other),
            (Status::ACA_ACTIVE, ErrorKind::Other),
            (Status(0x22), ErrorKind::Other),
        ] {
            assert_eq!(kind_of_status(status), expected, "{status}");
        }
    }

    fn advice_of(command: &'static str, key: u8, asc: u8, ascq: u8) -> Option<Advice> {
        let bytes = [0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0];
        advice_on_sense(command, &Sense::decode(&bytes).unwrap())
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
