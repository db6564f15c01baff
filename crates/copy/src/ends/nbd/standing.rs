//! How it stands with the connections to an export.

use std::sync::Arc;

use iscsi_nbd::ProtocolError;

use super::NbdError;
use super::connection::Connection;

/// The connections to an export, for those who make requests and for what opens them again.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    /// Those that are open, or lost and not open again yet.
    pub(super) connections: Vec<Arc<Connection>>,
    /// Why none is opened again any more.
    pub(super) end: Option<End>,
}

/// Why the connections have ended for good.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// The server breaks the protocol, and would do it again.
    Protocol(ProtocolError),
    /// They are lost, and no patience was asked for.
    Lost,
    /// The server has come back with another export.
    Changed(String),
    /// It has not come back.
    Away { why: String, seconds: u64, last: String },
}

impl Standing {
    /// Whether no connection is left.
    pub(super) fn is_away(&self) -> bool {
        self.connections.iter().all(|connection| connection.is_lost())
    }

    /// A connection that is lost, and its place.
    pub(super) fn lost(&self) -> Option<(usize, Arc<Connection>)> {
        let mut all = self.connections.iter().enumerate();
        let (at, lost) = all.find(|(_, connection)| connection.is_lost())?;
        Some((at, Arc::clone(lost)))
    }

    /// How the server has broken the protocol, if it has.
    pub(super) fn breach(&self) -> Option<ProtocolError> {
        self.connections.iter().find_map(|connection| connection.breach())
    }
}

impl End {
    /// What requests end with.
    pub(super) fn to_error(&self) -> NbdError {
        match self.clone() {
            Self::Protocol(breach) => NbdError::Protocol(breach),
            Self::Lost => NbdError::Lost,
            Self::Changed(what) => NbdError::Changed(what),
            Self::Away { why, seconds, last } => NbdError::Away { why, seconds, last },
        }
    }
}
