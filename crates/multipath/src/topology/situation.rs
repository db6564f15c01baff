//! What there is, and what is done about it.

use std::time::Instant;

use iscsi_pdu::Isid;

use crate::ids::{PathId, PortalId};

/// Identifies a session that is being opened. No number is used twice.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct OpenId(pub(super) u32);

/// An open session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Session {
    /// Younger sessions have greater numbers.
    pub path: PathId,
    /// The portal that it goes to.
    pub portal: PortalId,
    /// What it does.
    pub state: SessionState,
}

/// What an open session does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SessionState {
    /// It takes requests when none is at a better port.
    Working,
    /// It takes requests now.
    InUse,
    /// Its port has refused a request for its state, so it takes none.
    NotServed,
    /// It takes no more requests, and is logged out when those that it has are answered.
    Closing,
}

/// A session that was lost, and that should reconnect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lost {
    /// The name under which it reconnects. No two logins under one name may be in progress: the later one ends the
    /// session of the earlier one (RFC 7143 §6.3.5).
    pub isid: Isid,
    /// The portal that it went to.
    pub portal: PortalId,
}

/// A change of the number of sessions that the tuner wants.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Count {
    /// As it is.
    #[default]
    Stay,
    /// This number of further sessions.
    More(u32),
    /// This number of sessions in use less.
    Fewer(u32),
}

/// What the unit, its paths and the requests need now.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The number of portals that are known.
    pub portals: usize,
    /// The open sessions.
    pub sessions: &'a [Session],
    /// The lost sessions that should reconnect.
    pub lost: &'a [Lost],
    /// The most concurrent sessions.
    pub max: u32,
    /// What the tuner wants.
    pub count: Count,
    /// All portals of the target are asked for (`portals=auto`).
    pub wants_all_portals: bool,
    /// A request has found no path that serves the unit.
    pub lacks_port: bool,
    /// Flushes are slow, or a flush waits, so that a second session is of use.
    pub wants_second: bool,
}

/// Why a session is opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Why {
    /// More sessions are wanted.
    Count,
    /// The only session may end during a slow flush.
    Flush,
    /// This session was lost.
    Lost(Isid),
    /// No path serves the unit; the port of this portal may.
    Need,
    /// The port of this portal did not serve the unit before.
    Standby,
    /// The portal has no session.
    Spare,
    /// The portal has no session, and another one has several.
    Spread,
    /// Sessions are at worse ports than there are.
    Better,
}

impl Why {
    /// The name under which the session logs in, if it is that of a lost one.
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
    /// Its name until it is open.
    pub id: OpenId,
    /// The reason.
    pub why: Why,
    /// The portals to try, in this order: the first that answers is used.
    pub portals: Vec<PortalId>,
}

/// Why a session is closed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CloseReason {
    /// Its port does not serve the unit.
    NotServed,
    /// There are more than are wanted.
    Surplus,
}

/// The sessions to open and to close, and when to ask again.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Changes {
    /// Sessions to open.
    pub open: Vec<Open>,
    /// Sessions to close when their requests are answered.
    pub close: Vec<(PathId, CloseReason)>,
    /// When a rule may apply that does not apply yet.
    pub again: Option<Instant>,
}

/// What becomes of a session that was opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Admission {
    /// It joins the others.
    Join,
    /// It joins the others in place of this one, which closes.
    Replace(PathId),
    /// It is of no use by now, and is logged out.
    Dismiss,
}
