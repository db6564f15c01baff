//! Vital product data: identity and limits of the unit (SPC-4 §7.8, SBC-3 §6.5).

use super::port_groups::TargetPort;
use super::provisioning;
use super::sense::Sense;
use super::unit::Unit;
use crate::convert::{len32, low16};

/// The pages that the unit has.
const PAGES: [u8; 6] = [0x00, 0x80, 0x83, 0xb0, 0xb1, 0xb2];

pub(super) fn page(unit: &Unit, port: Option<&TargetPort>, page: u8) -> Result<Vec<u8>, Sense> {
    if unit.behavior.refused_pages.contains(&page) {
        return Err(Sense::INVALID_FIELD);
    }
    let body = match page {
        0x00 => PAGES.to_vec(),
        0x80 => unit.serial.as_bytes().to_vec(),
        0x83 => {
            let mut body = designators(unit);
            body.extend(port.map(TargetPort::designators).unwrap_or_default());
            body
        }
        0xb0 => block_limits(unit),
        0xb1 => characteristics(),
        0xb2 => block_provisioning(unit),
        _ => return Err(Sense::INVALID_FIELD),
    };
    let mut data = vec![0, page];
    data.extend(low16(len32(body.len())).to_be_bytes());
    data.extend(body);
    Ok(data)
}

/// Returns one binary NAA designator of the logical unit (SPC-4 §7.8.5), unless the unit's behavior sets
/// other designators.
fn designators(unit: &Unit) -> Vec<u8> {
    if let Some(designators) = &unit.behavior.designators {
        return designators.clone();
    }
    let mut body = vec![0x01, 0x03, 0, 8];
    body.extend(unit.naa.to_be_bytes());
    body
}

/// Returns the page Block Limits (SBC-3 §6.5.3). Offsets in the code do not count the four bytes of the page
/// header.
fn block_limits(unit: &Unit) -> Vec<u8> {
    let mut body = vec![0; 60];
    body[4..8].copy_from_slice(&unit.max_transfer_blocks.to_be_bytes());
    body[8..12].copy_from_slice(&unit.optimal_transfer_blocks.to_be_bytes());
    if unit.thin {
        let max_unmap = unit.behavior.max_unmap_blocks.unwrap_or(u32::MAX);
        body[16..20].copy_from_slice(&max_unmap.to_be_bytes());
        body[20..24].copy_from_slice(&provisioning::MAX_DESCRIPTORS.to_be_bytes());
        let (granularity, alignment) = unit.behavior.unmap_granularity.unwrap_or((1, 0));
        body[24..28].copy_from_slice(&granularity.to_be_bytes());
        let is_valid = u32::from(unit.behavior.unmap_granularity.is_some()) << 31;
        body[28..32].copy_from_slice(&(is_valid | alignment).to_be_bytes());
    }
    body
}

/// Returns the page Block Device Characteristics: a non-rotating medium.
fn characteristics() -> Vec<u8> {
    let mut body = vec![0; 60];
    body[1] = 1;
    body
}

/// Returns the page Logical Block Provisioning: the commands that deallocate blocks, and the type "thin".
fn block_provisioning(unit: &Unit) -> Vec<u8> {
    if unit.thin { vec![0, provisioning::ways(unit), 2, 0] } else { vec![0; 4] }
}
