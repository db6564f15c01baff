//! One connection of the session: its socket, its tuner, and which way its bytes can move.

use std::task::{Context, Poll};

use iscsi_pdu::Cid;
use iscsi_tuner::{Plan, Sends};
use tracing::{Span, debug, error_span};

use crate::driver::connector::{Connected, Opening};
use crate::driver::io::Socket;
use crate::driver::measure::tuner::Tuner;
use crate::error::LinkCause;

/// What a socket begins with.
const ANY: usize = 1;

/// A shorter rest of a data segment is there before a turn is saved.
const LONG_REST: usize = 16 << 10;

/// No more of a data segment is waited for: that much is read while the rest comes.
const LONGEST_REST: usize = 160 << 10;

/// A connection of the session, from the attempt to open it to its end.
pub(super) struct Transport {
    pub(super) cid: Cid,
    state: State,
    /// Around what is logged of it.
    span: Span,
    /// It is in full feature phase.
    pub(super) is_logged_in: bool,
    /// The socket has something to read.
    readable: bool,
    /// So many bytes make it readable.
    low_water: usize,
    /// They are more than are certain to come.
    coalesces: bool,
    /// The socket did not take all there is to send, or a turn did not last for it.
    pub(super) blocked: bool,
    /// Command data that has gone over it, both directions.
    pub(super) bytes: u64,
}

/// What of the plan each turn needs: the plan itself lies in memory that 1,000 sessions find in no cache.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Excerpt {
    pub(super) sends: Sends,
    /// The most bytes of one call that sends long slices.
    pub(super) send_size: usize,
    pub(super) cork: bool,
    /// What the socket is waited for at most, bytes.
    receive_low_water: usize,
    is_local: bool,
}

/// What a connection is ready for.
pub(super) enum Readiness {
    /// It stands, or could not be made.
    Opened(Cid, Box<Result<Connected, LinkCause>>),
    /// Bytes can move over it.
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
            blocked: false,
            bytes: 0,
        }
    }

    /// The transport connection stands.
    pub(super) fn stand(&mut self, (socket, tuner): Connected) {
        let excerpt = Excerpt::of(tuner.plan());
        self.state = State::Up(socket, Box::new(tuner), excerpt);
    }

    /// The socket, if there is one, and how it is to be written to.
    pub(super) fn socket(&self) -> Option<(&dyn Socket, Excerpt)> {
        match &self.state {
            State::Opening(_) => None,
            State::Up(socket, _, excerpt) => Some((&**socket, *excerpt)),
        }
    }

    /// The tuner, if there is a socket.
    pub(super) fn tuner(&self) -> Option<&Tuner> {
        match &self.state {
            State::Opening(_) => None,
            State::Up(_, tuner, _) => Some(tuner),
        }
    }

    /// Lets the tuner act on the socket, if there is one.
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

    /// Closes it; an abortive close resets the connection.
    pub(super) fn close(self, abortive: bool) {
        if let State::Up(socket, ..) = self.state
            && abortive
        {
            socket.set_abortive();
        }
    }

    /// Whether there is something to read; it is told once.
    pub(super) fn take_readable(&mut self) -> bool {
        std::mem::take(&mut self.readable)
    }

    /// Not all was read that there was: there is something to read without a word of the socket.
    pub(super) const fn keep_readable(&mut self) {
        self.readable = true;
    }

    /// So many bytes of a data segment are still to come, and the answers that are waited for together have so many: if
    /// they are many, the socket need not tell of every part. What a segment waits for is certain to come, and nothing
    /// can overtake it; answers may be late, so whoever waits for several [looks](Self::is_coalescing) for them meanwhile.
    pub(super) fn await_bytes(&mut self, rest: usize, answers: u64) {
        let State::Up(socket, _, excerpt) = &self.state else { return };
        let rest = if rest >= LONG_REST { rest } else { ANY };
        let answers = usize::try_from(answers).unwrap_or(usize::MAX);
        let low_water = rest.min(LONGEST_REST).max(answers).min(excerpt.receive_low_water);
        if low_water != self.low_water {
            match socket.set_receive_low_water(low_water) {
                Ok(()) => self.low_water = low_water,
                Err(error) => self.span.in_scope(|| debug!(%error, "SO_RCVLOWAT is not to be had")),
            }
        }
        self.coalesces = self.low_water > rest;
    }

    /// Whether it may keep bytes to itself that nothing more need follow.
    pub(super) const fn is_coalescing(&self) -> bool {
        self.coalesces
    }

    /// Whether bytes may have come that it was not to tell of.
    pub(super) fn is_keeping_bytes(&self) -> bool {
        self.low_water > ANY
    }

    /// Whether nothing waits for its socket, and round trips over its link cost nothing.
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

/// Within the session's span: which of its connections it is.
pub(super) fn span_of(cid: Cid) -> Span {
    error_span!("connection", %cid)
}

/// Asks every transport, so that each that can move has its turn, and none waits for another.
pub(super) fn poll_any(transports: &mut [Transport], context: &mut Context<'_>) -> Poll<Readiness> {
    let mut any = Poll::Pending;
    for transport in transports {
        match transport.poll(context) {
            // What the transports before it have to move, they will still have at the next turn.
            Poll::Ready(opened @ Readiness::Opened(..)) => return Poll::Ready(opened),
            Poll::Ready(event) => any = Poll::Ready(event),
            Poll::Pending => {}
        }
    }
    any
}
