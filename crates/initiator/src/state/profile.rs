//! What a disk says of itself.

use iscsi_pdu::scsi::vpd::{
    BlockDeviceCharacteristics, BlockLimits, Designator, LogicalBlockProvisioning,
};

use iscsi_pdu::scsi::TargetPortGroupSupport;

use crate::state::capacity::Capacity;

/// Properties that a unit reports about itself: identity, capacity and limits.
#[doc(alias = "inquiry")]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Profile {
    /// T10 VENDOR IDENTIFICATION.
    pub vendor: String,
    /// PRODUCT IDENTIFICATION.
    pub product: String,
    /// PRODUCT REVISION LEVEL.
    pub revision: String,
    /// RMB: the medium is removable. Once the unit has reported that another medium may be there,
    /// nothing more is sent to it ([`Error::MediumChanged`](crate::Error::MediumChanged)).
    pub removable: bool,
    /// TPGS: whether the unit is reached through groups of ports with separate states (SPC-4
    /// §6.4.2).
    #[doc(alias = "ALUA")]
    pub target_port_group_support: TargetPortGroupSupport,
    /// Unit serial number (VPD page 80).
    pub serial_number: Option<String>,
    /// The strongest name of the unit (VPD page 83).
    #[doc(alias("WWN", "NAA"))]
    pub designator: Option<Designator>,
    /// Number of blocks, and their size.
    pub capacity: Capacity,
    /// Limits of one command (VPD page B0); all zero if the unit does not report them.
    pub limits: BlockLimits,
    /// Properties of the medium (VPD page B1).
    pub characteristics: Option<BlockDeviceCharacteristics>,
    /// Support for deallocating blocks (VPD page B2).
    pub provisioning: Option<LogicalBlockProvisioning>,
    /// WP: the unit does not allow writing.
    pub write_protected: bool,
    /// DPOFUA: READ and WRITE accept the FUA bit.
    pub force_unit_access: bool,
    /// WCE: writes are answered before they are on the medium. `None` if the unit does not report
    /// it.
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
