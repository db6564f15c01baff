//! Tests of parameter data of a disk: capacity, units, mode pages, mapping.

use super::hex;
use iscsi_pdu::scsi::{
    FormatError, LbaStatus, Lun, ModeParameters, ProvisioningStatus, ReadCapacity10,
    ReadCapacity16, ReportLuns, UnmapList,
};

#[test]
fn capacity_10() {
    let capacity = ReadCapacity10::decode(&hex("001fffff 00000200")).unwrap();
    assert_eq!((capacity.last_lba, capacity.block_length), (0x001f_ffff, 512));
    assert_eq!(capacity.blocks(), Some(0x0020_0000));
    assert!(!capacity.needs_16());

    let large = ReadCapacity10::decode(&hex("ffffffff 00001000")).unwrap();
    assert!(large.needs_16());
    assert_eq!(large.blocks(), None);

    let almost = ReadCapacity10::decode(&hex("fffffffe 00000200")).unwrap();
    assert_eq!(almost.blocks(), Some(0xffff_ffff));
}

#[test]
fn capacity_16() {
    let text = "00000001ffffffff 00000200 07 23 c123 00000000 00000000 00000000 00000000";
    let capacity = ReadCapacity16::decode(&hex(text)).unwrap();
    assert_eq!(capacity.last_lba, 0x1_ffff_ffff);
    assert_eq!(capacity.blocks(), 0x2_0000_0000);
    assert_eq!(capacity.bytes(), Some(0x400_0000_0000));
    assert_eq!(capacity.block_length, 512);
    assert_eq!(capacity.protection_type, Some(4));
    assert_eq!(capacity.physical_block_exponent, 3);
    assert_eq!(capacity.physical_block_length(), 4096);
    assert!(capacity.provisioning_management && capacity.unmapped_reads_zeros);
    assert_eq!(capacity.lowest_aligned_lba, 0x0123);
}

#[test]
fn capacity_16_bits_one_by_one() {
    let bits =
        |byte| ReadCapacity16::decode(&hex(&format!("00000000000000ff 00001000 0000 {byte}00")));
    let provisioned = bits("80").unwrap();
    assert!(provisioned.provisioning_management && !provisioned.unmapped_reads_zeros);
    let zeros = bits("40").unwrap();
    assert!(!zeros.provisioning_management && zeros.unmapped_reads_zeros);
    assert_eq!(zeros.lowest_aligned_lba, 0);
    assert_eq!(zeros.protection_type, None);
}

#[test]
fn capacity_16_cut_and_impossible() {
    let old = ReadCapacity16::decode(&hex("00000000000000ff 00000200")).unwrap();
    assert_eq!((old.blocks(), old.provisioning_management), (256, false));
    let vast = ReadCapacity16::decode(&hex("ffffffffffffffff 00100000")).unwrap();
    assert_eq!((vast.blocks(), vast.bytes()), (u64::MAX, None));
    assert!(matches!(
        ReadCapacity16::decode(&hex("00000000000000ff 000002")),
        Err(FormatError::TooShort { len: 11, needed: 12, .. })
    ));
    // Blocks of no bytes, and blocks that are too large for memory.
    let impossible = [
        ReadCapacity16::decode(&hex("00000000000000ff 00000000")).unwrap_err(),
        ReadCapacity10::decode(&hex("000000ff 00000000")).unwrap_err(),
        ReadCapacity16::decode(&hex("00000000000000ff 00100001")).unwrap_err(),
        ReadCapacity10::decode(&hex("000000ff ffffffff")).unwrap_err(),
    ];
    for error in impossible {
        assert!(matches!(error, FormatError::Field { field: "BLOCK LENGTH", .. }), "{error}");
    }
}

#[test]
fn report_luns() {
    let text = "00000018 00000000 0000000000000000 0001000000000000 412c000000000000";
    let report = ReportLuns::decode(&hex(text)).unwrap();
    let expected = [0, 1, 300].map(|number| Lun::new(number).unwrap());
    assert_eq!(report.luns, expected);
    assert!(!report.is_truncated());
    assert_eq!(report.allocation_length(), 32);
}

#[test]
fn report_luns_cut_short() {
    let cut = ReportLuns::decode(&hex("00000020 00000000 0000000000000000 00010000")).unwrap();
    assert_eq!(cut.luns, [Lun::ZERO]);
    assert!(cut.is_truncated());
    assert_eq!(cut.allocation_length(), 40);

    let rest = ReportLuns::decode(&hex("00000008 00000000 0001000000000000 ffffffffffffffff"));
    assert_eq!(rest.unwrap().luns, [Lun::from(1)], "bytes past the list are not units");

    let endless = ReportLuns::decode(&hex("ffffffff 00000000")).unwrap();
    assert!(endless.is_truncated() && endless.luns.is_empty());
    assert_eq!(endless.allocation_length(), u32::MAX);

    let none = ReportLuns::decode(&hex("00000000 00000000")).unwrap();
    assert!(none.luns.is_empty() && !none.is_truncated());
    assert!(ReportLuns::decode(&hex("00000008 000000")).is_err());
}

const CACHING: &str = "88 12 04 00 0000 0000 0000 0000 00 00 0000 00 000000";
const CONTROL: &str = "0a 0a 02 00 00 00 00 00 00 00 0000";

