//! Errors of SCSI formats.

use thiserror::Error;

/// Reasons why bytes are not in the expected SCSI format.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum FormatError {
    /// There are fewer bytes than the format needs.
    #[error("{format}: {len} bytes are too few, {needed} are needed")]
    TooShort {
        /// The format's name in the standard.
        format: &'static str,
        /// The number of bytes found.
        len: usize,
        /// The least number of bytes needed.
        needed: usize,
    },
    /// There are more bytes, or entries, than the format can hold.
    #[error("{format}: {len} bytes are too many, {limit} fit")]
    TooLong {
        /// The format's name in the standard.
        format: &'static str,
        /// The number of bytes, or entries.
        len: usize,
        /// The greatest number allowed.
        limit: usize,
    },
    /// A field has a value with which the rest cannot be read.
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
