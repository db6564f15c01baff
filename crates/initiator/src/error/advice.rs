//! Words that several errors share.

use std::ops::Range;

use iscsi_pdu::scsi::{AdditionalSense, Sense, Status};

use crate::error::kind::ErrorKind;
use crate::error::sense::kind_of_sense;

/// The blocks of a command, for a sentence about it.
pub(crate) fn of_blocks(blocks: Option<&Range<u64>>) -> String {
    blocks.map_or_else(String::new, |blocks| {
        format!(" of blocks {} to {}", blocks.start, blocks.end.saturating_sub(1))
    })
}

/// What to do about a status that is not an error of the command itself.
pub(super) const fn advice(status: Status) -> &'static str {
    match status {
        Status::RESERVATION_CONFLICT => ": another initiator holds a reservation of the unit",
        Status::CHECK_CONDITION => ", and the unit does not say why",
        Status::BUSY | Status::TASK_SET_FULL => " again and again: try later, or with less at once",
        _ => "",
    }
}

/// What to do about a command that has failed so; empty where the sense says all that is known.
pub(super) fn advice_on(command: &str, sense: &Sense) -> &'static str {
    if sense.additional == AdditionalSense::LOGICAL_UNIT_COMMUNICATION_FAILURE {
        // LIO 6.1 answers every error of its store so, no space among them.
        let writes = command.starts_with("WRITE") || command.starts_with("SYNCHRONIZE");
        return match writes {
            true => {
                "; the target cannot write to the store of the unit, mostly because that is full: make room there, \
                 or look at the target's log"
            }
            false => "; the target does not reach the store of the unit: look at the target's log",
        };
    }
    let kind = kind_of_sense(sense);
    ADVICE.iter().find(|(of, _)| *of == kind).map_or("", |(_, advice)| advice)
}

/// What to do about a kind of error that a unit tells; the others say all that is known.
const ADVICE: [(ErrorKind, &str); 7] = [
    (ErrorKind::OutOfSpace, "; make room on the target, then write again"),
    (ErrorKind::WriteProtected, "; make the unit writable on the target"),
    (ErrorKind::Medium, "; what lies there is lost, and other blocks may be well"),
    (ErrorKind::NotFound, "; check the LUN"),
    (ErrorKind::Transient, "; try again later"),
    (ErrorKind::Unreachable, "; another portal may serve the unit"),
    (ErrorKind::UnitChanged, "; open it anew"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn advice_of(command: &str, key: u8, asc: u8, ascq: u8) -> &'static str {
        let bytes = [0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0];
        advice_on(command, &Sense::decode(&bytes).unwrap())
    }

    #[test]
    fn a_store_that_is_full_is_named_where_something_was_to_be_written() {
        for command in ["WRITE(10)", "WRITE(16)", "WRITE SAME(16)", "SYNCHRONIZE CACHE(10)"] {
            assert!(advice_of(command, 2, 8, 0).contains("full"), "{command}");
        }
        assert!(!advice_of("READ(10)", 2, 8, 0).contains("full"));
    }

    #[test]
    fn what_can_be_done_is_said_with_the_error() {
        for (key, asc, ascq, advice) in [
            (7, 0x27, 7, "make room on the target"),
            (0xd, 0, 0, "make room on the target"),
            (7, 0x27, 0, "make the unit writable"),
            (3, 0x11, 0, "other blocks may be well"),
            (5, 0x25, 0, "check the LUN"),
            (2, 4, 1, "try again later"),
            (2, 4, 0xb, "another portal"),
        ] {
            let found = advice_of("WRITE(10)", key, asc, ascq);
            assert!(found.contains(advice), "{key:x}/{asc:x}/{ascq:x}: {found}");
        }
    }
}
