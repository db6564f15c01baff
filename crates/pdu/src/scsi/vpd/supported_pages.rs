//! Page 00: which vital product data pages there are (SPC-4 §7.8).

use super::page::{HEADER_LEN, page};
use crate::scsi::FormatError;

/// Supported VPD pages (SPC-4 §7.8).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct SupportedPages {
    /// The page codes in the order they came; the standard demands rising order.
    pub pages: Vec<u8>,
}

impl SupportedPages {
    /// The page's code.
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
