//! Text keys: the `key=value` pairs of Login and Text PDUs (RFC 7143 §6.1) and the table of all
//! keys (RFC 7143 §12, §13).
//!
//! | File | Noun |
//! |---|---|
//! | `mod` | the list of pairs: [`decode_pairs`], [`TextBuilder`] |
//! | `value` | the forms of a value: numbers, booleans, lists, binary items |
//! | `table` | [`Key`]: each key with its [`Definition`], the one place for defaults and ranges |
//! | `chap` | [`ChapAlgorithm`], and the limits of the items of CHAP |
//! | `printable` | [`printable`]: escapes control characters of a text for display |
//! | `kind` | [`Kind`]: how an offer and an answer determine the result |
//!
//! ```
//! use iscsi_pdu::keys::{Key, TextBuilder, decode_pairs};
//!
//! let mut text = TextBuilder::new();
//! text.pair(Key::SessionType.name(), "Discovery").pair("HeaderDigest", "CRC32C,None");
//! let text = text.finish();
//! assert_eq!(&text[..22], b"SessionType=Discovery\0");
//! assert_eq!(decode_pairs(&text)?[1], ("HeaderDigest", "CRC32C,None"));
//! # Ok::<(), iscsi_pdu::keys::TextError>(())
//! ```

mod chap;
mod error;
mod kind;
mod printable;
mod table;
mod value;

pub use chap::{CHAP, ChapAlgorithm, MAX_CHALLENGE_LEN, MIN_SECRET_LEN, UnknownChapAlgorithm};
pub use error::TextError;
pub use kind::Kind;
pub use printable::printable;
pub use table::{DEFAULT_MAX_RECV_DATA_SEGMENT_LENGTH, Definition, Key, Scope, Sender, Use};
pub use value::{
    ALL_TARGETS, CRC32C, DISCOVERY, IRRELEVANT, MAX_VALUE_LEN, NONE, NORMAL, NOT_UNDERSTOOD,
    REJECT, RFC3720, decode_binary, encode_base64, encode_hex, format_boolean, list_values,
    parse_boolean, parse_number,
};

use bytes::{BufMut, Bytes, BytesMut};
use std::fmt;

/// The longest text that [`decode_pairs`] accepts, bytes: a receiver must accept this length where a key may
/// have a long authentication item (RFC 7143 §6.1).
pub const MAX_TEXT_LEN: usize = 64 * 1024;

/// The longest key name, bytes (RFC 7143 §6.1, standard-label).
pub const MAX_KEY_LEN: usize = 63;

/// Splits a complete text, the text of all its PDUs joined, into its pairs, in their order in the text.
///
/// Each pair ends with a NUL and splits at its first `=`. Values may be empty and of any length, because the
/// limit of a value depends on its key. Harmless errors of some targets are accepted: additional NULs between
/// pairs, a last pair without its NUL, and an alias that is not UTF-8, which is cut before its first invalid
/// byte.
///
/// # Errors
///
/// A text over [`MAX_TEXT_LEN`], a pair without `=`, a key that is neither in the table nor a standard-label
/// (1 to 63 letters, digits or `.-+@_#`, a capital first), or a value that is not UTF-8 and is not an alias.
pub fn decode_pairs(text: &[u8]) -> Result<Vec<(&str, &str)>, TextError> {
    if text.len() > MAX_TEXT_LEN {
        return Err(TextError::TooLong { len: text.len() });
    }
    let pairs = text.split(|&byte| byte == 0).filter(|pair| !pair.is_empty());
    pairs.map(decode_pair).collect()
}

fn decode_pair(pair: &[u8]) -> Result<(&str, &str), TextError> {
    let text = legible(pair);
    let is_whole = text.len() == pair.len();
    let Some((key, value)) = text.split_once('=') else {
        return Err(if is_whole { TextError::MissingEquals } else { TextError::NotUtf8 });
    };
    if !is_standard_label(key) {
        return Err(TextError::key_name(key));
    }
    let is_for_show = matches!(Key::from_name(key), Some(Key::TargetAlias | Key::InitiatorAlias));
    if !is_whole && !is_for_show {
        return Err(TextError::NotUtf8);
    }
    Ok((key, value))
}

/// Returns the text before the first byte that is not UTF-8.
fn legible(bytes: &[u8]) -> &str {
    bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid())
}

/// Returns whether a name follows the rule of RFC 7143 §6.1 for key names. Allows the exceptions that RFC
/// 7143 and later standards make: `#` in registered names (RFC 7143 §13.26), and the small first letter of
/// iSCSIProtocolLevel.
fn is_standard_label(key: &str) -> bool {
    let first = key.as_bytes().first().is_some_and(u8::is_ascii_uppercase);
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-+@_#".contains(&byte);
    let label = first && key.len() <= MAX_KEY_LEN && key.bytes().all(allowed);
    label || Key::from_name(key).is_some()
}

/// Writes pairs one after the other, each with its NUL (RFC 7143 §6.1).
#[derive(Clone, Default)]
pub struct TextBuilder {
    text: BytesMut,
}

impl TextBuilder {
    /// Creates an empty text.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a pair. A NUL inside `key` or `value` would start another pair, so NULs are omitted.
    pub fn pair(&mut self, key: &str, value: &str) -> &mut Self {
        self.put(key);
        self.text.put_u8(b'=');
        self.put(value);
        self.text.put_u8(0);
        self
    }

    /// Returns whether there is no pair yet.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns the text for one or several data segments.
    pub fn finish(self) -> Bytes {
        self.text.freeze()
    }

    fn put(&mut self, part: &str) {
        part.split('\0').for_each(|piece| self.text.put_slice(piece.as_bytes()));
    }
}

impl fmt::Debug for TextBuilder {
    /// Shows only the length, because the text may contain a response to a CHAP challenge.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextBuilder").field("len", &self.text.len()).finish_non_exhaustive()
    }
}
