//! Over how many sessions a disk is spread, and why.

use std::fmt;
use std::time::Duration;

/// The sessions of a disk at one moment: how many there are, why, and what the disk waits for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Spread {
    /// Number of sessions that carry data now.
    pub sessions: u32,
    /// Highest number of concurrent sessions so far.
    pub peak: u32,
    /// Number of reconnects: lost sessions that were opened again.
    pub reopened: u64,
    /// Reason for this number of sessions, as a sentence without a full stop. It includes why a
    /// wanted session is missing.
    pub reason: String,
    /// Problems that did not stop the disk, such as a session that was refused or a portal that
    /// does not answer.
    pub notes: Vec<String>,
    /// Things that the disk waits for now, such as a unit that takes no requests or a session that cannot
    /// be reconnected; empty if nothing waits. While no session is left, all requests wait for the
    /// first one that is reconnected.
    pub waits: Vec<Waiting>,
}

/// Something that a disk waits for.
#[derive(Clone, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Waiting {
    /// Cause of the wait, with its reason.
    pub reason: String,
    /// Time that the disk has waited so far.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "seconds", serialize_with = "serialize::seconds")
    )]
    pub elapsed: Duration,
    /// Time limit after which waiting requests fail; `None` if there is no limit.
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
