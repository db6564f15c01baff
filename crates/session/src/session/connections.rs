//! Adds, chooses and drops the connections of a session (RFC 7143 §4.2.2).
//!
//! Design: `docs/design/connections.md`.

use std::time::Instant;

use iscsi_pdu::{Cid, Itt, Tsih};

use super::Session;
use crate::connection::Connection;
use crate::error::SubmitError;
use crate::output::Output;
use crate::task::{Logout, Task, TaskKind};

impl Session {
    /// Requests one more connection in this session (RFC 7143 §4.2.2): an [`Output::Connect`] follows, and
    /// later [`Output::LoggedIn`] or, if the connection fails, [`Output::ConnectionLost`].
    ///
    /// # Errors
    /// When the session is not logged in or has no TSIH, the CID is taken, or MaxConnections is
    /// reached. A connection that failed counts towards MaxConnections until the target has cleaned it up.
    #[doc(alias = "MC/S")]
    pub fn add_connection(&mut self, cid: Cid, now: Instant) -> Result<(), SubmitError> {
        let limit = self.negotiated().map_or(0, |agreed| usize::from(agreed.max_connections));
        if !self.state.is_logged_in() {
            return Err(SubmitError::Closed);
        }
        if self.state.tsih() == Tsih::NEW_SESSION {
            return Err(SubmitError::NoTsih);
        }
        if self.connections.get(cid).is_some() || self.connections.len() >= limit {
            return Err(SubmitError::Full);
        }
        self.connect(cid, now);
        Ok(())
    }

    /// Drops one connection in order: it takes no new command, and when its last task has ended, a logout
    /// closes the connection (RFC 7143 §11.14). An [`Output::Disconnect`] reports the end of the connection.
    ///
    /// # Errors
    /// When the session is not logged in, has no such connection, or has no other one in full feature phase
    /// that is not being dropped.
    #[doc(alias = "MC/S")]
    pub fn drop_connection(&mut self, cid: Cid, now: Instant) -> Result<(), SubmitError> {
        if !self.state.is_logged_in() {
            return Err(SubmitError::Closed);
        }
        if !self.connections.has_another_than(cid) {
            return Err(SubmitError::NoConnection);
        }
        let connection = self.connections.get_mut(cid).ok_or(SubmitError::NoConnection)?;
        connection.leave();
        if connection.is_logging_in() {
            self.close_connection(cid);
        }
        self.follow_up(now);
        Ok(())
    }

    pub(super) fn connect(&mut self, cid: Cid, now: Instant) {
        let deadline = now + self.config.timeouts.login;
        self.connections.add(Connection::new(cid, Some(deadline), now));
        self.outputs.push(Output::Connect { cid, address: None });
    }

    /// Closes a connection that has no task except, perhaps, its logout.
    pub(crate) fn close_connection(&mut self, cid: Cid) {
        let Some(mut connection) = self.connections.remove(cid) else { return };
        if let Some(logout) = self.logout_of(Logout::Connection(cid)) {
            self.tasks.remove_aborted(logout);
        }
        connection.transmitter.take_urgent().into_iter().for_each(|urgent| self.divert(urgent));
        self.outputs.push(Output::Disconnect { cid, abortive: false });
    }

    /// Logs out the connections that the caller wants to drop and that have become idle.
    pub(super) fn part_with_leaving(&mut self, now: Instant) {
        let is_done = |connection: &Connection| {
            connection.is_leaving()
                && connection.is_up()
                && !connection.transmitter.has_requests()
                && self.tasks.load_of(connection.cid()).bytes == 0
        };
        for cid in self.connections.cids(is_done) {
            if let Some(itt) = self.new_logout(Logout::Connection(cid), now) {
                self.push_urgent_on(cid, itt);
            }
        }
    }

    /// Begins the logout of the session.
    pub(super) fn begin_logout(&mut self, now: Instant) {
        for cid in self.connections.cids(Connection::is_logging_in) {
            self.close_connection(cid);
        }
        match self.new_logout(Logout::Session, now) {
            Some(itt) if self.connections.iter().any(Connection::is_up) => self.push_urgent(itt),
            Some(_) | None => self.logged_out(),
        }
    }

    pub(super) fn new_logout(&mut self, logout: Logout, now: Instant) -> Option<Itt> {
        let deadline = now + self.config.timeouts.logout;
        let task = Task::new(TaskKind::Logout(logout), Some(deadline));
        self.tasks.insert_beyond_limit(task)
    }

    /// Returns whether a logout of the session was requested.
    pub(crate) fn is_logging_out(&self) -> bool {
        self.logout_of(Logout::Session).is_some()
    }

    /// Returns the logout request that closes this session or connection, if there is one.
    pub(super) fn logout_of(&self, closed: Logout) -> Option<Itt> {
        let asks = |kind: &TaskKind| matches!(kind, TaskKind::Logout(other) if *other == closed);
        self.tasks.iter().find(|(_, task)| asks(&task.kind)).map(|(itt, _)| itt)
    }

    /// Returns whether a connection has failed in full feature phase and is not cleaned up.
    pub(super) fn is_failed(&self, cid: Cid) -> bool {
        self.connections.get(cid).is_some_and(Connection::is_failed)
    }

    /// Queues an immediate request: ABORT TASK on the connection of its task (RFC 7143 §11.5.1), any other
    /// request on the connection that can send it soonest.
    pub(super) fn push_urgent(&mut self, itt: Itt) {
        match self.connection_of_referenced(itt).or_else(|| self.readiest_connection()) {
            Some(cid) => self.push_urgent_on(cid, itt),
            None => tracing::debug!(%itt, "no connection is left for a request"),
        }
    }

    /// Queues an immediate request on a connection. If the connection has failed, the request waits for the
    /// clean-up and ends with it.
    pub(super) fn push_urgent_on(&mut self, cid: Cid, itt: Itt) {
        let Some(connection) = self.connections.get_mut(cid) else { return };
        connection.transmitter.request(itt);
        if connection.is_failed() {
            self.tasks.set_deadline(itt, None);
        }
    }

    /// Returns the connection of the task that a task management request refers to.
    fn connection_of_referenced(&self, itt: Itt) -> Option<Cid> {
        let TaskKind::Management(management) = &self.tasks.get(itt)?.kind else { return None };
        let cid = management.referenced.and_then(|task| self.tasks.get(task)?.allegiance())?;
        self.connections.get(cid).map(Connection::cid)
    }

    /// Returns the connection that can send a request soonest; before the first login, the only connection.
    fn readiest_connection(&self) -> Option<Cid> {
        let busy = |connection: &&Connection| {
            let load = self.tasks.load_of(connection.cid()).bytes;
            (!connection.is_up(), connection.is_leaving(), !connection.is_idle(), load)
        };
        let usable = self.connections.iter().filter(|connection| !connection.is_failed());
        usable.min_by_key(busy).map(Connection::cid)
    }
}
