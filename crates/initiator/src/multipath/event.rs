//! What becomes of what the supervisor of a disk has started.

use iscsi_multipath::port_groups::Answer;
use iscsi_pdu::TargetAddress;

use crate::error::Error;
use crate::multipath::lane::PathId;
use crate::multipath::path::Path;
use crate::multipath::reinstatement::{Lost, NotBack};

/// What became of a session that was to be opened.
#[derive(Debug)]
pub(crate) enum Event {
    /// A further session.
    New(Result<Path, Error>),
    /// A lost session was to be opened anew.
    Again(Lost, Result<Path, NotBack>),
    /// It was tried in other ways to settle what a lost session has left.
    Settled(Lost, Result<(), Error>),
    /// One was logged out because the disk is closed.
    LoggedOut(Path, Result<(), Error>),
    /// One was opened to see whether the port of this portal serves the unit.
    Looked(usize, Result<Path, Error>),
    /// One was opened at a portal that had none, in place of another one.
    Spread(Result<Path, Error>),
    /// One was opened at a portal with a better port, in place of another one.
    Better(Result<Path, Error>),
    /// One was opened at a portal that had none, to have it at hand.
    Spare(usize, Result<Path, Error>),
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
