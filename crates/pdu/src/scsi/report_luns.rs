//! REPORT LUNS parameter data: which logical units there are (SPC-4).

use super::{
    FormatError, Lun,
    fields::{Fields, to_usize},
};

/// The answer to REPORT LUNS (SPC-4).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ReportLuns {
    /// The units in the order they came, in the addressing method the target uses.
    pub luns: Vec<Lun>,
    /// LUN LIST LENGTH: bytes of the whole list, whether they fit into the answer or not.
    pub list_length: u32,
}

impl ReportLuns {
    /// Length of the header before the list, bytes.
    pub const HEADER_LEN: usize = 8;

    /// Reads the parameter data; a number that is cut in the middle is left out.
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

    /// Returns whether there are more units than the answer holds: ask again with
    /// [`allocation_length`](Self::allocation_length).
    pub fn is_truncated(&self) -> bool {
        self.luns.len() < to_usize(self.list_length) / 8
    }

    /// The allocation length that the whole answer takes, bytes.
    pub const fn allocation_length(&self) -> u32 {
        self.list_length.saturating_add(8)
    }
}
