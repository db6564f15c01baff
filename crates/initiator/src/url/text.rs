//! Parts of a URL as text: what its escapes stand for.

use iscsi_pdu::TargetAddress;
use percent_encoding::percent_decode_str;

use super::error::UrlError;

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
