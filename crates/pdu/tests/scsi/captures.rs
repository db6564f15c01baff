//! Tests with data segments that a real target sent: tgt 1.0.85 with a thin 64 MiB disk.

use super::hex;
use iscsi_pdu::scsi::vpd::{
    BlockLimits, DeviceIdentification, LogicalBlockProvisioning, ProvisioningType, SupportedPages,
};
use iscsi_pdu::scsi::{
    Lun, ModeParameters, ReadCapacity10, ReadCapacity16, ReportLuns, Sense, StandardInquiry,
    TargetPortGroupSupport,
};

const INQUIRY: &str = "000005123d00000249455420202020205649525455414c2d4449534b20202020 \
     303030310000000000000000000000000000000000000000000004c009600300 \
     0000";
const INQUIRY_CONTROLLER: &str =
    "0c0005123d000002 4945542020202020 436f6e74726f6c6c6572202020202020 30303031";
const SENSE: &str = "70000600 0000000a 00000000 29000000 0000";
const PAGE_83: &str = "00830048 02010024 4945542020202020303030313030303100000000 \
     00000000000000000000000000000000 01030008 3000000100000001 \
     01030010 60000000000000000e00000000010001";
const PAGE_B0: &str = "00b0003c 0080000000000000 0000000000000000 ffffffffffffffff \
     00000000000000000000000000000000 00000000000000000000000000000000 00000000";
const CAPACITY_16: &str = "000000000001ffff 00000200 0003c000 00000000 00000000 00000000 00000000";
const MODE_PAGES: &str = "61001000 0000 020e8080000a00000000000000000000 \
     08121400ffff0000ffffffff8014000000000000 0a0a02100000000000000200 \
     4a01001c04000000000000000000000000000000000000000000000000000000 \
     1c0a08000000000000000000";

#[test]
fn inquiry() {
    let disk = StandardInquiry::decode(&hex(INQUIRY)).unwrap();
    assert!(disk.is_present() && disk.command_queuing && !disk.removable);
    assert_eq!(disk.device_type.to_string(), "disk");
    assert_eq!((disk.version, disk.target_port_group_support), (5, TargetPortGroupSupport::None));
    assert_eq!([&disk.vendor, &disk.product, &disk.revision], ["IET", "VIRTUAL-DISK", "0001"]);

    let controller = StandardInquiry::decode(&hex(INQUIRY_CONTROLLER)).unwrap();
    assert_eq!(controller.device_type.to_string(), "storage array controller");
    assert_eq!(controller.product, "Controller");
}

#[test]
fn first_command_of_a_session() {
    let sense = Sense::decode(&hex(SENSE)).unwrap();
    assert_eq!(
        sense.to_string(),
        "UNIT ATTENTION: POWER ON, RESET, OR BUS DEVICE RESET OCCURRED (06/29/00)"
    );
}

#[test]
fn capacity_both_ways() {
    let small = ReadCapacity10::decode(&hex("0001ffff 00000200")).unwrap();
    let large = ReadCapacity16::decode(&hex(CAPACITY_16)).unwrap();
    assert_eq!(small.blocks(), Some(large.blocks()));
    assert_eq!(large.bytes(), Some(64 << 20));
    assert_eq!(large.physical_block_length(), 4096);
    assert!(large.provisioning_management && large.unmapped_reads_zeros);
    assert_eq!(large.protection_type, None);
}

/// With an allocation length of 16, the list has only the first unit, so the host requests the list
/// again.
#[test]
fn units_in_two_askings() {
    let first = ReportLuns::decode(&hex("00000010 00000000 0000000000000000")).unwrap();
    assert!(first.is_truncated());
    assert_eq!(first.allocation_length(), 24);
    let whole = "00000010 00000000 0000000000000000 0001000000000000";
    let second = ReportLuns::decode(&hex(whole)).unwrap();
    assert_eq!(second.luns, [Lun::ZERO, Lun::from(1)]);
    assert!(!second.is_truncated());
}

#[test]
fn vital_product_data() {
    let pages = SupportedPages::decode(&hex("00000006 008083b0b1b2")).unwrap();
    assert_eq!(pages.pages, [0x00, 0x80, 0x83, 0xb0, 0xb1, 0xb2]);

    let limits = BlockLimits::decode(&hex(PAGE_B0)).unwrap();
    assert_eq!(limits.maximum_compare_and_write_length, 128);
    assert_eq!(limits.maximum_transfer_length, None);
    assert_eq!(limits.maximum_unmap_lba_count, u32::MAX);
    assert_eq!(limits.maximum_unmap_block_descriptor_count, u32::MAX);

    let thin = LogicalBlockProvisioning::decode(&hex("00b20004 00e40200")).unwrap();
    assert!(thin.unmap && thin.write_same_16 && thin.write_same_10);
    assert!(thin.unmapped_reads_zeros && !thin.anchor);
    assert_eq!(thin.provisioning_type, ProvisioningType::Thin);
}

/// The page has a locally assigned NAA before a registered NAA; the registered NAA is preferred.
#[test]
fn names() {
    let identification = DeviceIdentification::decode(&hex(PAGE_83)).unwrap();
    let names: Vec<_> = identification.designators.iter().map(ToString::to_string).collect();
    let expected =
        ["t10.IET     00010001", "naa.3000000100000001", "naa.60000000000000000e00000000010001"];
    assert_eq!(names, expected);
    let best = identification.logical_unit_name().unwrap();
    assert_eq!(best.to_string(), "naa.60000000000000000e00000000010001");
}

/// Decodes the response with all mode pages: one page of no bytes, four plain pages and one page
/// with a subpage.
#[test]
fn mode_pages() {
    let mode = ModeParameters::decode_6(&hex(MODE_PAGES)).unwrap();
    assert!(mode.force_unit_access && !mode.write_protected);
    let pages: Vec<_> = mode.pages().map(|page| (page.code, page.subpage)).collect();
    assert_eq!(pages, [(0, 0), (0x02, 0), (0x08, 0), (0x0a, 0), (0x0a, 1), (0x1c, 0)]);
    assert_eq!(mode.write_cache_enabled(), Some(true));
}
