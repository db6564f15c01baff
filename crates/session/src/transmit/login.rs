//! Login Requests: one at a time (RFC 7143 §11.12).

use iscsi_pdu::Cid;

use crate::connection::outbox::whole;
use crate::session::Session;

impl Session {
    pub(super) fn queue_login(&mut self, cid: Cid) -> bool {
        let connection = self.connections.get_mut(cid);
        let Some(login) = connection.and_then(|connection| connection.login_mut()) else {
            return false;
        };
        let Some((request, text)) = self.logins.poll_request(login, &self.config) else {
            return false;
        };
        self.push(cid, request.encode().into(), whole(text));
        true
    }
}
