//! Parses the number of sessions of a unit on the command line.

use std::num::NonZeroU32;
use std::str::FromStr;

use iscsi_initiator::Sessions;

/// The number of sessions of a unit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SessionCount {
    /// The number that the link needs.
    Auto,
    /// A fixed number, 1 to 64.
    Fixed(NonZeroU32),
}

/// Upper limit: more sessions would crowd out the other clients of the target.
const MAX_SESSIONS: u32 = 64;

impl FromStr for SessionCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let count = text.parse().ok().filter(|count: &NonZeroU32| count.get() <= MAX_SESSIONS);
        count
            .map(Self::Fixed)
            .ok_or_else(|| format!("write auto, or a number from 1 to {MAX_SESSIONS}"))
    }
}

impl From<SessionCount> for Sessions {
    fn from(count: SessionCount) -> Self {
        match count {
            SessionCount::Auto => Self::default(),
            SessionCount::Fixed(count) => Self::Fixed(count.get()),
        }
    }
}
