//! Text requests in full feature phase: SendTargets, and later declarations (RFC 7143 §11.10).

use super::connection::{Outgoing, TextExchange};
use super::node::Target;
use super::params::{Response, respond};
use crate::config::{Answer, Portal};
use crate::conn_id::ConnId;
use crate::opcode::Opcode;
use crate::pdu::{CONTINUE, FINAL, NO_TAG, Pdu};
use crate::text::{Pairs, number};

impl Target {
    /// Sets `address` (host:port) as the address of the target in SendTargets, unless
    /// [`Discovery`](crate::config::Discovery) sets the list.
    pub fn listen_at(&mut self, address: &str) {
        let Some(name) = self.config.names.first().cloned() else { return };
        let list = &mut self.config.discovery;
        if list.targets.is_empty() && !list.nothing {
            let tag = self.config.portal_group.unwrap_or(1);
            list.targets = vec![Portal { name, addresses: vec![format!("{address},{tag}")] }];
        }
    }

    pub(super) fn text_request(&mut self, id: ConnId, pdu: &Pdu) {
        let is_normal = self.session_of(id).is_some_and(|session| !session.discovery);
        if self.config.discovery.drops_normal_sessions && is_normal {
            return self.drop_connection(id);
        }
        let mut exchange = self.connections[id.0].text.take().unwrap_or_default();
        exchange.request.extend_from_slice(&pdu.data);
        if exchange.answer.is_none() && !pdu.continues() {
            match Pairs::split(&exchange.request) {
                Ok(pairs) => exchange.answer = Some(self.answer_text(id, &pairs).join().into()),
                Err(_) => return self.reject(id, pdu, 0x04),
            }
        }
        self.send_text(id, pdu, exchange);
    }

    fn answer_text(&mut self, id: ConnId, pairs: &Pairs) -> Pairs {
        let mut answer = Pairs::default();
        for (key, value) in &pairs.0 {
            if key == "SendTargets" {
                self.list_targets(id, value, &mut answer);
            } else {
                self.answer_key(id, key, value, &mut answer);
            }
        }
        answer
    }

    /// Answers one key. In full feature phase only `MaxRecvDataSegmentLength` may change; other operational
    /// keys are refused.
    fn answer_key(&mut self, id: ConnId, key: &str, value: &str, answer: &mut Pairs) {
        match (self.config.keys.answers.get(key), respond(&self.config.keys, key, value)) {
            (Some(Answer::Omit), _) => {}
            (Some(Answer::Literal(value)), _) => answer.push(key, value),
            (None, Response::Declared) if key == "MaxRecvDataSegmentLength" => {
                if let Some(segment) = number(value) {
                    self.connections[id.0].segment = segment;
                }
            }
            (None, Response::Value(value)) if value == "NotUnderstood" => answer.push(key, value),
            (None, _) => answer.push(key, "Reject"),
        }
    }

    /// Appends the list of targets (RFC 7143 appendix C).
    fn list_targets(&mut self, id: ConnId, which: &str, answer: &mut Pairs) {
        let discovery = self.session_of(id).is_some_and(|session| session.discovery);
        let list = &self.config.discovery;
        if which == "All" && !discovery {
            return answer.push("SendTargets", "Reject");
        }
        for (key, value) in &list.foreign {
            answer.push(key, value);
        }
        if list.targets.is_empty() && !list.nothing {
            answer.push("TargetName", self.config.names.first().cloned().unwrap_or_default());
        }
        let own = |name| which.is_empty() && self.config.names.contains(name);
        let asked = |name| which == "All" || which == name || own(name);
        for target in list.targets.iter().filter(|target| asked(&target.name)) {
            answer.push("TargetName", &target.name);
            for address in &target.addresses {
                answer.push("TargetAddress", address);
            }
        }
    }

    fn send_text(&mut self, id: ConnId, pdu: &Pdu, mut exchange: TextExchange) {
        let limit = self.config.discovery.split.unwrap_or(usize::MAX);
        let limit = limit.min(self.connections[id.0].segment as usize);
        let mut response = Pdu::new(Opcode::TextResponse);
        let mut rest = exchange.answer.take().unwrap_or_default();
        response.data = rest.split_to(rest.len().min(limit));
        response.set_u32(16, pdu.itt());
        response.set_u32(20, NO_TAG);
        if !rest.is_empty() || pdu.continues() || !pdu.is_final() {
            self.leave_open(id, &mut response, !rest.is_empty());
            exchange.answer = (!pdu.continues()).then_some(rest);
            self.connections[id.0].text = Some(exchange);
        }
        self.enqueue(id, Outgoing::Pdu(response));
    }

    /// Leaves the exchange open, with a target transfer tag for the next request of the initiator.
    fn leave_open(&mut self, id: ConnId, response: &mut Pdu, more: bool) {
        let split = more && self.config.discovery.with_continue;
        response.header[1] &= !FINAL;
        response.header[1] |= if split { CONTINUE } else { 0 };
        let ttt = self.session_of(id).map_or(0, |session| session.take_ttt());
        response.set_u32(20, ttt);
    }
}
