//! Rate limits of classes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use iscsi_rate::{Rate, RateError};

/// Rate limit of a class, in bits per second. Parsed from `0`, a rate such as `40mbit`, or `off` for no limit.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum RateLimit {
    /// Nothing passes.
    Zero,
    /// At most this rate.
    Limited(Rate),
    /// No limit.
    Unlimited,
}

impl RateLimit {
    /// Returns the limit in bits per second; `None` if there is no limit.
    #[must_use]
    pub const fn bits_per_second(self) -> Option<u64> {
        match self {
            Self::Zero => Some(0),
            Self::Limited(rate) => Some(rate.bits_per_second()),
            Self::Unlimited => None,
        }
    }

    /// Returns the bytes that pass in a time, rounded up; `None` if there is no limit.
    #[must_use]
    pub fn bytes_in(self, time: Duration) -> Option<u64> {
        match self {
            Self::Zero => Some(0),
            Self::Limited(rate) => Some(rate.bytes_in(time)),
            Self::Unlimited => None,
        }
    }
}

impl From<Rate> for RateLimit {
    fn from(rate: Rate) -> Self {
        Self::Limited(rate)
    }
}

impl FromStr for RateLimit {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        match text.trim() {
            "0" => Ok(Self::Zero),
            text if text.eq_ignore_ascii_case("off") => Ok(Self::Unlimited),
            text => text.parse().map(Self::Limited),
        }
    }
}

impl fmt::Display for RateLimit {
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
        let rate = |bits| RateLimit::Limited(Rate::from_bits_per_second(bits).unwrap());
        for (text, expected) in [
            ("40mbit", rate(40_000_000)),
            (" 1.5 Gbit/s", rate(1_500_000_000)),
            ("off", RateLimit::Unlimited),
            ("OFF ", RateLimit::Unlimited),
            ("0", RateLimit::Zero),
        ] {
            assert_eq!(text.parse::<RateLimit>(), Ok(expected), "{text}");
        }
        for text in ["", "of", "40", "-1mbit", "0mbit", "unlimited"] {
            assert!(text.parse::<RateLimit>().is_err(), "{text}");
        }
        assert_eq!(rate(40_000_000).to_string(), "40 Mbit/s");
        assert_eq!(
            (RateLimit::Zero.to_string(), RateLimit::Unlimited.to_string()),
            ("0".into(), "off".into())
        );
    }

    #[test]
    fn rates_are_in_order() {
        assert!(RateLimit::Zero < RateLimit::Limited(Rate::MIN));
        assert!(RateLimit::Limited(Rate::MIN) < RateLimit::Limited(Rate::MAX));
        assert!(RateLimit::Limited(Rate::MAX) < RateLimit::Unlimited);
    }
}
