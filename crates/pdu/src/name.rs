//! iSCSI names (RFC 7143 §4.2.7).

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use thiserror::Error;
use unicode_normalization::UnicodeNormalization;

/// The longest name, bytes (RFC 7143 §4.2.7.1).
const MAX_LEN: usize = 223;

/// The name of an initiator or target, with the prefix `iqn.`, `eui.` or `naa.`, in its original spelling.
///
/// Names are compared after folding: letters to lower case and characters to their compatible form (NFKC), as
/// RFC 3722 requires. A name is sent in its original spelling, because many targets compare bytes. Characters
/// that RFC 3722 forbids but that some targets use, such as the underscore, are kept.
#[derive(Clone)]
pub struct IscsiName {
    spelling: Box<str>,
    folded: Box<str>,
}

/// The reason why a text is not an iSCSI name.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("'{name}' is no iSCSI name: {reason}")]
pub struct NameError {
    name: String,
    reason: &'static str,
}

impl IscsiName {
    /// Creates a name from a text, after a check.
    ///
    /// # Errors
    /// When the name is longer than 223 bytes before or after folding, contains white space or control
    /// characters, has an unknown type, or violates the form of its type.
    pub fn parse(name: &str) -> Result<Self, NameError> {
        let error = |reason| NameError { name: name.to_owned(), reason };
        if name.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(error("it holds white space or control characters"));
        }
        let folded = fold(name);
        if name.len().max(folded.len()) > MAX_LEN {
            return Err(error("it is longer than 223 bytes"));
        }
        let (kind, rest) = folded.split_at_checked(4).unwrap_or((&folded, ""));
        match kind {
            "iqn." => check_iqn(rest).map_err(error)?,
            "eui." => check_hex(rest, &[16]).map_err(error)?,
            "naa." => check_hex(rest, &[16, 32]).map_err(error)?,
            _ => return Err(error("it begins with none of iqn., eui. and naa.")),
        }
        Ok(Self { spelling: name.into(), folded: folded.into() })
    }

    /// Returns the name in its original spelling.
    pub fn as_str(&self) -> &str {
        &self.spelling
    }
}

/// Folds a name. Lower case can undo the composition of characters, so the result is composed again.
fn fold(name: &str) -> String {
    if name.is_ascii() {
        return name.to_ascii_lowercase();
    }
    name.nfkc().flat_map(char::to_lowercase).nfkc().collect()
}

/// Checks an iqn name after its prefix: `yyyy-mm.reversed.domain[:string]`
fn check_iqn(rest: &str) -> Result<(), &'static str> {
    let form = "the form is iqn.yyyy-mm.reversed.domain[:string]";
    let (date, authority) = rest.split_at_checked(8).ok_or(form)?;
    let digits =
        |at: std::ops::Range<usize>| date.get(at).filter(|s| s.bytes().all(|b| b.is_ascii_digit()));
    let month: u8 = digits(5..7).and_then(|month| month.parse().ok()).ok_or(form)?;
    digits(0..4).ok_or(form)?;
    if date.get(4..5) != Some("-") || date.get(7..8) != Some(".") || !(1..=12).contains(&month) {
        return Err(form);
    }
    let domain = authority.split(':').next().unwrap_or_default();
    if domain.is_empty() || domain.starts_with('.') { Err(form) } else { Ok(()) }
}

fn check_hex(rest: &str, lengths: &[usize]) -> Result<(), &'static str> {
    if lengths.contains(&rest.len()) && rest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Ok(())
    } else {
        Err("16 hexadecimal digits must follow the type, or 32 after naa.")
    }
}

impl PartialEq for IscsiName {
    fn eq(&self, other: &Self) -> bool {
        self.folded == other.folded
    }
}

impl Eq for IscsiName {}

impl Hash for IscsiName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.folded.hash(state);
    }
}

impl Ord for IscsiName {
    fn cmp(&self, other: &Self) -> Ordering {
        self.folded.cmp(&other.folded)
    }
}

impl PartialOrd for IscsiName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for IscsiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IscsiName").field(&self.spelling).finish()
    }
}

impl fmt::Display for IscsiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.spelling)
    }
}

impl FromStr for IscsiName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        Self::parse(name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn nam_01_and_nam_03_forms() {
        for name in [
            "iqn.2001-04.com.example",
            "iqn.2001-04.com.example:storage:diskarrays-sn-a8675309",
            "iqn.2003-01.org.linux-iscsi.host_1.x8664:sn.1",
            "eui.02004567a425678d",
            "naa.52004567ba64678d",
            "naa.62004567ba64678d0123456789abcdef",
        ] {
            assert_eq!(IscsiName::parse(name).unwrap().as_str(), name);
        }
        let long = format!("iqn.2001-04.com.example:{}", "x".repeat(200));
        for name in [
            "",
            "iqn",
            "iqn.",
            "iqn.2001-04",
            "iqn.2001-04.",
            "iqn.2001-4.com",
            "iqn.2001-13.com",
            "iqn.20x1-04.com",
            "iqn.2001-04.:a",
            "eui.0200",
            "naa.5200",
            "naa.5200456zba64678d",
            "com.example",
            "iqn.2001-04.com.example: x",
            "iqn.2001-04.com.example:\u{7}",
            &long,
        ] {
            assert!(IscsiName::parse(name).is_err(), "{name}");
        }
    }

    #[test]
    fn nam_02_names_compare_folded() {
        let folded = IscsiName::parse("iqn.2001-04.com.example:disk").unwrap();
        let spelled = IscsiName::parse("IQN.2001-04.COM.Example:Disk").unwrap();
        assert_eq!(spelled, folded);
        assert_eq!(spelled.cmp(&folded), Ordering::Equal);
        assert!(HashSet::from([folded]).contains(&spelled));
        assert!(IscsiName::parse("iqn.2001-04.com.example:E").unwrap() > spelled);
        let composed = IscsiName::parse("iqn.2001-04.com.example:\u{e9}\u{fb01}").unwrap();
        let apart = IscsiName::parse("iqn.2001-04.com.example:E\u{301}fi").unwrap();
        assert_eq!(composed, apart);
    }

    #[test]
    fn nam_02_names_keep_their_spelling() {
        for spelling in ["IQN.2001-04.COM.Example:Disk", "iqn.2001-04.com.example:E\u{301}fi"] {
            let name = IscsiName::parse(spelling).unwrap();
            assert_eq!(name.as_str(), spelling);
            assert_eq!(name.to_string(), spelling);
        }
    }

    /// NAM-01: neither the name that is sent nor its folded form may be longer than the limit.
    #[test]
    fn nam_01_both_forms_are_bounded() {
        let name = |tail: &str| IscsiName::parse(&format!("iqn.2001-04.com.example:{tail}"));
        assert!(name(&"x".repeat(199)).is_ok() && name(&"x".repeat(200)).is_err());
        // Wide letters become shorter when folded, and a ligature of eighteen letters becomes longer.
        assert!(name(&"\u{ff38}".repeat(67)).is_err());
        assert!(name(&"\u{fdfa}".repeat(50)).is_err());
    }
}
