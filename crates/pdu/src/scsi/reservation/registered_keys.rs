//! READ KEYS parameter data: the keys that are registered with a unit (SPC-4 §6.15.2).

use super::ReservationKey;
use crate::scsi::FormatError;
use crate::scsi::fields::{Fields, to_usize};

/// The answer to PERSISTENT RESERVE IN with READ KEYS (SPC-4 §6.15.2).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RegisteredKeys {
    /// PRGENERATION: counts the changes of registrations by PERSISTENT RESERVE OUT, modulo 2^32.
    pub generation: u32,
    /// One key for each registration; a key that several nexuses share occurs several times.
    pub keys: Vec<ReservationKey>,
    /// ADDITIONAL LENGTH: bytes of all keys, whether they fit into the answer or not.
    pub additional_length: u32,
}

impl RegisteredKeys {
    /// Length of the header before the keys, bytes.
    pub const HEADER_LEN: usize = 8;

    /// Reads the parameter data; a key that is cut is left out.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooShort`] below eight bytes.
    pub fn decode(data: &[u8]) -> Result<Self, FormatError> {
        let fields = Fields::new(data, "READ KEYS data", Self::HEADER_LEN)?;
        let additional_length = fields.u32(4);
        let (keys, _) = fields.range(Self::HEADER_LEN, to_usize(additional_length)).as_chunks();
        let keys = keys.iter().map(|key| ReservationKey(u64::from_be_bytes(*key))).collect();
        Ok(Self { generation: fields.u32(0), keys, additional_length })
    }

    /// Returns whether there are more keys than the answer holds: ask again with
    /// [`allocation_length`](Self::allocation_length).
    pub fn is_truncated(&self) -> bool {
        self.keys.len() < to_usize(self.additional_length) / 8
    }

    /// The allocation length that the whole answer takes, bytes, limited to the most that the command can ask
    /// for.
    pub fn allocation_length(&self) -> u16 {
        u16::try_from(self.additional_length.saturating_add(8)).unwrap_or(u16::MAX)
    }

    /// Returns whether a nexus is registered with the key.
    pub fn contains(&self, key: ReservationKey) -> bool {
        self.keys.contains(&key)
    }
}
