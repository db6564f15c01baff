//! Tests of LUN, CDB and status.

use super::hex;
use iscsi_pdu::scsi::{
    Cdb, FormatError, Lun, PortGroupsHeader, SenseFormat, Status, WriteSameFlags,
};
use proptest::prelude::*;

/// LAY-18: a LUN up to 255 is in byte 1; from 256 on, byte 0 has 0x40 for flat space addressing.
#[test]
fn lay_18_lun_forms() {
    for (number, bytes) in [
        (0, "00 00 00 00 00 00 00 00"),
        (1, "00 01 00 00 00 00 00 00"),
        (255, "00 ff 00 00 00 00 00 00"),
        (256, "41 00 00 00 00 00 00 00"),
        (300, "41 2c 00 00 00 00 00 00"),
        (16_383, "7f ff 00 00 00 00 00 00"),
    ] {
        let lun = Lun::new(number).unwrap();
        assert_eq!(lun.to_bytes()[..], hex(bytes)[..], "{number}");
        assert_eq!(lun.number(), Some(number));
        assert_eq!(lun.to_string(), number.to_string());
    }
    assert_eq!(Lun::new(16_384), None);
    assert_eq!(Lun::new(u16::MAX), None);
    assert_eq!(Lun::new(0), Some(Lun::ZERO));
    assert_eq!(Lun::from(7), Lun::new(7).unwrap());
}

#[test]
fn lun_without_a_number() {
    for bytes in [
        [0xc1, 1, 0, 0, 0, 0, 0, 0], // well known
        [0x01, 0, 0, 0, 0, 0, 0, 0], // bus 1
        [0, 1, 0, 2, 0, 0, 0, 0],    // two levels
        [0x80, 1, 0, 0, 0, 0, 0, 0], // logical unit addressing
        [0, 1, 0, 0, 0, 0, 0, 1],
    ] {
        assert_eq!(Lun::from_bytes(bytes).number(), None, "{bytes:02x?}");
    }
    assert_eq!(Lun::REPORT_LUNS.to_string(), "0xc101000000000000");
    assert_eq!(format!("{:?}", Lun::ZERO), "Lun(0)");
}

/// `Lun::number` returns a number also for a LUN below 256 in flat space addressing. But that LUN is not equal
/// to the LUN with the same number in peripheral device addressing, so the addressing method is kept.
#[test]
fn small_flat_lun_has_a_number_of_its_own_form() {
    let flat = Lun::from_bytes([0x40, 5, 0, 0, 0, 0, 0, 0]);
    assert_eq!(flat.number(), Some(5));
    assert_ne!(flat, Lun::from(5));
}

/// SBC-3: the ten-byte form of a command has the same meaning, or the command has no such form.
#[test]
fn commands_of_16_bytes_in_10() {
    let unmap = WriteSameFlags { unmap: true, anchor: true, ..WriteSameFlags::default() };
    for (long, short) in [
        (Cdb::read_16(7, 8).with_fua(), Cdb::read_10(7, 8).with_fua()),
        (Cdb::write_16(u32::MAX.into(), 0xffff), Cdb::write_10(u32::MAX, 0xffff)),
        (Cdb::synchronize_cache_16(0, 0), Cdb::synchronize_cache_10(0, 0)),
        (Cdb::write_same_16(1 << 24, 256, unmap), Cdb::write_same_10(1 << 24, 256, unmap)),
    ] {
        assert_eq!(long.in_10_bytes(), Some(short));
    }
    let grouped = Cdb::from_field(&[0x8a, 0xe8, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 5, 6, 7, 8]);
    assert_eq!(grouped.in_10_bytes().unwrap().as_bytes(), [0x2a, 0xe8, 1, 2, 3, 4, 7, 5, 6, 8]);
    let no_data = WriteSameFlags { ndob: true, ..WriteSameFlags::default() };
    for cdb in [
        Cdb::read_16(1 << 32, 1),
        Cdb::write_16(0, 1 << 16),
        Cdb::write_same_16(0, 1, no_data),
        Cdb::read_capacity_16(32),
        Cdb::read_10(0, 1),
    ] {
        assert_eq!(cdb.in_10_bytes(), None, "{cdb:?}");
    }
}

