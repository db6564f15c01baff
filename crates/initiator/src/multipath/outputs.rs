//! Carries out what the requests of a disk want done: counts it, and gives each request its orders.

use std::task::Waker;
use std::time::Instant;

use iscsi_multipath::requests::end::End;
use iscsi_multipath::requests::{AttemptEnd, AttemptId, Output, RequestId};
use iscsi_multipath::{Access, PathId, Unit};

use crate::error::Error;
use crate::multipath::inbox::{Attempt, Order, Wakers};
use crate::multipath::paths::{Paths, State, StateGuard, now};
use crate::state::counters::RequestKind;
use crate::unit::transfer::Transfer;

/// An attempt in flight. Dropped before it has [ended](Self::end), it is given up with its request.
pub(super) struct Flight {
    paths: Paths,
    request: RequestId,
    attempt: AttemptId,
    path: PathId,
    kind: RequestKind,
    len: u64,
    has_ended: bool,
}

impl Paths {
    /// Applies a change to the requests, and carries out what follows from it. Callers are woken once the lock is released.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut StateGuard<'_>) -> R) -> R {
        let mut state = self.lock_for_change();
        let result = change(&mut state);
        self.carry_out_all(state, None);
        result
    }

    /// The lock for a change, after which all that follows from it has to be [carried out](Self::carry_out_all).
    pub(super) fn lock_for_change(&self) -> StateGuard<'_> {
        let mut state = self.lock();
        state.requests.set_backlog(self.is_short_of_memory());
        state
    }

    /// Carries out what follows from a change. Returns what the request `own` is to do next, if that is clear, so that it need
    /// not look for it.
    pub(super) fn carry_out_all(
        &self,
        mut state: StateGuard<'_>,
        own: Option<RequestId>,
    ) -> Option<Order> {
        let (mut next, mut wakers) = (None, Wakers::new());
        while let Some(output) = state.requests.poll_output() {
            let Some((request, order)) = self.carry_out(&mut state, output) else { continue };
            if next.is_none() && own == Some(request) {
                if let Order::Completed(_) = order {
                    state.inboxes.close(request);
                }
                next = Some(order);
            } else {
                state.inboxes.push(request, order, &mut wakers);
            }
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        next
    }

    /// Whether requests wait for their share of the budget. They do not wait for the paths as long as those that have their
    /// share wait in their class.
    fn is_short_of_memory(&self) -> bool {
        self.budget().has_waiters() && !self.in_class().are_any()
    }

    /// Carries out what is about paths, and returns what is about a request.
    fn carry_out(
        &self,
        guard: &mut StateGuard<'_>,
        output: Output<Error>,
    ) -> Option<(RequestId, Order)> {
        let (state, unit) = guard.beside();
        match output {
            Output::Send { request, attempt, path, is_short, is_hedge } => {
                let attempt = self.begin(state, request, (attempt, path), (is_short, is_hedge));
                return Some((request, Order::Send(attempt?)));
            }
            Output::Completed { request, result, .. } => {
                // A second copy that has not been sent is not needed any more.
                state.drop_attempts(request);
                return Some((request, Order::Completed(result)));
            }
            Output::Abort { request, attempt } => return Some((request, Order::Abort(attempt))),
            Output::Charge { request, is_hedge, .. } => {
                return Some((request, Order::Charge { is_hedge }));
            }
            Output::Reserve { request, waits, .. } => {
                return Some((request, Order::Reserve { waits }));
            }
            Output::Unreserve(request) => return Some((request, Order::Unreserve)),
            Output::Prepare(request) => return Some((request, Order::Prepare)),
            Output::Report(request, report) => return Some((request, Order::Report(report))),
            Output::Choose(request) => state.choose(request, unit),
            Output::Retried(path) => state.paths.count_retry(path),
            Output::PortRefused(path, access) => self.port_refused(state, path, access),
            Output::PortNeeded => self.port_needed(state),
            Output::PathSetAside(path, why) => self.set_aside(state, path, &why),
            Output::PathDrained(_) => self.drained().notify_waiters(),
        }
        None
    }

    /// An attempt takes its path.
    fn begin(
        &self,
        state: &mut State,
        request: RequestId,
        (id, path): (AttemptId, PathId),
        (is_short, is_hedge): (bool, bool),
    ) -> Option<Attempt> {
        let (carrier, len) = (state.paths.get(path).cloned(), state.inboxes.len_of(request));
        debug_assert!(carrier.is_some() && len.is_some(), "{id:?} of {request:?} over {path:?}");
        let (carrier, len) = (carrier?, len?);
        state.paths.counted(path).begin(len);
        if std::mem::take(&mut state.is_unattended) {
            self.read_buffers().keep();
            self.attention().notify_one();
        }
        if is_hedge {
            state.hedged += 1;
            let log = || tracing::debug!(path = path.0, "a request is late: a second copy is sent");
            self.report().log(log);
        }
        let is_only = state.paths.open().len() < 2;
        Some(Attempt { id, path, carrier, is_short, is_hedge, is_only })
    }

    /// A port has refused a request: the unit is asked for the states of all ports.
    fn port_refused(&self, state: &mut State, path: PathId, access: Access) {
        self.log_access(path, access);
        state.paths.call_for_access();
        self.attention().notify_one();
    }

    /// No port serves the unit: other ones are looked for.
    fn port_needed(&self, state: &mut State) {
        state.paths.call_for_port();
        self.attention().notify_one();
    }

    /// A path is of no use: others take its requests.
    fn set_aside(&self, state: &mut State, path: PathId, why: &Error) {
        self.report()
            .log(|| tracing::debug!(path = path.0, error = %why, "a session is of no use"));
        state.paths.set_aside(path, why);
        self.attention().notify_one();
    }

    /// An attempt begins, whose command is sent next.
    pub(super) fn flight(
        &self,
        request: RequestId,
        attempt: &Attempt,
        (kind, len): (RequestKind, u64),
    ) -> Flight {
        let (attempt, path) = (attempt.id, attempt.path);
        Flight { paths: self.clone(), request, attempt, path, kind, len, has_ended: false }
    }
}

