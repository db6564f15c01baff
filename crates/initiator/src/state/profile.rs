//! What a disk says of itself.

use iscsi_pdu::scsi::vpd::{
    BlockDeviceCharacteristics, BlockLimits, Designator, LogicalBlockProvisioning,
};

use iscsi_pdu::scsi::TargetPortGroupSupport;

use crate::state::capacity::Capacity;

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
    /// RMB: the medium can be taken out. Nothing is sent to the unit any more once it has told that another one may be
    /// there ([`Error::MediumChanged`](crate::Error::MediumChanged)).
    pub removable: bool,
    /// TPGS: whether the unit is reached through groups of ports with states of their own (SPC-4 §6.4.2).
    pub target_port_group_support: TargetPortGroupSupport,
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

impl Profile {
    /// The most bytes that one READ or WRITE may move, a whole number of blocks, at least one.
    pub(crate) fn max_transfer_of(&self, wanted: usize) -> usize {
        let block = self.capacity.block_size as usize;
        let limit = self.limits.maximum_transfer_length.unwrap_or(u32::MAX);
        let limit = limit.min(Capacity::MAX_BLOCKS) as usize;
        (wanted / block).clamp(1, limit) * block
    }

    /// Whether blocks that are deallocated read as zeros, by all that the unit says of it.
    pub(crate) fn unmapped_reads_zeros(&self) -> bool {
        self.capacity.provisioning_management
            && self.capacity.unmapped_reads_zeros
            && self.provisioning.is_some_and(|page| page.unmapped_reads_zeros)
    }
}