#[test]
fn the_blocks_of_a_command_are_those_that_it_was_made_for() {
    const LBA: u64 = 0x0102_0304_0506_0708;
    let unmap = WriteSameFlags { unmap: true, ..WriteSameFlags::default() };
    let (long, short) = (LBA..LBA + 0x1122_3344, 0x0506_0708..0x0506_1a2b);
    for (cdb, blocks) in [
        (Cdb::read_16(LBA, 0x1122_3344), Some(long.clone())),
        (Cdb::write_16(LBA, 0x1122_3344), Some(long.clone())),
        (Cdb::write_same_16(LBA, 0x1122_3344, unmap), Some(long)),
        (Cdb::read_10(0x0506_0708, 0x1323), Some(short.clone())),
        (Cdb::write_10(0x0506_0708, 0x1323), Some(short.clone())),
        (Cdb::write_same_10(0x0506_0708, 0x1323, unmap), Some(short)),
        (Cdb::read_16(u64::MAX, 8), Some(u64::MAX..u64::MAX)),
        (Cdb::synchronize_cache_16(LBA, 8), None),
        (Cdb::unmap(24), None),
        (Cdb::test_unit_ready(), None),
        (Cdb::new(&[0x28; 17]).unwrap(), None),
    ] {
        assert_eq!(cdb.block_range(), blocks, "{cdb:?}");
    }
}

