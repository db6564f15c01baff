//! Encodes and decodes the escapes in parts of a URL.

use iscsi_pdu::TargetAddress;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use super::error::UrlError;

/// Characters that would end a part of a URL, or begin an escape.
const SPECIAL: &AsciiSet = &CONTROLS.add(b' ').add(b'#').add(b'%').add(b'/').add(b'?').add(b'@');

/// Encodes the characters that would end a part of a URL as escapes. Letters beyond ASCII stay readable.
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

/// Decodes the escapes in a part of a URL. `part` is the name of the part in an error.
pub(super) fn decode(text: &str, part: &'static str) -> Result<String, UrlError> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| UrlError::Encoding(part))
}

/// Returns whether the text of a portal names a port.
pub(super) fn names_port(text: &str) -> bool {
    let Ok(text) = decode(text, "portal") else { return false };
    let address = text.split(',').next().unwrap_or_default();
    match address.rsplit_once(']') {
        Some((_, port)) => port.starts_with(':'),
        // More colons are those of an IPv6 address.
        None => address.bytes().filter(|byte| *byte == b':').count() == 1,
    }
}

/// Parses a portal: `HOST[:PORT]`, with escapes. A portal group tag, as in lists of targets, is ignored, because two
/// spellings of one portal must not count as two portals.
pub(super) fn parse_portal(text: &str) -> Result<TargetAddress, UrlError> {
    let text = decode(text, "portal")?;
    if text.is_empty() || text.starts_with(':') {
        return Err(UrlError::NoHost);
    }
    if let Some((_, tag)) = text.rsplit_once(',')
        && tag.parse::<u16>().is_err()
    {
        return Err(UrlError::PortalList(text));
    }
    Ok(TargetAddress { portal_group_tag: None, ..TargetAddress::parse(&text)? })
}
