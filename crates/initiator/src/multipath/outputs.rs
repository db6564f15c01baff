//! Carries out what the requests of a disk want done: counts it, and gives each request its orders.

use std::task::Waker;
use std::time::Instant;

use iscsi_multipath::requests::end::End;
use iscsi_multipath::requests::{AttemptEnd, AttemptId, Output, RequestId};
use iscsi_multipath::{Access, PathId};

use crate::error::Error;
use crate::multipath::carrier::Carrier;
use crate::multipath::dispatch::{Paths, State, now};
use crate::multipath::inbox::{Attempt, Order, Wakers};
use crate::state::counters::RequestKind;
use crate::unit::transfer::Transfer;

/// An attempt in flight. Dropped before it has [ended](Self::end), it is given up with its request.
pub(super) struct Flight<C: Carrier> {
    paths: Paths<C>,
    request: RequestId,
    attempt: AttemptId,
    path: PathId,
    kind: RequestKind,
    len: u64,
    has_ended: bool,
}

impl<C: Carrier> Paths<C> {
    /// Applies a change to the requests, and carries out what follows from it. Callers are woken once the lock is released.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut State<C>) -> R) -> R {
        self.change_then(change, |_, result| result)
    }

    /// The same, and looks at the state once all has been carried out.
    pub(super) fn change_then<T, R>(
        &self,
        change: impl FnOnce(&mut State<C>) -> T,
        then: impl FnOnce(&mut State<C>, T) -> R,
    ) -> R {
        let mut state = self.lock();
        state.requests.set_backlog(self.is_short_of_memory());
        let changed = change(&mut state);
        let mut wakers = Wakers::new();
        while let Some(output) = state.requests.poll_output() {
            self.carry_out(&mut state, output, &mut wakers);
        }
        let result = then(&mut state, changed);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        result
    }

    /// Whether requests wait for their share of the budget. They do not wait for the paths as long as those that have their
    /// share wait in their class.
    fn is_short_of_memory(&self) -> bool {
        self.budget().has_waiters() && !self.in_class().are_any()
    }

    fn carry_out(&self, state: &mut State<C>, output: Output<Error>, wakers: &mut Wakers) {
        let (request, order) = match output {
            Output::Send { request, attempt, path, is_short, is_hedge } => {
                let attempt = self.begin(state, request, (attempt, path), (is_short, is_hedge));
                let Some(attempt) = attempt else { return };
                (request, Order::Send(attempt))
            }
            Output::Completed { request, result, .. } => {
                // A second copy that has not been sent is not needed any more.
                state.drop_attempts(request);
                (request, Order::Completed(result))
            }
            Output::Abort { request, attempt } => (request, Order::Abort(attempt)),
            Output::Charge { request, .. } => (request, Order::Charge),
            Output::Reserve { request, waits, .. } => (request, Order::Reserve { waits }),
            Output::Unreserve(request) => (request, Order::Unreserve),
            Output::Prepare(request) => (request, Order::Prepare),
            Output::Report(request, report) => (request, Order::Report(report)),
            Output::Choose(request) => return state.choose(request),
            Output::Retried(path) => return state.paths.count_retry(path),
            Output::PortRefused(path, access) => return self.port_refused(state, path, access),
            Output::PortNeeded => return self.port_needed(state),
            Output::PathSetAside(path, why) => return self.set_aside(state, path, &why),
            Output::PathDrained(_) => return self.drained().notify_waiters(),
        };
        state.inboxes.push(request, order, wakers);
    }

    /// An attempt takes its path.
    fn begin(
        &self,
        state: &mut State<C>,
        request: RequestId,
        (id, path): (AttemptId, PathId),
        (is_short, is_hedge): (bool, bool),
    ) -> Option<Attempt<C>> {
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
    fn port_refused(&self, state: &mut State<C>, path: PathId, access: Access) {
        self.log_access(path, access);
        state.paths.call_for_access();
        self.attention().notify_one();
    }

    /// No port serves the unit: other ones are looked for.
    fn port_needed(&self, state: &mut State<C>) {
        state.paths.call_for_port();
        self.attention().notify_one();
    }

    /// A path is of no use: others take its requests.
    fn set_aside(&self, state: &mut State<C>, path: PathId, why: &Error) {
        self.report()
            .log(|| tracing::debug!(path = path.0, error = %why, "a session is of no use"));
        state.paths.set_aside(path, why);
        self.attention().notify_one();
    }

    /// An attempt begins, whose command is sent next.
    pub(super) fn flight(
        &self,
        request: RequestId,
        attempt: &Attempt<C>,
        (kind, len): (RequestKind, u64),
    ) -> Flight<C> {
        let (attempt, path) = (attempt.id, attempt.path);
        Flight { paths: self.clone(), request, attempt, path, kind, len, has_ended: false }
    }
}

impl<C: Carrier> State<C> {
    /// Chooses the path of a flush. Without any it waits for the next.
    fn choose(&mut self, request: RequestId) {
        let now = now();
        if let Some(path) = self.flush_path(now) {
            self.requests.choose(request, path, now);
        }
    }

    /// Ends the attempts of a request whose commands have not been sent.
    pub(super) fn drop_attempts(&mut self, request: RequestId) {
        let len = self.inboxes.len_of(request).unwrap_or_default();
        for attempt in self.inboxes.take_attempts(request) {
            self.paths.counted(attempt.path).give_up(len);
            self.requests.ended(attempt.id, AttemptEnd::GIVEN_UP, now());
        }
    }
}

impl<C: Carrier> Flight<C> {
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
    ) -> Option<Order<C>> {
        self.has_ended = true;
        let ended = |state: &mut State<C>| self.ended(state, result, sent, now);
        self.paths.change_then(ended, |state, ()| state.inboxes.take(self.request))
    }

    fn ended(
        &self,
        state: &mut State<C>,
        result: Result<(), &Error>,
        sent: Option<&Transfer>,
        now: Instant,
    ) {
        match result {
            Ok(()) => self.answered(state, now),
            Err(error) => self.failed(state, error, sent, now),
        }
    }

    fn answered(&self, state: &mut State<C>, now: Instant) {
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

    fn failed(&self, state: &mut State<C>, error: &Error, sent: Option<&Transfer>, now: Instant) {
        let counted = state.paths.counted(self.path);
        if sent.is_some_and(Transfer::is_cancelled) {
            counted.give_up(self.len);
        } else {
            counted.end(self.kind, self.len, None);
        }
        let end = match error.end() {
            // Its shorter form was sent already.
            End::UnknownCommand if !sent.is_some_and(Transfer::can_shorten) => End::Refused,
            end => end,
        };
        if end == End::SessionLost {
            self.paths.lose_path(state, self.path, error);
        }
        let access = error.refusing_port().or_else(|| error.suspected_port());
        let may_have_executed = error.may_have_executed();
        let end = AttemptEnd { end, access, error: Some(error.clone()), may_have_executed };
        state.requests.ended(self.attempt, end, now);
    }
}

impl<C: Carrier> Drop for Flight<C> {
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
