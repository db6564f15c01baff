//! Reports the sessions and connections over which a unit was reached, and the reasons for their number.

use std::fmt;
use std::sync::Arc;

use iscsi_initiator::Connections;
use serde_json::{Value, json};

use crate::side::Side;

/// The sessions and connections of a unit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reach {
    /// The side of the unit.
    pub side: Side,
    /// Name of the unit within a volume.
    pub member: Option<Arc<str>>,
    /// Number of sessions that carry data.
    pub sessions: u32,
    /// Highest number of concurrent sessions so far.
    pub peak: u32,
    /// Number of lost sessions that were reconnected.
    pub reconnects: u64,
    /// Reason for this number of sessions, as a sentence without a full stop.
    pub reason: String,
    /// Notes on sessions that failed or could not be opened.
    pub notes: Vec<String>,
    /// The portals of the unit's sessions. If the target has redirected logins, they differ from those of the
    /// URL.
    pub portals: Vec<String>,
    /// The connections of the unit's first session.
    pub connections: Connections,
}

impl Reach {
    /// Returns the notes on trouble with sessions. Each names its side of the copy.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let notes = self.notes.iter().chain(&self.connections.note);
        notes.map(|note| format!("{}: {note}", self.place()))
    }

    /// Returns the side of the unit, and its name within a volume.
    fn place(&self) -> String {
        let member = self.member.iter().map(|member| format!(", {member}"));
        std::iter::once(self.side.to_string()).chain(member).collect()
    }

    /// Returns the portals as JSON, with their side of the copy.
    pub(crate) fn portals_to_json(&self) -> Value {
        json!({ "end": self.place(), "portals": self.portals })
    }

    /// Removes the notes on trouble with sessions, for output after they were shown when they occurred.
    #[must_use]
    pub(crate) fn without_notes(mut self) -> Self {
        self.notes.clear();
        self.connections.note = None;
        self
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sessions, peak, reason, connections, .. } = self;
        let place = self.place();
        let word = if *sessions == 1 { "session" } else { "sessions" };
        write!(f, "{place}: {sessions} {word}: {reason}")?;
        if peak > sessions {
            write!(f, "\n  there were up to {peak}")?;
        }
        if connections.wanted > 1 {
            let Connections { open, wanted, .. } = connections;
            write!(f, "\n  connections of a session: {open} of {wanted}")?;
        }
        let mut notes = self.notes.iter().chain(&connections.note);
        notes.try_for_each(|note| write!(f, "\n  {note}"))
    }
}
