//! A transfer on the path that it was granted: carried, counted there, and charged to its class.

use std::time::Instant;

use crate::error::Error;
use crate::multipath::carrier::Carrier;
use crate::multipath::dispatch::{Grant, now};
use crate::scheduler::Charge;
use crate::state::counters::RequestKind;
use crate::unit::transfer::Transfer;

/// An answer, and when it came.
pub(super) type Timed<C> = (<C as Carrier>::Answer, Instant);

impl<C: Carrier> Grant<C> {
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
        debug_assert!(self.is_counted, "it is carried once");
        (self.is_held, self.is_counted) = (false, false);
        let time = now.saturating_duration_since(self.begun());
        let (id, mut state) = (self.id(), self.paths.lock());
        state.selector.answered(&self.permit, now);
        state.paths.counted(id).end(kind, self.len, Some(time));
        state.meter.answered(self.len);
        self.paths.released(&mut state, id, now);
        // Work that waits for memory is work: it has none until this request gives its share back.
        let is_idle = state.selector.in_flight(id) == 0 && !self.paths.has_backlog(&state);
        state.meter.note_idle(is_idle);
    }

    /// The request is in flight no more, and keeps its place. One that has failed counts as an error of its kind.
    pub(super) fn uncount(&mut self, failed: Option<RequestKind>) {
        debug_assert!(self.is_counted, "it is carried once");
        self.is_counted = false;
        let mut state = self.paths.lock();
        let counted = state.paths.counted(self.id());
        match failed {
            Some(kind) => counted.end(kind, self.len, None),
            None => counted.give_up(self.len),
        }
    }
}
