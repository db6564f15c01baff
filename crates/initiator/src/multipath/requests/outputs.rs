//! Applies the outputs of a disk's [`Requests`](iscsi_multipath::requests::Requests): counts them, and puts
//! each request's steps in its inbox.

use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use iscsi_multipath::requests::end::End;
use iscsi_multipath::requests::{AttemptEnd, AttemptId, Output, RequestId};
use iscsi_multipath::{Access, Begun, GoodEnd, PathId, Unit};
use iscsi_session::Completion;

use crate::error::Error;
use crate::multipath::paths::{Paths, Shared, State, StateGuard, now};
use crate::multipath::report::Report;
use crate::multipath::requests::inbox::{Answer, Attempt, Order, Unproven};
use crate::state::attempt::{Attempted, Ended, Requester, Wakers};
use crate::state::counters::RequestKind;
use crate::state::unit_lock::UnitGuard;

/// An attempt that its caller ends, not its session: its command was not handed over yet, or its unit is being
/// confirmed, or the attempt consists of several commands. If the flight is dropped before the attempt ends,
/// the request is cancelled.
pub(super) struct Flight {
    paths: Paths,
    attempted: Attempted,
    has_ended: bool,
}

impl Paths {
    /// Applies a change to the requests, and then all outputs of the change. Callers are woken after the lock
    /// is released.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut StateGuard<'_>) -> R) -> R {
        let mut state = self.lock_for_change();
        let result = change(&mut state);
        self.carry_out_all(state, None);
        result
    }

    /// Returns the lock for a change. After the change, the caller must call
    /// [`carry_out_all`](Self::carry_out_all) to apply the outputs.
    pub(super) fn lock_for_change(&self) -> StateGuard<'_> {
        self.for_change(self.lock())
    }

    fn for_change<'a>(&self, mut state: StateGuard<'a>) -> StateGuard<'a> {
        state.requests.set_backlog(self.is_short_of_memory());
        state
    }

    /// Applies all outputs of a change. Returns the next step of the request `own`, if there is one, so that
    /// its caller need not check its inbox.
    pub(super) fn carry_out_all(
        &self,
        mut state: StateGuard<'_>,
        own: Option<RequestId>,
    ) -> Option<Order> {
        let mut wakers = Wakers::default();
        let next = self.carry_out_outputs(state.beside(), own, &mut None, &mut wakers);
        drop(state);
        wakers.wake();
        next
    }

    /// Applies all outputs of a change. Adds the callers that must be woken after the lock is released to
    /// `wakers`. `answer` is the answer to an attempt that has succeeded; it is taken if its request waits
    /// for it. Returns the next step of the request `own`, if there is one.
    pub(super) fn carry_out_outputs(
        &self,
        (state, unit): (&mut State, &Unit),
        own: Option<RequestId>,
        answer: &mut Option<Answer>,
        wakers: &mut Wakers,
    ) -> Option<Order> {
        let mut next = None;
        while let Some(output) = state.requests.poll_output() {
            let of = (&mut *state, unit);
            let Some((request, order)) = self.carry_out(of, output, answer) else { continue };
            if next.is_none() && own == Some(request) {
                if let Order::Completed(_) = order {
                    // `Completed` is the last step of a request. There is no other step in the inbox, so the
                    // inbox is closed.
                    drop(state.inboxes.close(request));
                }
                next = Some(order);
            } else {
                state.inboxes.push(request, order, wakers);
            }
        }
        next
    }

    /// Returns whether requests wait for the budget while no request waits for its traffic class. Then the
    /// budget, not the class, keeps paths idle.
    fn is_short_of_memory(&self) -> bool {
        self.budget().has_waiters() && !self.in_class().are_any()
    }

    /// Applies an output that concerns paths, or returns the step for an output that concerns a request.
    fn carry_out(
        &self,
        (state, unit): (&mut State, &Unit),
        output: Output<Error>,
        answer: &mut Option<Answer>,
    ) -> Option<(RequestId, Order)> {
        match output {
            Output::Send { request, attempt, path, is_short, is_hedge } => {
                let attempt = self.begin(state, request, (attempt, path), (is_short, is_hedge));
                return Some((request, Order::Send(attempt?)));
            }
            Output::Completed { request, result, .. } => {
                // A second copy that was not sent yet is not needed.
                state.drop_attempts(request);
                if let Ok(attempt) = &result
                    && answer.as_ref().is_some_and(|answer| answer.attempt == *attempt)
                {
                    state.inboxes.put_answer(request, answer);
                }
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
            Output::TimerSet(request) => return Some((request, Order::TimerSet)),
            Output::Choose(request) => state.choose(request, unit),
            Output::Retried(path) => state.paths.count_retry(path),
            Output::PortRefused(path, access) => self.port_refused(state, path, access),
            Output::PortNeeded => self.port_needed(state),
            Output::PathSetAside(path, why) => self.set_aside(state, path, &why),
            Output::PathDrained(_) => self.drained().notify_waiters(),
        }
        None
    }

    /// Starts to count an attempt on its path. Returns `None` if the path or the caller is gone, which must
    /// not happen.
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
        Some(Attempt { id, path, carrier, is_short, is_hedge })
    }

    /// Handles a port that has refused a request. The supervisor will query the states of all ports.
    fn port_refused(&self, state: &mut State, path: PathId, access: Access) {
        log_access(self.report(), path, access);
        state.paths.call_for_access();
        self.attention().notify_one();
    }

    /// Handles that no port serves the unit. The supervisor will try other ports.
    fn port_needed(&self, state: &mut State) {
        state.paths.call_for_port();
        self.attention().notify_one();
    }

    /// Sets aside a path that cannot serve requests. Other paths take its requests.
    fn set_aside(&self, state: &mut State, path: PathId, why: &Error) {
        self.report()
            .log(|| tracing::debug!(path = path.0, error = %why, "a session is of no use"));
        state.paths.set_aside(path, why);
        self.attention().notify_one();
    }

    /// Returns an attempt that its caller must end.
    pub(super) fn flight(&self, attempted: Attempted) -> Flight {
        Flight { paths: self.clone(), attempted, has_ended: false }
    }
}

