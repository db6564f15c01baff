//! Calculates ceilings: the rate that one limit allows at a round-trip time, and the setting that raises the
//! limit.
//!
//! The number of bytes in flight limits the rate, because each byte stays in flight for one or more round
//! trips:
//!
//! ```text
//! rate <= bytes in flight / (round-trip time x round trips)
//! ```

use std::time::Duration;

use iscsi_tuner::Rate;

/// The highest rate that one limit allows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ceiling {
    /// The limit.
    pub limit: Limit,
    /// The rate. [`Rate::MAX`] also stands for any higher rate.
    pub rate: Rate,
    /// The numbers from which the rate was calculated, as text.
    pub because: String,
    /// The setting that raises the limit; `None` if there is none.
    pub remedy: Option<String>,
}

/// Limits of a data flow.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Limit {
    /// The rate of the link's narrowest part.
    Link,
    /// The number of requests in flight, and the round trips of each request.
    Queue,
    /// The number of commands that the target accepts.
    CommandWindow,
    /// The send buffer of this host.
    SendBuffer,
    /// TCP windows of at most 64 KiB, because window scaling is off (RFC 7323).
    UnscaledWindow,
    /// The loss of segments.
    Loss,
}

impl Limit {
    /// Returns the name of the limit as readable text.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Queue => "queue",
            Self::CommandWindow => "command window",
            Self::SendBuffer => "send buffer",
            Self::UnscaledWindow => "unscaled TCP window",
            Self::Loss => "loss",
        }
    }
}

/// Returns the rate at which `bytes` bytes are in flight, if each byte stays in flight for `round_trips` round
/// trips.
#[must_use]
pub fn rate(bytes: u64, round_trip: Duration, round_trips: u64) -> Rate {
    let trips = u32::try_from(round_trips.max(1)).unwrap_or(u32::MAX);
    Rate::of(bytes, round_trip.saturating_mul(trips))
}

/// Returns the lowest ceiling. If several are equal, returns the first of them.
#[must_use]
pub fn lowest(ceilings: &[Ceiling]) -> Option<&Ceiling> {
    ceilings.iter().min_by_key(|ceiling| ceiling.rate)
}

/// Returns a rate as readable text.
#[must_use]
pub fn shown(rate: Rate) -> String {
    if rate == Rate::MAX { format!("{rate} or more") } else { rate.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENTH: Duration = Duration::from_millis(100);

    #[test]
    fn what_is_under_way_leaves_once_a_round_trip() {
        assert_eq!(rate(1_250_000, TENTH, 1), "100mbit".parse().unwrap());
        assert_eq!(rate(1_250_000, TENTH, 5), "20mbit".parse().unwrap());
        assert_eq!(rate(1_250_000, TENTH, 0), rate(1_250_000, TENTH, 1));
    }

    #[test]
    fn where_round_trips_take_no_time_nothing_is_limited() {
        assert_eq!(rate(1, Duration::ZERO, 3), Rate::MAX);
        assert_eq!(rate(u64::MAX, Duration::MAX, u64::MAX), Rate::MIN);
        assert_eq!(shown(Rate::MAX), "1000 Gbit/s or more");
    }

    #[test]
    fn of_equal_ceilings_the_first_counts() {
        let ceiling = |limit, text: &str| Ceiling {
            limit,
            rate: text.parse().unwrap(),
            because: String::new(),
            remedy: None,
        };
        let ceilings = [
            ceiling(Limit::Link, "20mbit"),
            ceiling(Limit::Queue, "10mbit"),
            ceiling(Limit::CommandWindow, "10mbit"),
        ];
        assert_eq!(lowest(&ceilings).map(|found| found.limit), Some(Limit::Queue));
        assert_eq!(lowest(&[]), None);
    }
}
