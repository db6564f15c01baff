//! Tests of persistent reservations, byte by byte as in the figures of SPC-4.

use super::hex;
use iscsi_pdu::scsi::FormatError;
use iscsi_pdu::scsi::reservation::{
    FullStatus, HeldReservation, PersistentReserveIn, PersistentReserveOut, RegisteredKeys,
    ReservationCapabilities, ReservationKey, ReservationType, TransportId,
};

const KEY: ReservationKey = ReservationKey(0x0102_0304_0506_0708);
const OTHER: ReservationKey = ReservationKey(0xf1f2_f3f4_f5f6_f7f8);
const KIND: ReservationType = ReservationType::ExclusiveAccessRegistrantsOnly;

#[test]
fn keys_as_text() {
    for (text, key) in [
        ("0x1", 1),
        ("0X1a2B", 0x1a2b),
        ("0x0102030405060708", KEY.0),
        ("0xffffffffffffffff", u64::MAX),
        ("0x0", 0),
    ] {
        let read: ReservationKey = text.parse().unwrap();
        assert_eq!(read, ReservationKey(key));
        assert_eq!(read.to_string().parse(), Ok(read));
        assert_eq!(read.is_none(), key == 0);
    }
    assert_eq!(ReservationKey(0x1a2b).to_string(), "0x0000000000001a2b");
    for text in ["", "0x", "1a2b", "12", "0x11112222333344445", "0x+1", "0x1_2", "0xg", " 0x1"] {
        let error = text.parse::<ReservationKey>().unwrap_err().to_string();
        assert!(error.contains(&format!("{text:?}")) && error.contains("0x1a2b"), "{error}");
    }
}

/// SPC-4 §6.15.3.4: checks the code and the name of each type, and whether registrants have the access of the
/// holder.
#[test]
fn types() {
    for (code, kind, words, registrants) in [
        (1, ReservationType::WriteExclusive, "write exclusive", false),
        (3, ReservationType::ExclusiveAccess, "exclusive access", false),
        (
            5,
            ReservationType::WriteExclusiveRegistrantsOnly,
            "write exclusive, registrants only",
            true,
        ),
        (6, KIND, "exclusive access, registrants only", true),
        (
            7,
            ReservationType::WriteExclusiveAllRegistrants,
            "write exclusive, all registrants",
            true,
        ),
        (
            8,
            ReservationType::ExclusiveAccessAllRegistrants,
            "exclusive access, all registrants",
            true,
        ),
        (2, ReservationType::Reserved(2), "reserved type 0x2", false),
        (15, ReservationType::Reserved(15), "reserved type 0xf", false),
    ] {
        assert_eq!(ReservationType::from_code(code), kind);
        assert_eq!(ReservationType::from_code(code | 0xf0), kind, "the scope is no type");
        assert_eq!((kind.code(), kind.admits_registrants()), (code, registrants));
        assert_eq!(kind.to_string(), words);
    }
}

#[test]
fn questions() {
    for (question, bytes, name) in [
        (PersistentReserveIn::ReadKeys, "5e 00", "READ KEYS"),
        (PersistentReserveIn::ReadReservation, "5e 01", "READ RESERVATION"),
        (PersistentReserveIn::ReportCapabilities, "5e 02", "REPORT CAPABILITIES"),
        (PersistentReserveIn::ReadFullStatus, "5e 03", "READ FULL STATUS"),
    ] {
        let cdb = question.cdb(0x0102);
        assert_eq!(cdb.as_bytes(), hex(&format!("{bytes} 00 00 00 00 00 01 02 00")));
        assert_eq!(cdb.operation_name(), format!("PERSISTENT RESERVE IN: {name}"));
        assert!(cdb.reads_parameter_data());
    }
}

