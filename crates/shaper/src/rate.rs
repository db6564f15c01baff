//! How fast a class may send.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use iscsi_tuner::{Bandwidth, BandwidthError};

/// A rate of a class, bits a second. Read as `0`, `40mbit` or `off`, which lifts the limit.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Rate {
    /// Nothing.
    Zero,
    /// This rate.
    Limited(Bandwidth),
    /// No limit.
    Unlimited,
}

impl Rate {
    /// Bits a second; `None` where there is no limit.
    #[must_use]
    pub const fn bits_per_second(self) -> Option<u64> {
        match self {
            Self::Zero => Some(0),
            Self::Limited(rate) => Some(rate.bits_per_second()),
            Self::Unlimited => None,
        }
    }

    /// Bytes that pass in a time, rounded up; `None` where there is no limit.
    #[must_use]
    pub fn bytes_in(self, time: Duration) -> Option<u64> {
        match self {
            Self::Zero => Some(0),
            Self::Limited(rate) => Some(rate.bytes_in(time)),
            Self::Unlimited => None,
        }
    }
}

impl From<Bandwidth> for Rate {
    fn from(rate: Bandwidth) -> Self {
        Self::Limited(rate)
    }
}

impl FromStr for Rate {
    type Err = BandwidthError;

    fn from_str(text: &str) -> Result<Self, BandwidthError> {
        match text.trim() {
            "0" => Ok(Self::Zero),
            text if text.eq_ignore_ascii_case("off") => Ok(Self::Unlimited),
            text => text.parse().map(Self::Limited),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero => f.write_str("0"),
            Self::Limited(rate) => rate.fmt(f),
            Self::Unlimited => f.write_str("off"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_a_rate_or_off() {
        let rate = |bits| Rate::Limited(Bandwidth::from_bits_per_second(bits).unwrap());
        for (text, expected) in [
            ("40mbit", rate(40_000_000)),
            (" 1.5 Gbit/s", rate(1_500_000_000)),
            ("off", Rate::Unlimited),
            ("OFF ", Rate::Unlimited),
            ("0", Rate::Zero),
        ] {
            assert_eq!(text.parse::<Rate>(), Ok(expected), "{text}");
        }
        for text in ["", "of", "40", "-1mbit", "0mbit", "unlimited"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        assert_eq!(rate(40_000_000).to_string(), "40 Mbit/s");
        assert_eq!(
            (Rate::Zero.to_string(), Rate::Unlimited.to_string()),
            ("0".into(), "off".into())
        );
    }

    #[test]
    fn rates_are_in_order() {
        assert!(Rate::Zero < Rate::Limited(Bandwidth::MIN));
        assert!(Rate::Limited(Bandwidth::MIN) < Rate::Limited(Bandwidth::MAX));
        assert!(Rate::Limited(Bandwidth::MAX) < Rate::Unlimited);
    }
}
