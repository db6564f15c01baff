//! Keeps the connections of a session, and writes the session's bytes to them.

use std::io::{self, IoSlice};
use std::task::Waker;
use std::time::Duration;

use bytes::Buf;
use iscsi_pdu::Cid;
use iscsi_session::{Session, Transmit, TransportError};
use iscsi_tuner::Sends;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::transports::{Excerpt, Transport};
use crate::transport::Socket;

/// Most slices of one system call (IOV_MAX on Linux).
const MAX_SLICES: usize = 1024;

/// Slices that are enough for most system calls. Filling all [`MAX_SLICES`] took a tenth of the instructions of
/// a read of 4 KiB.
const FEW_SLICES: usize = 32;

/// Slices are long if the first `LONG_SLICES` of them together exceed the plan's send size.
const LONG_SLICES: usize = 16;

/// Most system calls in one direction of a connection before the other direction has its turn.
pub(super) const CALLS_PER_TURN: usize = 16;

/// Bytes per system call where the plan sends one page at a time.
const PAGE: usize = 4096;

/// A connection that was lost, and why.
pub(super) type Lost = (Cid, TransportError);

/// The connections, and the times of the polls of the kernel.
pub(super) struct Links {
    /// The connections, the leading one first.
    pub(super) transports: SmallVec<[Transport; 1]>,
    /// Index in `transports` of the connection that sends first in this turn.
    first: usize,
    /// Largest command window that was passed to all tuners; `None` while a tuner may lack it.
    pub(super) window: Option<u32>,
    pub(super) polls: Polls,
}

/// Times of the polls that ask the kernel what the connections wait for.
pub(super) struct Polls {
    /// Time of the next poll of the kernel. From `awake_until` on, no poll is made.
    pub(super) due: Instant,
    pub(super) awake_until: Instant,
    /// Number of [`POLL_INTERVAL`](super::measure::tuner::POLL_INTERVAL)s that the result of the next poll
    /// counts for.
    pub(super) intervals: u32,
    /// Total time that requests had waited in their traffic class at the last poll.
    pub(super) waited_in_class: Duration,
    /// Bytes of command data that had been moved at the last poll.
    pub(super) moved: u64,
}

/// State for waking the event loop: its waker, and whether and when it must run.
#[derive(Default)]
pub(super) struct LoopCall {
    /// Waker of the event loop's task.
    pub(super) waker: Option<Waker>,
    /// Whether the loop must run, because new work or a new deadline has come since its last turn.
    pub(super) is_called: bool,
    /// Earliest deadline, at which the loop wakes without a call; `None` if there is no deadline.
    pub(super) due: Option<Instant>,
}

impl LoopCall {
    /// Wakes the event loop, because new work or a new deadline has come since its last turn.
    pub(super) fn call(&mut self) {
        if !std::mem::replace(&mut self.is_called, true)
            && let Some(waker) = &self.waker
        {
            waker.wake_by_ref();
        }
    }
}

impl Links {
    pub(super) fn new(count: u16, now: Instant) -> Self {
        let polls = Polls {
            due: now,
            awake_until: now,
            intervals: 1,
            waited_in_class: Duration::ZERO,
            moved: 0,
        };
        let transports = SmallVec::with_capacity(count.into());
        Self { transports, first: 0, window: None, polls }
    }

    pub(super) fn find(&mut self, cid: Cid) -> Option<&mut Transport> {
        self.transports.iter_mut().find(|transport| transport.cid == cid)
    }

    /// Returns whether sockets may hold complete responses that they do not report.
    pub(super) fn is_coalescing(&self) -> bool {
        self.transports.iter().any(Transport::is_coalescing)
    }

    /// Sends as much as the sockets take: one system call per connection, in turn, until nothing is left. Each
    /// turn of the driver begins with another connection, so that all have an equal share.
    pub(super) fn write(
        &mut self,
        session: &mut Session,
        event_loop: &mut LoopCall,
        now: Instant,
    ) -> Result<(), Lost> {
        let count = self.transports.len();
        self.first = (self.first + 1).checked_rem(count).unwrap_or_default();
        for _ in 0..CALLS_PER_TURN {
            let mut moved = false;
            for at in (self.first..count).chain(0..self.first) {
                moved |= self.write_once(at, session, event_loop, now)?;
            }
            if !moved {
                return Ok(());
            }
        }
        // There is more to send, but reads must have their turn: the event loop continues.
        self.transports.iter_mut().for_each(|transport| transport.blocked = true);
        event_loop.is_called = true;
        Ok(())
    }

    /// Sends over one connection what one system call takes; returns whether there may be more.
    fn write_once(
        &mut self,
        at: usize,
        session: &mut Session,
        event_loop: &mut LoopCall,
        now: Instant,
    ) -> Result<bool, Lost> {
        let Some(transport) = self.transports.get_mut(at).filter(|transport| !transport.blocked)
        else {
            return Ok(false);
        };
        let Some((socket, plan)) = transport.socket() else { return Ok(false) };
        let before = data_moved(session);
        let Some(mut transmit) = session.poll_transmit(transport.cid, now.into_std()) else {
            return Ok(false);
        };
        let result = send(socket, plan, &transmit);
        let has_unsent = socket.has_unsent();
        if let Ok(count) = result {
            transmit.advance(count);
        }
        transport.bytes += data_moved(session) - before;
        let is_full = match result {
            Ok(_) => has_unsent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => false,
            Err(error) => return Err((transport.cid, TransportError::Io(error.to_string()))),
        };
        if is_full {
            transport.blocked = true;
            event_loop.is_called = true;
        }
        Ok(!is_full)
    }
}

/// Returns the bytes of command data that the session has moved so far, in both directions together.
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

/// Writes as much as one system call takes, and of long slices no more than the plan's send size.
fn write_pages(socket: &dyn Socket, transmit: &Transmit<'_>, plan: Excerpt) -> io::Result<usize> {
    let limit = plan.send_size;
    // If all unsent bytes are in one slice, such as a header alone, no list of slices is needed
    // (docs/design/hot-path.md).
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

/// Writes at most `limit` bytes of long slices, without `MSG_MORE`: calls with `MSG_MORE` are slower than one
/// long call.
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

/// Writes at most one page.
fn write_page(socket: &dyn Socket, transmit: &Transmit<'_>) -> io::Result<usize> {
    let chunk = transmit.chunk();
    socket.write(&[IoSlice::new(chunk.get(..PAGE).unwrap_or(chunk))], false)
}
