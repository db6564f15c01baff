//! Defines one connection of the session: its socket, its tuner, and the directions in which bytes can move.

use std::task::{Context, Poll};

use iscsi_pdu::Cid;
use iscsi_tuner::{Plan, Sends};
use tracing::{Span, debug, error_span};

use crate::driver::connector::{Connected, Opening};
use crate::driver::measure::tuner::Tuner;
use crate::error::LinkCause;
use crate::transport::Socket;

/// Low-water mark of a new socket, in bytes: any data makes the socket readable.
const ANY: usize = 1;

/// Shortest rest of a data segment that is worth waiting for, in bytes: a shorter rest arrives so soon that
/// waiting saves no turn.
const LONG_REST: usize = 16 << 10;

/// Most bytes of a data segment to wait for. A longer segment is read in several turns, because its rest
/// arrives while its beginning is read.
const LONGEST_REST: usize = 160 << 10;

/// A connection of the session, from the attempt to open it to its end.
pub(super) struct Transport {
    pub(super) cid: Cid,
    state: State,
    /// Span of the connection's log entries.
    span: Span,
    /// Whether the connection is in full feature phase.
    pub(super) is_logged_in: bool,
    /// Whether the socket has something to read.
    readable: bool,
    /// Number of bytes that make the socket readable.
    low_water: usize,
    /// Whether `low_water` exceeds the bytes that are certain to come, so that complete responses may stay
    /// unreported.
    coalesces: bool,
    /// Whether the socket has no low-water mark, so that each byte makes it readable.
    lacks_low_water: bool,
    /// Whether the socket did not take all there is to send, or the turn ended before all was sent.
    pub(super) blocked: bool,
    /// Bytes of command data that the connection has moved, in both directions together.
    pub(super) bytes: u64,
}

/// Copy of the parts of the plan that each turn needs. With 1,000 sessions the plan itself would be in no
/// processor cache.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Excerpt {
    pub(super) sends: Sends,
    /// Most bytes of one call that sends long slices.
    pub(super) send_size: usize,
    pub(super) cork: bool,
    /// Largest low-water mark of the socket, bytes.
    receive_low_water: usize,
    is_local: bool,
}

/// Event of a connection that was polled.
pub(super) enum Readiness {
    /// The connection is open, or the attempt has failed.
    Opened(Cid, Box<Result<Connected, LinkCause>>),
    /// Bytes can move over the connection.
    Ready,
}

enum State {
    Opening(Opening),
    Up(Box<dyn Socket>, Box<Tuner>, Excerpt),
}

impl Transport {
    pub(super) fn new(cid: Cid, opening: Opening) -> Self {
        let state = State::Opening(opening);
        let span = span_of(cid);
        Self {
            cid,
            state,
            span,
            is_logged_in: false,
            readable: false,
            low_water: ANY,
            coalesces: false,
            lacks_low_water: false,
            blocked: false,
            bytes: 0,
        }
    }

    /// Sets the socket and the tuner of the open connection.
    pub(super) fn stand(&mut self, (socket, tuner): Connected) {
        let excerpt = Excerpt::of(tuner.plan());
        self.state = State::Up(socket, Box::new(tuner), excerpt);
    }

    /// Returns the socket, if the connection is open, and how to write to it.
    pub(super) fn socket(&self) -> Option<(&dyn Socket, Excerpt)> {
        match &self.state {
            State::Opening(_) => None,
            State::Up(socket, _, excerpt) => Some((&**socket, *excerpt)),
        }
    }

    /// Returns the tuner, if the connection is open.
    pub(super) fn tuner(&self) -> Option<&Tuner> {
        match &self.state {
            State::Opening(_) => None,
            State::Up(_, tuner, _) => Some(tuner),
        }
    }

    /// Calls `act` with the socket and the tuner, if the connection is open.
    pub(super) fn tune<R>(&mut self, act: impl FnOnce(&dyn Socket, &mut Tuner) -> R) -> Option<R> {
        match &mut self.state {
            State::Opening(_) => None,
            State::Up(socket, tuner, excerpt) => {
                let result = self.span.in_scope(|| act(&**socket, tuner));
                *excerpt = Excerpt::of(tuner.plan());
                Some(result)
            }
        }
    }

