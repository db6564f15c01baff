//! Login Requests: one at a time (RFC 7143 §11.12).

use crate::Session;
use crate::connection::outbox::whole;

impl Session {
    pub(super) fn queue_login(&mut self, at: usize) -> bool {
        let Some(connection) = self.connections.get_mut(at) else { return false };
        let Some(login) = &mut connection.login else { return false };
        let Some((request, text)) = login.poll_request(&self.config, &mut *self.entropy) else {
            return false;
        };
        self.push(at, request.encode().into(), whole(text));
        true
    }
}
