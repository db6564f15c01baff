//! Page 80: the vendor's serial number of the unit (SPC-4 §7.8).

use super::page::{HEADER_LEN, page};
use crate::scsi::{FormatError, fields::text_of};
use std::fmt;

/// Unit Serial Number (SPC-4 §7.8).
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct UnitSerialNumber {
    /// The serial number without the blanks and NULs around it; empty if there is none.
    pub serial: String,
}

impl UnitSerialNumber {
    /// The code of the page.
    pub const PAGE: u8 = 0x80;

    /// Reads the page. Bytes outside printable ASCII are written as, for example, `\x81`, and a `\` before an
    /// `x` as `\x5c`, so that different serial numbers have different texts.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooShort`] below four bytes, [`FormatError::Field`] for another page.
    pub fn decode(data: &[u8]) -> Result<Self, FormatError> {
        let page = page(data, Self::PAGE, "unit serial number page")?;
        Ok(Self { serial: text_of(page.tail(HEADER_LEN)) })
    }
}

impl fmt::Display for UnitSerialNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.serial)
    }
}
