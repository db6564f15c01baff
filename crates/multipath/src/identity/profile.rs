//! Properties that a unit reports about itself.

use iscsi_pdu::scsi::vpd::{
    BlockDeviceCharacteristics, BlockLimits, Designator, DeviceIdentification,
    LogicalBlockProvisioning, SupportedPages, UnitSerialNumber,
};
use iscsi_pdu::scsi::{ModeParameters, StandardInquiry, TargetPortGroupSupport};

use super::blocks::Blocks;
use super::capacity::Capacity;

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
    /// RMB: the medium is removable. Once the unit has reported that another medium may be there, nothing more
    /// is sent to it, and each request fails.
    pub removable: bool,
    /// TPGS: whether the unit is reached through target port groups with separate states (SPC-4 §6.4.2).
    #[doc(alias = "ALUA")]
    pub target_port_group_support: TargetPortGroupSupport,
    /// Unit serial number (VPD page 80).
    pub serial_number: Option<String>,
    /// The strongest name of the unit (VPD page 83).
    #[doc(alias("WWN", "NAA"))]
    pub designator: Option<Designator>,
    /// Number and size of the blocks.
    pub capacity: Capacity,
    /// Limits of one command (VPD page B0); all zero if the unit does not report them.
    pub limits: BlockLimits,
    /// Properties of the medium (VPD page B1).
    pub characteristics: Option<BlockDeviceCharacteristics>,
    /// Support for deallocating blocks (VPD page B2).
    pub provisioning: Option<LogicalBlockProvisioning>,
    /// WP: the unit is write-protected.
    pub write_protected: bool,
    /// DPOFUA: READ and WRITE accept the FUA bit.
    pub force_unit_access: bool,
    /// WCE: writes complete before they are on the medium. `None` if the unit does not report
    /// it.
    pub write_cache: Option<bool>,
}

/// Responses from which the profile of a unit is made.
#[derive(Debug)]
pub struct Answers {
    /// Standard INQUIRY data.
    pub inquiry: StandardInquiry,
    /// The vital product data of the unit.
    pub pages: Pages,
    /// Result of READ CAPACITY.
    pub capacity: Capacity,
    /// Result of MODE SENSE, if the unit supports it.
    pub mode: Option<ModeParameters>,
}

/// Vital product data of a disk; `None` for a page that the unit refuses, or that cannot be read.
#[derive(Debug, Default)]
pub struct Pages {
    /// The list of the pages (VPD page 00).
    pub list: Option<SupportedPages>,
    /// VPD page 80.
    pub serial: Option<UnitSerialNumber>,
    /// VPD page 83.
    pub identification: Option<DeviceIdentification>,
    /// VPD page B0.
    pub limits: Option<BlockLimits>,
    /// VPD page B1.
    pub characteristics: Option<BlockDeviceCharacteristics>,
    /// VPD page B2.
    pub provisioning: Option<LogicalBlockProvisioning>,
}

impl Pages {
    /// Removes the pages that are not in the list, if there is a list: some units return data for pages that
    /// they do not have.
    fn listed(self) -> Self {
        let list = self.list;
        let has = |page| list.as_ref().is_none_or(|list| list.contains(page));
        Self {
            serial: self.serial.filter(|_| has(UnitSerialNumber::PAGE)),
            identification: self.identification.filter(|_| has(DeviceIdentification::PAGE)),
            limits: self.limits.filter(|_| has(BlockLimits::PAGE)),
            characteristics: self.characteristics.filter(|_| has(BlockDeviceCharacteristics::PAGE)),
            provisioning: self.provisioning.filter(|_| has(LogicalBlockProvisioning::PAGE)),
            list: None,
        }
    }
}

impl From<Answers> for Profile {
    fn from(answers: Answers) -> Self {
        let Answers { inquiry, pages, capacity, mode } = answers;
        let pages = pages.listed();
        Self {
            vendor: inquiry.vendor,
            product: inquiry.product,
            revision: inquiry.revision,
            removable: inquiry.removable,
            target_port_group_support: inquiry.target_port_group_support,
            serial_number: pages.serial.map(|page| page.serial).filter(|serial| !serial.is_empty()),
            designator: pages.identification.and_then(|page| page.logical_unit_name().cloned()),
            capacity,
            limits: pages.limits.unwrap_or_default(),
            characteristics: pages.characteristics,
            provisioning: pages.provisioning,
            write_protected: mode.as_ref().is_some_and(|mode| mode.write_protected),
            force_unit_access: mode.as_ref().is_some_and(|mode| mode.force_unit_access),
            write_cache: mode.and_then(|mode| mode.write_cache_enabled()),
        }
    }
}

/// Returns the maximum number of bytes that one READ or WRITE may move, up to `wanted`: a whole number of
/// blocks, at least one.
pub fn max_transfer(profile: &Profile, wanted: usize) -> usize {
    let block = profile.capacity.block_size as usize;
    let limit = profile.limits.maximum_transfer_length.unwrap_or(u32::MAX);
    let limit = limit.min(Blocks::MAX) as usize;
    (wanted / block).clamp(1, limit) * block
}

/// Returns whether deallocated blocks read as zeros, by all reports of the unit about it.
pub fn unmapped_reads_zeros(profile: &Profile) -> bool {
    profile.capacity.provisioning_management
        && profile.capacity.unmapped_reads_zeros
        && profile.provisioning.is_some_and(|page| page.unmapped_reads_zeros)
}
