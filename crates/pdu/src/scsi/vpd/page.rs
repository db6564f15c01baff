//! The common format of all pages (SPC-4 §7.8.2).

use crate::scsi::error::FormatError;
use crate::scsi::fields::Fields;

/// Length of the header that every page begins with, bytes.
pub(super) const HEADER_LEN: usize = 4;

/// Returns the length of a page by its header, header included, bytes: more than `data` if `data`
/// is only its beginning. `None` if it is another page, or too short to say.
pub fn page_len(data: &[u8], page: u8) -> Option<usize> {
    let &[_, code, high, low, ..] = data else { return None };
    (code == page).then(|| HEADER_LEN + usize::from(u16::from_be_bytes([high, low])))
}

/// The page in `data`, header included, cut to the length it gives itself.
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
