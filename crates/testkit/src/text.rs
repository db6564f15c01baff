//! Key=value text (RFC 7143 §6.1).

use std::fmt;

/// Keys and values, in the order of the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(pub Vec<(String, String)>);

/// The error in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError(pub String);

impl fmt::Display for TextError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.0)
    }
}

impl std::error::Error for TextError {}

impl Pairs {
    /// Splits a text into pairs.
    ///
    /// # Errors
    ///
    /// [`TextError`]: no NUL at the end, a pair without "=", an empty key, or bytes that are not UTF-8.
    pub fn split(text: &[u8]) -> Result<Self, TextError> {
        let Some((&last, body)) = text.split_last() else { return Ok(Self::default()) };
        if last != 0 {
            return Err(TextError("the last pair lacks its NUL".into()));
        }
        body.split(|byte| *byte == 0).map(pair).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the pairs as text, each pair followed by a NUL.
    #[must_use]
    pub fn join(&self) -> Vec<u8> {
        let lines = self.0.iter().map(|(key, value)| format!("{key}={value}\0"));
        lines.collect::<String>().into_bytes()
    }

    /// Returns the first value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Appends a pair.
    pub fn push(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.0.push((key.into(), value.into()));
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Pairs {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}

fn pair(line: &[u8]) -> Result<(String, String), TextError> {
    let line = std::str::from_utf8(line).map_err(|_| TextError("text that is no UTF-8".into()))?;
    match line.split_once('=') {
        None => Err(TextError(format!("{line:?} has no \"=\""))),
        Some(("", _)) => Err(TextError(format!("{line:?} has no key"))),
        Some((key, value)) => Ok((key.into(), value.into())),
    }
}

/// Reads "Yes" or "No".
pub(crate) fn boolean(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

/// Reads a decimal or hexadecimal number.
pub(crate) fn number(value: &str) -> Option<u32> {
    let hex = value.strip_prefix("0x").or_else(|| value.strip_prefix("0X"));
    match hex {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => value.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::Pairs;

    #[test]
    fn splits_at_the_first_equals_sign() {
        let pairs = Pairs::split(b"CHAP_C=0bYQ==\0A=\0").unwrap();
        assert_eq!(pairs.0, [("CHAP_C".into(), "0bYQ==".into()), ("A".into(), String::new())]);
        assert_eq!(pairs.join(), b"CHAP_C=0bYQ==\0A=\0");
    }

    #[test]
    fn refuses_what_is_no_pair() {
        for text in [&b"A=1"[..], b"A\0", b"=1\0", b"A=1\0\0", b"A=\xff\0"] {
            assert!(Pairs::split(text).is_err(), "{text:?}");
        }
    }
}
