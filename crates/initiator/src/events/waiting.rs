//! Describes what a disk waits for.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use iscsi_pdu::TargetAddress;

use crate::error::{Error, of_blocks};
use crate::state::session_key::SessionKey;

/// Something that a disk waits for.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Waiting {
    /// Cause of the wait.
    #[cfg_attr(feature = "serde", serde(rename = "reason", serialize_with = "serialize::text"))]
    pub cause: WaitCause,
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

/// Causes of a wait.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum WaitCause {
    /// The unit does not take a request at present, and the request is retried.
    #[doc(alias("BUSY", "TASK SET FULL", "NOT READY"))]
    UnitRefuses {
        /// Error that the unit has reported last.
        error: Error,
    },
    /// A session was lost, and is being reconnected.
    Reconnect {
        /// Portal of the lost session.
        portal: TargetAddress,
        /// Key of the lost session.
        key: SessionKey,
        /// Reason why the session was lost.
        lost: Error,
        /// Error of the last try to reconnect; `None` before the first try has ended.
        last_try: Option<Error>,
    },
    /// Requests were in flight on several sessions in a row that were lost. Each request is sent alone, to
    /// find the request that ends sessions.
    SentAlone,
    /// Sessions were lost while they had only this request in flight. The request fails if that happens a few
    /// times.
    EndsSessions {
        /// Name of the command.
        command: &'static str,
        /// Blocks of the command, if it has any.
        blocks: Option<Range<u64>>,
        /// Number of lost sessions.
        sessions: u32,
        /// Reason why the last of these sessions was lost.
        error: Error,
    },
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} s so far", self.cause, self.elapsed.as_secs())?;
        match self.limit {
            Some(limit) => write!(f, ", up to {} s)", limit.as_secs()),
            None => f.write_str(")"),
        }
    }
}

impl fmt::Display for WaitCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnitRefuses { error } => write!(f, "the unit answers {}", answer_of(error)),
            Self::Reconnect { lost, last_try: None, .. } => {
                write!(f, "a session was lost: {lost}")
            }
            Self::Reconnect { lost, last_try: Some(why), .. } => {
                write!(f, "a session was lost: {lost}; trying again, the last try: {why}")
            }
            Self::SentAlone => f.write_str(
                "requests that were in flight on several sessions in a row that were lost are sent alone",
            ),
            Self::EndsSessions { command, blocks, sessions, error } => {
                write_alone(f, (command, blocks.as_ref()), *sessions, error)
            }
        }
    }
}

/// Returns the status that the unit has sent instead of taking a command, as readable text.
fn answer_of(error: &Error) -> String {
    match (error.sense(), error.status()) {
        (Some(sense), _) => sense.to_string(),
        (None, Some(status)) => status.to_string(),
        (None, None) => "nothing in time".to_owned(),
    }
}

/// Writes the sentence about a request that was alone on lost sessions.
pub(super) fn write_alone(
    f: &mut fmt::Formatter<'_>,
    (command, blocks): (&str, Option<&Range<u64>>),
    sessions: u32,
    error: &Error,
) -> fmt::Result {
    let words = if sessions == 1 { "session that was" } else { "sessions that were" };
    write!(f, "{command}{} was alone on {sessions} {words} lost: {error}", of_blocks(blocks))
}

#[cfg(feature = "serde")]
mod serialize {
    use std::fmt::Display;
    use std::time::Duration;

    use serde::{Serialize, Serializer};

    pub(super) fn text<S: Serializer>(
        text: &impl Display,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(text)
    }

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
