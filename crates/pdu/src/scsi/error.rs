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
        /// The number of bytes.
        len: usize,
        /// The least number of bytes.
        needed: usize,
    },
    /// More bytes than the format can hold.
    #[error("{format}: {len} bytes are too many, {limit} fit")]
    TooLong {
        /// The format's name in the standard.
        format: &'static str,
        /// The number of bytes, or entries.
        len: usize,
        /// The largest number.
        limit: usize,
    },
    /// A field holds a value that makes the rest unreadable.
    #[error("{format}: {field} ({value:#x}) is not allowed")]
    Field {
        /// The format's name in the standard.
        format: &'static str,
        /// The field's name in the standard.
        field: &'static str,
        /// The value that was found.
        value: u64,
    },
}
