//! Defines the event that the source or the destination of a copy waits for.

use std::fmt;
use std::time::Duration;

use crate::side::Side;

/// Event for which the source or the destination of a copy waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Awaited {
    /// The side that waits, if both sides have a target or a server.
    pub side: Option<Side>,
    /// The peer that the side waits for: the target, the unit or the server.
    pub what: &'static str,
    /// The time limit of the wait; `None` if there is none.
    pub limit: Option<Duration>,
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.side {
            Some(side) => write!(f, "the {side}'s {}", self.what),
            None => write!(f, "the {}", self.what),
        }
    }
}
