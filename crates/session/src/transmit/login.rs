//! Login Requests: one at a time (RFC 7143 §11.12).

use crate::connection::outbox::whole;
use crate::session::Session;

impl Session {
    pub(super) fn queue_login(&mut self, at: usize) -> bool {
        let Some(connection) = self.connections.get_mut(at) else { return false };
        let Some(login) = &mut connection.login else { return false };
        let Some((request, text)) = self.logins.poll_request(login, &self.config) else {
            return false;
        };
        self.push(at, request.encode().into(), whole(text));
        true
    }
}
