//! Decodes any header. The result must be a PDU or an error, without a panic. A decoded PDU must encode to the
//! same meaning.
#![no_main]

use iscsi_fuzz as _;
use iscsi_pdu::{Bhs, Digest, FrameLayout, Header, InitiatorPdu, TargetPdu, rejected_header};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((bhs, ahs)) = data.split_first_chunk::<{ Bhs::LEN }>() else { return };
    let bhs = Bhs::from_bytes(*bhs);
    let header = Header { bhs, ahs: bytes::Bytes::copy_from_slice(ahs) };
    let _ = FrameLayout::of(&bhs, Digest::Crc32c, Digest::Crc32c);
    let _ = rejected_header(data);
    if let Ok(pdu) = TargetPdu::decode(&header) {
        assert_eq!(TargetPdu::decode(&pdu.encode()), Ok(pdu));
    }
    if let Ok(pdu) = InitiatorPdu::decode(&header) {
        assert_eq!(InitiatorPdu::decode(&pdu.encode()), Ok(pdu));
    }
});
