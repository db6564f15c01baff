//! Describes the state of each path of a disk.

use std::fmt;
use std::time::Duration;

use iscsi_pdu::TargetAddress;
use iscsi_pdu::scsi::AccessState;

use crate::error::Error;
use crate::state::session_key::SessionKey;
use crate::url::portal_name;

/// State of one path of a disk at one moment. A path is a session, or a lost session that is being reconnected.
#[doc(alias("multipath", "I_T nexus"))]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PathStatus {
    /// Portal of the session. After a redirection it differs from the portal in the URL.
    pub portal: TargetAddress,
    /// Key of the session.
    pub key: SessionKey,
    /// State of the path.
    pub state: PathState,
    /// Access state of the target port (ALUA). It is active/optimized if the unit does not report states;
    /// `None` while the session is being reconnected.
    pub access: Option<AccessState>,
    /// Round-trip time of the leading connection, measured by TCP; `None` until it was measured.
    pub round_trip: Option<Duration>,
    /// Number of commands of this disk in flight.
    pub requests_in_flight: u64,
    /// Bytes that these commands move.
    pub bytes_in_flight: u64,
}

/// States of a path.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PathState {
    /// Requests use the path.
    Open,
    /// The unit did not take a request over this path. Other paths are preferred for a short time.
    Busy,
    /// Commands are in flight, and none was answered for long. Requests use other paths, if there are any.
    #[doc(alias = "marginal")]
    Silent,
    /// Requests use other paths, whose target ports have better [access states](PathStatus::access).
    Standby,
    /// The path takes no new requests. Its session is logged out when the requests in flight have ended.
    Draining,
    /// The session was lost, and is being reconnected.
    Reconnecting {
        /// Time since the reconnect began.
        elapsed: Duration,
        /// Time until the next try; `None` while a try is in progress.
        next_try: Option<Duration>,
        /// Error of the last try; before the first try has ended, the reason why the session was lost.
        error: Error,
    },
}

/// Writes one line of readable text.
impl fmt::Display for PathStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { portal, key, state, access, round_trip, requests_in_flight, .. } = self;
        write!(f, "session {key} with {}: {state}", portal_name(portal))?;
        if let Some(access) = access {
            write!(f, ", port {access}")?;
        }
        if let Some(round_trip) = round_trip {
            write!(f, ", round trip {round_trip:.1?}")?;
        }
        match requests_in_flight {
            0 => Ok(()),
            count => write!(f, ", {count} in flight"),
        }
    }
}

impl fmt::Display for PathState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Busy => "busy",
            Self::Silent => "silent",
            Self::Standby => "standby",
            Self::Draining => "draining",
            Self::Reconnecting { elapsed, error, .. } => {
                return write!(f, "reconnecting for {} s: {error}", elapsed.as_secs());
            }
        })
    }
}

/// Serializes each state as its word.
#[cfg(feature = "serde")]
impl serde::Serialize for PathStatus {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let access = self.access.as_ref().map(ToString::to_string);
        let mut status = serializer.serialize_struct("PathStatus", 7)?;
        status.serialize_field("portal", &portal_name(&self.portal))?;
        status.serialize_field("key", &self.key)?;
        status.serialize_field("state", &self.state.to_string())?;
        status.serialize_field("access", &access)?;
        status.serialize_field("round_trip", &self.round_trip.map(|time| time.as_secs_f64()))?;
        status.serialize_field("requests_in_flight", &self.requests_in_flight)?;
        status.serialize_field("bytes_in_flight", &self.bytes_in_flight)?;
        status.end()
    }
}
