//! Tests of sense data in both formats.

use super::hex;
use iscsi_pdu::scsi::{AdditionalSense, FormatError, Sense, SenseKey, SenseKeySpecific};

fn sense(text: &str) -> Sense {
    Sense::decode(&hex(text)).unwrap()
}

#[test]
fn fixed_format() {
    let medium_error = sense("f0 00 23 00012345 0a 0000abcd 11 0b 42 80 00 07");
    assert!(!medium_error.deferred);
    assert_eq!(medium_error.key, SenseKey::MediumError);
    assert_eq!(medium_error.additional, AdditionalSense::new(0x11, 0x0b));
    assert!(medium_error.incorrect_length);
    assert_eq!(medium_error.information, Some(0x0001_2345));
    assert_eq!(medium_error.command_specific, Some(0xabcd));
    assert_eq!(medium_error.replaceable_unit, 0x42);
    assert_eq!(medium_error.key_specific, Some(SenseKeySpecific::RetryCount(7)));
    assert_eq!(
        medium_error.to_string(),
        "MEDIUM ERROR: UNRECOVERED READ ERROR - RECOMMEND REASSIGNMENT (03/11/0B)"
    );
}

#[test]
fn fixed_format_without_valid_bits() {
    let attention = sense("70 00 06 deadbeef 0a 00000000 29 00 00 000000");
    assert_eq!(attention.key, SenseKey::UnitAttention);
    assert_eq!(attention.additional, AdditionalSense::POWER_ON_OR_RESET);
    assert_eq!(attention.information, None);
    assert_eq!(attention.command_specific, None);
    assert_eq!(attention.key_specific, None);
    assert_eq!(
        attention.to_string(),
        "UNIT ATTENTION: POWER ON, RESET, OR BUS DEVICE RESET OCCURRED (06/29/00)"
    );
}

/// ADDITIONAL SENSE LENGTH ends the sense data, whatever follows.
#[test]
fn fixed_format_ends_at_its_length() {
    let short = sense("70 00 02 00000000 06 00000000 04 01 00 c00000");
    assert_eq!(short.additional, AdditionalSense::BECOMING_READY);
    assert_eq!(short.key_specific, None);
    let shorter = sense("70 00 02 00000000 05 00000000 04 01");
    assert_eq!(shorter.additional, AdditionalSense::new(0x04, 0x00));
    let shortest = sense("70 00 05");
    assert_eq!(shortest.key, SenseKey::IllegalRequest);
    assert_eq!(shortest.additional, AdditionalSense::NONE);
}

#[test]
fn descriptor_format() {
    let text = "72 05 24 00 00 00 00 1c \
                00 0a 80 00 0000000123456789 \
                02 06 00 00 cf 0002 00 \
                03 02 00 17 \
                05 02 00 20";
    let refused = sense(text);
    assert_eq!(refused.key, SenseKey::IllegalRequest);
    assert_eq!(refused.additional, AdditionalSense::INVALID_FIELD_IN_CDB);
    assert_eq!(refused.information, Some(0x0001_2345_6789));
    assert_eq!(refused.replaceable_unit, 0x17);
    assert!(refused.incorrect_length);
    let field = SenseKeySpecific::FieldPointer { in_cdb: true, bit: Some(7), byte: 2 };
    assert_eq!(refused.key_specific, Some(field));
    assert_eq!(refused.raw[..], hex(text)[..]);
}

#[test]
fn descriptor_format_command_specific() {
    let text = "72 0e 1d 00 00 00 00 18 00 0a 00 00 ffffffffffffffff 01 0a 00 00 0000000000000200";
    let miscompare = sense(text);
    assert_eq!(miscompare.key, SenseKey::Miscompare);
    assert_eq!(miscompare.information, None, "VALID is not set");
    assert_eq!(miscompare.command_specific, Some(0x200));
    assert_eq!(miscompare.to_string(), "MISCOMPARE: MISCOMPARE DURING VERIFY OPERATION (0E/1D/00)");
}