impl State {
    /// Chooses the path of a flush. Without any it waits for the next.
    fn choose(&mut self, request: RequestId, unit: &Unit) {
        let now = now();
        if let Some(path) = self.flush_path(unit, now) {
            self.requests.choose(request, path, now);
        }
    }

    /// Ends the attempts of a request whose commands have not been sent.
    pub(super) fn drop_attempts(&mut self, request: RequestId) {
        if !self.inboxes.has_orders(request) {
            return;
        }
        let len = self.inboxes.len_of(request).unwrap_or_default();
        for attempt in self.inboxes.take_attempts(request) {
            self.paths.counted(attempt.path).give_up(len);
            self.requests.ended(attempt.id, AttemptEnd::GIVEN_UP, now());
        }
    }
}

impl Flight {
    /// The attempt has ended, with which `sent` went over the path. One that was cancelled counts as no error.
    pub(super) fn end(mut self, result: Result<(), &Error>, sent: &Transfer, now: Instant) {
        self.has_ended = true;
        self.paths.change(|state| self.ended(state, result, Some(sent), now));
    }

    /// The attempt has ended. Returns what the request is to do next, if that is clear.
    pub(super) fn end_and_take(
        mut self,
        result: Result<(), &Error>,
        sent: Option<&Transfer>,
        now: Instant,
    ) -> Option<Order> {
        self.has_ended = true;
        let mut state = self.paths.lock_for_change();
        self.ended(&mut state, result, sent, now);
        // It is in flight once, so that it has no earlier orders.
        self.paths.carry_out_all(state, Some(self.request))
    }

    fn ended(
        &self,
        state: &mut StateGuard<'_>,
        result: Result<(), &Error>,
        sent: Option<&Transfer>,
        now: Instant,
    ) {
        match result {
            Ok(()) => self.answered(state, now),
            Err(error) => self.failed(state, error, sent, now),
        }
    }

    fn answered(&self, state: &mut State, now: Instant) {
        let taken_at = state.requests.taken_at(self.attempt);
        let time = taken_at.map(|at| now.saturating_duration_since(at)).unwrap_or_default();
        state.paths.counted(self.path).end(self.kind, self.len, Some(time));
        let end = AttemptEnd { end: End::Good, ..AttemptEnd::GIVEN_UP };
        state.requests.ended(self.attempt, end, now);
        if self.kind != RequestKind::Flush {
            state.meter.answered(self.len);
            // Work that waits for memory is work: it has none until this request gives its share back.
            let is_idle = state.requests.paths().in_flight(self.path) == 0;
            state.meter.note_idle(is_idle && !state.requests.has_backlog());
        }
    }

    fn failed(
        &self,
        state: &mut StateGuard<'_>,
        error: &Error,
        sent: Option<&Transfer>,
        now: Instant,
    ) {
        let mut end = error.end();
        let is_routine = matches!(end, End::Attention | End::Withdrawn | End::UnknownCommand);
        let counted = state.paths.counted(self.path);
        if is_routine || sent.is_some_and(Transfer::is_cancelled) {
            counted.give_up(self.len);
        } else {
            counted.end(self.kind, self.len, None);
        }
        if end == End::UnknownCommand && !sent.is_some_and(Transfer::can_shorten) {
            // Its shorter form was sent already.
            end = End::Refused;
        }
        if end == End::SessionLost {
            self.paths.lose_path(state, self.path, error);
        }
        let access = error.refusing_port().or_else(|| error.suspected_port());
        let may_have_executed = error.may_have_executed();
        let end = AttemptEnd { end, access, error: Some(error.clone()), may_have_executed };
        state.requests.ended(self.attempt, end, now);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.has_ended {
            self.paths.change(|state| {
                state.paths.counted(self.path).give_up(self.len);
                state.requests.cancel(self.request, now());
                state.requests.ended(self.attempt, AttemptEnd::GIVEN_UP, now());
            });
        }
    }
}
