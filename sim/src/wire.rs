//! A simulated TCP connection: two directions of bytes, each with its delays, and two ends that close.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use iscsi_testkit::target::ConnId;
use tokio::time::Instant;

use crate::busy::Unread;
use crate::clock;
use crate::rng::Rng;

/// How a link carries bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) latency: Duration,
    /// Up to so much more, by chance.
    pub(crate) jitter: Duration,
    /// Bytes per second.
    pub(crate) rate: u64,
    /// Bytes that a sender may have on the way.
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

/// One direction: what was sent arrives in order.
#[derive(Debug, Default)]
pub(crate) struct Direction {
    flying: VecDeque<Flight>,
    free_at: Option<Instant>,
    bytes: usize,
    /// Nothing arrives before.
    stalled_until: Option<Instant>,
    /// The sender has closed its end.
    has_ended: bool,
}

/// Bytes on their way.
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

    /// What has arrived by now.
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

    /// Nothing arrives until then.
    pub(crate) fn stall(&mut self, until: Instant) {
        self.stalled_until = Some(until);
    }

    /// The same, or until what it waits for already.
    pub(crate) fn stall_at_least(&mut self, until: Instant) {
        self.stalled_until = self.stalled_until.max(Some(until));
    }

    /// Loses what has not left its sender.
    pub(crate) fn drop_unsent(&mut self, now: Instant) {
        self.flying.retain(|flight| flight.leaves <= now);
    }

    /// Loses all that is on the way.
    pub(crate) fn drop_all(&mut self) {
        self.flying.clear();
        self.bytes = 0;
    }

    pub(crate) const fn end(&mut self) {
        self.has_ended = true;
    }

    /// Whether all has arrived that ever will.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.has_ended
            && self.flying.is_empty()
            && self.stalled_until.is_none_or(|until| until <= now)
    }

    /// When the end arrives, if nothing is left before it.
    pub(crate) fn end_arrives(&self) -> Option<Instant> {
        if self.has_ended && self.flying.is_empty() { self.stalled_until } else { None }
    }

    /// Whether nothing is in flight, and nothing blocks delivery.
    pub(crate) fn is_quiet(&self, now: Instant) -> bool {
        self.flying.is_empty() && self.stalled_until.is_none_or(|until| until <= now)
    }
}

/// A connection, seen from both of its ends.
#[derive(Debug)]
pub(crate) struct Wire {
    /// The process whose connection it is.
    pub(crate) process: u64,
    /// Which portal it leads to.
    pub(crate) portal: usize,
    pub(crate) connection: ConnId,
    pub(crate) to_target: Direction,
    pub(crate) to_initiator: Direction,
    /// Data that has reached the target's host and is unread.
    pub(crate) unread: Unread,
    /// What the initiator has not read yet.
    pub(crate) inbox: BytesMut,
    /// So many bytes of it are told of (`SO_RCVLOWAT`).
    pub(crate) low_water: usize,
    pub(crate) reader: Option<Waker>,
    pub(crate) writer: Option<Waker>,
    /// Notes that the target has answered.
    pub(crate) has_answered: bool,
    /// The initiator is told that the connection was reset.
    pub(crate) is_reset: bool,
    /// The initiator is told that the target has closed it.
    pub(crate) is_at_end: bool,
    /// The initiator will reset it when it closes it.
    pub(crate) is_abortive: bool,
    /// The initiator has closed it.
    pub(crate) is_closed: bool,
}

impl Wire {
    pub(crate) fn new(process: u64, portal: usize, connection: ConnId) -> Self {
        Self {
            process,
            portal,
            connection,
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

    /// Bytes that the initiator may send now, by the room in the socket buffers of both hosts.
    pub(crate) const fn room(&self, shape: &Shape) -> usize {
        shape.buffer.saturating_sub(self.to_target.bytes).saturating_sub(self.unread.len())
    }

    /// Whether the initiator's host has received acknowledgements for all sent data.
    pub(crate) fn is_all_acknowledged(&self, now: Instant, shape: &Shape) -> bool {
        let is_back = |came: Instant| came + shape.latency <= now;
        self.to_target.flying.is_empty()
            && self.to_initiator.stalled_until.is_none_or(|until| until <= now)
            && self.unread.last_came().is_none_or(is_back)
    }

    /// Whether everything that can be read has been read.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.to_target.is_over(now) && self.unread.is_empty()
    }

    pub(crate) fn is_readable(&self) -> bool {
        self.is_reset || self.is_at_end || self.inbox.len() >= self.low_water
    }

    /// Wakes whoever waits for it.
    pub(crate) fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }
}