impl Requester for Shared {
    fn is_awaited(&self, unit: &UnitGuard<'_>, attempt: AttemptId) -> bool {
        self.state.read(unit).requests.is_awaited(attempt)
    }

    fn others_answer(&self, path: PathId) -> bool {
        let (state, now) = (self.state.lock(), now());
        let open = state.paths.open();
        let Some((_, silent)) = open.iter().find(|(id, _)| *id == path) else { return false };
        // Sessions over one link fall silent together, and recover one after the other.
        let mut others = open.iter().filter(|(_, other)| other.portal != silent.portal);
        others.any(|(other, _)| state.requests.paths().answers_beside(*other, path, now))
    }

    fn ended(
        self: Arc<Self>,
        unit: UnitGuard<'_>,
        attempted: &Attempted,
        ended: Ended,
        now: tokio::time::Instant,
    ) -> Wakers {
        let (paths, now) = (Paths(self), now.into_std());
        let mut state = paths.for_change(paths.0.state.locked_by(unit));
        let Attempted { request, attempt, path, .. } = *attempted;
        let (mut answer, mut wakers) = (None, Wakers::default());
        // If no caller waits, the buffer is dropped after the lock is released. The drop returns it to its
        // pool.
        let mut left = None;
        let mut give_back = |state: &mut State, buffer| {
            if state.inboxes.is_open(request) {
                state.inboxes.push(request, Order::Ended(attempt, buffer), &mut wakers);
            } else {
                left = Some(buffer);
            }
        };
        match ended {
            Ended::Good(completion) => {
                answer = Some(Answer { attempt, completion, came: now });
                state.answered(attempted, now);
            }
            Ended::Unproven(begun, completion) => {
                if state.requests.is_awaited(attempt) {
                    let unproven = Box::new(Unproven { attempt, path, begun, completion });
                    state.inboxes.push(request, Order::Prove(unproven), &mut wakers);
                } else {
                    left = Some(completion.data);
                    state.given_up(attempted, now);
                }
            }
            Ended::AnotherUnit(buffer) => {
                give_back(&mut state, buffer);
                state.paths.count_retry(path);
                state.taken_back(attempted, now);
            }
            Ended::Failed(error, buffer) => {
                give_back(&mut state, buffer);
                paths.failed(&mut state, attempted, &error, now);
            }
            Ended::NotTaken => {
                give_back(&mut state, BytesMut::new());
                let session = state.paths.get(path).map(|path| path.unit.session().reason_of_end());
                let error = session.unwrap_or_else(Error::closed);
                paths.failed(&mut state, attempted, &error, now);
            }
        }
        paths.carry_out_outputs(state.beside(), None, &mut answer, &mut wakers);
        drop(state);
        drop((answer, left));
        wakers
    }
}

impl State {
    /// Chooses the path of a flush. If no path can flush, the flush waits for the next path.
    fn choose(&mut self, request: RequestId, unit: &Unit) {
        let now = now();
        if let Some(path) = self.flush_path(unit, now) {
            self.requests.choose(request, path, now);
        }
    }

    /// Ends the attempts of a request that its caller would have to end.
    pub(super) fn drop_attempts(&mut self, request: RequestId) {
        if !self.inboxes.has_orders(request) {
            return;
        }
        let len = self.inboxes.len_of(request).unwrap_or_default();
        for (attempt, path) in self.inboxes.take_attempts(request) {
            self.paths.counted(path).give_up(len);
            self.requests.ended(attempt, AttemptEnd::GIVEN_UP, now());
        }
    }

    /// Ends an attempt that has succeeded.
    fn answered(&mut self, attempted: &Attempted, now: Instant) {
        let Attempted { attempt, path, kind, len, .. } = *attempted;
        let taken_at = self.requests.taken_at(attempt);
        let time = taken_at.map(|at| now.saturating_duration_since(at)).unwrap_or_default();
        let is_awaited = self.requests.is_awaited(attempt);
        let counted = self.paths.counted(path);
        if is_awaited {
            counted.end(kind, len, Some(time));
        } else {
            counted.give_up(len);
        }
        let end = AttemptEnd { end: End::Good, ..AttemptEnd::GIVEN_UP };
        self.requests.ended(attempt, end, now);
        if is_awaited && kind != RequestKind::Flush {
            self.meter.answered(len);
            // If requests wait for memory, the path is not idle: it lacks work only until this request
            // releases its share.
            let is_idle = self.requests.paths().in_flight(path) == 0;
            self.meter.record_idle(is_idle && !self.requests.has_backlog());
        }
    }

