//! Values of keys: numbers, booleans, lists and binary items as text (RFC 7143 §6.1).

use super::TextError;

/// The answer to a key that the responder does not know (RFC 7143 §6.2).
pub const NOT_UNDERSTOOD: &str = "NotUnderstood";
/// The answer to a key that has no meaning in this negotiation (RFC 7143 §6.2).
pub const IRRELEVANT: &str = "Irrelevant";
/// The answer to a value that is not acceptable (RFC 7143 §6.2).
pub const REJECT: &str = "Reject";
/// The value in a list that means "none" (RFC 7143 §6.2.1).
pub const NONE: &str = "None";
/// The digest CRC32C (RFC 7143 §13.1).
pub const CRC32C: &str = "CRC32C";
/// The SendTargets value that requests all targets (RFC 7143 appendix C).
pub const ALL_TARGETS: &str = "All";
/// The SessionType of a session without SCSI commands (RFC 7143 §13.21).
pub const DISCOVERY: &str = "Discovery";
/// The SessionType of a session with SCSI commands (RFC 7143 §13.21).
pub const NORMAL: &str = "Normal";
/// The TaskReporting that every implementation supports (RFC 7143 §13.23).
pub const RFC3720: &str = "RFC3720";

/// The greatest length of a value whose key sets no other limit, bytes (RFC 7143 §6.1).
pub const MAX_VALUE_LEN: usize = 255;

/// Reads a numerical-value: decimal without leading zeros, or hexadecimal after `0x` or `0X`,
/// below 2^64 (RFC 7143 §6.1).
///
/// # Errors
///
/// [`TextError::Number`] for anything else: a sign, a blank, `010`, an empty value, 2^64.
pub fn parse_number(value: &str) -> Result<u64, TextError> {
    let number = match hex_digits(value) {
        Some(digits) => from_digits(digits, 16),
        None if value.len() > 1 && value.starts_with('0') => None,
        None => from_digits(value, 10),
    };
    number.ok_or_else(|| TextError::number(value))
}

/// Parses digits. `from_str_radix` alone would accept a sign.
fn from_digits(digits: &str, radix: u32) -> Option<u64> {
    let only_digits = digits.chars().all(|digit| digit.is_digit(radix));
    only_digits.then(|| u64::from_str_radix(digits, radix).ok()).flatten()
}

/// Reads a boolean-value: exactly `Yes` or `No` (RFC 7143 §6.1).
///
/// # Errors
///
/// [`TextError::Boolean`] for any other value, also `yes`.
pub fn parse_boolean(value: &str) -> Result<bool, TextError> {
    match value {
        "Yes" => Ok(true),
        "No" => Ok(false),
        _ => Err(TextError::boolean(value)),
    }
}

/// Returns a boolean-value as text.
pub const fn format_boolean(value: bool) -> &'static str {
    if value { "Yes" } else { "No" }
}

/// Returns the values of a list-of-values, in the order of preference (RFC 7143 §6.1).
pub fn list_values(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').filter(|item| !item.is_empty())
}

/// Reads a binary item: hexadecimal after `0x` or `0X`, or base64 with its padding after `0b` or
/// `0B` (RFC 7143 §6.1).
///
/// An odd number n of hexadecimal digits is (n + 1) / 2 bytes: the first digit is a whole byte.
///
/// # Errors
///
/// [`TextError::Binary`] for a value that has neither prefix, no digits, or anything after the prefix that is
/// not valid in its encoding.
pub fn decode_binary(value: &str) -> Result<Vec<u8>, TextError> {
    let bytes = match (hex_digits(value), base64_digits(value)) {
        (Some(digits), _) => decode_hex(digits.as_bytes()),
        (None, Some(digits)) => decode_base64(digits.as_bytes()),
        (None, None) => None,
    };
    bytes.ok_or(TextError::Binary)
}

/// Returns a binary item in hexadecimal, with its `0x`.
pub fn encode_hex(bytes: &[u8]) -> String {
    let nibbles = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0x0f]);
    let digits = nibbles.filter_map(|nibble| char::from_digit(u32::from(nibble), 16));
    "0x".chars().chain(digits).collect()
}

/// Returns a binary item in base64, with its `0b` and padding.
pub fn encode_base64(bytes: &[u8]) -> String {
    let mut text = String::from("0b");
    for group in bytes.chunks(3) {
        let packed = group.iter().fold(0, |bits, &byte| (bits << 8) | u32::from(byte));
        let bits = packed << (8 * (3 - group.len()));
        let digits = [18, 12, 6, 0].map(|shift| base64_digit(bits >> shift));
        text.extend(digits.iter().take(group.len() + 1));
        text.extend(std::iter::repeat_n('=', 3 - group.len()));
    }
    text
}

fn hex_digits(value: &str) -> Option<&str> {
    value.strip_prefix("0x").or_else(|| value.strip_prefix("0X"))
}

fn base64_digits(value: &str) -> Option<&str> {
    value.strip_prefix("0b").or_else(|| value.strip_prefix("0B"))
}

fn decode_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let (first, pairs) = digits.split_at_checked(digits.len() % 2)?;
    let groups = Some(first).filter(|first| !first.is_empty()).into_iter().chain(pairs.chunks(2));
    let bytes: Option<Vec<u8>> = groups.map(hex_byte).collect();
    bytes.filter(|bytes| !bytes.is_empty())
}

/// Returns the value of one or two hexadecimal digits.
fn hex_byte(digits: &[u8]) -> Option<u8> {
    digits.iter().try_fold(0, |byte: u8, &digit| {
        let nibble = char::from(digit).to_digit(16)?;
        Some((byte << 4) | u8::try_from(nibble).ok()?)
    })
}

/// The alphabet of base64 (RFC 4648 §4).
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Returns the base64 digit for the low six bits.
fn base64_digit(bits: u32) -> char {
    BASE64.get((bits & 0x3f) as usize).map_or('=', |&digit| char::from(digit))
}

fn decode_base64(digits: &[u8]) -> Option<Vec<u8>> {
    let padding = digits.iter().rev().take_while(|&&digit| digit == b'=').count();
    if digits.is_empty() || !digits.len().is_multiple_of(4) || padding > 2 {
        return None;
    }
    let digits = digits.get(..digits.len() - padding)?;
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.chunks(4) {
        bytes.extend(base64_group(group)?.iter().take(group.len() - 1));
    }
    Some(bytes)
}

/// Returns the bytes of two to four digits, left-aligned. `None` for an invalid digit, or if bits that belong
/// to no byte are not zero.
fn base64_group(group: &[u8]) -> Option<[u8; 3]> {
    let bits = group.iter().try_fold(0, |bits: u32, digit| {
        let value = BASE64.iter().position(|known| known == digit)?;
        Some((bits << 6) | u32::try_from(value).ok()?)
    })?;
    let aligned = bits << (6 * (4 - group.len()));
    let [_, bytes @ ..] = aligned.to_be_bytes();
    let spare = bytes.iter().skip(group.len() - 1);
    spare.copied().all(|byte| byte == 0).then_some(bytes)
}
