//! Why bytes are not the SCSI format they were taken for.

use thiserror::Error;

/// Bytes that are not the SCSI format they were taken for.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum FormatError {
    /// Fewer bytes than give the format a meaning.
    #[error("{format}: {len} bytes are too few, {needed} are needed")]
    TooShort {
        /// The format's name in the standard.
        format: &'static str,
        /// How many bytes there are.
        len: usize,
        /// How many there must be at least.
        needed: usize,
    },
    /// More bytes than the format can hold.
    #[error("{format}: {len} bytes are too many, {limit} fit")]
    TooLong {
        /// The format's name in the standard.
        format: &'static str,
        /// How many bytes, or entries, there are.
        len: usize,
        /// How many there may be at most.
        limit: usize,
    },
    /// A field holds a value that makes the rest unreadable.
    #[error("{format}: {field} ({value:#x}) is not allowed")]
    Field {
        /// The format's name in the standard.
        format: &'static str,
        /// The field's name in the standard.
        field: &'static str,
        /// What was found.
        value: u64,
    },
}
