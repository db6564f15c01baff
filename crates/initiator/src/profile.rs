//! What a disk says of itself.

use iscsi_pdu::scsi::vpd::{
    BlockDeviceCharacteristics, BlockLimits, Designator, LogicalBlockProvisioning,
};
use iscsi_pdu::scsi::{ReadCapacity10, ReadCapacity16};

/// What a disk says of itself: identity, capacity and limits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Profile {
    /// T10 VENDOR IDENTIFICATION.
    pub vendor: String,
    /// PRODUCT IDENTIFICATION.
    pub product: String,
    /// PRODUCT REVISION LEVEL.
    pub revision: String,
    /// The unit serial number (VPD page 80).
    pub serial_number: Option<String>,
    /// The best name of the unit (VPD page 83).
    pub designator: Option<Designator>,
    /// How many blocks of which size.
    pub capacity: Capacity,
    /// How much one command may do (VPD page B0); all zero if the unit does not say.
    pub limits: BlockLimits,
    /// What the medium is like (VPD page B1).
    pub characteristics: Option<BlockDeviceCharacteristics>,
    /// How blocks are deallocated (VPD page B2).
    pub provisioning: Option<LogicalBlockProvisioning>,
    /// WP: the unit does not allow writing.
    pub write_protected: bool,
    /// DPOFUA: READ and WRITE take FUA.
    pub force_unit_access: bool,
    /// WCE: writes end before they are on the medium. `None` if the unit does not say.
    pub write_cache: Option<bool>,
}

/// How many blocks of which size a disk has (SBC-3, READ CAPACITY).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Capacity {
    /// The number of logical blocks.
    pub blocks: u64,
    /// The length of a logical block, bytes; never 0.
    pub block_size: u32,
    /// The length of a physical block, bytes.
    pub physical_block_size: u64,
    /// LBPME: blocks can be deallocated.
    pub provisioning_management: bool,
    /// LBPRZ: deallocated blocks read as zeros.
    pub unmapped_reads_zeros: bool,
    /// The unit knows READ CAPACITY (16), and so the other commands of 16 bytes.
    pub long_commands: bool,
}

impl Capacity {
    /// The capacity in bytes.
    pub const fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.block_size as u64)
    }

    /// The most blocks that the length field of READ and WRITE can say.
    pub(crate) const fn longest_transfer(&self) -> u32 {
        if self.long_commands { u32::MAX } else { u16::MAX as u32 }
    }
}

impl From<ReadCapacity16> for Capacity {
    fn from(answer: ReadCapacity16) -> Self {
        Self {
            blocks: answer.blocks(),
            block_size: answer.block_length,
            physical_block_size: answer.physical_block_length(),
            provisioning_management: answer.provisioning_management,
            unmapped_reads_zeros: answer.unmapped_reads_zeros,
            long_commands: true,
        }
    }
}

impl From<ReadCapacity10> for Capacity {
    /// A unit that has more blocks than this answer can tell is taken at its first 2^32 - 1.
    fn from(answer: ReadCapacity10) -> Self {
        Self {
            blocks: answer.blocks().unwrap_or_else(|| u32::MAX.into()),
            block_size: answer.block_length,
            physical_block_size: answer.block_length.into(),
            provisioning_management: false,
            unmapped_reads_zeros: false,
            long_commands: false,
        }
    }
}

impl Profile {
    /// The most bytes that one READ or WRITE may move, a whole number of blocks, at least one.
    pub(crate) fn longest_transfer(&self, wanted: usize) -> usize {
        let block = self.capacity.block_size as usize;
        let limit = self.limits.maximum_transfer_length.unwrap_or(u32::MAX);
        let limit = limit.min(self.capacity.longest_transfer()) as usize;
        (wanted / block).clamp(1, limit) * block
    }
}