    /// Closes the connection; an abortive close resets it.
    pub(super) fn close(self, abortive: bool) {
        if let State::Up(socket, ..) = self.state
            && abortive
        {
            socket.set_abortive();
        }
    }

    /// Returns whether the socket has something to read, and clears the flag.
    pub(super) fn take_readable(&mut self) -> bool {
        std::mem::take(&mut self.readable)
    }

    /// Marks the transport as readable, because bytes are left that the socket need not report again.
    pub(super) const fn keep_readable(&mut self) {
        self.readable = true;
    }

    /// Sets the low-water mark, so that the socket need not report every part of a long data segment, nor every
    /// response. `rest` is the number of bytes of the data segment that are still to come, `answers` the number
    /// of bytes of responses to wait for together.
    ///
    /// The rest of a segment is certain to come, and nothing can overtake it. Responses may be late, so the
    /// driver also polls sockets that [may hold them](Self::is_coalescing).
    pub(super) fn await_bytes(&mut self, rest: usize, answers: u64) {
        let State::Up(socket, _, excerpt) = &self.state else { return };
        if self.lacks_low_water {
            return;
        }
        let rest = if rest >= LONG_REST { rest } else { ANY };
        let answers = usize::try_from(answers).unwrap_or(usize::MAX);
        let low_water = rest.min(LONGEST_REST).max(answers).min(excerpt.receive_low_water);
        if low_water != self.low_water {
            match socket.set_receive_low_water(low_water) {
                Ok(()) => self.low_water = low_water,
                Err(error) => {
                    self.lacks_low_water = true;
                    self.span.in_scope(|| debug!(%error, "the socket has no low-water mark"));
                }
            }
        }
        self.coalesces = self.low_water > rest;
    }

    /// Returns whether the socket may hold complete responses below its low-water mark.
    pub(super) const fn is_coalescing(&self) -> bool {
        self.coalesces
    }

    /// Returns whether bytes may have arrived that the socket does not report.
    pub(super) fn is_keeping_bytes(&self) -> bool {
        self.low_water > ANY
    }

    /// Returns whether no bytes wait to be sent or read at the socket, and the link is so short that a round
    /// trip costs nothing.
    pub(super) fn is_short_and_free(&self) -> bool {
        let is_short = self.socket().is_some_and(|(_, plan)| plan.is_local);
        !self.blocked && !self.is_keeping_bytes() && is_short
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Readiness> {
        match &mut self.state {
            State::Opening(opening) => {
                let opened = |result| Readiness::Opened(self.cid, Box::new(result));
                self.span.in_scope(|| opening.as_mut().poll(context)).map(opened)
            }
            State::Up(socket, ..) => {
                self.readable = self.readable || socket.poll_readable(context).is_ready();
                let unblocked = self.blocked && socket.poll_writable(context).is_ready();
                self.blocked &= !unblocked;
                if self.readable || unblocked {
                    Poll::Ready(Readiness::Ready)
                } else {
                    Poll::Pending
                }
            }
        }
    }
}

impl Excerpt {
    fn of(plan: &Plan) -> Self {
        let bytes_or =
            |otherwise, bytes: Option<u32>| bytes.map_or(otherwise, |bytes| bytes as usize);
        Self {
            sends: plan.sends.value,
            send_size: bytes_or(usize::MAX, plan.send_size.value),
            cork: plan.cork.value,
            receive_low_water: bytes_or(ANY, plan.receive_low_water.value),
            is_local: plan.link.is_local(),
        }
    }
}

/// Creates the span that names a connection, within the session's span.
pub(super) fn span_of(cid: Cid) -> Span {
    error_span!("connection", %cid)
}

/// Polls the transports, so that each one that can move bytes is marked, and none waits for another. Returns
/// early if a connection was opened, or the attempt has failed.
pub(super) fn poll_any(transports: &mut [Transport], context: &mut Context<'_>) -> Poll<Readiness> {
    let mut any = Poll::Pending;
    for transport in transports {
        match transport.poll(context) {
            // An opened connection is handled first. The earlier transports stay marked, and the later ones are
            // polled in the next turn.
            Poll::Ready(opened @ Readiness::Opened(..)) => return Poll::Ready(opened),
            Poll::Ready(event) => any = Poll::Ready(event),
            Poll::Pending => {}
        }
    }
    any
}
