//! READ CAPACITY, and other commands with the same operation code (SBC-3 §5.12, §5.13).

use super::provisioning;
use super::sense::Sense;
use super::unit::Unit;
use super::work::{Work, answer};
use crate::convert::{be32, clamp32};

const READ_CAPACITY_16: u8 = 0x10;
const GET_LBA_STATUS: u8 = 0x12;

/// Returns the last LBA (ffffffffh if it does not fit) and the block size.
pub(super) fn capacity_10(unit: &Unit) -> Work {
    let mut data = clamp32(last_block(unit)).to_be_bytes().to_vec();
    data.extend(unit.disk.block_size().to_be_bytes());
    answer(data, 8)
}

pub(super) fn service_action_in(unit: &Unit, cdb: [u8; 16]) -> Result<Work, Sense> {
    match cdb[1] & 0x1f {
        READ_CAPACITY_16 => Ok(capacity_16(unit, cdb)),
        GET_LBA_STATUS => provisioning::lba_status(unit, cdb),
        _ => Err(Sense::INVALID_FIELD),
    }
}

fn capacity_16(unit: &Unit, cdb: [u8; 16]) -> Work {
    let mut data = last_block(unit).to_be_bytes().to_vec();
    data.extend(unit.disk.block_size().to_be_bytes());
    data.extend([0, unit.physical_block_exponent & 0x0f]);
    let provisioning = unit.behavior.capacity_provisioning.unwrap_or(0xc0);
    data.extend([if unit.thin { provisioning } else { 0 }, 0]);
    data.resize(32, 0);
    answer(data, u64::from(be32(&cdb[10..])))
}

fn last_block(unit: &Unit) -> u64 {
    unit.disk.blocks().saturating_sub(1)
}
