//! Over how many sessions a disk is spread, and why.

use std::fmt;

/// How many sessions a [`Disk`](crate::Disk) shall have with its unit.
///
/// Several sessions have several TCP connections: where one stops at its windows or at loss, more
/// carry more. Each has a command window of its own, and nothing on one waits for what was lost on
/// another. What they may have under way is bounded together
/// ([`Options::max_bytes_in_flight`](crate::Options)).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Sessions {
    /// As many as the link needs: at first by the tuner's plan, then more as long as the total
    /// rises, and fewer when that changes nothing; at most so many, 1 or more.
    Auto {
        /// The most sessions at once.
        most: u32,
    },
    /// So many, 1 or more.
    Fixed(u32),
}

impl Sessions {
    /// By itself a disk takes no more; and no more than 32 but where loss keeps each of them small.
    pub const MOST: u32 = 64;

    /// The most sessions at once.
    #[must_use]
    pub const fn most(self) -> u32 {
        let (Self::Auto { most: count } | Self::Fixed(count)) = self;
        if count == 0 { 1 } else { count }
    }
}

impl Default for Sessions {
    fn default() -> Self {
        Self::Auto { most: Self::MOST }
    }
}

/// Over how many sessions a disk is spread at a moment, and how that came about.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
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
