//! Defines the results of background work that the supervisor of a disk has started.

use iscsi_multipath::PathId;
use iscsi_multipath::port_groups::Answer;
use iscsi_multipath::topology::Open;
use iscsi_pdu::TargetAddress;

use crate::error::Error;
use crate::multipath::paths::path::Path;
use crate::multipath::supervisor::reinstatement::Lost;

/// Result of a task that the supervisor started.
#[derive(Debug)]
pub(crate) enum Event {
    /// A session was opened, or could not be.
    Opened(Open, Result<Path, NotOpened>),
    /// The attempt to settle the writes of a lost session, so that the target executes them no
    /// more, has ended.
    Settled(Lost, Result<(), Error>),
    /// A session was logged out because the disk is closed.
    LoggedOut(Path, Result<(), Error>),
    /// The unit has reported the states of its ports over this session, or the query failed.
    Access(PathId, Result<Answer, Error>),
    /// The target has reported its portals, or the query failed.
    Portals(Result<Vec<TargetAddress>, Error>),
    /// The idle poll of the unit has ended.
    Polled(Result<(), Error>),
    /// A session was logged out because it is not needed.
    LetGo(Path, Result<(), Error>),
    /// A session that was not needed was not logged out: it was lost before, or is needed again.
    Stayed(Path),
}

/// Why a session was not opened.
#[derive(Debug)]
pub(crate) struct NotOpened {
    /// Error of the last try.
    pub(super) why: Error,
    /// Whether a retry would fail at every portal.
    pub(super) is_final: bool,
}

impl NotOpened {
    /// Returns a failure after which a later retry may succeed.
    pub(crate) const fn yet(why: Error) -> Self {
        Self { why, is_final: false }
    }
}
