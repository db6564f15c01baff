//! Tests of identity and limits of a device: standard INQUIRY data and vital product data.

use super::hex;
use iscsi_pdu::scsi::vpd::{
    Association, BlockDeviceCharacteristics, BlockLimits, CodeSet, DesignatorType,
    DeviceIdentification, LogicalBlockProvisioning, MediumRotationRate, ProvisioningType,
    SupportedPages, UnitSerialNumber,
};
use iscsi_pdu::scsi::{DeviceType, FormatError, StandardInquiry, TargetPortGroupSupport, vpd};

fn ascii(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn standard_inquiry() {
    let text = format!(
        "00 80 06 02 1f 39 00 02 {}{}{}",
        ascii("LIO-ORG "),
        ascii("disk0           "),
        ascii("4.0 ")
    );
    let inquiry = StandardInquiry::decode(&hex(&text)).unwrap();
    assert!(inquiry.is_present());
    assert_eq!(inquiry.device_type, DeviceType::DIRECT_ACCESS_BLOCK);
    assert!(inquiry.removable);
    assert_eq!(inquiry.version, 6);
    assert_eq!(inquiry.target_port_group_support, TargetPortGroupSupport::Both);
    assert!(inquiry.third_party_copy && inquiry.protect && inquiry.command_queuing);
    assert_eq!(
        (inquiry.vendor.as_str(), inquiry.product.as_str(), inquiry.revision.as_str()),
        ("LIO-ORG", "disk0", "4.0")
    );
}

#[test]
fn inquiry_for_a_unit_that_is_not_there() {
    let absent = StandardInquiry::decode(&hex("7f 00 05 02 1f")).unwrap();
    assert_eq!(absent.qualifier, 3);
    assert_eq!(absent.device_type, DeviceType::UNKNOWN);
    assert!(!absent.is_present());
    assert!(!absent.removable && !absent.command_queuing);
    assert_eq!(absent.vendor, "");
    assert!(!StandardInquiry::decode(&hex("20 00 05 02 1f")).unwrap().is_present());
    assert!(StandardInquiry::decode(&hex("00 00 05 02")).is_err());
}

/// ADDITIONAL LENGTH ends the INQUIRY data; bytes that are not printable are escaped in the names.
#[test]
fn inquiry_ends_at_its_length() {
    let text = format!("00 00 05 02 0f 00 00 00 41 00 ff 0a 42 20 20 20 {}", ascii("DISK PRODUCT"));
    let inquiry = StandardInquiry::decode(&hex(&text)).unwrap();
    assert_eq!(inquiry.vendor, r"A\x00\xff\x0aB");
    assert_eq!(inquiry.product, "DISK", "20 bytes of data");
}

#[test]
fn device_types() {
    assert_eq!(DeviceType(0).to_string(), "disk");
    assert_eq!(DeviceType(0x0c).to_string(), "storage array controller");
    assert_eq!(DeviceType(0x17).to_string(), "device type 0x17");
}

#[test]
fn supported_pages() {
    let pages = SupportedPages::decode(&hex("00 00 0004 00 80 83 b0 b2")).unwrap();
    assert_eq!(pages.pages, [0x00, 0x80, 0x83, 0xb0]);
    assert!(pages.contains(0x83));
    assert!(!pages.contains(0xb2), "past the page's length");
}

/// Data with another PAGE CODE than the requested one, for example standard INQUIRY data, is refused.
#[test]
fn another_page_is_refused() {
    let standard = hex("00 00 05 02 1f 00 00 02");
    let error = BlockLimits::decode(&standard).unwrap_err();
    assert!(matches!(error, FormatError::Field { field: "PAGE CODE", value: 0, .. }), "{error}");
    assert!(SupportedPages::decode(&hex("00 80 0000")).is_err());
    assert!(UnitSerialNumber::decode(&hex("00 83 0000")).is_err());
    assert!(DeviceIdentification::decode(&hex("00 80 0000")).is_err());
    assert!(BlockDeviceCharacteristics::decode(&hex("00 b0 0000")).is_err());
    assert!(LogicalBlockProvisioning::decode(&hex("00 b1 0000")).is_err());
    assert!(matches!(
        BlockLimits::decode(&hex("00 b0 00")),
        Err(FormatError::TooShort { len: 3, needed: 4, .. })
    ));
}

#[test]
fn unit_serial_number() {
    let text = format!("00 80 000b {}", ascii("  beaf11\0\0\0"));
    let serial = UnitSerialNumber::decode(&hex(&text)).unwrap();
    assert_eq!(serial.serial, "beaf11");
    assert_eq!(serial.to_string(), "beaf11");
    let blank = UnitSerialNumber::decode(&hex("00 80 0004 20202020")).unwrap();
    assert_eq!(blank.serial, "");
}

/// Different serial numbers have different texts, even if their bytes are not text.
#[test]
fn serial_numbers_that_differ_are_different_texts() {
    let serial = |bytes: &str| {
        UnitSerialNumber::decode(&hex(&format!("00 80 0004 {bytes}"))).unwrap().serial
    };
    assert_eq!(serial("81828384"), r"\x81\x82\x83\x84");
    assert_eq!(serial("91929394"), r"\x91\x92\x93\x94");
    assert_eq!(serial(&ascii(r"a\b7")), r"a\b7");
    // A text that would look like an escape is escaped.
    assert_eq!(serial(&ascii(r"\x81")), r"\x5cx81");
}

/// Different designators have different texts, whether or not their bytes have the encoding that they state.
#[test]
fn designators_that_differ_are_different_texts() {
    let name = |code_set: u8, bytes: [u8; 4]| {
        let page = [&[0, 0x83, 0, 8, code_set, 8, 0, 4][..], &bytes].concat();
        DeviceIdentification::decode(&page).unwrap().designators[0].to_string()
    };
    assert_eq!(name(2, *b"a\x81\x82b"), r"a\x81\x82b");
    assert_eq!(name(3, *b"a\x81\xc3\xa4"), r"a\x81ä");
    assert_eq!(name(3, *b"a\x82\xc3\xa4"), r"a\x82ä");
    assert_eq!(name(3, *br"\x81"), r"\\x81");
}

#[test]
fn block_limits() {
    let text = "00 b0 003c 01 05 0008 00000800 00000400 00000000 \
                00100000 00000020 00000040 80000007 0000000000001000";
    let limits = BlockLimits::decode(&hex(text)).unwrap();
    assert!(limits.write_same_needs_length);
    assert_eq!(limits.maximum_compare_and_write_length, 5);
    assert_eq!(limits.optimal_transfer_length_granularity, Some(8));
    assert_eq!(limits.maximum_transfer_length, Some(0x800));
    assert_eq!(limits.optimal_transfer_length, Some(0x400));
    assert_eq!(limits.maximum_unmap_lba_count, 0x0010_0000);
    assert_eq!(limits.maximum_unmap_block_descriptor_count, 0x20);
    assert_eq!(limits.optimal_unmap_granularity, Some(0x40));
    assert_eq!(limits.unmap_granularity_alignment, Some(7));
    assert_eq!(limits.maximum_write_same_length, Some(0x1000));
}

#[test]
fn block_limits_of_an_older_device() {
    let text = "00 b0 000c 00 00 0000 00000000 00000080 ffffffff ffffffff ffffffff";
    let limits = BlockLimits::decode(&hex(text)).unwrap();
    assert_eq!(limits.maximum_transfer_length, None);
    assert_eq!(limits.optimal_transfer_length, Some(0x80));
    assert_eq!(limits.maximum_unmap_lba_count, 0, "past the page's length");
    assert_eq!(limits.unmap_granularity_alignment, None);
    assert_eq!(limits.maximum_write_same_length, None);
    assert_eq!(BlockLimits::decode(&hex("00 b0 0000")).unwrap(), BlockLimits::default());
}

#[test]
fn block_device_characteristics() {
    let flash = BlockDeviceCharacteristics::decode(&hex("00 b1 003c 0001 00 05 22")).unwrap();
    assert_eq!(flash.medium_rotation_rate, MediumRotationRate::NonRotating);
    assert_eq!((flash.nominal_form_factor, flash.fuab, flash.zoned), (5, true, 2));
    let rate = |code| {
        let page = hex(&format!("00 b1 003c {code} 00 00 00"));
        BlockDeviceCharacteristics::decode(&page).unwrap().medium_rotation_rate
    };
    assert_eq!(rate("0000"), MediumRotationRate::NotReported);
    assert_eq!(rate("0400"), MediumRotationRate::Reserved(0x400));
    assert_eq!(rate("0401"), MediumRotationRate::PerMinute(1025));
    assert_eq!(rate("1c20"), MediumRotationRate::PerMinute(7200));
    assert_eq!(rate("ffff"), MediumRotationRate::Reserved(0xffff));
}

#[test]
fn logical_block_provisioning() {
    let page =
        |bits: &str| LogicalBlockProvisioning::decode(&hex(&format!("00 b2 0004 09 {bits} 00")));
    let thin = page("e6 02").unwrap();
    assert_eq!(thin.threshold_exponent, 9);
    assert!(thin.unmap && thin.write_same_16 && thin.write_same_10);
    assert!(thin.unmapped_reads_zeros && thin.anchor);
    assert_eq!(thin.provisioning_type, ProvisioningType::Thin);

    let flags = |bits: &str| {
        let page = page(bits).unwrap();
        [page.unmap, page.write_same_16, page.write_same_10, page.unmapped_reads_zeros, page.anchor]
    };
    assert_eq!(flags("80 00"), [true, false, false, false, false]);
    assert_eq!(flags("40 00"), [false, true, false, false, false]);
    assert_eq!(flags("20 00"), [false, false, true, false, false]);
    assert_eq!(flags("04 00"), [false, false, false, true, false]);
    assert_eq!(flags("02 00"), [false, false, false, false, true]);
    let kind = |bits| page(bits).unwrap().provisioning_type;
    assert_eq!(kind("00 00"), ProvisioningType::NotReported);
    assert_eq!(kind("00 f9"), ProvisioningType::Resource);
    assert_eq!(kind("00 07"), ProvisioningType::Reserved(7));
}

/// Returns page 83h with these designators, each in hexadecimal with its header.
fn identification(designators: &[&str]) -> DeviceIdentification {
    let body = hex(&designators.concat());
    let len = u16::try_from(body.len()).unwrap();
    let mut page = vec![0x00, 0x83];
    page.extend(len.to_be_bytes());
    page.extend(body);
    DeviceIdentification::decode(&page).unwrap()
}

const NAA_6: &str = "01 03 0010 600140512345678 9abcdef0123456789";
const NAA_5: &str = "01 03 0008 5000c500a1b2c3d4";
const NAA_3: &str = "01 03 0008 3000000100000000";
const EUI_64: &str = "01 02 0008 0025385b71b00d4e";
const PORT_NAA: &str = "61 93 0008 5000c500a1b2c3d5";
const RELATIVE_PORT: &str = "51 94 0004 00000102";
const PORT_GROUP: &str = "01 15 0004 00000007";
const UUID: &str = "01 0a 0012 1000 0123456789abcdef0123456789abcdef";

#[test]
fn designators() {
    let t10 = format!("02 01 000c {}", ascii("LIO-ORG disk"));
    let name = format!("53 98 000c {}", ascii("iqn.a:b,t,1\0"));
    let page = identification(&[&t10, NAA_6, RELATIVE_PORT, PORT_GROUP, &name, UUID]);
    let texts: Vec<_> = page.designators.iter().map(ToString::to_string).collect();
    let expected = [
        "t10.LIO-ORG disk",
        "naa.6001405123456789abcdef0123456789",
        "port 258",
        "port group 7",
        "iqn.a:b,t,1",
        "uuid.01234567-89ab-cdef-0123-456789abcdef",
    ];
    assert_eq!(texts, expected);
    let naa = &page.designators[1];
    assert_eq!(naa.association, Association::LogicalUnit);
    assert_eq!(naa.designator_type, DesignatorType::Naa);
    assert_eq!(naa.code_set, CodeSet::Binary);
    assert_eq!(naa.bytes.len(), 16);
    assert_eq!(page.designators[2].association, Association::TargetPort);
    assert_eq!(page.designators[4].code_set, CodeSet::Utf8);
}

#[test]
fn rare_designators() {
    let md5 = format!("01 07 0010 {}", "ab".repeat(16));
    let page = identification(&[
        &md5,
        "01 00 0002 beef",
        "02 00 0003 616263",
        "01 06 0004 00000009",
        "51 99 0002 0102",
        "01 0f 0001 ee",
        "01 08 0001 ee",
        "03 28 0002 ff0a",
        "51 94 0001 07",
    ]);
    let texts: Vec<_> = page.designators.iter().map(ToString::to_string).collect();
    let expected = [
        "md5.abababababababababababababababab",
        "vendor.beef",
        "vendor.abc",
        "unit group 9",
        "port 0102",
        "type 15: ee",
        "name.ee",
        r"\xff\n",
        "port 0",
    ];
    assert_eq!(texts, expected);
    assert_eq!(page.designators[7].association, Association::TargetDevice);
}

#[test]
fn best_name_of_the_unit() {
    let t10 = format!("02 01 000c {}", ascii("LIO-ORG disk"));
    let vendor = "02 00 0003 616263";
    let best = |designators: &[&str]| {
        identification(designators).logical_unit_name().map(ToString::to_string)
    };
    let all = [vendor, NAA_3, &t10, UUID, EUI_64, PORT_NAA, NAA_5, NAA_6];
    assert_eq!(best(&all).unwrap(), "naa.6001405123456789abcdef0123456789");
    assert_eq!(best(&all[..7]).unwrap(), "naa.5000c500a1b2c3d4");
    assert_eq!(
        best(&all[..6]).unwrap(),
        "eui.0025385b71b00d4e",
        "the port's name is not the unit's"
    );
    assert_eq!(best(&all[..4]).unwrap(), "uuid.01234567-89ab-cdef-0123-456789abcdef");
    assert_eq!(best(&all[..3]).unwrap(), "t10.LIO-ORG disk");
    assert_eq!(best(&all[..2]).unwrap(), "naa.3000000100000000");
    assert_eq!(best(&all[..1]).unwrap(), "vendor.abc");
    assert_eq!(best(&[PORT_NAA, RELATIVE_PORT, PORT_GROUP]), None);
    assert_eq!(best(&["01 03 0000", vendor]).unwrap(), "vendor.abc", "an empty name is none");
    let vendor_alone = format!("02 01 0009 {}", ascii("LIO-ORG \0"));
    for nothing in [&vendor_alone, "02 01 0004 4c494f20", "01 03 0008 0000000000000000"] {
        assert_eq!(best(&[nothing]), None, "{nothing} tells no units apart");
    }
    assert_eq!(best(&[]), None);
}

#[test]
fn a_name_is_unique_where_its_company_is_one() {
    let t10 = format!("02 01 000c {}", ascii("LIO-ORG disk"));
    // The designator of a unit of tgt.
    let tgt = "01 03 0010 60000000000000000e00000000010001";
    let is_unique = |name: &str| identification(&[name]).designators[0].is_unique();
    for name in [
        NAA_5,
        NAA_6,
        EUI_64,
        UUID,
        "01 03 0008 2000000001000000",
        "01 03 0008 5000001000000000",
        "01 02 0010 0000000000000000 0025380000000001",
    ] {
        assert!(is_unique(name), "{name}");
    }
    for name in [
        NAA_3,
        PORT_NAA,
        tgt,
        &t10,
        "02 00 0003 616263",
        "01 03 0008 2fff000000000001",
        "01 03 0008 500000000fffffff",
        "01 02 0008 000000ffffffffff",
        "01 02 0010 ffffffffffffffff 000000ffffffffff",
    ] {
        assert!(!is_unique(name), "{name}");
    }
}

#[test]
fn a_registered_name_settles_it() {
    assert!(identification(&[EUI_64, NAA_5]).has_registered_name());
    assert!(!identification(&[EUI_64, NAA_3, PORT_NAA, UUID]).has_registered_name());
}

/// SPC-4 §7.8: a page contains its own length, even if it is truncated.
#[test]
fn a_page_says_its_own_length() {
    assert_eq!(vpd::page_len(&hex("00 83 0124 0103"), 0x83), Some(0x128));
    assert_eq!(vpd::page_len(&hex("00 00 0502 1f00"), 0x83), None, "another page");
    assert_eq!(vpd::page_len(&hex("00 83 01"), 0x83), None);
}

#[test]
fn designator_cut_short_is_left_out() {
    let page = hex(&format!("00 83 0018 {NAA_5} {NAA_6}"));
    assert_eq!(DeviceIdentification::decode(&page).unwrap().designators.len(), 1);
    assert_eq!(DeviceIdentification::decode(&page[..15]).unwrap().designators.len(), 0);
    assert_eq!(DeviceIdentification::decode(&page[..4]).unwrap().designators.len(), 0);
}
