//! The place that a request has on a path: what is under way there, counted and charged to its class.

use std::time::Instant;

use crate::error::Error;
use crate::multipath::carrier::Carrier;
use crate::multipath::dispatch::{Paths, State, now};
use crate::multipath::lane::{PathId, Ticket};
use crate::scheduler::Charge;
use crate::state::counters::RequestKind;
use crate::unit::transfer::Transfer;

/// An answer, and when it came.
pub(super) type Timed<C> = (<C as Carrier>::Answer, Instant);

/// A request's place on a path. Dropped, it lets the next one have it.
pub(super) struct Grant<C: Carrier> {
    paths: Paths<C>,
    carrier: C,
    ticket: Ticket,
    /// Bytes that the request moves.
    len: u64,
    /// The place has not been given back.
    is_held: bool,
    /// The request is counted as in flight on the path.
    is_counted: bool,
    /// What the request has paid to its class, until it is sent.
    charge: Option<Charge>,
}

impl<C: Carrier> Grant<C> {
    /// The place of a request of so many bytes that is counted on the path already.
    pub(super) const fn new(paths: Paths<C>, carrier: C, ticket: Ticket, len: u64) -> Self {
        Self { paths, carrier, ticket, len, is_held: true, is_counted: true, charge: None }
    }

    /// The same for a request that has paid to its class.
    pub(super) fn paid_by(mut self, charge: Option<Charge>) -> Self {
        self.charge = charge;
        self
    }

    /// Which path it is.
    pub(super) const fn id(&self) -> PathId {
        self.ticket.path
    }

    /// What goes over the path.
    pub(super) const fn carrier(&self) -> &C {
        &self.carrier
    }

    /// When it was granted, or the request was ready to go just before.
    pub(super) const fn begun(&self) -> Instant {
        self.ticket.sent_at()
    }

    /// Carries a transfer over the path. When that has failed, the request still has its place there.
    pub(super) async fn carry(&mut self, transfer: &mut Transfer) -> Result<Timed<C>, Error> {
        // What is dropped from here on may have been sent.
        self.charge = self.charge.take().map(Charge::sent);
        let result = self.carrier.carry(transfer).await;
        let now = now();
        // What is written is on its way whatever comes of it.
        if let Some(charge) = self.charge.take().filter(|_| !transfer.writes()) {
            charge.settle(result.as_ref().map_or(0, |answer| C::brought(answer, self.len)));
        }
        match result {
            Ok(answer) => {
                self.answered(transfer.kind(), now);
                Ok((answer, now))
            }
            Err(error) => {
                // What was given up is no error.
                self.uncount((!transfer.is_cancelled()).then(|| transfer.kind()));
                Err(error)
            }
        }
    }

    /// The request has been answered by now.
    fn answered(&mut self, kind: RequestKind, now: Instant) {
        (self.is_held, self.is_counted) = (false, false);
        let time = now.saturating_duration_since(self.begun());
        let (id, mut state) = (self.id(), self.paths.lock());
        state.schedule.end(&self.ticket, now);
        state.paths.counted(id).end(kind, self.len, Some(time));
        state.meter.answered(self.len);
        self.paths.released(&mut state, id, now);
        // Work that waits for memory is work: it has none until this request gives its share back.
        let is_idle = state.schedule.under_way(id) == 0 && !self.paths.has_backlog(&state);
        state.meter.note_idle(is_idle);
    }

    /// The request is in flight no more, and keeps its place; it counts as an error if it is of this kind.
    pub(super) fn uncount(&mut self, failed: Option<RequestKind>) {
        self.is_counted = false;
        let mut state = self.paths.lock();
        let counted = state.paths.counted(self.ticket.path);
        match failed {
            Some(kind) => counted.end(kind, self.len, None),
            None => counted.give_up(self.len),
        }
    }

    /// Gives the place back; dropping the grant does the same, and lets the next one have it.
    pub(super) fn give_up(mut self, state: &mut State<C>) {
        if std::mem::take(&mut self.is_held) {
            self.leave(state);
        }
    }

    fn leave(&self, state: &mut State<C>) {
        state.schedule.give_up(&self.ticket);
        if self.is_counted {
            state.paths.counted(self.id()).give_up(self.len);
        }
    }
}

impl<C: Carrier> Drop for Grant<C> {
    fn drop(&mut self) {
        if self.is_held {
            let mut state = self.paths.lock();
            self.leave(&mut state);
            self.paths.released(&mut state, self.id(), now());
        }
    }
}
