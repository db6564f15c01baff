//! The state of the connections to an export.

use std::sync::Arc;

use iscsi_nbd::ProtocolError;

use super::NbdError;
use super::connection::Connection;

/// The state of the connections to an export, shared by requests and the reconnecting task.
#[derive(Clone, Debug)]
pub(super) struct LinkState {
    /// Open connections, and lost ones that are not replaced yet.
    pub(super) connections: Vec<Arc<Connection>>,
    /// Why reconnecting was given up; `None` while it continues.
    pub(super) end: Option<End>,
}

/// Reasons why reconnecting is given up.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// The server breaks the protocol, and would do so again.
    Protocol(ProtocolError),
    /// The connections are lost, and requests do not wait for the server.
    Lost,
    /// The server has come back with another export.
    Changed(String),
    /// The server has not come back in time.
    Away { why: String, seconds: u64, last: String },
}

impl LinkState {
    /// Returns whether all connections are lost.
    pub(super) fn is_away(&self) -> bool {
        self.connections.iter().all(|connection| connection.is_lost())
    }

    /// Returns a lost connection, and its index.
    pub(super) fn lost(&self) -> Option<(usize, Arc<Connection>)> {
        let mut all = self.connections.iter().enumerate();
        let (at, lost) = all.find(|(_, connection)| connection.is_lost())?;
        Some((at, Arc::clone(lost)))
    }

    /// Returns the protocol error of the server, if there was one on any connection.
    pub(super) fn breach(&self) -> Option<ProtocolError> {
        self.connections.iter().find_map(|connection| connection.breach())
    }
}

impl End {
    /// Returns the error that requests fail with.
    pub(super) fn to_error(&self) -> NbdError {
        match self.clone() {
            Self::Protocol(breach) => NbdError::Protocol(breach),
            Self::Lost => NbdError::Lost,
            Self::Changed(what) => NbdError::Changed(what),
            Self::Away { why, seconds, last } => NbdError::Away { why, seconds, last },
        }
    }
}
