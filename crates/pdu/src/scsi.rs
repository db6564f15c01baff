//! SCSI formats in iSCSI PDUs: commands, statuses, sense data and the parameter data that a user of a disk
//! needs (SAM-5, SPC-4, SBC-3).
//!
//! | File | Noun | Standard |
//! |---|---|---|
//! | `lun` | [`Lun`]: the number of a logical unit | SAM-5 §4.7 |
//! | `status` | [`Status`]: how a command ended | SAM-5 §5.3 |
//! | `cdb`, `operation` | [`Cdb`]: a command and its fields | SPC-4 §4.3 |
//! | `sense`, `sense_key` | [`Sense`]: why a command failed | SPC-4 §4.5 |
//! | `additional_sense` | [`AdditionalSense`]: the exact reason, with its name | SPC-4 §4.5 |
//! | `inquiry` | [`StandardInquiry`]: the kind of device and its features | SPC-4, INQUIRY |
//! | `vpd` | [`vpd`]: identity and limits of the device | SPC-4 §7.8, SBC-3 §6.5 |
//! | `capacity` | [`ReadCapacity10`], [`ReadCapacity16`]: the number of blocks and their length | SBC-3 |
//! | `access_state` | [`AccessState`]: which commands a port serves for a unit | SPC-4 §5.11 |
//! | `target_port_groups` | [`TargetPortGroups`]: the ports of a unit and their states | SPC-4 §6.37 |
//! | `set_target_port_groups` | [`SetTargetPortGroups`]: the states that ports should have | SPC-4 §6.45 |
//! | `reservation` | [`reservation`]: which initiators may use a unit | SPC-4 §5.13 |
//! | `report_luns` | [`ReportLuns`]: the list of logical units | SPC-4 |
//! | `mode_sense` | [`ModeParameters`]: write protection, cache, mode pages | SPC-4 §7.5 |
//! | `unmap` | [`UnmapList`]: the blocks to deallocate | SBC-3, UNMAP |
//! | `lba_status` | [`LbaStatus`]: the provisioning status of blocks | SBC-3, GET LBA STATUS |
//!
//! Decoders trust nothing in the data of a target. A device server truncates parameter data at the allocation
//! length without a report, and older devices send less than the standard requires. So missing bytes at the
//! end read as zero, which means "not reported" in these formats. Data are an error only if they are too
//! short to have a meaning, or have another format.

mod access_state;
mod additional_sense;
mod additional_sense_names;
mod capacity;
mod cdb;
mod error;
mod fields;
mod inquiry;
mod lba_status;
mod lun;
mod mode_sense;
mod operation;
mod report_luns;
pub mod reservation;
mod sense;
mod sense_key;
mod set_target_port_groups;
mod status;
mod target_port_groups;
mod unmap;
pub mod vpd;

pub use access_state::AccessState;
pub use additional_sense::AdditionalSense;
pub use capacity::{ReadCapacity10, ReadCapacity16};
pub use cdb::{Cdb, SenseFormat, WriteSameFlags};
pub use error::FormatError;
pub use inquiry::{DeviceType, StandardInquiry, TargetPortGroupSupport};
pub use lba_status::{LbaExtent, LbaStatus, ProvisioningStatus};
pub use lun::Lun;
pub use mode_sense::{ModePage, ModePages, ModeParameters};
pub use operation::Operation;
pub use report_luns::ReportLuns;
pub use sense::{Sense, SenseKeySpecific};
pub use sense_key::SenseKey;
pub use set_target_port_groups::SetTargetPortGroups;
pub use status::Status;
pub use target_port_groups::{
    PortGroupsHeader, StateChange, SupportedStates, TargetPortGroup, TargetPortGroups,
};
pub use unmap::UnmapList;
