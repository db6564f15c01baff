//! Page B0: limits of one command (SBC-3 §6.5).

use super::page::page;
use crate::scsi::FormatError;

/// Block Limits (SBC-3 §6.5). Lengths and counts are in logical blocks.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct BlockLimits {
    /// WSNZ: WRITE SAME of zero blocks is refused; otherwise it means "to the end".
    pub write_same_needs_length: bool,
    /// The most blocks of COMPARE AND WRITE; 0 if the device has no such command.
    pub maximum_compare_and_write_length: u8,
    /// Transfers of a multiple of this length are fast; `None` if the device does not report it.
    pub optimal_transfer_length_granularity: Option<u16>,
    /// The most blocks that READ, WRITE and similar commands may transfer; `None` for no limit reported.
    pub maximum_transfer_length: Option<u32>,
    /// Transfers of more blocks than this are slower; `None` if the device does not report it.
    pub optimal_transfer_length: Option<u32>,
    /// The most blocks of one UNMAP over all its extents: 0 if the device has no such command,
    /// 0xffffffff for no limit.
    pub maximum_unmap_lba_count: u32,
    /// The most extents of one UNMAP: 0 if the device has no such command, 0xffffffff for no
    /// limit.
    pub maximum_unmap_block_descriptor_count: u32,
    /// OPTIMAL UNMAP GRANULARITY: UNMAP of a multiple of this number deallocates all requested blocks; `None`
    /// if the device does not report it.
    pub optimal_unmap_granularity: Option<u32>,
    /// UNMAP GRANULARITY ALIGNMENT: the first block of a granule, modulo OPTIMAL UNMAP GRANULARITY; `None` if
    /// the field is not valid.
    pub unmap_granularity_alignment: Option<u32>,
    /// The most blocks of one WRITE SAME; `None` for no limit reported.
    pub maximum_write_same_length: Option<u64>,
}

impl BlockLimits {
    /// The code of the page.
    pub const PAGE: u8 = 0xb0;

    /// Reads the page; devices older than thin provisioning send only 16 bytes.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooShort`] below four bytes, [`FormatError::Field`] for another page.
    pub fn decode(data: &[u8]) -> Result<Self, FormatError> {
        let page = page(data, Self::PAGE, "block limits page")?;
        let alignment = page.u32(32);
        let granularity = Some(page.u16(6)).filter(|&blocks| blocks != 0);
        Ok(Self {
            write_same_needs_length: page.bit(4, 0x01),
            maximum_compare_and_write_length: page.u8(5),
            optimal_transfer_length_granularity: granularity,
            maximum_transfer_length: reported(page.u32(8)),
            optimal_transfer_length: reported(page.u32(12)),
            maximum_unmap_lba_count: page.u32(20),
            maximum_unmap_block_descriptor_count: page.u32(24),
            optimal_unmap_granularity: reported(page.u32(28)),
            unmap_granularity_alignment: (alignment & UGAVALID != 0)
                .then_some(alignment & !UGAVALID),
            maximum_write_same_length: Some(page.u64(36)).filter(|&blocks| blocks != 0),
        })
    }
}

/// Mask of the bit that marks UNMAP GRANULARITY ALIGNMENT as valid.
const UGAVALID: u32 = 0x8000_0000;

fn reported(blocks: u32) -> Option<u32> {
    Some(blocks).filter(|&blocks| blocks != 0)
}
