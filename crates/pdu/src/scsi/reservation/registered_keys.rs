//! READ KEYS parameter data: the keys that are registered with a unit (SPC-4 §6.15.2).

use super::ReservationKey;
use crate::scsi::FormatError;
use crate::scsi::fields::{Fields, to_usize};

/// Parameter data of PERSISTENT RESERVE IN with READ KEYS (SPC-4 §6.15.2).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RegisteredKeys {
    /// PRGENERATION: counts the changes of registrations by PERSISTENT RESERVE OUT, modulo 2^32.
    pub generation: u32,
    /// One key for each registration; a key that several nexuses share occurs several times.
    pub keys: Vec<ReservationKey>,
    /// ADDITIONAL LENGTH: bytes of all keys, also those that did not fit.
    pub additional_length: u32,
}

impl RegisteredKeys {
    /// Length of the header before the keys, bytes.
    pub const HEADER_LEN: usize = 8;

    /// Reads the parameter data; a truncated key is omitted.
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

    /// Returns whether keys are missing in the data: send the command again with
    /// [`allocation_length`](Self::allocation_length).
    pub fn is_truncated(&self) -> bool {
        self.keys.len() < to_usize(self.additional_length) / 8
    }

    /// Returns the allocation length for the whole data, bytes, limited to the greatest one of the command.
    pub fn allocation_length(&self) -> u16 {
        u16::try_from(self.additional_length.saturating_add(8)).unwrap_or(u16::MAX)
    }

    /// Returns whether a nexus is registered with the key.
    pub fn contains(&self, key: ReservationKey) -> bool {
        self.keys.contains(&key)
    }
}
