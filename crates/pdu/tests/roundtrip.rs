//! Property tests: any header decodes to an error, or to a value that encodes to the same header with every
//! reserved field zero. Reserved fields that are not zero change nothing (RFC 7143 §11.2).
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test may panic")]

use bytes::Bytes;
use iscsi_pdu::scsi::Cdb;
use iscsi_pdu::{Bhs, Header, InitiatorPdu, ScsiCommand, TargetPdu};
use proptest::prelude::*;

/// Returns a mask over the 48 bytes of a header: the bits that belong to fields, by opcode.
fn fields(opcode: u8) -> [u8; 48] {
    let mut mask = [0; 48];
    let mut show = |range: std::ops::Range<usize>, bits: u8| mask[range].fill(bits);
    show(0..1, 0x3f);
    show(4..8, 0xff);
    let flags = match opcode {
        0x01 => 0xe7,
        0x03 | 0x23 => 0xcf,
        0x04 | 0x24 => 0xc0,
        0x05 => 0x80,
        0x10 => 0x8f,
        0x21 => 0x9e,
        0x25 => 0xc7,
        0x02 | 0x06 => 0xff,
        _ => 0x80,
    };
    show(1..2, flags);
    let ranges: &[(usize, usize)] = match opcode {
        0x00 => &[(8, 32)],
        0x01 => &[(8, 48)],
        0x02 => &[(8, 40)],
        0x03 => &[(2, 4), (8, 22), (24, 32)],
        0x04 => &[(8, 32)],
        0x05 => &[(8, 24), (28, 32), (36, 44)],
        0x06 => &[(16, 22), (24, 32)],
        0x10 => &[(8, 24), (28, 32), (40, 48)],
        0x20 | 0x24 => &[(8, 36)],
        0x21 => &[(2, 4), (8, 10), (16, 48)],
        0x22 => &[(2, 3), (8, 11), (16, 20), (24, 36)],
        0x23 => &[(2, 4), (8, 20), (24, 38)],
        0x25 => &[(3, 4), (8, 48)],
        0x26 => &[(2, 3), (16, 20), (24, 36), (40, 44)],
        0x31 => &[(8, 48)],
        0x32 => &[(8, 20), (24, 44)],
        0x3f => &[(2, 3), (16, 20), (24, 40)],
        _ => &[],
    };
    ranges.iter().for_each(|(from, to)| show(*from..*to, 0xff));
    if opcode == 0x01 {
        mask[2] = 0xf0;
    }
    if matches!(opcode, 0x00..=0x02 | 0x04 | 0x06) {
        mask[0] |= 0x40;
    }
    mask
}

fn header(bytes: [u8; 48]) -> Header {
    Header::from(Bhs::from_bytes(bytes))
}

/// Generates headers that may decode: a known opcode, no AHS, otherwise any bytes.
fn bytes(opcodes: &'static [u8]) -> impl Strategy<Value = [u8; 48]> {
    (prop::sample::select(opcodes), any::<[u8; 32]>(), any::<[u8; 16]>()).prop_map(
        |(opcode, a, b)| {
            let mut bytes = [0; 48];
            bytes[..32].copy_from_slice(&a);
            bytes[32..].copy_from_slice(&b);
            bytes[0] = opcode | (a[0] & 0xc0);
            bytes[4] = 0;
            bytes
        },
    )
}

/// Returns a SCSI Command with F, and these additional header segments.
fn command_with(ahs: Vec<u8>) -> Header {
    let mut bhs = [0; 48];
    bhs[..2].copy_from_slice(&[0x01, 0x80]);
    Header { bhs: Bhs::from_bytes(bhs), ahs: Bytes::from(ahs) }
}

const INITIATOR: &[u8] = &[0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x10];
const TARGET: &[u8] = &[0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x31, 0x32, 0x3f];

fn assert_reserved_is_zero(encoded: &Header) -> Result<(), TestCaseError> {
    let bhs = encoded.bhs.as_bytes();
    let mask = fields(bhs[0] & 0x3f);
    for (at, (byte, mask)) in bhs.iter().zip(mask).enumerate() {
        let allowed = if at == 0 { mask | 0x40 } else { mask };
        prop_assert_eq!(byte & !allowed, 0, "byte {} of {:?}", at, encoded);
    }
    Ok(())
}

