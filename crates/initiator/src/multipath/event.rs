//! Results of background work started by the supervisor of a disk.

use iscsi_multipath::PathId;
use iscsi_multipath::port_groups::Answer;
use iscsi_multipath::topology::Open;
use iscsi_pdu::TargetAddress;

use crate::error::Error;
use crate::multipath::path::Path;
use crate::multipath::reinstatement::Lost;

/// Result of a task that the supervisor started.
#[derive(Debug)]
pub(crate) enum Event {
    /// A session was opened, or could not be.
    Opened(Open, Result<Path, NotOpened>),
    /// The attempt to settle what a lost session has left has ended.
    Settled(Lost, Result<(), Error>),
    /// A session was logged out because the disk is closed.
    LoggedOut(Path, Result<(), Error>),
    /// A session has answered the question for the states of the ports.
    Access(PathId, Result<Answer, Error>),
    /// The target has answered the question for its portals.
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
    /// Whether another try is of no use at any portal.
    pub(super) is_final: bool,
}

impl NotOpened {
    /// Returns a failure after which another try may succeed later.
    pub(crate) const fn yet(why: Error) -> Self {
        Self { why, is_final: false }
    }
}
