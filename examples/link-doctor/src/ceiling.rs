//! Ceilings: the rate that one limit allows at a round-trip time, and the setting that lifts it.
//!
//! The bytes in flight leave once per round trip:
//!
//! ```text
//! rate <= bytes in flight / (round-trip time x round trips)
//! ```

use std::time::Duration;

use iscsi_tuner::Rate;

/// The rate that one limit allows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ceiling {
    /// The limit.
    pub limit: Limit,
    /// The rate. [`Rate::MAX`] also stands for any higher rate.
    pub rate: Rate,
    /// The numbers from which the rate follows.
    pub because: String,
    /// The setting that lifts the limit; `None` if none does.
    pub remedy: Option<String>,
}

/// Limits of a flow.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Limit {
    /// The rate of the link's narrowest part.
    Link,
    /// The requests of the program in flight, and the round trips of each.
    Queue,
    /// The commands that the target accepts.
    CommandWindow,
    /// The send buffer of this end.
    SendBuffer,
    /// TCP windows that cannot exceed 64 KiB (RFC 7323).
    UnscaledWindow,
    /// Lost segments.
    Loss,
}

impl Limit {
    /// Returns the name for people.
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

/// Returns the rate that keeps `bytes` in flight, if each stays in flight for `round_trips` round
/// trips.
#[must_use]
pub fn rate(bytes: u64, round_trip: Duration, round_trips: u64) -> Rate {
    let trips = u32::try_from(round_trips.max(1)).unwrap_or(u32::MAX);
    Rate::of(bytes, round_trip.saturating_mul(trips))
}

/// Returns the lowest ceiling; the first one of several equal ones.
#[must_use]
pub fn lowest(ceilings: &[Ceiling]) -> Option<&Ceiling> {
    ceilings.iter().min_by_key(|ceiling| ceiling.rate)
}

/// Returns a rate for people.
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
