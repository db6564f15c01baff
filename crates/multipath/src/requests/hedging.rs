//! Sends second copies of requests that are late on their path.

use std::time::Instant;

use super::Requests;
use super::output::{Output, RequestId};
use super::request::{Hedge, Request, State, Waiting};
use crate::paths::Requirements;
use crate::slab::Key;

impl<E: Clone> Requests<E> {
    /// Notes whether the memory for a second copy of a read is reserved.
    pub fn reserved(&mut self, request: RequestId, is_reserved: bool, now: Instant) {
        let Some(record) = self.requests.get_mut(request.0) else { return };
        let Hedge::Reserving { is_stuck } = record.hedge else { return };
        if is_reserved {
            self.charge_hedge(request, is_stuck, now);
        } else {
            self.arm_hedge(request, now);
        }
    }

    /// Sets the timer at which the request is late. With a single path no timer is needed:
    /// [`arm_hedges`](Self::arm_hedges) sets the timer when another path is added.
    pub(super) fn arm_hedge(&mut self, request: RequestId, now: Instant) {
        let Some((path, _)) = self.only_attempt(request) else { return };
        let is_only = self.selector.is_only(path);
        let timer = if is_only { None } else { now.checked_add(self.selector.late_after(path)) };
        if let Some(record) = self.requests.get_mut(request.0) {
            record.hedge = if is_only { Hedge::None } else { Hedge::Checked };
        }
        self.set_timer(request, timer);
    }

    /// Sets the timers of requests in flight after a path was added: requests on the path that was the only
    /// one had no timer.
    pub(super) fn arm_hedges(&mut self, now: Instant) {
        let can_be_hedged = |record: &Request<E>| {
            let is_in_flight =
                matches!(record.state, State::InFlight) && record.attempts.len() == 1;
            is_in_flight && record.hedge == Hedge::None && record.is_hedged()
        };
        let is_unarmed = |key: &Key| self.requests.get(*key).is_some_and(can_be_hedged);
        let unarmed: Vec<_> = self.requests.keys().filter(is_unarmed).map(RequestId).collect();
        for request in unarmed {
            self.arm_hedge(request, now);
            if self.timer(request).is_some() {
                self.outputs.push_back(Output::TimerSet(request));
            }
        }
    }

    /// Checks a request at its timer. It is hedged if a path is idle. If it is stuck, its second copy also
    /// waits for a path with credit.
    pub(super) fn check_hedge(&mut self, request: RequestId, now: Instant) {
        let Some((path, begun)) = self.only_attempt(request) else { return };
        let is_stuck = now.saturating_duration_since(begun) >= self.selector.stuck_after(path);
        let Some(record) = self.requests.get_mut(request.0) else { return };
        if record.hedge != Hedge::Checked {
            return;
        }
        if self.selector.is_only(path) {
            // There is no other path, so no memory is reserved for a second copy.
            record.hedge = Hedge::None;
            return;
        }
        if record.spec.writes {
            // The second copy sends the pages of the first one, so it needs no memory.
            return self.charge_hedge(request, is_stuck, now);
        }
        record.hedge = Hedge::Reserving { is_stuck };
        let (len, waits) = (record.spec.len, is_stuck && record.spec.can_double);
        self.outputs.push_back(Output::Reserve { request, len, waits });
    }

    fn charge_hedge(&mut self, request: RequestId, is_stuck: bool, now: Instant) {
        if !self.limits.is_shaped {
            return self.place_hedge(request, is_stuck, now);
        }
        let Some(record) = self.requests.get_mut(request.0) else { return };
        record.hedge = Hedge::Charging { is_stuck };
        let (len, is_hedge) = (record.spec.len, true);
        self.outputs.push_back(Output::Charge { request, len, is_hedge });
    }

    /// Sends the second copy if there is a path for it.
    pub(super) fn place_hedge(&mut self, request: RequestId, is_stuck: bool, now: Instant) {
        let Some((path, _)) = self.only_attempt(request) else { return };
        let requirements = Requirements { avoid: Some(path), is_alone: false };
        let waiting = Waiting { request, requirements, is_hedge: true };
        // Waiting requests get paths before the second copy of a request in flight.
        let idle = if self.has_backlog() { None } else { self.selector.idle(path, now) };
        if let Some(idle) = idle {
            return self.start(idle, waiting, now);
        }
        if !is_stuck {
            self.outputs.push_back(Output::Unreserve(request));
            return self.arm_hedge(request, now);
        }
        if let Some(record) = self.requests.get_mut(request.0) {
            record.hedge = Hedge::Queued;
        }
        self.queue.push_back(waiting);
        self.dispatch(now);
    }

    /// Ends the hedging of a request: a second copy that was not sent is not sent any more.
    pub(super) fn drop_hedge(&mut self, request: RequestId) {
        self.set_timer(request, None);
        let Some(record) = self.requests.get_mut(request.0) else { return };
        let before = std::mem::replace(&mut record.hedge, Hedge::None);
        if !matches!(before, Hedge::None | Hedge::Checked) {
            self.outputs.push_back(Output::Unreserve(request));
        }
        if before == Hedge::Queued {
            self.queue.retain(|waiting| waiting.request != request);
        }
    }

    /// Returns the path and the start of the attempt in flight, if there is exactly one.
    fn only_attempt(&self, request: RequestId) -> Option<(crate::PathId, Instant)> {
        let record = self.requests.get(request.0)?;
        let State::InFlight = record.state else { return None };
        let [attempt] = record.attempts.as_slice() else { return None };
        let attempt = self.attempts.get(attempt.0)?;
        Some((attempt.path(), attempt.permit.taken_at()))
    }
}
