//! Sending: one file per kind of PDU. The connection's transmitter decides which PDU is sent next, and
//! [`share`] how many commands each connection takes.

mod command;
mod data_out;
mod login;
mod share;
mod urgent;

use std::time::Instant;

use iscsi_pdu::{Cid, Header};

use crate::connection::Connection;
use crate::connection::state::ConnectionState;
use crate::connection::transmit::Transmit;
use crate::connection::transmitter::Next;
use crate::session::Session;
use crate::task::payload::PayloadSlice;

impl Session {
    /// Returns the bytes that the connection should send now; `None` when there is nothing to send.
    pub fn poll_transmit(&mut self, cid: Cid, now: Instant) -> Option<Transmit<'_>> {
        // Most calls return here: a driver calls this after each send, until there is nothing more to send.
        if self.commands.is_empty() && self.connections.get(cid)?.has_nothing_to_send() {
            return None;
        }
        self.set_share(cid);
        while self.queue_next(cid, now) {}
        self.connections.get_mut(cid)?.transmit(now)
    }

    /// Puts one more PDU in wire order, if one is due, and returns whether it did.
    fn queue_next(&mut self, cid: Cid, now: Instant) -> bool {
        match self.connections.get(cid).map(Connection::state) {
            Some(ConnectionState::InLogin) => self.queue_login(cid),
            Some(ConnectionState::LoggedIn) => self.queue_turn(cid, now),
            Some(
                ConnectionState::XptWait | ConnectionState::InLogout | ConnectionState::CleanupWait,
            )
            | None => false,
        }
    }

    fn queue_turn(&mut self, cid: Cid, now: Instant) -> bool {
        match self.next_on(cid) {
            Some(Next::Urgent(urgent)) => self.queue_urgent(cid, urgent, now),
            Some(Next::Command) => self.queue_command(cid),
            Some(Next::DataOut { itt, part }) => self.queue_data_out(cid, itt, part, now),
            None => return false,
        }
        true
    }

    fn next_on(&mut self, cid: Cid) -> Option<Next> {
        let first = self.commands.first(&self.tasks).filter(|_| self.state.sends_commands());
        let command = first.filter(|(_, task)| self.window.lets_out(task)).map(|(itt, _)| itt);
        self.connections.get_mut(cid)?.next(command, &mut self.tasks)
    }

    fn push(&mut self, cid: Cid, header: Header, data: PayloadSlice) {
        self.stats.pdus_sent += 1;
        if let Some(connection) = self.connections.get_mut(cid) {
            connection.push(header, data);
        }
    }
}
