//! Over how many sessions a disk is spread, and why.

use std::fmt;

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
    /// What is waited for at this moment, and for how long so far: a unit that takes no requests, a
    /// session that does not come back. Empty if all flows.
    pub waits: Vec<String>,
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sessions = if self.sessions == 1 { "session" } else { "sessions" };
        write!(f, "{} {sessions}: {}", self.sessions, self.reason)?;
        self.notes.iter().try_for_each(|note| write!(f, "\n  {note}"))?;
        self.waits.iter().try_for_each(|wait| write!(f, "\n  waiting: {wait}"))
    }
}
