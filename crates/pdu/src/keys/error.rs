//! Errors of a text, or of a value in it (RFC 7143 §6.1).

use thiserror::Error;

/// Violations of RFC 7143 §6.1 by a text, or by a value in it.
///
/// Names and short values are quoted, cut to 64 characters. Binary items are never quoted, because they may
/// belong to an authentication.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum TextError {
    /// The text is longer than a receiver must accept.
    #[error("text of {len} bytes is too long")]
    TooLong {
        /// Length of the text, in bytes.
        len: usize,
    },
    /// A pair has no `=`.
    #[error("a pair without \"=\"")]
    MissingEquals,
    /// A pair is not UTF-8.
    #[error("a pair is not UTF-8 text")]
    NotUtf8,
    /// A name violates the rules for key names; it may be empty.
    #[error("{0:?} is not a key name")]
    KeyName(String),
    /// A value is not a number: decimal without leading zeros, or hexadecimal after `0x`, below 2^64.
    #[error("{0:?} is not a number")]
    Number(String),
    /// A number is outside the range of its key.
    #[error("{value} is not in {min}..{max}")]
    OutOfRange {
        /// The value that was found.
        value: u64,
        /// The least value allowed.
        min: u32,
        /// The greatest value allowed.
        max: u32,
    },
    /// A number belongs to a key that has no numeric values.
    #[error("the key takes no number")]
    NotNumeric,
    /// A value is neither `Yes` nor `No`.
    #[error("{0:?} is neither Yes nor No")]
    Boolean(String),
    /// A value is not binary: hexadecimal after `0x`, or base64 after `0b`.
    #[error("a binary item is neither hexadecimal nor base64")]
    Binary,
}

impl TextError {
    pub(super) fn key_name(key: &str) -> Self {
        Self::KeyName(excerpt(key))
    }

    pub(super) fn number(value: &str) -> Self {
        Self::Number(excerpt(value))
    }

    pub(super) fn boolean(value: &str) -> Self {
        Self::Boolean(excerpt(value))
    }
}

/// Returns the beginning of a text. The peer chooses the length of a text, so errors keep only its beginning.
fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}
