//! What to send next: a folder of small senders, in the order of their right of way.
//!
//! 1. urgent PDUs: answers to pings, immediate commands ([`urgent`]);
//! 2. then in turn, one PDU each: new commands as the window allows ([`command`]), and data: the
//!    rest of first bursts in the order of their commands, or else the R2Ts in the order in which
//!    they came ([`data_out`]). Of several connections, each takes its share of the commands
//!    ([`share`]).

mod command;
mod data_out;
mod login;
mod share;
mod urgent;

use std::io::IoSlice;
use std::time::Instant;

use bytes::Buf;
use iscsi_pdu::{Cid, Header};

use crate::connection::Connection;
use crate::connection::outbox::Outbox;
use crate::connection::state::ConnectionState;
use crate::session::Session;
use crate::task::payload::PayloadSlice;

/// Bytes for one connection, borrowed from the session: write as many as the socket takes, and
/// `advance` by that count. What is left comes again with the next
/// [`poll_transmit`](Session::poll_transmit).
///
/// `chunks_vectored` yields up to 1024 slices over many PDUs. Data slices point into the pages of
/// the caller.
#[derive(Debug)]
pub struct Transmit<'a> {
    outbox: &'a mut Outbox,
    last_progress: &'a mut Instant,
    now: Instant,
}

impl Buf for Transmit<'_> {
    fn remaining(&self) -> usize {
        self.outbox.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.outbox.chunk()
    }

    fn chunks_vectored<'a>(&'a self, dst: &mut [IoSlice<'a>]) -> usize {
        self.outbox.chunks_vectored(dst)
    }

    fn advance(&mut self, count: usize) {
        if count > 0 {
            *self.last_progress = self.now;
        }
        self.outbox.advance(count);
    }
}

impl Session {
    /// Bytes that the connection should send now; `None` when there is nothing to send.
    pub fn poll_transmit(&mut self, cid: Cid, now: Instant) -> Option<Transmit<'_>> {
        let at = self.position(cid)?;
        self.set_share(at);
        while self.wants_more(at) && self.queue_next(at, now) {}
        let connection = self.connections.get_mut(at)?;
        (connection.state.is_live() && !connection.outbox.is_empty()).then_some(Transmit {
            outbox: &mut connection.outbox,
            last_progress: &mut connection.last_progress,
            now,
        })
    }

    fn wants_more(&self, at: usize) -> bool {
        self.connections.get(at).is_some_and(|connection| !connection.outbox.is_full())
    }

    /// Puts one more PDU in wire order, if any is due.
    fn queue_next(&mut self, at: usize, now: Instant) -> bool {
        match self.connections.get(at).map(|connection| connection.state) {
            Some(ConnectionState::InLogin) => self.queue_login(at),
            Some(ConnectionState::LoggedIn) => {
                self.queue_urgent(at, now) || self.queue_turn(at, now)
            }
            Some(
                ConnectionState::XptWait | ConnectionState::InLogout | ConnectionState::CleanupWait,
            )
            | None => false,
        }
    }

    /// Commands and data take turns, so that neither holds up the other.
    fn queue_turn(&mut self, at: usize, now: Instant) -> bool {
        let Some(connection) = self.connections.get_mut(at) else { return false };
        let commands_first = connection.commands_first;
        connection.commands_first = !commands_first;
        if commands_first && self.queue_command(at) {
            return true;
        }
        self.queue_data_out(at, now) || self.queue_command(at)
    }

    fn push(&mut self, at: usize, header: Header, data: PayloadSlice) {
        self.stats.pdus_sent += 1;
        if let Some(connection) = self.connections.get_mut(at) {
            let digests = connection.digests;
            connection.outbox.push(header, data, digests);
        }
    }
}

/// Whether a first burst is under way, so that no other write may begin (RFC 7143 §4.2.5.2).
fn in_first_burst(connection: &Connection) -> bool {
    !connection.unsolicited.is_empty()
}
