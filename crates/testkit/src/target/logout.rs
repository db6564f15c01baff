//! Logout (RFC 7143 §11.14, §11.15).

use super::connection::Outgoing;
use super::late::give_up;
use super::node::Target;
use crate::conn_id::ConnId;
use crate::opcode::Opcode;
use crate::pdu::Pdu;

const CLOSE_SESSION: u8 = 0;
const CLOSE_CONNECTION: u8 = 1;

const NO_SUCH_CID: u8 = 1;
const NO_RECOVERY: u8 = 2;

impl Target {
    pub(super) fn logout(&mut self, id: ConnId, pdu: &Pdu) {
        let leaving = match pdu.function() {
            CLOSE_SESSION => self.connections_of(id),
            CLOSE_CONNECTION => self.connection_with(id, pdu.cid()).into_iter().collect(),
            _ => return self.answer_logout(id, pdu, NO_RECOVERY),
        };
        if pdu.function() == CLOSE_CONNECTION {
            self.stop_late_commands_of(id, pdu.cid());
        }
        if leaving.is_empty() {
            return self.answer_logout(id, pdu, NO_SUCH_CID);
        }
        self.give_up(|late| leaving.contains(&late.connection));
        for connection in leaving {
            // The connection that carries the logout stays open if it closes another connection: that one
            // has failed, or is treated as failed.
            if pdu.function() == CLOSE_CONNECTION && connection != id {
                self.close(connection);
            } else {
                self.close_after_transmit(connection);
            }
        }
        self.answer_logout(id, pdu, self.config.logout_response);
    }

    /// Stops the delayed commands of a connection of the session that is closed already. An initiator that
    /// receives the response "CID not found" treats the commands of that connection as ended.
    fn stop_late_commands_of(&mut self, id: ConnId, cid: u16) {
        let session = self.connections[id.0].session;
        let connections = &self.connections;
        give_up(&mut self.late, self.config.torn_commands, |late| {
            let connection = &connections[late.connection.0];
            (connection.session, connection.cid) == (session, cid)
        });
    }

    fn connections_of(&mut self, id: ConnId) -> Vec<ConnId> {
        self.session_of(id).map(|session| session.connections.clone()).unwrap_or_default()
    }

    fn connection_with(&mut self, id: ConnId, cid: u16) -> Option<ConnId> {
        let all = self.connections_of(id);
        all.into_iter().find(|other| self.connections[other.0].cid == cid)
    }

    fn answer_logout(&mut self, id: ConnId, pdu: &Pdu, code: u8) {
        let mut response = Pdu::new(Opcode::LogoutResponse);
        response.set(2, &[code]);
        response.set_u32(16, pdu.itt());
        self.enqueue(id, Outgoing::Pdu(response));
    }
}
