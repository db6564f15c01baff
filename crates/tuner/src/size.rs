//! Parses and prints numbers of bytes, as users write them.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A number of bytes, as users write it. It parses `4096`, `256K`, `1M`, `64KiB`, and prints `256 KiB`, `1.5
/// MiB`: powers of 1024 (IEC 80000-13).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Size(pub u64);

/// Text that is not a [`Size`].
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum SizeError {
    /// The text is not a whole number with a known unit.
    #[error("write a whole number of bytes, or one with K, M, G or T for powers of 1024: 256K, 1M")]
    Malformed,
    /// The size exceeds 2^64 - 1 bytes.
    #[error("that is more than any disk holds")]
    TooLarge,
}

/// Letters of the powers of 1024.
const UNITS: &str = "KMGT";

impl Size {
    /// Returns the number of bytes as a `usize`; a larger number becomes `usize::MAX`.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        if number.is_empty() {
            return Err(SizeError::Malformed);
        }
        let number: u64 = number.parse().map_err(|_| SizeError::TooLarge)?;
        number.checked_mul(factor(unit)?).map(Self).ok_or(SizeError::TooLarge)
    }
}

/// Returns the factor of a unit such as `K`, `k` or `KiB`. `KB` is refused, because some readers take it for
/// 1000.
fn factor(unit: &str) -> Result<u64, SizeError> {
    let letter = unit.strip_suffix("iB").unwrap_or(unit);
    let mut letters = letter.chars();
    match (letters.next(), letters.next()) {
        (None, _) if unit.is_empty() => Ok(1),
        (Some(letter), None) => {
            let power = UNITS.find(letter.to_ascii_uppercase()).ok_or(SizeError::Malformed)?;
            Ok((0..=power).fold(1, |factor, _| factor * 1024))
        }
        _ => Err(SizeError::Malformed),
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut scale = 1;
        let mut unit = None;
        for letter in UNITS.chars() {
            if self.0 / scale < 1024 {
                break;
            }
            scale *= 1024;
            unit = Some(letter);
        }
        match unit {
            None => write!(f, "{} bytes", self.0),
            Some(unit) if self.0.is_multiple_of(scale) => write!(f, "{} {unit}iB", self.0 / scale),
            // Tenths are rounded down, so that no progress looks complete too early.
            Some(unit) => {
                let tenths = u128::from(self.0) * 10 / u128::from(scale);
                write!(f, "{}.{} {unit}iB", tenths / 10, tenths % 10)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("64KiB", 65_536), ("256k", 262_144), ("1M", 1 << 20)]
        {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        assert_eq!("3T".parse(), Ok(Size(3 << 40)));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "k", "1MB", "1.5M", "-1", "1 M", "1Mi", "iB", "1iB", "1MM", "0x10", "1é"]
        {
            assert_eq!(text.parse::<Size>(), Err(SizeError::Malformed), "{text}");
        }
        for text in ["18446744073709551616", "99999999999T"] {
            assert_eq!(text.parse::<Size>(), Err(SizeError::TooLarge), "{text}");
        }
    }

    #[test]
    fn sizes_are_shown() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1 KiB"),
            (1 << 28, "256 MiB"),
            ((1 << 28) - 1, "255.9 MiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }
}
