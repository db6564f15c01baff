//! The connections of a session, found by their CID.

use iscsi_pdu::{Cid, Itt};
use smallvec::SmallVec;

use super::Connection;
use crate::params::Negotiated;

/// The connections of a session, in the order in which they were requested.
#[derive(Debug, Default)]
pub(crate) struct ConnectionSet(SmallVec<[Connection; 1]>);

impl ConnectionSet {
    pub(crate) fn add(&mut self, connection: Connection) {
        self.0.push(connection);
    }

    pub(crate) fn get(&self, cid: Cid) -> Option<&Connection> {
        self.0.iter().find(|connection| connection.cid() == cid)
    }

    pub(crate) fn get_mut(&mut self, cid: Cid) -> Option<&mut Connection> {
        self.0.iter_mut().find(|connection| connection.cid() == cid)
    }

    pub(crate) fn remove(&mut self, cid: Cid) -> Option<Connection> {
        let at = self.0.iter().position(|connection| connection.cid() == cid)?;
        Some(self.0.remove(at))
    }

    pub(crate) fn take_all(&mut self) -> impl IntoIterator<Item = Connection> + use<> {
        std::mem::take(&mut self.0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Connection> + Clone {
        self.0.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.0.iter_mut()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the parameters of the first connection that has any; the parameters of the session are the
    /// same on all connections.
    pub(crate) fn agreed(&self) -> Option<&Negotiated> {
        self.0.iter().find_map(Connection::agreed)
    }

    /// Returns the CIDs of the connections for which `fits` returns `true`.
    pub(crate) fn cids(&self, fits: impl Fn(&Connection) -> bool) -> Vec<Cid> {
        let fitting = self.0.iter().filter(|connection| fits(connection));
        fitting.map(Connection::cid).collect()
    }

    /// Returns whether another connection is up and is not to be dropped.
    pub(crate) fn has_another_than(&self, cid: Cid) -> bool {
        self.0.iter().any(|other| other.cid() != cid && other.takes_commands())
    }

    /// Discards what a task still had to send, and returns whether data was withdrawn from an outbox.
    pub(crate) fn forget(&mut self, itt: Itt) -> bool {
        let mut withdrawn = false;
        for connection in &mut self.0 {
            withdrawn |= connection.forget(itt);
        }
        withdrawn
    }
}
