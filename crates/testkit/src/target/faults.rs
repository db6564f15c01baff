//! Faults at their moment.

use super::node::Target;
use super::send;
use super::tally::Tally;
use crate::conn_id::ConnId;
use crate::fault::{Effect, Fault, Trigger};
use crate::pdu::Pdu;

/// What a fault counts: its connection, when it names one, else all of them.
struct Scope<'a> {
    sent: &'a Tally,
    received: &'a Tally,
}

impl Target {
    /// Counts a PDU of the initiator and lets faults have it; `None` when it is lost.
    pub(super) fn receiving_faults(&mut self, id: ConnId, mut pdu: Pdu) -> Option<Pdu> {
        let code = pdu.header[0];
        self.connections[id.0].received.count(code);
        self.received_tally.count(code);
        let faults = self.take_faults(id, |trigger, scope| match trigger {
            Trigger::Receiving(kind, number) => scope.received.is_at(code, kind, number),
            Trigger::Sending(..) | Trigger::SentBytes(_) | Trigger::ReceivedBytes(_) => false,
        });
        for fault in faults {
            if matches!(fault.effect, Effect::Close) {
                self.close(id);
            }
            if matches!(fault.effect, Effect::Close | Effect::Swallow) {
                return None;
            }
            send::edit(&mut pdu, &fault.effect);
        }
        Some(pdu)
    }

    /// Counts a PDU of the target; the faults that are due with it.
    pub(super) fn sending_faults(&mut self, id: ConnId, pdu: &Pdu) -> Vec<Fault> {
        let code = pdu.header[0];
        self.connections[id.0].sent.count(code);
        self.sent_tally.count(code);
        self.take_faults(id, |trigger, scope| match trigger {
            Trigger::Sending(kind, number) => scope.sent.is_at(code, kind, number),
            Trigger::Receiving(..) | Trigger::SentBytes(_) | Trigger::ReceivedBytes(_) => false,
        })
    }

    /// Closes a connection on which too many bytes have come; `partial` ones are no PDU yet.
    pub(super) fn cut_after_received(&mut self, id: ConnId, partial: usize) {
        let Some(connection) = self.connections.get(id.0) else { return };
        let bytes = connection.received.bytes + partial as u64;
        let due = self.take_faults(id, |trigger, _| match trigger {
            Trigger::ReceivedBytes(limit) => bytes > limit,
            Trigger::Sending(..) | Trigger::Receiving(..) | Trigger::SentBytes(_) => false,
        });
        if !due.is_empty() {
            self.close(id);
        }
    }

    /// How many bytes too many are sent, when a fault limits them.
    pub(super) fn excess_sent(&mut self, id: ConnId) -> Option<u64> {
        let sent = self.connections[id.0].sent.bytes;
        let due = self.take_faults(id, |trigger, _| match trigger {
            Trigger::SentBytes(limit) => sent >= limit,
            Trigger::Sending(..) | Trigger::Receiving(..) | Trigger::ReceivedBytes(_) => false,
        });
        match due.first()?.trigger {
            Trigger::SentBytes(limit) => Some(sent - limit),
            Trigger::Sending(..) | Trigger::Receiving(..) | Trigger::ReceivedBytes(_) => None,
        }
    }

    /// Takes the faults out of the configuration whose moment has come.
    fn take_faults(&mut self, id: ConnId, due: impl Fn(Trigger, &Scope<'_>) -> bool) -> Vec<Fault> {
        if self.config.faults.is_empty() {
            return Vec::new();
        }
        let connection = &self.connections[id.0];
        let own = Scope { sent: &connection.sent, received: &connection.received };
        let all = Scope { sent: &self.sent_tally, received: &self.received_tally };
        let is_due = |fault: &mut Fault| match fault.connection {
            None => due(fault.trigger, &all),
            Some(number) => number == id.0 && due(fault.trigger, &own),
        };
        self.config.faults.extract_if(.., is_due).collect()
    }
}
