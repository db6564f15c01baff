//! REPORT LUNS parameter data: the list of logical units (SPC-4).

use super::{
    FormatError, Lun,
    fields::{Fields, to_usize},
};

/// Parameter data of REPORT LUNS (SPC-4).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ReportLuns {
    /// The units in the order of the list, in the addressing method of the target.
    pub luns: Vec<Lun>,
    /// LUN LIST LENGTH: bytes of the whole list, also those that did not fit.
    pub list_length: u32,
}

impl ReportLuns {
    /// Length of the header before the list, bytes.
    pub const HEADER_LEN: usize = 8;

    /// Reads the parameter data; a truncated number is omitted.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooShort`] below eight bytes.
    pub fn decode(data: &[u8]) -> Result<Self, FormatError> {
        let fields = Fields::new(data, "REPORT LUNS data", Self::HEADER_LEN)?;
        let list_length = fields.u32(0);
        let (luns, _) = fields.range(Self::HEADER_LEN, to_usize(list_length)).as_chunks();
        Ok(Self { luns: luns.iter().copied().map(Lun::from_bytes).collect(), list_length })
    }

    /// Returns whether there are more units than the list contains: send the command again with
    /// [`allocation_length`](Self::allocation_length).
    pub fn is_truncated(&self) -> bool {
        self.luns.len() < to_usize(self.list_length) / 8
    }

    /// Returns the allocation length for the whole list, bytes.
    pub const fn allocation_length(&self) -> u32 {
        self.list_length.saturating_add(8)
    }
}
