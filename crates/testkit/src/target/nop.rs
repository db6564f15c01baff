//! Pings, in both directions (RFC 7143 §11.18, §11.19).

use super::connection::{Outgoing, Phase};
use super::node::Target;
use crate::conn_id::ConnId;
use crate::opcode::Opcode;
use crate::pdu::{NO_TAG, Pdu};

impl Target {
    /// Pings the initiator, which must respond with the same tag and LUN.
    pub fn ping(&mut self, id: ConnId, lun: u64) {
        let Some(session) = self.session_of(id) else { return };
        let ttt = session.take_ttt();
        self.enqueue(id, Outgoing::Pdu(nop_in(lun, NO_TAG, ttt)));
    }

    /// Sends a NOP-In that requests no response: it reports the window and the next `StatSN`.
    pub fn show_window(&mut self, id: ConnId) {
        self.enqueue(id, Outgoing::Pdu(nop_in(0, NO_TAG, NO_TAG)));
    }

    /// Sends an asynchronous message (RFC 7143 §11.9).
    pub fn async_message(&mut self, id: ConnId, event: u8, parameters: [u16; 3]) {
        let mut pdu = Pdu::new(Opcode::AsyncMessage);
        pdu.set_u32(16, NO_TAG);
        pdu.set(36, &[event]);
        for (at, value) in [38, 40, 42].into_iter().zip(parameters) {
            pdu.set(at, &value.to_be_bytes());
        }
        self.enqueue(id, Outgoing::Pdu(pdu));
    }

    /// Returns the connections in full feature phase.
    #[must_use]
    pub fn live_connections(&self) -> Vec<ConnId> {
        let numbered = self.connections.iter().enumerate();
        let live = numbered.filter(|(_, conn)| matches!(conn.phase, Phase::FullFeature));
        live.map(|(number, _)| ConnId(number)).collect()
    }

    pub(super) fn nop_out(&mut self, id: ConnId, pdu: &Pdu) {
        if pdu.itt() == NO_TAG {
            return;
        }
        let mut answer = nop_in(pdu.lun(), pdu.itt(), NO_TAG);
        let limit = self.connections[id.0].segment as usize;
        answer.data = pdu.data.slice(..pdu.data.len().min(limit));
        self.enqueue(id, Outgoing::Pdu(answer));
    }

    pub(super) fn count_for_ping(&mut self, id: ConnId) {
        self.counts.since_ping += 1;
        if self.counts.since_ping == self.config.ping_every {
            self.counts.since_ping = 0;
            self.ping(id, 0);
        }
    }
}

fn nop_in(lun: u64, itt: u32, ttt: u32) -> Pdu {
    let mut pdu = Pdu::new(Opcode::NopIn);
    pdu.set(8, &lun.to_be_bytes());
    pdu.set_u32(16, itt);
    pdu.set_u32(20, ttt);
    pdu
}
