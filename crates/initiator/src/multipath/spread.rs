//! Over how many sessions a disk is spread, and why.

use std::fmt;
use std::time::Duration;

/// Over how many sessions a disk is spread at a moment, and how that came about.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Spread {
    /// Sessions that carry data.
    pub sessions: u32,
    /// The most there were at once.
    pub peak: u32,
    /// Sessions that were lost and opened anew.
    pub reopened: u64,
    /// Why there are as many as there are, as a sentence without its full stop: also what keeps those
    /// that are wanted and not there.
    pub reason: String,
    /// What did not go as wished: a session that was refused, a portal that does not answer.
    pub notes: Vec<String>,
    /// What is waited for at this moment: a unit that takes no requests, a session that does not come
    /// back. Empty if all flows. With no session left, all requests wait for the first one that comes back.
    pub waits: Vec<Waiting>,
}

/// Something that a disk waits for.
#[derive(Clone, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Waiting {
    /// What is waited for, and why.
    pub reason: String,
    /// How long it has been waited for.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "seconds", serialize_with = "serialize::seconds")
    )]
    pub elapsed: Duration,
    /// How long requests wait for it at most; `None` if nothing limits that.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "limit_seconds", serialize_with = "serialize::seconds_if_any")
    )]
    pub limit: Option<Duration>,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} s so far", self.reason, self.elapsed.as_secs())?;
        match self.limit {
            Some(limit) => write!(f, ", up to {} s)", limit.as_secs()),
            None => f.write_str(")"),
        }
    }
}

#[cfg(feature = "serde")]
mod serialize {
    use std::time::Duration;

    use serde::{Serialize, Serializer};

    pub(super) fn seconds<S: Serializer>(
        time: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(time.as_secs_f64())
    }

    pub(super) fn seconds_if_any<S: Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        time.map(|time| time.as_secs_f64()).serialize(serializer)
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sessions = if self.sessions == 1 { "session" } else { "sessions" };
        write!(f, "{} {sessions}: {}", self.sessions, self.reason)?;
        self.notes.iter().try_for_each(|note| write!(f, "\n  {note}"))?;
        self.waits.iter().try_for_each(|wait| write!(f, "\n  waiting: {wait}"))
    }
}
