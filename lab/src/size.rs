//! Parses numbers of bytes and rates, as users write them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A number of bytes: `64M`, `2G` or a plain number; K, M and G are powers of 1024.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Size(pub u64);

const UNITS: [(char, u64); 3] = [('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30)];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refusal = || format!("a size is a number with K, M or G behind it, not `{text}`");
        let unit = UNITS.iter().find(|(letter, _)| text.ends_with(*letter));
        let (number, unit) = match unit {
            Some((letter, unit)) => (text.trim_end_matches(*letter), *unit),
            None => (text, 1),
        };
        let number: u64 = number.parse().map_err(|_| refusal())?;
        number.checked_mul(unit).map(Self).ok_or_else(refusal)
    }
}

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Size> for String {
    fn from(size: Size) -> Self {
        size.to_string()
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().rev().find(|(_, unit)| self.0 > 0 && self.0.is_multiple_of(*unit));
        match unit {
            Some((letter, unit)) => write!(f, "{}{letter}", self.0 / unit),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A link's rate: a number followed by `kbit`, `mbit` or `gbit`; powers of 1000, bits per second.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rate {
    /// 10^6 bits per second.
    pub mbit_per_s: f64,
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refusal = || format!("a rate is a number with kbit, mbit or gbit, not `{text}`");
        let (number, mbit) = [("kbit", 1e-3), ("mbit", 1.0), ("gbit", 1e3)]
            .into_iter()
            .find_map(|(unit, mbit)| Some((text.strip_suffix(unit)?, mbit)))
            .ok_or_else(refusal)?;
        let number: f64 = number.parse().map_err(|_| refusal())?;
        let mbit_per_s = number * mbit;
        if mbit_per_s.is_finite() && mbit_per_s > 0.0 {
            Ok(Self { mbit_per_s })
        } else {
            Err(refusal())
        }
    }
}

impl TryFrom<String> for Rate {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Rate> for String {
    fn from(rate: Rate) -> Self {
        format!("{}mbit", rate.mbit_per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!("48M".parse(), Ok(Size(48 << 20)));
        assert_eq!("2G".parse(), Ok(Size(2 << 30)));
        assert_eq!("512".parse(), Ok(Size(512)));
        assert_eq!(Size(1536 << 10).to_string(), "1536K");
    }

    #[test]
    fn a_size_without_sense_is_refused() {
        for text in ["", "M", "-1M", "1.5G", "1T", "99999999999G", "MM"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn rates_are_powers_of_1000() {
        let mbit = |text: &str| text.parse::<Rate>().map(|rate| rate.mbit_per_s);
        assert_eq!(mbit("100mbit"), Ok(100.0));
        assert_eq!(mbit("1gbit"), Ok(1000.0));
        assert_eq!(mbit("512kbit"), Ok(0.512));
        assert!(mbit("100").is_err() && mbit("0mbit").is_err() && mbit("mbit").is_err());
    }
}
