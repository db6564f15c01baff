//! What becomes of what the supervisor of a disk has started.

use iscsi_multipath::PathId;
use iscsi_multipath::port_groups::Answer;
use iscsi_multipath::topology::Open;
use iscsi_pdu::TargetAddress;

use crate::error::Error;
use crate::multipath::path::Path;
use crate::multipath::reinstatement::Lost;

/// What became of something that was started.
#[derive(Debug)]
pub(crate) enum Event {
    /// A session was to be opened.
    Opened(Open, Result<Path, NotOpened>),
    /// It was tried in other ways to settle what a lost session has left.
    Settled(Lost, Result<(), Error>),
    /// One was logged out because the disk is closed.
    LoggedOut(Path, Result<(), Error>),
    /// A session was asked for the states of the ports.
    Access(PathId, Result<Answer, Error>),
    /// The target was asked for its portals.
    Portals(Result<Vec<TargetAddress>, Error>),
    /// The unit of an idle disk was asked whether it has something to report.
    Polled(Result<(), Error>),
    /// One was logged out because it is not needed.
    LetGo(Path, Result<(), Error>),
    /// One that was not needed is not logged out: it was lost before, or is needed again.
    Stayed(Path),
}

/// Why a session was not opened.
#[derive(Debug)]
pub(crate) struct NotOpened {
    /// What came of the last try.
    pub(super) why: Error,
    /// Whether another try is of no use anywhere.
    pub(super) is_final: bool,
}

impl NotOpened {
    /// Another try may be of use later.
    pub(crate) const fn yet(why: Error) -> Self {
        Self { why, is_final: false }
    }
}
