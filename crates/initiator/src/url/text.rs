//! Parts of a URL as text: what its escapes stand for.

use iscsi_pdu::TargetAddress;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use super::error::UrlError;

/// What would end a part of a URL, or begin an escape.
const SPECIAL: &AsciiSet = &CONTROLS.add(b' ').add(b'#').add(b'%').add(b'/').add(b'?').add(b'@');

/// The text of a part with escapes for what would not be read as a part of it. Letters beyond ASCII stay readable.
pub(super) fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for letter in text.chars() {
        let mut bytes = [0; 4];
        let letter = &*letter.encode_utf8(&mut bytes);
        match letter.is_ascii() {
            true => encoded.extend(utf8_percent_encode(letter, SPECIAL)),
            false => encoded.push_str(letter),
        }
    }
    encoded
}

/// The text of a part with its escapes decoded; `part` is what an error calls it.
pub(super) fn decode(text: &str, part: &'static str) -> Result<String, UrlError> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| UrlError::Encoding(part))
}

/// A portal: `HOST[:PORT]`, with escapes. A tag counts for nothing: it would make two portals of one.
pub(super) fn parse_portal(text: &str) -> Result<TargetAddress, UrlError> {
    let text = decode(text, "portal")?;
    if text.is_empty() || text.starts_with(':') {
        return Err(UrlError::NoHost);
    }
    Ok(TargetAddress { portal_group_tag: None, ..TargetAddress::parse(&text)? })
}
