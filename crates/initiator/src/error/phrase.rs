//! Contains words that several errors share.

use std::ops::Range;

use iscsi_pdu::scsi::Status;

/// Returns the blocks of a command, as a part of a sentence.
pub(crate) fn of_blocks(blocks: Option<&Range<u64>>) -> String {
    blocks.map_or_else(String::new, |blocks| {
        format!(" of blocks {} to {}", blocks.start, blocks.end.saturating_sub(1))
    })
}

/// Returns the meaning of a SCSI status that is not an error of the command itself, as text to append to the
/// status's name.
pub(super) const fn meaning(status: Status) -> &'static str {
    match status {
        Status::RESERVATION_CONFLICT => ": another initiator holds a reservation of the unit",
        Status::CHECK_CONDITION => ", and the unit does not say why",
        Status::BUSY | Status::TASK_SET_FULL => " again and again",
        _ => "",
    }
}
