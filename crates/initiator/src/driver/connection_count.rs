//! Counts the connections of a session, and keeps the reasons for missing ones.

use std::fmt;

/// Number of connections of a session (RFC 7143 §4.2.2): open and wanted, and the reasons if fewer are open.
#[doc(alias = "MC/S")]
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Connections {
    /// Number of connections in full feature phase.
    pub open: u32,
    /// Number of connections that the options ask for:
    /// [`Options::with_connections`](crate::Options::with_connections).
    pub wanted: u32,
    /// Reasons for missing connections, a sentence each; `None` if there is none.
    pub note: Option<String>,
}

impl Connections {
    /// Creates the state before any connection is open.
    pub(crate) const fn wanted(wanted: u16) -> Self {
        Self { open: 0, wanted: wanted as u32, note: None }
    }

    /// Adds a reason; a reason that several connections have in common is noted once.
    pub(crate) fn remark(&mut self, reason: &str) {
        match &mut self.note {
            Some(note) if note.contains(reason) => {}
            Some(note) => *note = format!("{note}; {reason}"),
            None => self.note = Some(reason.to_owned()),
        }
    }
}

impl fmt::Display for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { open, wanted, note } = self;
        write!(f, "{open} of {wanted}")?;
        note.as_ref().map_or(Ok(()), |note| write!(f, ": {note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_noted_once() {
        let mut connections = Connections::wanted(4);
        assert_eq!(connections.to_string(), "0 of 4");
        for reason in ["the target agrees to 3", "one was lost", "one was lost"] {
            connections.remark(reason);
        }
        assert_eq!(connections.to_string(), "0 of 4: the target agrees to 3; one was lost");
    }
}
