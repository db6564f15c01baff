//! The sessions and connections over which a unit was reached, and the reasons.

use std::fmt;
use std::sync::Arc;

use iscsi_initiator::{Connections, Spread};
use serde_json::{Value, json};

use crate::side::Side;

/// The sessions and connections of a unit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reach {
    /// Which end of the copy the unit is.
    pub side: Side,
    /// Which unit of a volume it is, if it is one.
    pub member: Option<Arc<str>>,
    /// Over how many sessions it is spread, and why.
    pub spread: Spread,
    /// The portals that its sessions are with: not those of the URL where logins were redirected.
    pub portals: Vec<String>,
    /// The connections of its first session.
    pub connections: Connections,
}

impl Reach {
    /// Returns the notes on trouble with sessions, each with its end.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let notes = self.spread.notes.iter().chain(&self.connections.note);
        notes.map(|note| format!("{}: {note}", self.place()))
    }

    /// The side, and the unit of a volume there.
    fn place(&self) -> String {
        let member = self.member.iter().map(|member| format!(", {member}"));
        std::iter::once(self.side.to_string()).chain(member).collect()
    }

    /// The portals for programs, with the end that they are of.
    pub(crate) fn portals_to_json(&self) -> Value {
        json!({ "end": self.place(), "portals": self.portals })
    }

    /// The same without what did not go as wished, for those who were told when it came up.
    #[must_use]
    pub(crate) fn without_notes(mut self) -> Self {
        self.spread.notes.clear();
        self.connections.note = None;
        self
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { spread, connections, .. } = self;
        let place = self.place();
        let word = if spread.sessions == 1 { "session" } else { "sessions" };
        write!(f, "{place}: {} {word}: {}", spread.sessions, spread.reason)?;
        if spread.peak > spread.sessions {
            write!(f, "\n  there were up to {}", spread.peak)?;
        }
        if connections.wanted > 1 {
            let Connections { open, wanted, .. } = connections;
            write!(f, "\n  connections of a session: {open} of {wanted}")?;
        }
        let mut notes = spread.notes.iter().chain(&connections.note);
        notes.try_for_each(|note| write!(f, "\n  {note}"))
    }
}
