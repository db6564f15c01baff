//! Decodes any text as a list of key-value pairs. The result must be a list or an error, without a panic. The
//! same holds for numbers and binary values.
#![no_main]

use iscsi_fuzz as _;
use iscsi_pdu::keys::{
    Key, decode_binary, decode_pairs, encode_base64, encode_hex, parse_boolean, parse_number,
};
use iscsi_pdu::{IscsiName, TargetAddress};
use iscsi_session::decode_send_targets;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = decode_send_targets(data);
    for (key, value) in decode_pairs(data).unwrap_or_default() {
        let _ = Key::from_name(key);
        let _ = parse_number(value);
        let _ = parse_boolean(value);
        let _ = IscsiName::parse(value);
        let _ = TargetAddress::parse(value);
        if let Ok(binary) = decode_binary(value) {
            assert_eq!(decode_binary(&encode_hex(&binary)).ok().as_deref(), Some(&*binary));
            assert_eq!(decode_binary(&encode_base64(&binary)).ok().as_deref(), Some(&*binary));
        }
    }
});