/// Returns the fields of `bytes`, with all other bits taken from `noise`.
fn with_noise(mut bytes: [u8; 48], noise: &[u8]) -> [u8; 48] {
    let mask = fields(bytes[0] & 0x3f);
    for ((byte, mask), noise) in bytes.iter_mut().zip(mask).zip(noise) {
        *byte = (*byte & mask) | (noise & !mask);
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// ERR-02: PDUs of an initiator survive a round trip, whatever their reserved fields hold.
    #[test]
    fn initiator_pdus(bytes in bytes(INITIATOR), noise in prop::collection::vec(any::<u8>(), 48)) {
        if let Ok(pdu) = InitiatorPdu::decode(&header(bytes)) {
            let encoded = pdu.encode();
            prop_assert_eq!(encoded.bhs.opcode(), pdu.opcode() as u8);
            assert_reserved_is_zero(&encoded)?;
            prop_assert_eq!(InitiatorPdu::decode(&encoded), Ok(pdu.clone()));
            prop_assert_eq!(InitiatorPdu::decode(&header(with_noise(bytes, &noise))), Ok(pdu));
        }
    }

    /// ERR-02: PDUs of a target survive a round trip, whatever their reserved fields hold.
    #[test]
    fn target_pdus(bytes in bytes(TARGET), noise in prop::collection::vec(any::<u8>(), 48)) {
        if let Ok(pdu) = TargetPdu::decode(&header(bytes)) {
            let encoded = pdu.encode();
            prop_assert_eq!(encoded.bhs.opcode(), pdu.opcode() as u8);
            assert_reserved_is_zero(&encoded)?;
            prop_assert_eq!(TargetPdu::decode(&encoded), Ok(pdu.clone()));
            prop_assert_eq!(TargetPdu::decode(&header(with_noise(bytes, &noise))), Ok(pdu));
        }
    }

    /// ERR-14: an opcode of the other direction, or an unassigned one, is an error.
    #[test]
    fn opcodes_have_a_direction(bytes in any::<[u8; 32]>(), opcode in 0u8..64) {
        let mut bhs = [0; 48];
        bhs[..32].copy_from_slice(&bytes);
        bhs[0] = opcode;
        if !TARGET.contains(&opcode) {
            prop_assert!(TargetPdu::decode(&header(bhs)).is_err());
        }
        if !INITIATOR.contains(&opcode) {
            prop_assert!(InitiatorPdu::decode(&header(bhs)).is_err());
        }
    }

    /// Additional header segments of any length and bytes are decoded or refused; a decoded value survives a
    /// round trip.
    #[test]
    fn additional_header_segments(
        segments in prop::collection::vec((0u8..4, prop::collection::vec(any::<u8>(), 0..24)), 0..3),
        cut in 0usize..8,
    ) {
        let mut ahs = Vec::new();
        for (kind, content) in &segments {
            ahs.extend(u16::try_from(content.len()).unwrap().to_be_bytes());
            ahs.push(*kind);
            ahs.extend(content);
            ahs.resize(ahs.len().next_multiple_of(4), 0xff);
        }
        ahs.truncate(ahs.len().saturating_sub(cut));
        if let Ok(pdu) = InitiatorPdu::decode(&command_with(ahs)) {
            prop_assert_eq!(InitiatorPdu::decode(&pdu.encode()), Ok(pdu));
        }
    }

    /// Additional header segments of any bytes cause no panic.
    #[test]
    fn any_bytes_as_segments(ahs in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = InitiatorPdu::decode(&command_with(ahs));
    }

    /// A CDB of every length, with and without a read length, survives a round trip.
    #[test]
    fn every_cdb_comes_back(
        cdb in prop::collection::vec(any::<u8>(), 17..=260),
        read_length in any::<Option<u32>>(),
    ) {
        let InitiatorPdu::ScsiCommand(command) =
            InitiatorPdu::decode(&command_with(Vec::new())).unwrap()
        else { unreachable!() };
        let command = ScsiCommand {
            cdb: Cdb::new(&cdb).unwrap(),
            bidirectional_read_length: read_length,
            ..command
        };
        let header = command.encode();
        prop_assert_eq!(header.bhs.ahs_len(), header.ahs.len());
        prop_assert_eq!(ScsiCommand::decode(&header), Ok(command));
    }
}
