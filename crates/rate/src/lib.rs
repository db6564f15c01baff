//! Parses, displays and converts rates in bits per second, of a link or of a class of requests.
//!
//! ```
//! use iscsi_rate::Rate;
//!
//! let rate: Rate = "2.5gbit".parse()?;
//! assert_eq!(rate.bits_per_second(), 2_500_000_000);
//! # Ok::<(), iscsi_rate::RateError>(())
//! ```
#![forbid(unsafe_code)]

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// A rate in bits per second: 1 kbit/s to 1 Tbit/s (decimal prefixes).
#[doc(alias("bandwidth", "throughput", "speed"))]
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Rate(u64);

/// Error of a text or a number that is no [`Rate`].
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum RateError {
    /// The text is not a number with a unit.
    #[error(
        "{0:?} is no rate; write a number with a unit: bits such as 100mbit, or bytes such as 5MB/s"
    )]
    Syntax(String),
    /// The rate is lower than 1 kbit/s or higher than 1 Tbit/s.
    #[error("a link has a rate from 1kbit to 1000gbit")]
    OutOfRange,
}

impl Rate {
    /// The slowest rate, 1 kbit/s.
    pub const MIN: Self = Self(1_000);
    /// The fastest rate, 1 Tbit/s.
    pub const MAX: Self = Self(1_000_000_000_000);
    /// 1 Gbit/s.
    pub const GIGABIT: Self = Self(1_000_000_000);

    /// Creates a rate of `bits` bits per second.
    ///
    /// # Errors
    /// [`RateError::OutOfRange`] for a rate below [`MIN`](Self::MIN) or above [`MAX`](Self::MAX).
    pub const fn from_bits_per_second(bits: u64) -> Result<Self, RateError> {
        if bits < Self::MIN.0 || bits > Self::MAX.0 {
            return Err(RateError::OutOfRange);
        }
        Ok(Self(bits))
    }

    /// Returns the rate of `bytes` in `time`, rounded down to bits per second, and brought into the range
    /// [`Rate::MIN`] to [`Rate::MAX`]; [`Rate::MAX`] if `time` is zero.
    #[must_use]
    pub fn of(bytes: u64, time: Duration) -> Self {
        let bits = u128::from(bytes) * 8 * 1_000_000_000;
        let rate = bits.checked_div(time.as_nanos()).unwrap_or(u128::MAX);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        Self(rate.clamp(Self::MIN.0, Self::MAX.0))
    }

