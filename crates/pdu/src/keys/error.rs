//! Why a text, or a value in it, is not as RFC 7143 §6.1 wants it.

use thiserror::Error;

/// A text, or a value in it, that breaks RFC 7143 §6.1.
///
/// Names and short values are quoted, cut to 64 characters; binary items never are, as they may
/// belong to an authentication.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum TextError {
    /// More text than anybody has to accept.
    #[error("text of {len} bytes is too long")]
    TooLong {
        /// The length of the text, bytes.
        len: usize,
    },
    /// A pair that is none.
    #[error("a pair without \"=\"")]
    MissingEquals,
    /// A pair that is not UTF-8.
    #[error("a pair is not UTF-8 text")]
    NotUtf8,
    /// A name outside the rules for key names; it may be empty.
    #[error("{0:?} is not a key name")]
    KeyName(String),
    /// A value that should be a number: decimal without leading zeros, or hexadecimal after `0x`,
    /// below 2^64.
    #[error("{0:?} is not a number")]
    Number(String),
    /// A number outside its key's range.
    #[error("{value} is not in {min}..{max}")]
    OutOfRange {
        /// The value that was found.
        value: u64,
        /// The least value allowed.
        min: u32,
        /// The greatest value allowed.
        max: u32,
    },
    /// A number where the key is of another kind.
    #[error("the key takes no number")]
    NotNumeric,
    /// A value that should be `Yes` or `No`.
    #[error("{0:?} is neither Yes nor No")]
    Boolean(String),
    /// A value that should be binary: hexadecimal after `0x` or base64 after `0b`.
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

/// The other side chooses how long its faults are; an error keeps only the beginning.
fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}
