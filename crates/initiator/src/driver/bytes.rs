//! Reads bytes from the sockets into the session, and writes the session's bytes to the sockets.

use std::cell::Cell;
use std::io::{self, IoSliceMut};

use iscsi_pdu::Cid;
use iscsi_session::{ReadAhead, TransportError};

use super::Driver;
use super::links::{CALLS_PER_TURN, Lost, data_moved};
use super::transports::Transport;
use crate::transport::Socket;

thread_local! {
    /// Read-ahead memory, lent to the connection that the thread reads from. Memory per connection would not
    /// stay in the processor's cache with 1,000 disks.
    static READ_AHEAD: Cell<Option<ReadAhead>> = const { Cell::new(None) };
}

/// A function that reads from a socket into slices.
type Read = fn(&dyn Socket, &mut [IoSliceMut<'_>]) -> io::Result<usize>;

impl Driver {
    /// Sends the session's unsent bytes, within the limits of the data that each connection may have
    /// outstanding.
    pub(super) fn write_within_limits(&mut self) -> Result<(), Lost> {
        self.requests.unsent = 0;
        self.links.write(&mut self.session, &mut self.event_loop, self.now)?;
        if !self.session.is_holding_back() {
            return Ok(());
        }
        self.links.limit_requests(&mut self.session, &self.shared, self.now);
        self.links.write(&mut self.session, &mut self.event_loop, self.now)
    }

    /// Reads from each readable connection, and handles what arrived. Returns whether bytes may be left for the
    /// next turn.
    pub(super) fn read(&mut self) -> bool {
        let (mut at, mut is_rest_left) = (0, false);
        while let Some(transport) = self.links.transports.get_mut(at) {
            at += 1;
            if !transport.take_readable() {
                continue;
            }
            let cid = transport.cid;
            match self.read_from(cid, |socket, slices| socket.read(slices)) {
                Ok(is_left) => is_rest_left |= is_left,
                Err(why) => self.on_connection_lost(cid, why),
            }
        }
        is_rest_left
    }

    /// Reads from every connection, whether or not its socket is reported as readable.
    pub(super) fn read_unasked(&mut self) {
        let mut at = 0;
        while let Some(cid) = self.links.transports.get(at).map(|transport| transport.cid) {
            self.read_at_once(cid);
            at += 1;
        }
    }

    /// Reads the bytes that the sockets hold back below their low-water marks, so that a target that sends
    /// slowly does not count as silent.
    pub(super) fn read_kept(&mut self) {
        let kept = self.links.transports.iter().filter(|transport| transport.is_keeping_bytes());
        let kept: Vec<_> = kept.map(|transport| transport.cid).collect();
        kept.into_iter().for_each(|cid| self.read_at_once(cid));
    }

    fn read_at_once(&mut self, cid: Cid) {
        if let Err(why) = self.read_from(cid, |socket, slices| socket.read_unasked(slices)) {
            self.on_connection_lost(cid, why);
        }
    }

    /// Sets how many bytes the sockets wait for, so that they report neither every part of a long data segment
    /// nor each of several responses.
    pub(super) fn await_answers(&mut self) {
        let (requests, connections) = (self.requests.len(), self.links.transports.len());
        let awaited =
            self.requests.answers.wait_for(&self.session, requests, connections, self.now);
        for transport in &mut self.links.transports {
            transport.await_bytes(self.session.segment_rest(transport.cid), awaited);
        }
        self.links.poll_soon(self.now);
        if self.links.is_coalescing() {
            self.requests.answers.plan_kept_poll(self.now);
        }
    }

    /// Reads responses that the sockets hold back because fewer bytes arrived than awaited, unless something was
    /// read just before.
    pub(super) fn poll_kept(&mut self) {
        if self.requests.answers.are_fresh(self.now) {
            return;
        }
        let (ended, received) =
            (self.session.stats().tasks_ended, self.requests.answers.received());
        self.read_kept();
        if self.session.stats().tasks_ended > ended {
            self.requests.answers.found_kept(self.requests.answers.received() - received);
        }
    }

    /// Reports a connection that cannot be written to as lost. First reads what has arrived over it, because the
    /// target may have sent the reason.
    pub(super) fn on_write_failed(&mut self, cid: Cid, why: TransportError) {
        let read = loop {
            let read = self.read_from(cid, |socket, slices| socket.read_unasked(slices));
            if !matches!(read, Ok(true)) {
                break read;
            }
        };
        // An error of the read is more specific than that of the write: for example an alert of TLS, or a reset.
        let why = match read {
            Err(found @ TransportError::Io(_)) => found,
            _ => why,
        };
        // The bytes just read may have made the session close this connection, or open another one in its place:
        // then there is no loss to report.
        if self
            .links
            .transports
            .iter()
            .any(|transport| transport.cid == cid && transport.socket().is_some())
        {
            self.on_connection_lost(cid, why);
        }
    }

    /// Reads from a connection, and handles what arrived; returns whether bytes may be left.
    fn read_from(&mut self, cid: Cid, read: Read) -> Result<bool, TransportError> {
        self.session.lend_read_ahead(cid, READ_AHEAD.take().unwrap_or_default());
        let result = self.read_some(cid, read);
        READ_AHEAD.set(self.session.reclaim_read_ahead(cid));
        if let Ok(true) = result {
            // The socket does not report the remaining bytes a second time.
            self.links.find(cid).into_iter().for_each(Transport::keep_readable);
        }
        result
    }

    fn read_some(&mut self, cid: Cid, read: Read) -> Result<bool, TransportError> {
        let now = self.now();
        for _ in 0..CALLS_PER_TURN {
            let Some(transport) = self.links.find(cid) else { return Ok(false) };
            let Some((socket, _)) = transport.socket() else { return Ok(false) };
            let mut slices = self.session.receive_slices(cid);
            let room: usize = slices.iter().map(|slice| slice.len()).sum();
            let count = match read(socket, &mut slices) {
                Ok(0) => return Err(TransportError::Closed),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(TransportError::Io(error.to_string())),
            };
            self.requests.answers.read(count, self.now);
            let before = data_moved(&self.session);
            self.session.handle_received(cid, count, now);
            transport.bytes += data_moved(&self.session) - before;
            self.dispatch();
            if count < room {
                return Ok(false);
            }
            // New requests of the callers with a response are more urgent than further responses: the target may
            // have no work left.
            if self.requests.have_enough_answers() {
                break;
            }
        }
        Ok(true)
    }
}