/// PRS-01: checks the command of each service action, and the 24 bytes of its parameter list.
#[test]
fn prs_01_changes() {
    const NONE: &str = "0000000000000000";
    let (key, other) = ("0102030405060708", "f1f2f3f4f5f6f7f8");
    let register = |persist, all| PersistentReserveOut::Register {
        key: KEY,
        new_key: OTHER,
        persist_through_power_loss: persist,
        all_target_ports: all,
    };
    let ignore = PersistentReserveOut::RegisterAndIgnoreExistingKey {
        new_key: OTHER,
        persist_through_power_loss: true,
        all_target_ports: true,
    };
    let (reservation_type, victim) = (KIND, OTHER);
    for (change, action, list, flags) in [
        (register(false, false), "00 00", [key, other], "00"),
        (register(true, false), "00 00", [key, other], "01"),
        (register(false, true), "00 00", [key, other], "04"),
        (ignore, "06 00", [NONE, other], "05"),
        (PersistentReserveOut::Reserve { key: KEY, reservation_type }, "01 06", [key, NONE], "00"),
        (PersistentReserveOut::Release { key: KEY, reservation_type }, "02 06", [key, NONE], "00"),
        (PersistentReserveOut::Clear { key: KEY }, "03 00", [key, NONE], "00"),
        (
            PersistentReserveOut::Preempt { key: KEY, victim, reservation_type },
            "04 06",
            [key, other],
            "00",
        ),
        (
            PersistentReserveOut::PreemptAndAbort { key: KEY, victim, reservation_type },
            "05 06",
            [key, other],
            "00",
        ),
    ] {
        let cdb = change.cdb();
        assert_eq!(cdb.as_bytes(), hex(&format!("5f {action} 00 00 00 00 00 18 00")), "{cdb}");
        let bytes = format!("{} 00000000 {flags} 000000", list.concat());
        assert_eq!(change.encode()[..], hex(&bytes)[..], "{cdb}");
        assert!(cdb.operation_name().starts_with("PERSISTENT RESERVE OUT: "), "{cdb}");
        assert!(!cdb.reads_parameter_data());
    }
    assert_eq!(ignore.cdb().operation_name().rsplit_once(": ").unwrap().1, IGNORE);
}

const IGNORE: &str = "REGISTER AND IGNORE EXISTING KEY";

/// PRS-02: wherever the allocation length cuts the list, the keys before the cut are decoded.
#[test]
fn prs_02_keys_that_are_cut_are_left_out() {
    let whole = hex("0000002a 00000010 0102030405060708 f1f2f3f4f5f6f7f8");
    for len in 8..=whole.len() {
        let answer = RegisteredKeys::decode(&whole[..len]).unwrap();
        assert_eq!(answer.generation, 42);
        assert_eq!(answer.keys, [KEY, OTHER][..(len - 8) / 8]);
        assert_eq!(answer.is_truncated(), len < 24, "{len} bytes");
        assert_eq!(answer.allocation_length(), 24);
        assert_eq!(answer.contains(OTHER), len == 24);
    }
    assert!(RegisteredKeys::decode(&whole[..7]).is_err());
    let none = RegisteredKeys::decode(&hex("00000001 00000000 0102030405060708")).unwrap();
    assert_eq!((none.keys.len(), none.is_truncated()), (0, false));
    let many = RegisteredKeys::decode(&hex("00000001 ffffffff 0102030405060708")).unwrap();
    assert_eq!((many.keys.len(), many.is_truncated()), (1, true));
    assert_eq!(many.allocation_length(), u16::MAX);
}

/// PRS-03: truncated parameter data that report a reservation are an error, and are never decoded as "none".
#[test]
fn prs_03_a_reservation_that_is_cut_is_an_error() {
    let whole = hex("00000007 00000010 0102030405060708 00000000 00 06 0000");
    let answer = HeldReservation::decode(&whole).unwrap();
    let held = answer.reservation.unwrap();
    assert_eq!(answer.generation, 7);
    assert_eq!((held.key, held.reservation_type, held.scope), (KEY, KIND, 0));
    for len in 0..whole.len() {
        let error = HeldReservation::decode(&whole[..len]).unwrap_err();
        assert!(matches!(error, FormatError::TooShort { .. }), "{error}");
    }
    let none = HeldReservation::decode(&hex("00000007 00000000")).unwrap();
    assert_eq!((none.generation, none.reservation), (7, None));
    let error = HeldReservation::decode(&hex("00000007 0000000f 0102030405060708")).unwrap_err();
    assert!(matches!(error, FormatError::Field { field: "ADDITIONAL LENGTH", .. }), "{error}");
}

