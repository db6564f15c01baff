//! The common format of all pages (SPC-4 §7.8.2).

use crate::scsi::error::FormatError;
use crate::scsi::fields::Fields;

/// Length of the header that every page begins with, bytes.
pub(super) const HEADER_LEN: usize = 4;

/// Returns the length of a page in bytes, with its header, as the header reports it. The length exceeds
/// that of `data` if `data` is truncated. `None` if `data` is another page, or too short.
pub fn page_len(data: &[u8], page: u8) -> Option<usize> {
    let &[_, code, high, low, ..] = data else { return None };
    (code == page).then(|| HEADER_LEN + usize::from(u16::from_be_bytes([high, low])))
}

/// Returns the page in `data` with its header, cut to the length in the header.
pub(super) fn page<'a>(
    data: &'a [u8],
    code: u8,
    format: &'static str,
) -> Result<Fields<'a>, FormatError> {
    let fields = Fields::new(data, format, HEADER_LEN)?;
    let found = fields.u8(1);
    if found != code {
        return Err(FormatError::Field { format, field: "PAGE CODE", value: found.into() });
    }
    Ok(fields.cut(HEADER_LEN + usize::from(fields.u16(2))))
}