#[test]
fn mode_sense_6() {
    let text = format!("23 00 90 00 {CACHING} {CONTROL}");
    let mode = ModeParameters::decode_6(&hex(&text)).unwrap();
    assert!(mode.write_protected && mode.force_unit_access);
    let pages: Vec<_> = mode.pages().collect();
    assert_eq!(pages.iter().map(|page| page.code).collect::<Vec<_>>(), [0x08, 0x0a]);
    assert!(pages[0].saveable && !pages[1].saveable);
    assert_eq!((pages[0].parameters.len(), pages[1].parameters.len()), (18, 10));
    assert_eq!(pages[1].parameters[0], 0x02);
    assert_eq!(mode.write_cache_enabled(), Some(true));
}

#[test]
fn mode_sense_6_bits_one_by_one() {
    let mode = |byte| ModeParameters::decode_6(&hex(&format!("03 00 {byte} 00"))).unwrap();
    assert!(mode("80").write_protected && !mode("80").force_unit_access);
    assert!(!mode("10").write_protected && mode("10").force_unit_access);
    assert!(!mode("6f").write_protected && !mode("6f").force_unit_access);
    assert_eq!(mode("00").write_cache_enabled(), None);
}

#[test]
fn mode_sense_10_with_block_descriptors() {
    let text = format!("0022 05 10 00 00 0008 0011223344556677 {CACHING}");
    let text = text.replace("88 12 04", "08 12 00");
    let mode = ModeParameters::decode_10(&hex(&text)).unwrap();
    assert_eq!(mode.medium_type, 5);
    assert!(mode.force_unit_access && !mode.write_protected);
    assert_eq!(mode.pages().count(), 1);
    assert_eq!(mode.write_cache_enabled(), Some(false));
}

/// The length in the header ends the mode pages, even if bytes follow. The SPF bit marks a page in the sub_page
/// format.
#[test]
fn mode_pages_end_and_subpages() {
    let behind = ModeParameters::decode_6(&hex(&format!("03 00 00 00 {CACHING}"))).unwrap();
    assert_eq!(behind.pages().count(), 0);
    let mode = ModeParameters::decode_6(&hex("0d 00 00 00 4a 01 0002 aabb 0a 0a 02 00")).unwrap();
    let pages: Vec<_> = mode.pages().collect();
    assert_eq!(pages.len(), 1, "the second page is cut short");
    assert_eq!((pages[0].code, pages[0].subpage), (0x0a, 0x01));
    assert_eq!(pages[0].parameters, [0xaa, 0xbb]);
    assert!(ModeParameters::decode_6(&hex("03 00 00")).is_err());
    assert!(ModeParameters::decode_10(&hex("0006 00 00 00 00 00")).is_err());
}

#[test]
fn unmap_list() {
    let mut list = UnmapList::new();
    assert!(list.is_empty());
    assert_eq!(list.encode()[..], hex("0006 0000 00000000")[..]);
    assert_eq!((list.parameter_list_length(), UnmapList::only_extent(&list.encode())), (8, None));
    let lba = 0x0102_0304_0506_0708;
    list.push(lba, 0x0a0b_0c0d).unwrap();
    assert_eq!(UnmapList::only_extent(&list.encode()), Some(lba..lba + 0x0a0b_0c0d));
    list.push(1, 2).unwrap();
    assert_eq!(list.len(), 2);
    let expected = "0026 0020 00000000 \
                    0102030405060708 0a0b0c0d 00000000 \
                    0000000000000001 00000002 00000000";
    assert_eq!(list.encode()[..], hex(expected)[..]);
    assert_eq!((list.parameter_list_length(), UnmapList::only_extent(&list.encode())), (40, None));
}

#[test]
fn unmap_list_is_bounded_by_its_16_bit_lengths() {
    let mut list = UnmapList::new();
    for lba in 0..4095 {
        list.push(lba, 1).unwrap();
    }
    assert!(matches!(list.push(4095, 1), Err(FormatError::TooLong { limit: 4095, .. })));
    assert_eq!(list.encode().len(), usize::from(list.parameter_list_length()));
    assert_eq!(list.parameter_list_length(), 65_528);
}

#[test]
fn lba_status() {
    let text = "00000044 00000000 \
                0000000000001000 00000800 00 000000 \
                0000000000001800 00000100 f1 000000 \
                0000000000001900 00000200 02 000000 \
                0000000000001b00 00000001 07 000000";
    let status = LbaStatus::decode(&hex(text)).unwrap();
    let extents: Vec<_> =
        status.extents.iter().map(|extent| (extent.lba, extent.blocks, extent.status)).collect();
    let expected = [
        (0x1000, 0x800, ProvisioningStatus::Mapped),
        (0x1800, 0x100, ProvisioningStatus::Deallocated),
        (0x1900, 0x200, ProvisioningStatus::Anchored),
        (0x1b00, 1, ProvisioningStatus::Other(7)),
    ];
    assert_eq!(extents, expected);
    let unmapped: Vec<_> = expected.iter().map(|(_, _, status)| status.is_unmapped()).collect();
    assert_eq!(unmapped, [false, true, true, false]);
}

#[test]
fn lba_status_cut_short() {
    let whole = "00000014 00000000 0000000000001000 00000800 01000000";
    let behind = LbaStatus::decode(&hex(&format!("{whole} {}", "ff".repeat(16)))).unwrap();
    assert_eq!(behind.extents.len(), 1, "bytes past the data length are no extent");
    let bytes = hex(whole);
    assert!(LbaStatus::decode(&bytes[..23]).unwrap().extents.is_empty());
    assert!(LbaStatus::decode(&bytes[..7]).is_err());
}
