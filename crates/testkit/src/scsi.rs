//! The SCSI side of the target: logical units, and the execution of commands.

mod access;
mod asymmetric;
mod capacity;
mod inquiry;
mod lun;
mod mode;
pub(crate) mod operation;
mod port_groups;
mod provisioning;
mod reservations;
mod reserve_in;
mod reserve_out;
mod sense;
pub mod status;
mod task_set;
mod transfer;
mod unit;
mod vital;
mod work;

use crate::convert::{be32, len32};
use work::answer;

pub(crate) use access::accessed;
pub(crate) use reserve_out::Refusal;
pub(crate) use task_set::{End, Seen};
pub(crate) use work::{Sink, Source, Work};

pub use access::Access;
pub use asymmetric::AccessState;
pub use lun::LunForm;
pub use port_groups::{PortGroup, PortGroups, TargetPort};
pub use reservations::{Registrant, Registration, Reservations};
pub use sense::Sense;
pub use unit::{Unit, UnitBehavior};

/// Starts a command for a unit that exists, through a port of an array; `port` is `None` for a target without
/// port groups.
pub(crate) fn begin(unit: &Unit, port: Option<&TargetPort>, cdb: [u8; 16]) -> Result<Work, Sense> {
    if unit.behavior.refused.contains(&cdb[0]) {
        return Err(Sense::INVALID_OPCODE);
    }
    match cdb[0] {
        operation::TEST_UNIT_READY => Ok(Work::Done),
        operation::REQUEST_SENSE => Ok(answer(Sense::NONE.fixed().to_vec(), u64::from(cdb[4]))),
        operation::INQUIRY => inquiry::inquiry(unit, port, cdb),
        operation::MODE_SENSE_6 | operation::MODE_SENSE_10 => mode::mode_sense(unit, cdb),
        operation::READ_CAPACITY_10 => Ok(capacity::capacity_10(unit)),
        operation::SERVICE_ACTION_IN_16 => capacity::service_action_in(unit, cdb),
        operation::READ_10 | operation::READ_16 => transfer::read(unit, cdb),
        operation::WRITE_10 | operation::WRITE_16 => transfer::write(unit, cdb),
        operation::SYNCHRONIZE_CACHE_10 | operation::SYNCHRONIZE_CACHE_16 => {
            transfer::synchronize(unit, cdb)
        }
        operation::UNMAP => provisioning::begin_unmap(unit, cdb),
        operation::WRITE_SAME_10 | operation::WRITE_SAME_16 => {
            provisioning::begin_write_same(unit, cdb)
        }
        operation::PERSISTENT_RESERVE_IN => reserve_in::reserve_in(&unit.reservations, cdb),
        operation::PERSISTENT_RESERVE_OUT => reserve_out::begin(cdb),
        operation::MAINTENANCE_IN => groups(port)?.maintenance_in(cdb),
        operation::MAINTENANCE_OUT => groups(port)?.maintenance_out(cdb),
        _ => Err(Sense::INVALID_OPCODE),
    }
}

/// Returns the array that a port belongs to.
fn groups(port: Option<&TargetPort>) -> Result<&PortGroups, Sense> {
    port.map(|port| &port.groups).ok_or(Sense::INVALID_OPCODE)
}

/// Finishes a command whose data have arrived.
pub(crate) fn finish(unit: &Unit, cdb: [u8; 16], parameters: &[u8]) -> Result<(), Sense> {
    match cdb[0] {
        operation::UNMAP => provisioning::unmap(unit, parameters),
        operation::WRITE_10 | operation::WRITE_16 => transfer::finish_write(unit, cdb),
        operation::WRITE_SAME_10 | operation::WRITE_SAME_16 => {
            provisioning::write_same(unit, cdb, parameters)
        }
        _ => Ok(()),
    }
}

/// Executes a part of an UNMAP or WRITE SAME that was ended before its status: only the blocks for which
/// `is_done` returns `true`. Other commands do nothing here, because their sink writes the blocks.
pub(crate) fn finish_part(
    unit: &Unit,
    cdb: [u8; 16],
    parameters: &[u8],
    is_done: impl FnMut(&u64) -> bool,
) {
    match cdb[0] {
        operation::UNMAP => provisioning::unmap_part(unit, parameters, is_done),
        operation::WRITE_SAME_10 | operation::WRITE_SAME_16 => {
            provisioning::write_same_part(unit, cdb, parameters, is_done);
        }
        _ => {}
    }
}

/// Starts a command for a LUN that does not exist.
pub(crate) fn begin_absent(cdb: [u8; 16]) -> Result<Work, Sense> {
    match cdb[0] {
        operation::INQUIRY => Ok(inquiry::absent(cdb)),
        operation::REQUEST_SENSE => {
            Ok(answer(Sense::INVALID_LUN.fixed().to_vec(), u64::from(cdb[4])))
        }
        _ => Err(Sense::INVALID_LUN),
    }
}

/// Returns the list of units; REPORT LUNS is served on every LUN (SPC-4 §6.33).
pub(crate) fn report_luns(luns: impl Iterator<Item = u16>, form: LunForm, cdb: [u8; 16]) -> Work {
    let entries: Vec<u8> = luns.flat_map(|lun| form.encode(lun).to_be_bytes()).collect();
    let mut list = len32(entries.len()).to_be_bytes().to_vec();
    list.extend([0; 4]);
    list.extend(entries);
    answer(list, u64::from(be32(&cdb[6..])))
}

/// Returns whether the command is served although a unit attention is pending (SPC-4 §5.9).
pub(crate) const fn ignores_unit_attention(operation: u8) -> bool {
    matches!(operation, operation::INQUIRY | operation::REPORT_LUNS | operation::REQUEST_SENSE)
}
