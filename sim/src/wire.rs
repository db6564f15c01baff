//! A simulated TCP connection: two directions of bytes, each with its delays, and a close by either side.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use iscsi_testkit::target::ConnId;
use tokio::time::Instant;

use crate::busy::Unread;
use crate::clock;
use crate::rng::Rng;
use crate::tunnel::Tunnel;

/// Delays, rate and buffer of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) latency: Duration,
    /// Largest random addition to the latency.
    pub(crate) jitter: Duration,
    /// Bytes per second.
    pub(crate) rate: u64,
    /// Bytes that a sender may have in flight.
    pub(crate) buffer: usize,
}

impl Shape {
    pub(crate) fn drawn(rng: &mut Rng) -> Self {
        Self {
            latency: rng.any_scale(128),
            jitter: rng.any_scale(16),
            rate: 1 << rng.within(19..31),
            buffer: 1 << rng.index(15..22),
        }
    }
}

/// One direction. Data arrives in the order in which it was sent.
#[derive(Debug, Default)]
pub(crate) struct Direction {
    flying: VecDeque<Flight>,
    free_at: Option<Instant>,
    bytes: usize,
    /// Nothing arrives before this time.
    stalled_until: Option<Instant>,
    /// Whether the sender has closed the connection.
    has_ended: bool,
}

/// Bytes in flight.
#[derive(Debug)]
struct Flight {
    leaves: Instant,
    arrives: Instant,
    bytes: Bytes,
}

impl Direction {
    pub(crate) fn send(&mut self, bytes: Bytes, shape: &Shape, rng: &mut Rng) {
        let now = clock::now();
        let nanos = (bytes.len() as u64).saturating_mul(1_000_000_000) / shape.rate;
        let leaves = self.free_at.map_or(now, |free| free.max(now)) + Duration::from_nanos(nanos);
        self.free_at = Some(leaves);
        let jitter = rng.millis(0..1 + u64::try_from(shape.jitter.as_millis()).unwrap_or(0));
        let arrives = leaves + shape.latency + jitter;
        let arrives = self.flying.back().map_or(arrives, |last| last.arrives.max(arrives));
        self.bytes += bytes.len();
        self.flying.push_back(Flight { leaves, arrives, bytes });
    }

    /// Returns the next bytes that have arrived.
    pub(crate) fn receive(&mut self, now: Instant) -> Option<Bytes> {
        if self.next_arrival()? > now {
            return None;
        }
        let bytes = self.flying.pop_front()?.bytes;
        self.bytes -= bytes.len();
        Some(bytes)
    }

    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        let first = self.flying.front()?.arrives;
        Some(self.stalled_until.map_or(first, |until| until.max(first)))
    }

    /// Delays all arrivals until `until`.
    pub(crate) fn stall(&mut self, until: Instant) {
        self.stalled_until = Some(until);
    }

    /// Delays all arrivals until `until`, or until the time of an earlier stall if that is later.
    pub(crate) fn stall_at_least(&mut self, until: Instant) {
        self.stalled_until = self.stalled_until.max(Some(until));
    }

    /// Drops the bytes that have not left the sender.
    pub(crate) fn drop_unsent(&mut self, now: Instant) {
        self.flying.retain(|flight| flight.leaves <= now);
    }

    /// Drops all bytes in flight.
    pub(crate) fn drop_all(&mut self) {
        self.flying.clear();
        self.bytes = 0;
    }

    pub(crate) const fn end(&mut self) {
        self.has_ended = true;
    }

    /// Returns whether the sender has closed the connection, and everything has arrived.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.has_ended
            && self.flying.is_empty()
            && self.stalled_until.is_none_or(|until| until <= now)
    }

    /// Returns when the close arrives, if only a stall delays it.
    pub(crate) fn end_arrives(&self) -> Option<Instant> {
        if self.has_ended && self.flying.is_empty() { self.stalled_until } else { None }
    }

    /// Returns whether nothing is in flight, and nothing delays delivery.
    pub(crate) fn is_quiet(&self, now: Instant) -> bool {
        self.flying.is_empty() && self.stalled_until.is_none_or(|until| until <= now)
    }
}

/// A connection, with the state of both sides.
#[derive(Debug)]
pub(crate) struct Wire {
    /// The process whose connection it is.
    pub(crate) process: u64,
    /// Index of the portal that the connection leads to.
    pub(crate) portal: usize,
    pub(crate) connection: ConnId,
    /// The TLS tunnel at the target's end; `None` if the connection is in clear text.
    pub(crate) tunnel: Option<Tunnel>,
    pub(crate) to_target: Direction,
    pub(crate) to_initiator: Direction,
    /// Data that has reached the target's host and is unread.
    pub(crate) unread: Unread,
    /// Received data that the initiator has not read.
    pub(crate) inbox: BytesMut,
    /// Number of received bytes from which the reader is woken (`SO_RCVLOWAT`).
    pub(crate) low_water: usize,
    pub(crate) reader: Option<Waker>,
    pub(crate) writer: Option<Waker>,
    /// Whether the target has sent data.
    pub(crate) has_answered: bool,
    /// Whether the initiator is to see a reset of the connection.
    pub(crate) is_reset: bool,
    /// Whether the initiator is to see that the target has closed the connection.
    pub(crate) is_at_end: bool,
    /// Whether the initiator resets the connection when it closes it.
    pub(crate) is_abortive: bool,
    /// Whether the initiator has closed the connection.
    pub(crate) is_closed: bool,
}

impl Wire {
    pub(crate) fn new(
        process: u64,
        portal: usize,
        connection: ConnId,
        tunnel: Option<Tunnel>,
    ) -> Self {
        Self {
            process,
            portal,
            connection,
            tunnel,
            to_target: Direction::default(),
            to_initiator: Direction::default(),
            unread: Unread::default(),
            inbox: BytesMut::new(),
            low_water: 1,
            reader: None,
            writer: None,
            has_answered: false,
            is_reset: false,
            is_at_end: false,
            is_abortive: false,
            is_closed: false,
        }
    }

    /// Returns the number of bytes that the initiator may send, by the room in the socket buffers of both hosts.
    pub(crate) const fn room(&self, shape: &Shape) -> usize {
        shape.buffer.saturating_sub(self.to_target.bytes).saturating_sub(self.unread.len())
    }

    /// Returns whether the initiator's host has received acknowledgements for all sent data.
    pub(crate) fn is_all_acknowledged(&self, now: Instant, shape: &Shape) -> bool {
        let is_back = |came: Instant| came + shape.latency <= now;
        self.to_target.flying.is_empty()
            && self.to_initiator.stalled_until.is_none_or(|until| until <= now)
            && self.unread.last_came().is_none_or(is_back)
    }

    /// Returns whether everything that can be read has been read.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.to_target.is_over(now) && self.unread.is_empty()
    }

    pub(crate) fn is_readable(&self) -> bool {
        self.is_reset || self.is_at_end || self.inbox.len() >= self.low_water
    }

    /// Wakes the tasks that wait for the connection.
    pub(crate) fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }
}
