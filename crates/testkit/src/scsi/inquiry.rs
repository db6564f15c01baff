//! INQUIRY: the identity of the unit (SPC-4 §6.6).

use super::port_groups::TargetPort;
use super::sense::Sense;
use super::unit::Unit;
use super::vital;
use super::work::{Work, answer};
use crate::convert::be;

/// Peripheral qualifier and device type of a LUN that has no unit.
const ABSENT: u8 = 0x7f;
/// RMB: bit in byte 1.
const REMOVABLE: u8 = 0x80;
/// Version descriptors of SAM-5, iSCSI, SPC-4 and SBC-3, each without a revision (SPC-4 §6.6.2).
const STANDARDS: [u16; 4] = [0x00a0, 0x0960, 0x0460, 0x04c0];

pub(super) fn inquiry(
    unit: &Unit,
    port: Option<&TargetPort>,
    cdb: [u8; 16],
) -> Result<Work, Sense> {
    let allocation =
        if unit.behavior.one_byte_allocation { u64::from(cdb[4]) } else { be(&cdb[3..], 2) };
    match (cdb[1] & 1, cdb[2]) {
        (0, 0) => Ok(answer(standard(unit, port), allocation)),
        (0, _) => Err(Sense::INVALID_FIELD),
        (_, page) => vital::page(unit, port, page).map(|page| answer(page, allocation)),
    }
}

pub(super) fn absent(cdb: [u8; 16]) -> Work {
    let mut data = vec![0; 36];
    data[0] = ABSENT;
    data[4] = 31;
    answer(data, be(&cdb[3..], 2))
}

/// Returns 74 bytes: direct access, RMB, SPC-4, response format 2, TPGS, command queuing, and the version
/// descriptors.
fn standard(unit: &Unit, port: Option<&TargetPort>) -> Vec<u8> {
    let support = port.map_or(0, |port| port.groups.support_bits());
    let removable = if unit.behavior.removable { REMOVABLE } else { 0 };
    let mut data = vec![0, removable, 6, 2, 69, support, 0, 2];
    data.extend(padded(&unit.vendor, 8));
    data.extend(padded(&unit.product, 16));
    data.extend(b"1.0 ");
    data.resize(58, 0);
    data.extend(STANDARDS.into_iter().flat_map(u16::to_be_bytes));
    data.resize(74, 0);
    data
}

/// Returns ASCII text, left-aligned and filled up with spaces.
fn padded(text: &str, width: usize) -> impl Iterator<Item = u8> {
    text.bytes().chain(std::iter::repeat(b' ')).take(width)
}
