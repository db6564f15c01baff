//! Page B2: how blocks are deallocated (SBC-3 §6.5).

use super::page::page;
use crate::scsi::FormatError;

/// Whether the unit has space for every block (SBC-3 §4.7).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProvisioningType {
    /// The device does not report the type, or every block has space of its own.
    NotReported,
    /// Resource provisioned: there is enough space for all blocks, but it is not assigned to them.
    Resource,
    /// Thin provisioned: a write may fail for lack of space.
    Thin,
    /// A reserved code, 3 to 7.
    Reserved(u8),
}

impl ProvisioningType {
    const fn from_code(code: u8) -> Self {
        match code & 0x07 {
            0 => Self::NotReported,
            1 => Self::Resource,
            2 => Self::Thin,
            other => Self::Reserved(other),
        }
    }
}

/// Logical Block Provisioning (SBC-3 §6.5).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct LogicalBlockProvisioning {
    /// Exponent n: thresholds are counted in sets of 2^n blocks; 0 if the device has no thresholds.
    pub threshold_exponent: u8,
    /// LBPU: UNMAP deallocates blocks.
    pub unmap: bool,
    /// LBPWS: WRITE SAME (16) with UNMAP deallocates blocks.
    pub write_same_16: bool,
    /// LBPWS10: WRITE SAME (10) with UNMAP deallocates blocks.
    pub write_same_10: bool,
    /// LBPRZ: deallocated blocks read as zeros.
    pub unmapped_reads_zeros: bool,
    /// ANC_SUP: blocks can be anchored.
    pub anchor: bool,
    /// Whether the unit has space for every block.
    pub provisioning_type: ProvisioningType,
}

impl LogicalBlockProvisioning {
    /// The code of the page.
    pub const PAGE: u8 = 0xb2;

    /// Reads the page.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooShort`] below four bytes, [`FormatError::Field`] for another page.
    pub fn decode(data: &[u8]) -> Result<Self, FormatError> {
        let page = page(data, Self::PAGE, "logical block provisioning page")?;
        Ok(Self {
            threshold_exponent: page.u8(4),
            unmap: page.bit(5, 0x80),
            write_same_16: page.bit(5, 0x40),
            write_same_10: page.bit(5, 0x20),
            // SBC-4 extended the bit to a field in which every odd value means zeros, so this bit
            // is enough.
            unmapped_reads_zeros: page.bit(5, 0x04),
            anchor: page.bit(5, 0x02),
            provisioning_type: ProvisioningType::from_code(page.u8(6)),
        })
    }
}
