//! How a unit was reached: over which sessions and connections, and why.

use std::fmt;

use iscsi_initiator::{Connections, Spread};

use crate::place::Side;

/// How a unit was reached.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reach {
    /// Which end of the copy the unit is.
    pub side: Side,
    /// Over how many sessions it is spread, and why.
    pub spread: Spread,
    /// The connections of its first session.
    pub connections: Connections,
}

impl Reach {
    /// What did not go as wished, with the end it is of.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let notes = self.spread.notes.iter().chain(&self.connections.note);
        notes.map(|note| format!("{}: {note}", self.side))
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.side, self.spread)?;
        if self.spread.peak > self.spread.sessions {
            write!(f, "\n  there were up to {}", self.spread.peak)?;
        }
        if self.connections.wanted > 1 {
            write!(f, "\n  connections of a session: {}", self.connections)?;
        }
        Ok(())
    }
}
