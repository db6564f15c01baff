//! Bytes between the session and its sockets.

use std::cell::Cell;
use std::io::{self, IoSlice, IoSliceMut};

use bytes::Buf;
use iscsi_pdu::Cid;
use iscsi_session::{ReadAhead, Session, Transmit, TransportError};
use iscsi_tuner::Sends;

use super::Driver;
use super::transports::{Excerpt, Transport};
use crate::driver::io::Socket;

/// As many slices as one system call takes (IOV_MAX on Linux).
const MAX_SLICES: usize = 1024;

/// Enough for most system calls. To make all of [`MAX_SLICES`] took a tenth of the instructions of a read of 4 KiB.
const FEW_SLICES: usize = 32;

/// Slices are long if so many of them are more than the plan's send size.
const LONG_SLICES: usize = 16;

/// System calls in one direction of a connection before the other one has its turn.
const CALLS_PER_TURN: usize = 16;

/// Bytes per system call where the plan sends one page at a time.
const PAGE: usize = 4096;

thread_local! {
    /// Whichever connection the thread reads from. Of 1,000 disks each would come back to memory that the processor's
    /// cache has lost meanwhile.
    static READ_AHEAD: Cell<Option<ReadAhead>> = const { Cell::new(None) };
}

/// How to read into slices from a socket.
type Read = fn(&dyn Socket, &mut [IoSliceMut<'_>]) -> io::Result<usize>;

/// A connection that was lost, and why.
type Lost = (Cid, TransportError);

impl Driver {
    /// Sends what there is to send, within what the connections bring to the target in time.
    pub(super) fn write_within_limits(&mut self) -> Result<(), Lost> {
        self.unsent = 0;
        self.write()?;
        if !self.session.is_holding_back() {
            return Ok(());
        }
        self.limit_requests();
        self.write()
    }

    /// Sends what there is to send and the sockets take: a system call each, again and again, and
    /// every turn begins with another connection.
    fn write(&mut self) -> Result<(), Lost> {
        let count = self.transports.len();
        self.first = (self.first + 1).checked_rem(count).unwrap_or_default();
        for _ in 0..CALLS_PER_TURN {
            let mut moved = false;
            for at in (self.first..count).chain(0..self.first) {
                moved |= self.write_once(at)?;
            }
            if !moved {
                return Ok(());
            }
        }
        // There is more to send, but also something to read.
        self.transports.iter_mut().for_each(|transport| transport.blocked = true);
        self.calls_loop = true;
        Ok(())
    }

    /// Sends over one connection what one system call takes; says whether there may be more.
    fn write_once(&mut self, at: usize) -> Result<bool, Lost> {
        let now = self.now();
        let Some(transport) = self.transports.get_mut(at).filter(|transport| !transport.blocked)
        else {
            return Ok(false);
        };
        let Some((socket, plan)) = transport.socket() else { return Ok(false) };
        let before = data_moved(&self.session);
        let Some(mut transmit) = self.session.poll_transmit(transport.cid, now) else {
            return Ok(false);
        };
        let result = send(socket, plan, &transmit);
        if let Ok(count) = result {
            transmit.advance(count);
        }
        transport.bytes += data_moved(&self.session) - before;
        match result {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                transport.blocked = true;
                self.calls_loop = true;
                Ok(false)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err((transport.cid, TransportError::Io(error.to_string()))),
        }
    }

    /// Reads what has come over each connection, and acts on it.
    pub(super) fn read(&mut self) {
        let next = |transport: &mut Transport| transport.take_readable().then_some(transport.cid);
        while let Some(cid) = self.transports.iter_mut().find_map(next) {
            if let Err(why) = self.read_from(cid, |socket, slices| socket.read(slices)) {
                self.lose(cid, why);
            }
        }
    }

    /// Reads what has come over any connection, whether or not that was told.
    pub(super) fn read_unasked(&mut self) {
        let mut at = 0;
        while let Some(cid) = self.transports.get(at).map(|transport| transport.cid) {
            self.read_at_once(cid);
            at += 1;
        }
    }

    /// Reads what has come and was not told of, since it is not all that was waited for: whoever sends it, however
    /// slowly, is not silent.
    pub(super) fn read_kept(&mut self) {
        let kept = self.transports.iter().filter(|transport| transport.is_keeping_bytes());
        let kept: Vec<_> = kept.map(|transport| transport.cid).collect();
        kept.into_iter().for_each(|cid| self.read_at_once(cid));
    }

    fn read_at_once(&mut self, cid: Cid) {
        if let Err(why) = self.read_from(cid, |socket, slices| socket.read_unasked(slices)) {
            self.lose(cid, why);
        }
    }

    /// The sockets need not tell of every part of a long data segment, nor of each of many answers that come one after the
    /// other.
    pub(super) fn await_answers(&mut self) {
        let (requests, connections) = (self.pending.len(), self.transports.len());
        let awaited = self.answers.wait_for(&self.session, requests, connections, self.now);
        for transport in &mut self.transports {
            transport.await_bytes(self.session.segment_rest(transport.cid), awaited);
        }
        self.poll_soon();
        if self.is_coalescing() {
            self.answers.plan_look(self.now);
        }
    }

    /// Reads what lies in the sockets though it is less than was waited for, unless something was read just now.
    pub(super) fn look(&mut self) {
        if self.answers.are_fresh(self.now) {
            return;
        }
        let (ended, received) = (self.session.stats().tasks_ended, self.answers.received());
        self.read_kept();
        if self.session.stats().tasks_ended > ended {
            self.answers.found_kept(self.answers.received() - received);
        }
    }

    /// Whether answers may lie in a socket that it was not to tell of.
    pub(super) fn is_coalescing(&self) -> bool {
        self.transports.iter().any(Transport::is_coalescing)
    }

    /// A connection that cannot be written to is gone, but what came over it before counts: it may
    /// say why.
    pub(super) fn lose_unread(&mut self, cid: Cid, why: TransportError) {
        while let Ok(true) = self.read_from(cid, |socket, slices| socket.read_unasked(slices)) {}
        // The session may have closed it on reading that, or be about to open another in its place.
        if self
            .transports
            .iter()
            .any(|transport| transport.cid == cid && transport.socket().is_some())
        {
            self.lose(cid, why);
        }
    }

    /// Reads what has come over a connection, and acts on it; says whether there may be more.
    fn read_from(&mut self, cid: Cid, read: Read) -> Result<bool, TransportError> {
        self.session.lend_read_ahead(cid, READ_AHEAD.take().unwrap_or_default());
        let result = self.read_some(cid, read);
        READ_AHEAD.set(self.session.reclaim_read_ahead(cid));
        result
    }

    fn read_some(&mut self, cid: Cid, read: Read) -> Result<bool, TransportError> {
        let now = self.now();
        for _ in 0..CALLS_PER_TURN {
            let Some(transport) = self.transports.iter_mut().find(|transport| transport.cid == cid)
            else {
                return Ok(false);
            };
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
            self.answers.read(count, self.now);
            let before = data_moved(&self.session);
            self.session.handle_received(cid, count, now);
            transport.bytes += data_moved(&self.session) - before;
            self.dispatch();
            if count < room {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Command data of the session so far, both directions.
pub(super) fn data_moved(session: &Session) -> u64 {
    let stats = session.stats();
    stats.data_in_bytes.saturating_add(stats.data_out_bytes)
}

fn send(socket: &dyn Socket, plan: Excerpt, transmit: &Transmit<'_>) -> io::Result<usize> {
    match plan.sends {
        Sends::OnePage => write_page(socket, transmit),
        Sends::ManyPages => write_pages(socket, transmit, plan),
    }
}

/// Writes as much as one system call takes, and of long slices no more than the plan says.
fn write_pages(socket: &dyn Socket, transmit: &Transmit<'_>, plan: Excerpt) -> io::Result<usize> {
    let limit = plan.send_size;
    // A lone header needs no list: to make one took 170 of the 15,800 instructions of a lone read of 4 KiB.
    let first = transmit.chunk();
    if first.len() == transmit.remaining() && first.len() <= limit {
        return socket.write(&[IoSlice::new(first)], false);
    }
    let mut few = [IoSlice::new(&[]); FEW_SLICES];
    let filled = transmit.chunks_vectored(&mut few);
    let slices = few.get(..filled).unwrap_or_default();
    let begin = slices.get(..LONG_SLICES).unwrap_or(slices);
    if total(begin) > limit {
        return write_up_to(limit, socket, begin);
    }
    if filled < FEW_SLICES {
        return socket.write(slices, false);
    }
    let mut slices = [IoSlice::new(&[]); MAX_SLICES];
    let filled = transmit.chunks_vectored(&mut slices);
    let slices = slices.get(..filled).unwrap_or_default();
    let has_more = plan.cork && slices.len() == MAX_SLICES && total(slices) < transmit.remaining();
    socket.write(slices, has_more)
}

/// Writes so many bytes of long slices. Not with `MSG_MORE`, which is slower than one long call.
fn write_up_to(limit: usize, socket: &dyn Socket, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let mut parts = [IoSlice::new(&[]); LONG_SLICES];
    let (mut room, mut count) = (limit, 0);
    for (part, slice) in parts.iter_mut().zip(slices) {
        *part = IoSlice::new(slice.get(..room).unwrap_or(slice));
        room -= part.len();
        count += 1;
        if room == 0 {
            break;
        }
    }
    socket.write(parts.get(..count).unwrap_or_default(), false)
}

fn total(slices: &[IoSlice<'_>]) -> usize {
    slices.iter().map(|slice| slice.len()).sum()
}

/// Writes at most a page.
fn write_page(socket: &dyn Socket, transmit: &Transmit<'_>) -> io::Result<usize> {
    let chunk = transmit.chunk();
    socket.write(&[IoSlice::new(chunk.get(..PAGE).unwrap_or(chunk))], false)
}
