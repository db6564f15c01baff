//! MODE SENSE parameter data: write protection, cache and mode pages (SPC-4 §7.5, SBC-3).

use super::{
    FormatError,
    fields::{Fields, to_usize},
};
use bytes::Bytes;

/// Parameter data of MODE SENSE (6) or (10) of a disk (SPC-4 §7.5, SBC-3).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ModeParameters {
    /// MEDIUM TYPE; 0 for a disk.
    pub medium_type: u8,
    /// WP: writes are refused.
    pub write_protected: bool,
    /// DPOFUA: READ and WRITE may set FUA.
    pub force_unit_access: bool,
    pages: Bytes,
}

impl ModeParameters {
    /// The page code of MODE SENSE that asks for all pages (SPC-4).
    pub const ALL_PAGES: u8 = 0x3f;

    /// Reads the parameter data of MODE SENSE (6), which may be truncated after the header.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooShort`] below the header's four bytes.
    pub fn decode_6(data: &[u8]) -> Result<Self, FormatError> {
        let fields = Fields::new(data, "MODE SENSE (6) data", 4)?;
        let header = Header {
            medium_type: fields.u8(1),
            device_specific: fields.u8(2),
            pages_at: 4 + usize::from(fields.u8(3)),
            end: 1 + usize::from(fields.u8(0)),
        };
        Ok(Self::behind(&header, fields))
    }

    /// Reads the parameter data of MODE SENSE (10), which may be truncated after the header.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooShort`] below the header's eight bytes.
    pub fn decode_10(data: &[u8]) -> Result<Self, FormatError> {
        let fields = Fields::new(data, "MODE SENSE (10) data", 8)?;
        let header = Header {
            medium_type: fields.u8(2),
            device_specific: fields.u8(3),
            pages_at: 8 + usize::from(fields.u16(6)),
            end: 2 + usize::from(fields.u16(0)),
        };
        Ok(Self::behind(&header, fields))
    }

    fn behind(header: &Header, fields: Fields<'_>) -> Self {
        Self {
            medium_type: header.medium_type,
            write_protected: header.device_specific & 0x80 != 0,
            force_unit_access: header.device_specific & 0x10 != 0,
            pages: Bytes::copy_from_slice(fields.cut(header.end).tail(header.pages_at)),
        }
    }

    /// Returns the mode pages in the order of the data; a truncated page ends the iteration.
    pub fn pages(&self) -> ModePages<'_> {
        ModePages { rest: &self.pages }
    }

    /// Returns WCE of the caching page: whether a write may end before its data is on the medium, so that
    /// SYNCHRONIZE CACHE is needed. `None` if the data lack the page.
    pub fn write_cache_enabled(&self) -> Option<bool> {
        let mut pages = self.pages();
        let caching = pages.find(|page| page.code == CACHING && page.subpage == 0)?;
        caching.parameters.first().map(|flags| flags & 0x04 != 0)
    }
}

/// The page code of the caching mode page (SBC-3).
const CACHING: u8 = 0x08;

/// The fields of a mode parameter header of MODE SENSE (6) or (10), and the bounds of the mode pages.
struct Header {
    medium_type: u8,
    device_specific: u8,
    pages_at: usize,
    end: usize,
}

/// One mode page (SPC-4 §7.5.7).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ModePage<'a> {
    /// PAGE CODE, 0 to 63.
    pub code: u8,
    /// SUBPAGE CODE; 0 for the page_0 format, which has none.
    pub subpage: u8,
    /// PS: the device can save the page, so that it survives a power cycle.
    pub saveable: bool,
    /// The page without its header.
    pub parameters: &'a [u8],
}

/// Iterates over the mode pages of [`ModeParameters`].
#[derive(Clone, Debug)]
pub struct ModePages<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for ModePages<'a> {
    type Item = ModePage<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let (code, subpage, len, body) = match *self.rest {
            [code, subpage, high, low, ref body @ ..] if code & 0x40 != 0 => {
                (code, subpage, u32::from(u16::from_be_bytes([high, low])), body)
            }
            [code, len, ref body @ ..] if code & 0x40 == 0 => (code, 0, u32::from(len), body),
            _ => return None,
        };
        let (parameters, rest) = body.split_at_checked(to_usize(len))?;
        self.rest = rest;
        Some(ModePage { code: code & 0x3f, subpage, saveable: code & 0x80 != 0, parameters })
    }
}