/// SPC-4 §4.2.5.6: parameter data contain their own length; blocks of the medium do not.
#[test]
fn parameter_data_are_told_from_blocks() {
    for cdb in [
        Cdb::inquiry(36),
        Cdb::inquiry_vpd(0x83, 255),
        Cdb::request_sense(SenseFormat::Fixed, 252),
        Cdb::mode_sense_6(0x3f, 255),
        Cdb::mode_sense_10(0x3f, 255),
        Cdb::read_capacity_10(),
        Cdb::read_capacity_16(32),
        Cdb::get_lba_status(0, 24),
        Cdb::report_luns(0, 16),
    ] {
        assert!(cdb.reads_parameter_data(), "{cdb}");
    }
    let read_long = Cdb::from_field(&[0x9e, 0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
    let vendor_specific = Cdb::new(&[0xc1, 0, 0, 0, 0, 0]).unwrap();
    for cdb in [Cdb::read_10(0, 1), Cdb::read_16(0, 1), read_long, vendor_specific] {
        assert!(!cdb.reads_parameter_data(), "{cdb}");
    }
}

#[test]
fn statuses() {
    for (status, code, name) in [
        (Status::GOOD, 0x00, "GOOD"),
        (Status::CHECK_CONDITION, 0x02, "CHECK CONDITION"),
        (Status::CONDITION_MET, 0x04, "CONDITION MET"),
        (Status::BUSY, 0x08, "BUSY"),
        (Status::RESERVATION_CONFLICT, 0x18, "RESERVATION CONFLICT"),
        (Status::TASK_SET_FULL, 0x28, "TASK SET FULL"),
        (Status::ACA_ACTIVE, 0x30, "ACA ACTIVE"),
        (Status::TASK_ABORTED, 0x40, "TASK ABORTED"),
    ] {
        assert_eq!(status.0, code);
        assert_eq!(status.to_string(), name);
    }
    assert_eq!(Status(0x22).to_string(), "status 0x22");
    assert_eq!(Status(0x22).name(), None);
}

/// Each command has the bytes of the figures in SPC-4 and SBC-3.
#[test]
fn commands() {
    let (lba, blocks) = (0x0102_0304_0506_0708, 0x0a0b_0c0d);
    let all = WriteSameFlags { unmap: true, ndob: true, anchor: true };
    for (cdb, bytes, name) in [
        (Cdb::test_unit_ready(), "00 00 00 00 00 00", "TEST UNIT READY"),
        (Cdb::request_sense(SenseFormat::Fixed, 252), "03 00 00 00 fc 00", "REQUEST SENSE"),
        (Cdb::request_sense(SenseFormat::Descriptor, 252), "03 01 00 00 fc 00", "REQUEST SENSE"),
        (Cdb::inquiry(0x0124), "12 00 00 01 24 00", "INQUIRY"),
        (Cdb::inquiry_vpd(0x83, 0x0124), "12 01 83 01 24 00", "INQUIRY"),
        (Cdb::mode_sense_6(0x3f, 192), "1a 08 3f 00 c0 00", "MODE SENSE (6)"),
        (Cdb::mode_sense_10(0x08, 0x0102), "5a 08 08 00 00 00 00 01 02 00", "MODE SENSE (10)"),
        (Cdb::read_capacity_10(), "25 00 00 00 00 00 00 00 00 00", "READ CAPACITY (10)"),
        (
            Cdb::read_capacity_16(32),
            "9e 10 00 00 00 00 00 00 00 00 00 00 00 20 00 00",
            "READ CAPACITY (16)",
        ),
        (Cdb::report_luns(2, blocks), "a0 00 02 00 00 00 0a 0b 0c 0d 00 00", "REPORT LUNS"),
        (Cdb::read_10(0x0102_0304, 0x0506), "28 00 01 02 03 04 00 05 06 00", "READ (10)"),
        (Cdb::write_10(0x0102_0304, 0x0506), "2a 00 01 02 03 04 00 05 06 00", "WRITE (10)"),
        (Cdb::read_16(lba, blocks), "88 00 01 02 03 04 05 06 07 08 0a 0b 0c 0d 00 00", "READ (16)"),
        (
            Cdb::write_16(lba, blocks),
            "8a 00 01 02 03 04 05 06 07 08 0a 0b 0c 0d 00 00",
            "WRITE (16)",
        ),
        (
            Cdb::synchronize_cache_10(0x0102_0304, 0x0506),
            "35 00 01 02 03 04 00 05 06 00",
            "SYNCHRONIZE CACHE (10)",
        ),
        (
            Cdb::synchronize_cache_16(lba, blocks),
            "91 00 01 02 03 04 05 06 07 08 0a 0b 0c 0d 00 00",
            "SYNCHRONIZE CACHE (16)",
        ),
        (
            Cdb::write_same_10(0x0102_0304, 0x0506, all),
            "41 18 01 02 03 04 00 05 06 00",
            "WRITE SAME (10)",
        ),
        (
            Cdb::write_same_16(lba, blocks, all),
            "93 19 01 02 03 04 05 06 07 08 0a 0b 0c 0d 00 00",
            "WRITE SAME (16)",
        ),
        (Cdb::unmap(0x0118), "42 00 00 00 00 00 00 01 18 00", "UNMAP"),
        (
            Cdb::get_lba_status(lba, blocks),
            "9e 12 01 02 03 04 05 06 07 08 0a 0b 0c 0d 00 00",
            "GET LBA STATUS",
        ),
    ] {
        assert_command(&cdb, bytes, name);
    }
}

#[test]
fn commands_that_access_blocks() {
    let flags = WriteSameFlags::default();
    for cdb in [
        Cdb::read_10(0, 1),
        Cdb::read_16(0, 1),
        Cdb::new(&[0xa8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]).unwrap(),
        Cdb::write_10(0, 1),
        Cdb::write_16(0, 1),
        Cdb::new(&[0xaa, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]).unwrap(),
        Cdb::write_same_10(0, 1, flags),
        Cdb::write_same_16(0, 1, flags),
        Cdb::unmap(8),
        Cdb::synchronize_cache_10(0, 0),
        Cdb::synchronize_cache_16(0, 0),
    ] {
        assert!(cdb.accesses_blocks(), "{cdb}");
    }
    for cdb in [
        Cdb::test_unit_ready(),
        Cdb::get_lba_status(0, 24),
        Cdb::set_target_port_groups(8),
        Cdb::new(&[0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0]).unwrap(),
        Cdb::new(&[0xc1, 0, 0, 0, 0, 0]).unwrap(),
    ] {
        assert!(!cdb.accesses_blocks(), "{cdb}");
    }
}

/// SPC-4 §6.37, §6.45: in REPORT TARGET PORT GROUPS, the bits above the service action select the header of the
/// data. SET TARGET PORT GROUPS has no such bits.
#[test]
fn commands_of_target_port_groups() {
    let length = 0x0a0b_0c0d;
    for (cdb, bytes, name) in [
        (
            Cdb::report_target_port_groups(PortGroupsHeader::LengthOnly, length),
            "a3 0a 00 00 00 00 0a 0b 0c 0d 00 00",
            "REPORT TARGET PORT GROUPS",
        ),
        (
            Cdb::report_target_port_groups(PortGroupsHeader::Extended, length),
            "a3 2a 00 00 00 00 0a 0b 0c 0d 00 00",
            "REPORT TARGET PORT GROUPS",
        ),
        (
            Cdb::set_target_port_groups(length),
            "a4 0a 00 00 00 00 0a 0b 0c 0d 00 00",
            "SET TARGET PORT GROUPS",
        ),
    ] {
        assert_command(&cdb, bytes, name);
    }
}

fn assert_command(cdb: &Cdb, bytes: &str, name: &str) {
    assert_eq!(cdb.as_bytes(), hex(bytes), "{name}");
    assert_eq!((cdb.operation_name(), cdb.operation().name()), (name, name));
    assert_eq!(cdb.operation().code(), cdb.as_bytes()[0]);
    assert_eq!(cdb.operation_code(), cdb.as_bytes()[0]);
}

#[test]
fn write_same_flags_one_by_one() {
    for (flags, byte) in [
        (WriteSameFlags::default(), 0x00),
        (WriteSameFlags { unmap: true, ..Default::default() }, 0x08),
        (WriteSameFlags { anchor: true, ..Default::default() }, 0x10),
        (WriteSameFlags { ndob: true, ..Default::default() }, 0x01),
    ] {
        assert_eq!(Cdb::write_same_16(0, 1, flags).as_bytes()[1], byte, "{flags:?}");
    }
    let ndob = WriteSameFlags { ndob: true, ..Default::default() };
    assert_eq!(Cdb::write_same_10(0, 1, ndob).as_bytes()[1], 0);
}

#[test]
fn force_unit_access_is_for_reads_and_writes() {
    for cdb in [Cdb::read_10(9, 9), Cdb::write_10(9, 9), Cdb::read_16(9, 9), Cdb::write_16(9, 9)] {
        let mut expected = cdb.as_bytes().to_vec();
        expected[1] |= 0x08;
        assert_eq!(cdb.with_fua().as_bytes(), expected);
    }
    for cdb in [Cdb::test_unit_ready(), Cdb::synchronize_cache_16(0, 0), Cdb::inquiry(36)] {
        assert_eq!(cdb.clone().with_fua(), cdb);
    }
}

/// LAY-03: CDBs have 1 to 260 bytes; longer ones than 16 bytes need an additional header segment.
#[test]
fn lay_03_cdb_lengths() {
    for len in [1, 6, 15, 16, 17, 32, 260] {
        let bytes: Vec<u8> = (0..=255).cycle().take(len).collect();
        assert_eq!(Cdb::new(&bytes).unwrap().as_bytes(), bytes, "{len}");
    }
    assert!(matches!(Cdb::new(&[]), Err(FormatError::TooShort { .. })));
    assert!(matches!(Cdb::new(&[0; 261]), Err(FormatError::TooLong { len: 261, limit: 260, .. })));
}

/// The CDB field of the PDU has 16 bytes; the operation code determines how many of them belong to the CDB.
#[test]
fn cdb_from_its_field() {
    for (code, len) in [(0x00, 6), (0x28, 10), (0x5a, 10), (0x88, 16), (0xa0, 12), (0xc0, 16)] {
        let mut field = [0; 16];
        field[0] = code;
        assert_eq!(Cdb::from_field(&field).as_bytes().len(), len, "{code:#x}");
    }
    let mut field = [0; 16];
    field[..10].copy_from_slice(Cdb::read_10(1, 2).as_bytes());
    assert_eq!(Cdb::from_field(&field), Cdb::read_10(1, 2));
}

#[test]
fn cdb_names_and_text() {
    assert_eq!(Cdb::read_10(1, 2).to_string(), "READ (10)");
    assert_eq!(format!("{:?}", Cdb::test_unit_ready()), "Cdb(00 00 00 00 00 00)");
    let vendor = Cdb::new(&[0xd0, 1]).unwrap();
    assert_eq!(vendor.to_string(), "command 0xd0");
    assert_eq!(vendor.operation_name(), "unknown command");
    let name = |bytes: &[u8]| Cdb::new(bytes).unwrap().operation_name();
    assert_eq!(name(&[0x5e, 0x01]), "PERSISTENT RESERVE IN: READ RESERVATION");
    assert_eq!(name(&[0x5f, 0x06]), "PERSISTENT RESERVE OUT: REGISTER AND IGNORE EXISTING KEY");
    assert_eq!(name(&[0xa3, 0x0a]), "REPORT TARGET PORT GROUPS");
    assert_eq!(name(&[0xa4, 0x0a]), "SET TARGET PORT GROUPS");
    assert_eq!(name(&[0x9e, 0x1f]), "SERVICE ACTION IN (16)");
    assert_eq!(name(&[0x89]), "COMPARE AND WRITE");
}

proptest! {
    #[test]
    fn lun_numbers_round_trip(number in 0..=Lun::MAX_NUMBER) {
        let lun = Lun::new(number).unwrap();
        prop_assert_eq!(Lun::from_bytes(lun.to_bytes()), lun);
        prop_assert_eq!(lun.number(), Some(number));
    }

    #[test]
    fn any_cdb_is_kept_and_named(bytes in prop::collection::vec(any::<u8>(), 1..=260)) {
        let cdb = Cdb::new(&bytes).unwrap();
        prop_assert_eq!(cdb.as_bytes(), &bytes[..]);
        prop_assert!(!cdb.to_string().is_empty());
        prop_assert_eq!(cdb.with_fua().as_bytes().len(), bytes.len());
    }
}

#[test]
fn questions_about_a_unit_tell_no_unit_attention() {
    for cdb in
        [Cdb::inquiry(36), Cdb::request_sense(SenseFormat::Fixed, 252), Cdb::report_luns(0, 16)]
    {
        assert!(cdb.ignores_unit_attention(), "{cdb}");
    }
    for cdb in [Cdb::test_unit_ready(), Cdb::read_16(0, 1), Cdb::synchronize_cache_10(0, 0)] {
        assert!(!cdb.ignores_unit_attention(), "{cdb}");
    }
}