    /// Returns the rate in bits per second.
    #[must_use]
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// Returns the rate in Mbit/s (10^6 bits per second).
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a rate for people is a rounded number")]
    pub fn mbit_per_second(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Returns the time that `bytes` take at this rate, rounded down to nanoseconds.
    #[must_use]
    pub fn time_for(self, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(self.0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns the number of bytes that pass in `time`, rounded up.
    #[must_use]
    pub fn bytes_in(self, time: Duration) -> u64 {
        let bits = u128::from(self.0).saturating_mul(time.as_nanos());
        u64::try_from(bits.div_ceil(8 * 1_000_000_000)).unwrap_or(u64::MAX)
    }
}

impl FromStr for Rate {
    type Err = RateError;

    /// Parses a number, which may have a fraction, and a unit.
    ///
    /// Units in bits are `bit`, `kbit`, `mbit`, `gbit` and `tbit`, in any case, with or without `/s`. Units in
    /// bytes have a capital B: `B/s`, `kB/s`, `MB/s`, `GB/s` (powers of 1000), `KiB/s`, `MiB/s`, `GiB/s`
    /// (powers of 1024). `Mb/s` and `mbps` are refused, because some programs mean bits by them, and others,
    /// such as `tc`, bytes.
    fn from_str(text: &str) -> Result<Self, RateError> {
        let syntax = || RateError::Syntax(text.to_owned());
        let plain = text.trim();
        let digits =
            plain.trim_end_matches(|letter: char| letter.is_ascii_alphabetic() || letter == '/');
        let unit = plain.get(digits.len()..).unwrap_or_default();
        let factor = bits_of(unit).ok_or_else(syntax)?;
        let number: f64 = digits.trim_end().parse().map_err(|_| syntax())?;
        let bits = number * factor;
        if !bits.is_finite() {
            return Err(RateError::OutOfRange);
        }
        // A cast from a float to an integer saturates, so a number that is out of range stays out of range.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
        Self::from_bits_per_second(bits.round() as u64)
    }
}

/// Returns the number of bits per second that a unit stands for; `None` for an unknown unit. Units in bytes
/// depend on the case of letters, units in bits do not.
fn bits_of(unit: &str) -> Option<f64> {
    let bits = match unit {
        "B/s" => 8e0,
        "kB/s" | "KB/s" => 8e3,
        "MB/s" => 8e6,
        "GB/s" => 8e9,
        "KiB/s" => 8.0 * 1024.0,
        "MiB/s" => 8.0 * 1_048_576.0,
        "GiB/s" => 8.0 * 1_073_741_824.0,
        _ => {
            let lower = unit.to_ascii_lowercase();
            match lower.strip_suffix("/s").unwrap_or(&lower) {
                "bit" => 1e0,
                "kbit" => 1e3,
                "mbit" => 1e6,
                "gbit" => 1e9,
                "tbit" => 1e12,
                _ => return None,
            }
        }
    };
    Some(bits)
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            1_000_000_000.. => (1_000_000_000, "Gbit/s"),
            1_000_000.. => (1_000_000, "Mbit/s"),
            _ => (1_000, "kbit/s"),
        };
        let tenths = self.0 * 10 / unit;
        match (tenths / 10, tenths % 10) {
            (whole, 0) => write!(f, "{whole} {name}"),
            (whole @ 100.., _) => write!(f, "{whole} {name}"),
            (whole, tenth) => write!(f, "{whole}.{tenth} {name}"),
        }
    }
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_a_number_with_a_unit() {
        for (text, bits) in [
            ("100mbit", 100_000_000),
            ("1.5Gbit/s", 1_500_000_000),
            (" 64 kbit ", 64_000),
            ("1000gbit", 1_000_000_000_000),
            ("1tbit", 1_000_000_000_000),
            ("8000bit", 8000),
            ("5MB/s", 40_000_000),
            ("1.5 kB/s", 12_000),
            ("125B/s", 1_000),
            ("1 MiB/s", 8_388_608),
            ("0.5GiB/s", 4_294_967_296),
        ] {
            assert_eq!(text.parse::<Rate>().map(Rate::bits_per_second), Ok(bits));
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_word() {
        for text in [
            "", "mbit", "100", "fast", "100mb", "1e", "--3mbit", "5MB", "5Mb/s", "5mbps", "5mb/s",
            "5//s",
        ] {
            assert_eq!(text.parse::<Rate>(), Err(RateError::Syntax(text.to_owned())));
        }
        for text in ["0mbit", "999bit", "-5mbit", "1001gbit", "NaNmbit", "1e300gbit", "infbit"] {
            let refused = text.parse::<Rate>();
            assert!(refused.is_err(), "{text} is {refused:?}");
        }
    }

    #[test]
    fn bytes_and_times_agree() {
        let link = Rate(100_000_000);
        assert_eq!(link.bytes_in(Duration::from_millis(100)), 1_250_000);
        assert_eq!(Rate::of(1_250_000, Duration::from_millis(100)), link);
        assert_eq!(Rate::of(u64::MAX, Duration::ZERO), Rate::MAX);
        assert_eq!(Rate::of(0, Duration::from_secs(1)), Rate::MIN);
        assert_eq!(Rate::MAX.bytes_in(Duration::MAX), u64::MAX);
    }

    #[test]
    fn shown_as_people_write_it() {
        for (bits, text) in [
            (64_000, "64 kbit/s"),
            (2_500_000, "2.5 Mbit/s"),
            (100_000_000, "100 Mbit/s"),
            (1_000_000_000, "1 Gbit/s"),
            (2_500_000_000, "2.5 Gbit/s"),
        ] {
            assert_eq!(Rate(bits).to_string(), text);
        }
    }
}
