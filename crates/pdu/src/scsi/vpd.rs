//! Vital product data: identity and limits of a device, page by page (SPC-4 §7.8, SBC-3 §6.5).
//!
//! | Page | Type | Contents |
//! |---|---|---|
//! | 00 | [`SupportedPages`] | the list of pages |
//! | 80 | [`UnitSerialNumber`] | the vendor's serial number |
//! | 83 | [`DeviceIdentification`] | worldwide names of unit, port and target |
//! | B0 | [`BlockLimits`] | limits of one command |
//! | B1 | [`BlockDeviceCharacteristics`] | properties of the medium |
//! | B2 | [`LogicalBlockProvisioning`] | how blocks are deallocated |
//!
//! Request a page only if page 00 lists it: for other pages some devices send standard INQUIRY data, which
//! the decoders refuse because of the page code.

// A new page must also be added to `crates/pdu/tests/scsi/any_bytes.rs`, `fuzz/fuzz_targets/scsi.rs` and
// `examples/iscsi-util/src/inquiry/page.rs`, and a page that disks use to
// `crates/initiator/src/unit/probe.rs` and `crates/multipath/src/identity/profile.rs`.
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
