//! Describes the sessions of a disk as a whole: how many there are, why, and what the disk waits for.

use std::fmt;

use crate::error::Error;
use crate::events::disk_event::DiskEvent;
use crate::events::waiting::Waiting;

/// State of a disk at one moment: how many sessions it has, why, and what it waits for.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DiskStatus {
    /// Number of sessions that carry data now.
    pub sessions: u32,
    /// Highest number of concurrent sessions so far.
    pub peak: u32,
    /// Number of sessions that the disk wants.
    pub wanted: u32,
    /// Reason for the number of wanted sessions.
    pub reason: SessionsReason,
    /// Number of further sessions that are being opened.
    pub opening: u32,
    /// Number of lost sessions that are being reconnected.
    pub reconnecting: u32,
    /// Number of reconnects so far.
    pub reconnects: u64,
    /// Error of the latest session that was not opened or not reconnected, or whose port did not serve the
    /// unit; `None` if there was none. A later success does not reset it.
    pub refusal: Option<Error>,
    /// Problems that did not stop the disk, such as a session that was lost or a portal that does not
    /// answer: the latest 16, the oldest first.
    pub notes: Vec<DiskEvent>,
    /// Things that the disk waits for now, such as a unit that takes no requests or a session that cannot
    /// be reconnected; empty if nothing waits. While no session is left, all requests wait for the
    /// first one that is reconnected.
    pub waits: Vec<Waiting>,
}

/// Reasons for the number of sessions that a disk wants.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum SessionsReason {
    /// The disk was opened over an existing session.
    OneSession,
    /// No identifier would show that a second session leads to the same unit: the reason, as a sentence
    /// without a full stop.
    Unidentified(&'static str),
    /// [`Options::with_sessions`](crate::Options::with_sessions) or the URL sets the number.
    Fixed,
    /// The tuner chooses the number: its reason, as a sentence without a full stop.
    Tuned(String),
}

impl DiskStatus {
    /// Returns why the disk has this number of sessions, as a sentence without a full stop. Includes why
    /// wanted sessions are missing.
    #[must_use]
    pub fn explain(&self) -> String {
        let mut missing = Vec::new();
        if self.opening > 0 {
            missing.push(format!("{} not open yet", self.opening));
        }
        if self.reconnecting > 0 {
            missing.push(format!("{} lost and not back yet", self.reconnecting));
        }
        if self.reason == SessionsReason::Fixed && self.sessions < self.wanted {
            let known = self.sessions + self.opening + self.reconnecting;
            let gone = self.wanted.saturating_sub(known);
            match &self.refusal {
                _ if gone == 0 => {}
                Some(error) => missing.push(format!("{gone} not to be had ({error})")),
                None => missing.push(format!("{gone} lost")),
            }
            return format!("{} asked for; {}", self.wanted, missing.join(", "));
        }
        missing.insert(0, self.reason.to_string());
        missing.join("; ")
    }
}

impl Default for SessionsReason {
    fn default() -> Self {
        Self::Tuned(String::new())
    }
}

impl fmt::Display for SessionsReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OneSession => "a disk of one session",
            Self::Unidentified(why) => why,
            Self::Fixed => "as asked for",
            Self::Tuned(why) => why,
        })
    }
}

/// Writes the number of sessions with the reason, then a line for each note and each wait.
impl fmt::Display for DiskStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sessions = if self.sessions == 1 { "session" } else { "sessions" };
        write!(f, "{} {sessions}: {}", self.sessions, self.explain())?;
        self.notes.iter().try_for_each(|note| write!(f, "\n  {note}"))?;
        self.waits.iter().try_for_each(|wait| write!(f, "\n  waiting: {wait}"))
    }
}

/// Serializes the reason as [`explain`](Self::explain) returns it, and each note as its sentence.
#[cfg(feature = "serde")]
impl serde::Serialize for DiskStatus {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let notes: Vec<_> = self.notes.iter().map(ToString::to_string).collect();
        let mut status = serializer.serialize_struct("DiskStatus", 9)?;
        status.serialize_field("sessions", &self.sessions)?;
        status.serialize_field("peak", &self.peak)?;
        status.serialize_field("wanted", &self.wanted)?;
        status.serialize_field("reason", &self.explain())?;
        status.serialize_field("opening", &self.opening)?;
        status.serialize_field("reconnecting", &self.reconnecting)?;
        status.serialize_field("reconnects", &self.reconnects)?;
        status.serialize_field("notes", &notes)?;
        status.serialize_field("waits", &self.waits)?;
        status.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_explained_what_has_become_of_missing_sessions() {
        let fixed = DiskStatus {
            sessions: 1,
            wanted: 4,
            reason: SessionsReason::Fixed,
            opening: 1,
            reconnecting: 1,
            ..DiskStatus::default()
        };
        let text = "4 asked for; 1 not open yet, 1 lost and not back yet, 1 lost";
        assert_eq!(fixed.explain(), text);
        let refused = DiskStatus { refusal: Some(Error::closed()), ..fixed.clone() };
        assert!(refused.explain().contains("1 not to be had ("), "{refused}");
        let whole = DiskStatus { sessions: 4, opening: 0, reconnecting: 0, ..fixed };
        assert_eq!(whole.to_string(), "4 sessions: as asked for");
        let tuned = DiskStatus {
            sessions: 1,
            wanted: 2,
            reason: SessionsReason::Tuned("one fills the link".to_owned()),
            reconnecting: 1,
            ..DiskStatus::default()
        };
        assert_eq!(tuned.explain(), "one fills the link; 1 lost and not back yet");
    }
}