    /// Ends an attempt whose request was given up.
    fn given_up(&mut self, attempted: &Attempted, now: Instant) {
        self.paths.counted(attempted.path).give_up(attempted.len);
        self.requests.ended(attempted.attempt, AttemptEnd::GIVEN_UP, now);
    }

    /// Ends an attempt as one that was not sent, so that its command is sent again.
    fn taken_back(&mut self, attempted: &Attempted, now: Instant) {
        self.paths.counted(attempted.path).give_up(attempted.len);
        let end = AttemptEnd { end: End::Withdrawn, ..AttemptEnd::GIVEN_UP };
        self.requests.ended(attempted.attempt, end, now);
    }
}

impl Paths {
    /// Ends an attempt that has failed. An attempt that was given up is not counted as an error.
    fn failed(
        &self,
        state: &mut StateGuard<'_>,
        attempted: &Attempted,
        error: &Error,
        now: Instant,
    ) {
        let Attempted { attempt, path, kind, len, can_shorten, .. } = *attempted;
        let mut end = error.end();
        let is_routine = matches!(end, End::Attention | End::Withdrawn | End::UnknownCommand);
        let is_awaited = state.requests.is_awaited(attempt);
        let counted = state.paths.counted(path);
        if is_routine || !is_awaited {
            counted.give_up(len);
        } else {
            counted.end(kind, len, None);
        }
        if end == End::UnknownCommand && !can_shorten {
            // The shorter form of the command was already sent, so no form is left to try.
            end = End::Refused;
        }
        if end == End::SessionLost {
            self.remove_lost_path(state, path, error);
        }
        let access = error.refusing_port().or_else(|| error.suspected_port());
        let may_have_executed = error.may_have_executed();
        let end = AttemptEnd { end, access, error: Some(error.clone()), may_have_executed };
        state.requests.ended(attempt, end, now);
    }
}

impl Flight {
    pub(super) const fn attempted(&self) -> &Attempted {
        &self.attempted
    }

    /// Releases the attempt: its command was handed over, so the session ends the attempt.
    pub(super) fn leave(mut self) {
        self.has_ended = true;
    }

    /// Ends the attempt with an error.
    pub(super) fn fail(mut self, error: &Error) {
        self.has_ended = true;
        self.paths.change(|state| self.paths.failed(state, &self.attempted, error, now()));
    }

    /// Ends an attempt whose unit was confirmed. The attempt succeeds if no new reason to confirm the unit
    /// arose before its command ended. Otherwise another unit may have replaced the disk's unit for a time.
    ///
    /// # Errors
    /// Another unit may have executed the command, so the command is sent again. Returns the command's
    /// answer.
    pub(super) fn prove(
        mut self,
        begun: &Begun,
        good: GoodEnd,
        completion: Completion,
    ) -> Result<(), Completion> {
        self.has_ended = true;
        let (paths, attempted, now) = (&self.paths, &self.attempted, now());
        let mut state = paths.lock_for_change();
        let (_, unit) = state.both();
        let is_known_unit = unit.end_with_good(attempted.path, begun, good);
        let mut answer = Some(Answer { attempt: attempted.attempt, completion, came: now });
        if is_known_unit {
            state.answered(attempted, now);
        } else {
            state.paths.count_retry(attempted.path);
            state.taken_back(attempted, now);
        }
        let mut wakers = Wakers::default();
        paths.carry_out_outputs(state.beside(), None, &mut answer, &mut wakers);
        drop(state);
        wakers.wake();
        match answer {
            Some(Answer { completion, .. }) if !is_known_unit => Err(completion),
            Some(_) | None => Ok(()),
        }
    }

    /// Ends the attempt. Returns the next step of the request, if there is one.
    pub(super) fn end_and_take(
        mut self,
        result: Result<(), &Error>,
        now: Instant,
    ) -> Option<Order> {
        self.has_ended = true;
        let mut state = self.paths.lock_for_change();
        match result {
            Ok(()) => state.answered(&self.attempted, now),
            Err(error) => self.paths.failed(&mut state, &self.attempted, error, now),
        }
        // The next step is returned without a look at the inbox: a request with only one attempt in flight has
        // no earlier step there.
        self.paths.carry_out_all(state, Some(self.attempted.request))
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.has_ended {
            self.paths.change(|state| {
                state.requests.cancel(self.attempted.request, now());
                state.given_up(&self.attempted, now());
            });
        }
    }
}

/// Logs that a port has changed its state.
pub(crate) fn log_access(report: &Report, path: PathId, access: Access) {
    let state = access.state;
    report.log(|| tracing::info!(path = path.0, %state, "a port has another state"));
}