/// A descriptor that is truncated is ignored, and unknown ones are skipped.
#[test]
fn descriptors_cut_short_or_unknown() {
    let cut = sense("72 03 11 00 00 00 00 0c 00 0a 80 00 00000001");
    assert_eq!(cut.information, None);
    let behind = sense("72 03 11 00 00 00 00 0e 80 04 01020304 03 02 00 09 00 0a");
    assert_eq!(behind.replaceable_unit, 9);
    let ends = sense("72 03 11 00 00 00 00 00 03 02 00 09");
    assert_eq!(ends.replaceable_unit, 0, "past ADDITIONAL SENSE LENGTH");
    assert_eq!(sense("72 06").key, SenseKey::UnitAttention);
}

#[test]
fn deferred_errors() {
    for (text, format) in [("71 00 03 00000000 0a 00000000 0c 00", "fixed"), ("73 03 0c 00", "")] {
        let late = sense(text);
        assert!(late.deferred, "{format}");
        assert_eq!(late.to_string(), "deferred MEDIUM ERROR: WRITE ERROR (03/0C/00)");
    }
}

#[test]
fn key_specific_by_key() {
    let specific =
        |key: &str| sense(&format!("72 {key} 00 00 00000008 02060000 a9 1234 00")).key_specific;
    let retries = Some(SenseKeySpecific::RetryCount(0x1234));
    let progress = Some(SenseKeySpecific::Progress(0x1234));
    assert_eq!(specific("00"), progress);
    assert_eq!(specific("01"), retries);
    assert_eq!(specific("02"), progress);
    assert_eq!(specific("04"), retries);
    let field = SenseKeySpecific::FieldPointer { in_cdb: false, bit: Some(1), byte: 0x1234 };
    assert_eq!(specific("05"), Some(field));
    assert_eq!(specific("06"), Some(SenseKeySpecific::Overflow(true)));
    assert_eq!(specific("07"), Some(SenseKeySpecific::Other([0xa9, 0x12, 0x34])));
    let segment = SenseKeySpecific::SegmentPointer { in_segment: true, bit: Some(1), byte: 0x1234 };
    assert_eq!(specific("0a"), Some(segment));
}

#[test]
fn not_sense_data() {
    assert!(matches!(Sense::decode(&[]), Err(FormatError::TooShort { .. })));
    assert!(matches!(Sense::decode(&hex("70 00")), Err(FormatError::TooShort { needed: 3, .. })));
    for code in ["00", "6f 00 00", "74 00 00", "7f 00 00"] {
        let error = Sense::decode(&hex(code)).unwrap_err();
        assert!(matches!(error, FormatError::Field { .. }), "{code}: {error}");
    }
}

#[test]
fn keys_round_trip() {
    for nibble in 0..16 {
        let key = SenseKey::from_nibble(nibble | 0xf0);
        assert_eq!(key.code(), nibble);
        assert_eq!(key.to_string(), key.name());
    }
    assert_eq!(SenseKey::AbortedCommand.to_string(), "ABORTED COMMAND");
}

#[test]
fn reasons() {
    let text = |asc, ascq| AdditionalSense::new(asc, ascq).to_string();
    assert_eq!(text(0x3f, 0x0e), "REPORTED LUNS DATA HAS CHANGED (3F/0E)");
    assert_eq!(text(0x27, 0x07), "SPACE ALLOCATION FAILED WRITE PROTECT (27/07)");
    assert_eq!(text(0x40, 0x85), "DIAGNOSTIC FAILURE ON COMPONENT (40/85)");
    assert_eq!(text(0x80, 0x01), "80/01");
    assert_eq!(sense("72 09 80 01").to_string(), "VENDOR SPECIFIC (09/80/01)");
    for known in [
        AdditionalSense::NONE,
        AdditionalSense::BECOMING_READY,
        AdditionalSense::ASYMMETRIC_ACCESS_STATE_TRANSITION,
        AdditionalSense::INVALID_COMMAND_OPERATION_CODE,
        AdditionalSense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE,
        AdditionalSense::INVALID_FIELD_IN_CDB,
        AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED,
        AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST,
        AdditionalSense::WRITE_PROTECTED,
        AdditionalSense::SPACE_ALLOCATION_FAILED,
        AdditionalSense::POWER_ON_OR_RESET,
        AdditionalSense::CAPACITY_DATA_HAS_CHANGED,
        AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED,
    ] {
        assert!(known.name().is_some(), "{known:?}");
    }
}
