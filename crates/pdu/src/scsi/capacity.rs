//! READ CAPACITY parameter data: the number of blocks and their length (SBC-3).

use super::{FormatError, fields::Fields};

/// The longest block that is accepted, bytes: far longer than on any disk, and short enough to read a whole
/// block into memory for a single byte.
const MAX_BLOCK_LEN: u32 = 1 << 20;

/// Parameter data of READ CAPACITY (10) (SBC-3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ReadCapacity10 {
    /// The address of the last block, or 0xffffffff if it does not fit into 32 bits.
    pub last_lba: u32,
    /// The length of a block, bytes; 1 to 2^20.
    pub block_length: u32,
}

impl ReadCapacity10 {
    /// Length of the parameter data, bytes.
    pub const LEN: usize = 8;

    /// Reads the parameter data.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooShort`] below eight bytes, [`FormatError::Field`] for blocks of no bytes, or of
    /// more than 1 MiB.
    pub fn decode(data: &[u8]) -> Result<Self, FormatError> {
        const FORMAT: &str = "READ CAPACITY (10) data";
        let fields = Fields::new(data, FORMAT, Self::LEN)?;
        let block_length = checked_block_length(FORMAT, fields.u32(4))?;
        Ok(Self { last_lba: fields.u32(0), block_length })
    }

    /// Returns whether the unit has more blocks than READ CAPACITY (10) can report, so that READ CAPACITY
    /// (16) is necessary.
    pub const fn needs_16(&self) -> bool {
        self.last_lba == u32::MAX
    }

    /// Returns the number of blocks, if READ CAPACITY (10) can report it.
    pub const fn blocks(&self) -> Option<u64> {
        if self.needs_16() { None } else { Some(self.last_lba as u64 + 1) }
    }
}

/// Parameter data of READ CAPACITY (16) (SBC-3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ReadCapacity16 {
    /// The address of the last block.
    pub last_lba: u64,
    /// The length of a block, bytes, without protection information; 1 to 2^20.
    pub block_length: u32,
    /// P_TYPE + 1 if PROT_EN is set: blocks carry protection information of this type, 1 to 8.
    pub protection_type: Option<u8>,
    /// LOGICAL BLOCKS PER PHYSICAL BLOCK EXPONENT: a physical block is 2^n blocks, n 0 to 15.
    pub physical_block_exponent: u8,
    /// LBPME: blocks can be deallocated, by the commands that VPD page B2 lists.
    pub provisioning_management: bool,
    /// LBPRZ: deallocated blocks read as zeros.
    pub unmapped_reads_zeros: bool,
    /// LOWEST ALIGNED LOGICAL BLOCK ADDRESS: the first block that begins a physical block, 0 to 16383.
    pub lowest_aligned_lba: u16,
}

impl ReadCapacity16 {
    /// Length of the parameter data, bytes.
    pub const LEN: usize = 32;

    /// Reads the parameter data, which may be truncated after the first 12 bytes.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooShort`] below 12 bytes, [`FormatError::Field`] for blocks of no bytes,
    /// or of more than 1 MiB.
    pub fn decode(data: &[u8]) -> Result<Self, FormatError> {
        const FORMAT: &str = "READ CAPACITY (16) data";
        let fields = Fields::new(data, FORMAT, 12)?;
        let protection_type = ((fields.u8(12) >> 1) & 0x07) + 1;
        Ok(Self {
            last_lba: fields.u64(0),
            block_length: checked_block_length(FORMAT, fields.u32(8))?,
            protection_type: fields.bit(12, 0x01).then_some(protection_type),
            physical_block_exponent: fields.u8(13) & 0x0f,
            provisioning_management: fields.bit(14, 0x80),
            unmapped_reads_zeros: fields.bit(14, 0x40),
            lowest_aligned_lba: fields.u16(14) & 0x3fff,
        })
    }

    /// Returns the number of blocks; 2^64 - 1 if the unit has 2^64 blocks.
    pub const fn blocks(&self) -> u64 {
        self.last_lba.saturating_add(1)
    }

    /// Returns the capacity in bytes; `None` from 2^64 on.
    pub fn bytes(&self) -> Option<u64> {
        self.blocks().checked_mul(u64::from(self.block_length))
    }

    /// Returns the length of a physical block, bytes. For a write of whole physical blocks, the device need
    /// not read first.
    pub fn physical_block_length(&self) -> u64 {
        u64::from(self.block_length) << self.physical_block_exponent
    }
}

/// Refuses blocks of no bytes, which cannot be addressed, and blocks that are too large for memory.
fn checked_block_length(format: &'static str, length: u32) -> Result<u32, FormatError> {
    if length == 0 || length > MAX_BLOCK_LEN {
        let value = length.into();
        return Err(FormatError::Field { format, field: "BLOCK LENGTH", value });
    }
    Ok(length)
}