#[test]
fn capabilities() {
    let decode = |text: &str| ReservationCapabilities::decode(&hex(text)).unwrap();
    let lio = decode("0008 15 f1 eA 01 0000");
    assert!(lio.compatible_reservation_handling && lio.all_target_ports);
    assert!(lio.persist_through_power_loss && lio.persist_through_power_loss_activated);
    assert!(!lio.specify_initiator_ports);
    assert_eq!(lio.allow_commands, 7);
    assert!(ReservationType::ALL.iter().all(|kind| lio.supports(*kind) == Some(true)));
    assert_eq!(lio.supports(ReservationType::Reserved(2)), Some(false));
    assert!(decode("0008 08 00 00 00 0000").specify_initiator_ports);
    for (mask, kind) in [
        ("02 00", ReservationType::WriteExclusive),
        ("08 00", ReservationType::ExclusiveAccess),
        ("20 00", ReservationType::WriteExclusiveRegistrantsOnly),
        ("40 00", KIND),
        ("80 00", ReservationType::WriteExclusiveAllRegistrants),
        ("00 01", ReservationType::ExclusiveAccessAllRegistrants),
    ] {
        let one = decode(&format!("0008 00 80 {mask} 0000"));
        for other in ReservationType::ALL {
            assert_eq!(one.supports(other), Some(other == kind), "{other}");
        }
    }
    for silent in ["0008 00 00 ff ff 0000", "0008 00 80", "0004 00 80 ff ff", "0008 00 80 00 00"] {
        assert_eq!(decode(silent).supports(KIND), None, "{silent}");
    }
    assert!(ReservationCapabilities::decode(&hex("0008 00")).is_err());
}

/// Returns the name of an initiator as in a TransportID: ended by a zero, padded to four bytes.
fn name(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a full status descriptor with this byte 12 and this TransportID.
fn descriptor(flags: &str, transport_id: &str) -> String {
    let len = hex(transport_id).len();
    format!("0102030405060708 00000000 {flags} 06 00000000 0203 {len:08x} {transport_id}")
}

fn iscsi(format: &str, text: &str) -> String {
    let name = name(text);
    format!("{format} 00 {:04x} {name}", name.len() / 2)
}

#[test]
fn full_status() {
    let with_isid = iscsi("45", "iqn.2026-01.org.example:host,i,0x80a1b2c30001");
    let alone = iscsi("05", "iqn.2026-01.org.example:host");
    let body = [descriptor("01", &with_isid), descriptor("02", &alone)].concat();
    let whole = hex(&format!("00000009 {:08x} {body}", hex(&body).len()));
    let answer = FullStatus::decode(&whole).unwrap();
    assert_eq!((answer.generation, answer.is_truncated()), (9, false));
    assert_eq!(usize::from(answer.allocation_length()), whole.len());
    let [holder, other] = answer.registrants.as_slice() else { panic!("{answer:?}") };
    assert_eq!((holder.key, holder.relative_target_port), (KEY, 0x203));
    assert_eq!(holder.holds.map(|held| held.reservation_type), Some(KIND));
    assert!(other.all_target_ports && !holder.all_target_ports);
    assert_eq!(other.holds, None, "the type of one that holds nothing means nothing");
    let text = holder.initiator_port.to_string();
    assert_eq!(text, "iqn.2026-01.org.example:host,i,0x80a1b2c30001");
    let TransportId::Iscsi { name, isid } = &holder.initiator_port else { panic!("{text}") };
    assert_eq!(
        (name.as_str(), isid.as_deref()),
        ("iqn.2026-01.org.example:host", Some("80a1b2c30001"))
    );
    assert_eq!(other.initiator_port.to_string(), "iqn.2026-01.org.example:host");

    let first = 8 + hex(&descriptor("01", &with_isid)).len();
    for len in 8..whole.len() {
        let answer = FullStatus::decode(&whole[..len]).unwrap();
        assert_eq!(answer.registrants.len(), usize::from(len >= first), "{len} bytes");
        assert!(answer.is_truncated(), "{len} bytes");
    }
}

/// PRS-02: a TransportID may be longer than the data, of another transport, or contain arbitrary bytes.
#[test]
fn prs_02_no_length_of_a_registration_is_trusted() {
    let one = |transport_id: &str| {
        let body = descriptor("00", transport_id);
        let data = hex(&format!("00000009 {:08x} {body}", hex(&body).len()));
        FullStatus::decode(&data).unwrap().registrants.remove(0).initiator_port.to_string()
    };
    assert_eq!(one("06 00 0000 5000c500a1b2c3d4"), "protocol 6: 060000005000c500a1b2c3d4");
    assert_eq!(one(""), "protocol 0: ");
    assert_eq!(one("05"), "protocol 5: 05");
    assert_eq!(one("05 00 ffff 69716e2e"), "iqn.");
    assert_eq!(one("05 00 0004 1b5b326a"), r"\x1b[2j", "safe to print");
    assert_eq!(one("05 00 0008 00000000 61626300"), "protocol 5: 050000080000000061626300");
    let longer = hex(
        "00000009 00000020 0102030405060708 00000000 01 06 00000000 0203 ffffffff 45000004 69716e00",
    );
    let answer = FullStatus::decode(&longer).unwrap();
    assert_eq!((answer.registrants.len(), answer.is_truncated()), (0, true));
}
