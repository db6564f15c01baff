//! The connections of the session: the one it begins with, those that join it, and their ends.

use std::future::ready;
use std::net::SocketAddr;

use iscsi_pdu::{Cid, TargetAddress};
use iscsi_session::{SessionError, SubmitError, TransportError};

use super::Driver;
use super::transports::{Transport, span_of};
use crate::driver::connector::{Connected, Opening};
use crate::driver::referral::portal_at;
use crate::driver::shared::{LoginResult, SessionPhase};
use crate::error::LinkCause;

/// The connection that a session begins with.
const LEADING: Cid = Cid(0);

impl Driver {
    /// Opens a connection. Those that join go where the leading one is.
    pub(super) fn open(&mut self, cid: Cid, address: Option<TargetAddress>) {
        let is_first = cid == LEADING && address.is_none();
        let (portal, referral) = match (cid, address) {
            (LEADING, address) => {
                self.peer.turn_to(address);
                (self.peer.portal().clone(), self.peer.referral())
            }
            (_, Some(address)) => (address, Some(self.peer.redirection())),
            (_, None) => (self.peer.portal().clone(), self.peer.referral()),
        };
        let opening = match self.reached.take().filter(|_| is_first) {
            Some(connected) => Box::pin(ready(Ok(*connected))) as Opening,
            None => self.connector.open(portal, referral),
        };
        self.transports.push(Transport::new(cid, opening));
        self.calls_loop = true;
    }

    /// A transport connection stands, or could not be made.
    pub(super) fn opened(&mut self, cid: Cid, result: Result<Connected, LinkCause>) {
        match result {
            Ok(connected) => {
                if cid == LEADING {
                    self.peer.reached();
                    self.followed(connected.1.address());
                }
                self.session.handle_connected(cid, self.now());
                if let Some(transport) =
                    self.transports.iter_mut().find(|transport| transport.cid == cid)
                {
                    transport.stand(connected);
                }
                self.limit_requests();
            }
            Err(why) => {
                self.remove(cid);
                let error = TransportError::Connect(why.to_string());
                if cid == LEADING {
                    self.peer.not_reached(why);
                }
                self.session.handle_disconnected(cid, error, self.now());
            }
        }
    }

    /// The leading connection has followed a redirection, if there was one.
    fn followed(&self, address: SocketAddr) {
        let Some(referral) = self.peer.referral() else { return };
        let note = referral.note(self.peer.portal(), address);
        if let Some(note) = &note {
            tracing::warn!("{note}");
        }
        self.shared.redirected(&portal_at(address), note);
    }

    /// Closes a connection as the session wants it.
    pub(super) fn close(&mut self, cid: Cid, abortive: bool) {
        if let Some(transport) = self.remove(cid) {
            if let Some(tuner) = transport.tuner() {
                self.peer.left(tuner.address().ip());
            }
            transport.close(abortive);
        }
    }

    /// The connection is gone; the session decides what that means.
    pub(super) fn lose(&mut self, cid: Cid, why: TransportError) {
        self.session.handle_disconnected(cid, why, self.now());
    }

    /// The session goes on without a connection.
    pub(super) fn lost(&mut self, cid: Cid, why: &SessionError) {
        self.remove(cid);
        span_of(cid).in_scope(|| self.remark(&format!("a connection of the session ended: {why}")));
    }

    /// A connection has reached full feature phase.
    pub(super) fn logged_in(&mut self, cid: Cid) {
        if let Some(transport) = self.transports.iter_mut().find(|transport| transport.cid == cid) {
            transport.is_logged_in = true;
            if let Some(agreed) = self.session.negotiated_on(cid) {
                transport.tune(|socket, tuner| tuner.agreed(socket, agreed));
                self.window = None;
            }
        }
        self.count_open();
        if cid == LEADING {
            self.begin();
        }
    }

    /// The session stands: requests flow from now on, and further connections join as they can.
    fn begin(&mut self) {
        if let Some(negotiated) = self.session.negotiated().cloned() {
            self.add_connections(negotiated.max_connections);
            // The leading connection logs in once.
            let (portal, tsih) = (self.peer.portal().clone(), self.session.tsih());
            let leading = self.transports.iter().find(|transport| transport.cid == LEADING);
            let address = leading.and_then(Transport::tuner).map(|tuner| tuner.address().ip());
            drop(self.shared.terms.set(LoginResult { negotiated, portal, address, tsih }));
        }
        self.note_window();
        self.shared.phase.set(SessionPhase::LoggedIn);
    }

    /// Asks for all connections that the target agrees to, at once.
    fn add_connections(&mut self, agreed: u16) {
        for cid in (1..self.connections.min(agreed)).map(Cid) {
            match self.session.add_connection(cid, self.now()) {
                Ok(()) => {}
                Err(error @ SubmitError::NoTsih) => self.remark(&error.to_string()),
                // A session that is already asked to log out needs none.
                Err(error) => tracing::debug!(%cid, %error, "a connection is not added"),
            }
        }
        if agreed < self.connections {
            let wanted = self.connections;
            self.remark(&format!(
                "the target agrees to {agreed} of {wanted} connections in a session (MaxConnections)"
            ));
        }
    }

    /// Tells why the session has fewer connections than it should.
    fn remark(&self, reason: &str) {
        tracing::warn!("{reason}");
        self.shared.with_connections(|connections| connections.remark(reason));
    }

    fn remove(&mut self, cid: Cid) -> Option<Transport> {
        let at = self.transports.iter().position(|transport| transport.cid == cid)?;
        let transport = self.transports.remove(at);
        self.count_open();
        Some(transport)
    }

    fn count_open(&self) {
        let open = self.transports.iter().filter(|transport| transport.is_logged_in).count();
        let open = u32::try_from(open).unwrap_or(u32::MAX);
        self.shared.with_connections(|connections| connections.open = open);
    }
}
