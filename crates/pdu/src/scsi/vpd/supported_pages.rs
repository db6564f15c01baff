//! Page 00: the list of vital product data pages (SPC-4 §7.8).

use super::page::{HEADER_LEN, page};
use crate::scsi::FormatError;

/// Supported VPD pages (SPC-4 §7.8).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct SupportedPages {
    /// The page codes in the order of the page; the standard requires ascending order.
    pub pages: Vec<u8>,
}

impl SupportedPages {
    /// The code of the page.
    pub const PAGE: u8 = 0x00;

    /// Reads the page.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooShort`] below four bytes, [`FormatError::Field`] for another page.
    pub fn decode(data: &[u8]) -> Result<Self, FormatError> {
        let page = page(data, Self::PAGE, "supported VPD pages")?;
        Ok(Self { pages: page.tail(HEADER_LEN).to_vec() })
    }

    /// Returns whether the device has a page.
    pub fn contains(&self, page: u8) -> bool {
        self.pages.contains(&page)
    }
}
