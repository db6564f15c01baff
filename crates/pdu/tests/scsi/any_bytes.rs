//! Property tests of the decoders with any bytes that a target may send.

use iscsi_pdu::scsi::reservation::{
    FullStatus, HeldReservation, RegisteredKeys, ReservationCapabilities,
};
use iscsi_pdu::scsi::vpd::{
    BlockDeviceCharacteristics, BlockLimits, DeviceIdentification, LogicalBlockProvisioning,
    SupportedPages, UnitSerialNumber,
};
use iscsi_pdu::scsi::{
    LbaStatus, ModeParameters, ReadCapacity10, ReadCapacity16, ReportLuns, Sense, StandardInquiry,
    TargetPortGroups,
};
use proptest::prelude::*;

/// Generates any bytes, with a first and a second byte that some decoder accepts.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let first = prop_oneof![any::<u8>(), 0x70..0x74u8];
    let second =
        prop_oneof![any::<u8>(), prop::sample::select(vec![0x00, 0x80, 0x83, 0xb0, 0xb1, 0xb2])];
    let rest = prop::collection::vec(prop_oneof![any::<u8>(), 0..16u8], 0..300);
    (first, second, rest).prop_map(|(first, second, rest)| {
        let mut bytes = vec![first, second];
        bytes.extend(rest);
        bytes
    })
}

/// Decodes every prefix of `bytes` with `decode`, as an allocation length may cut parameter data, and checks
/// that more bytes never turn a success into an error.
fn decode_all_beginnings<T, E>(bytes: &[u8], decode: impl Fn(&[u8]) -> Result<T, E>) {
    let mut usable = false;
    for len in 0..=bytes.len() {
        let good = decode(&bytes[..len]).is_ok();
        assert!(good || !usable, "good with {} bytes, not with {len}", len - 1);
        usable = good;
    }
}

proptest! {
    #[test]
    fn no_decoder_panics(bytes in bytes()) {
        decode_all_beginnings(&bytes, SupportedPages::decode);
        decode_all_beginnings(&bytes, UnitSerialNumber::decode);
        decode_all_beginnings(&bytes, DeviceIdentification::decode);
        decode_all_beginnings(&bytes, BlockLimits::decode);
        decode_all_beginnings(&bytes, BlockDeviceCharacteristics::decode);
        decode_all_beginnings(&bytes, LogicalBlockProvisioning::decode);
        decode_all_beginnings(&bytes, StandardInquiry::decode);
        decode_all_beginnings(&bytes, ReportLuns::decode);
        decode_all_beginnings(&bytes, LbaStatus::decode);
        decode_all_beginnings(&bytes, TargetPortGroups::decode);
        decode_all_beginnings(&bytes, RegisteredKeys::decode);
        decode_all_beginnings(&bytes, ReservationCapabilities::decode);
        decode_all_beginnings(&bytes, FullStatus::decode);
        decode_all_beginnings(&bytes, ModeParameters::decode_6);
        decode_all_beginnings(&bytes, ModeParameters::decode_10);
        decode_all_beginnings(&bytes, Sense::decode);
    }

    #[test]
    fn sense_keeps_its_bytes_and_has_words(bytes in bytes()) {
        if let Ok(sense) = Sense::decode(&bytes) {
            prop_assert_eq!(&sense.raw[..], &bytes[..]);
            prop_assert_eq!(sense.deferred, bytes[0] & 1 == 1);
            prop_assert!(sense.to_string().contains(sense.key.name()));
        }
    }

    #[test]
    fn lists_hold_no_more_than_came(bytes in bytes()) {
        if let Ok(report) = ReportLuns::decode(&bytes) {
            prop_assert!(report.luns.len() * 8 + 8 <= bytes.len());
        }
        if let Ok(status) = LbaStatus::decode(&bytes) {
            prop_assert!(status.extents.len() * 16 + 8 <= bytes.len());
        }
        if let Ok(answer) = TargetPortGroups::decode(&bytes) {
            let held: usize = answer.groups.iter().map(|group| 8 + 4 * group.ports.len()).sum();
            prop_assert!(held + 4 <= bytes.len());
        }
        if let Ok(mode) = ModeParameters::decode_6(&bytes) {
            let held: usize = mode.pages().map(|page| page.parameters.len() + 2).sum();
            prop_assert!(held + 4 <= bytes.len());
        }
    }

    /// Text from a target is safe to print: no control characters, no escape sequences.
    #[test]
    fn texts_are_printable(bytes in bytes(), text: Vec<u8>) {
        let mut page = vec![0, 0x80, 0, 0xff];
        page.extend(&text);
        let serial = UnitSerialNumber::decode(&page).unwrap();
        prop_assert!(serial.serial.chars().all(|c| c == ' ' || c.is_ascii_graphic()));
        if let Ok(page) = DeviceIdentification::decode(&bytes) {
            for name in &page.designators {
                prop_assert!(!name.to_string().chars().any(char::is_control));
            }
        }
    }

    /// The bytes of a serial number can be recovered from its text, so two serial numbers never have the same
    /// text.
    #[test]
    fn a_serial_number_keeps_all_its_bytes(
        inner in prop::collection::vec(prop::sample::select(&b"\\\\xx58c1 \0\x81"[..]), 0..12),
    ) {
        let bytes = [&b"<"[..], &inner, b">"].concat();
        let page = [&[0, 0x80, 0, 0xff][..], &bytes].concat();
        let serial = UnitSerialNumber::decode(&page).unwrap().serial;
        let mut parts = serial.split(r"\x");
        let mut read = parts.next().unwrap().as_bytes().to_vec();
        for part in parts {
            read.push(u8::from_str_radix(&part[..2], 16).unwrap());
            read.extend(&part.as_bytes()[2..]);
        }
        prop_assert_eq!(read, bytes);
    }

    /// Names of initiators are safe to print, and only ADDITIONAL LENGTH decides whether READ RESERVATION
    /// data report a reservation.
    #[test]
    fn registrations_are_printable(bytes in bytes(), reservation: [u8; 24]) {
        if let Ok(status) = FullStatus::decode(&bytes) {
            for registrant in &status.registrants {
                prop_assert!(!registrant.initiator_port.to_string().chars().any(char::is_control));
            }
        }
        for len in 0..=reservation.len() {
            if let Ok(held) = HeldReservation::decode(&reservation[..len]) {
                prop_assert_eq!(held.reservation.is_some(), reservation[4..8] != [0; 4]);
            }
        }
    }

    #[test]
    fn capacity_is_total(last_lba: u64, block_length in 1..=1u32 << 20, rest: [u8; 20]) {
        let mut data = last_lba.to_be_bytes().to_vec();
        data.extend(block_length.to_be_bytes());
        data.extend(rest);
        let capacity = ReadCapacity16::decode(&data).unwrap();
        prop_assert_eq!(capacity.last_lba, last_lba);
        prop_assert!(capacity.blocks() >= last_lba);
        prop_assert!(capacity.physical_block_length() >= u64::from(block_length));
        let exact = u128::from(capacity.blocks()) * u128::from(block_length);
        prop_assert_eq!(capacity.bytes().map(u128::from), Some(exact).filter(|&n| n < 1 << 64));
    }

    #[test]
    fn small_capacity_is_total(last_lba: u32, block_length in 1..=1u32 << 20) {
        let mut data = last_lba.to_be_bytes().to_vec();
        data.extend(block_length.to_be_bytes());
        let capacity = ReadCapacity10::decode(&data).unwrap();
        let blocks = (last_lba != u32::MAX).then(|| u64::from(last_lba) + 1);
        prop_assert_eq!(capacity.blocks(), blocks);
    }
}
