//! Input and output types of the topology.

use std::time::Instant;

use iscsi_pdu::Isid;

use crate::ids::{PathId, PortalId};

/// Identifies a session that is being opened. No number is used twice.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct OpenId(pub(super) u32);

/// An open session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Session {
    /// The path; younger sessions have higher numbers.
    pub path: PathId,
    /// The portal of the session.
    pub portal: PortalId,
    /// The state of the session.
    pub state: SessionState,
}

/// State of an open session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SessionState {
    /// The session works, but takes no requests while another session is at a better port.
    Working,
    /// The session takes requests now.
    InUse,
    /// The port of the session has refused a request because of its state, so the session takes no requests.
    NotServed,
    /// The session takes no more requests, and is logged out when its requests have completed.
    Closing,
}

/// A lost session that should reconnect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lost {
    /// The ISID under which the session reconnects. No two logins with the same ISID may be in progress: the
    /// later login ends the session of the earlier one (RFC 7143 §6.3.5).
    pub isid: Isid,
    /// The portal of the session.
    pub portal: PortalId,
}

/// Change of the number of sessions that the tuner wants.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Count {
    /// No change.
    #[default]
    Stay,
    /// Open this number of further sessions.
    More(u32),
    /// Close this number of sessions in use.
    Fewer(u32),
}

/// Present state of the unit, its paths and the requests, as far as the topology needs it.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The number of known portals.
    pub portals: usize,
    /// The open sessions.
    pub sessions: &'a [Session],
    /// The lost sessions that should reconnect.
    pub lost: &'a [Lost],
    /// Maximum number of concurrent sessions.
    pub max: u32,
    /// The change that the tuner wants.
    pub count: Count,
    /// Whether all portals of the target are used (`portals=auto`).
    pub wants_all_portals: bool,
    /// Whether a request has found no path that serves the unit.
    pub lacks_port: bool,
    /// Whether a second session would help, because flushes are slow or a flush waits.
    pub wants_second: bool,
}

/// Reason why a session is opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Why {
    /// More sessions are wanted.
    Count,
    /// The only session may end during a slow flush.
    Flush,
    /// The session with this ISID was lost.
    Lost(Isid),
    /// No path serves the unit, but the port of this portal may.
    Need,
    /// The port of this portal did not serve the unit before; the session shows whether it does now.
    Standby,
    /// The portal has no session.
    Spare,
    /// The portal has no session, and another one has several.
    Spread,
    /// Sessions are at worse ports than necessary, and move.
    Better,
}

impl Why {
    /// Returns the ISID under which the session logs in, if it replaces a lost one.
    pub(super) const fn isid(self) -> Option<Isid> {
        match self {
            Self::Lost(isid) => Some(isid),
            Self::Count
            | Self::Flush
            | Self::Need
            | Self::Standby
            | Self::Spare
            | Self::Spread
            | Self::Better => None,
        }
    }
}

/// A session to open.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Open {
    /// Identifier of the session until it is open.
    pub id: OpenId,
    /// The reason.
    pub why: Why,
    /// The portals to try, in order. The first portal that responds is used.
    pub portals: Vec<PortalId>,
}

/// Reason why a session is closed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CloseReason {
    /// The port of the session does not serve the unit.
    NotServed,
    /// There are more sessions than are wanted.
    Surplus,
}

/// The sessions to open and to close, and when to poll again.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Changes {
    /// Sessions to open.
    pub open: Vec<Open>,
    /// Sessions to close when their requests have completed.
    pub close: Vec<(PathId, CloseReason)>,
    /// The earliest time at which another rule may apply.
    pub again: Option<Instant>,
}

/// How to use a session that was opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Admission {
    /// Use the session in addition to the others.
    Join,
    /// Use the session instead of the session on this path, which closes.
    Replace(PathId),
    /// The session is not needed any more: log it out.
    Dismiss,
}
