//! Vital product data: identity and limits of a device, page by page (SPC-4 §7.8, SBC-3 §6.5).
//!
//! | Page | Type | Contents |
//! |---|---|---|
//! | 00 | [`SupportedPages`] | which pages there are |
//! | 80 | [`UnitSerialNumber`] | the vendor's serial number |
//! | 83 | [`DeviceIdentification`] | world wide names of unit, port and target |
//! | B0 | [`BlockLimits`] | how much one command may do |
//! | B1 | [`BlockDeviceCharacteristics`] | properties of the medium |
//! | B2 | [`LogicalBlockProvisioning`] | how blocks are deallocated |
//!
//! Ask for a page only if page 00 lists it: some devices answer for a page they do not have with
//! standard INQUIRY data, which is refused here by its page code.

// A new page also goes to `crates/pdu/tests/scsi/any_bytes.rs`, `fuzz/fuzz_targets/scsi.rs` and
// `examples/iscsi-util/src/inquiry/page.rs`; a page that disks use, to `crates/initiator/src/unit/probe.rs`.
mod block_characteristics;
mod block_limits;
mod device_identification;
mod page;
mod provisioning;
mod supported_pages;
mod unit_serial_number;

pub use block_characteristics::{BlockDeviceCharacteristics, MediumRotationRate};
pub use block_limits::BlockLimits;
pub use device_identification::{
    Association, CodeSet, Designator, DesignatorType, DeviceIdentification,
};
pub use page::page_len;
pub use provisioning::{LogicalBlockProvisioning, ProvisioningType};
pub use supported_pages::SupportedPages;
pub use unit_serial_number::UnitSerialNumber;
