//! Runs the requests of a disk: chooses their paths, and applies the consequences of the end of each attempt.
//!
//! Invariant: a waiting request takes a path as soon as a path has credit for it, whether the credit comes
//! from a completion, from a path that is added, or from a higher limit.
//!
//! A request takes a path when its turn comes and a path has credit, not when it is submitted (late binding).
//! All requests may be repeated without harm, so requests in flight on a session that ends are sent over
//! another path. A request that is late on one path is hedged: it is also sent over another path, and the
//! first result is used. The other copy of a write is then aborted, because it could overwrite newer data; it
//! keeps its range until it has ended, or the target will certainly not execute it. The other copy of a read runs
//! to its end.
//!
//! Design: `docs/design/requests.md`.

pub mod disposition;
pub mod end;
mod fingerprint;
mod hedging;
pub mod history;
mod outcome;
mod output;
mod request;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

pub use output::{AttemptId, Failure, Output, Report, RequestId};
pub use request::{RequestLimits, RequestSpec, Route};

use crate::access::Access;
use crate::ids::PathId;
use crate::paths::selector::PathSelector;
use crate::paths::{Credit, PathPermit};
use crate::slab::{Key, Slab};
use end::End;
use request::{Attempt, Hedge, Request, State, Waiting};

/// The end of an attempt.
#[derive(Clone, Debug)]
pub struct AttemptEnd<E> {
    /// How the attempt has ended.
    pub end: End,
    /// State of the port, if the sense data may be about the port.
    pub access: Option<Access>,
    /// The error, unless the attempt has succeeded.
    pub error: Option<E>,
    /// Whether the command may have been executed although it failed.
    pub may_have_executed: bool,
}

impl<E> AttemptEnd<E> {
    /// End of an attempt whose request was cancelled or has ended.
    pub const GIVEN_UP: Self =
        Self { end: End::NoAnswer, access: None, error: None, may_have_executed: false };
}

/// The requests of one disk, their attempts, and the paths that they take.
///
/// After any call that takes `&mut self`, drain [`poll_output`](Self::poll_output), and call
/// [`handle_timeout`](Self::handle_timeout) at [`poll_timeout`](Self::poll_timeout).
#[derive(Clone, Debug)]
pub struct Requests<E> {
    limits: RequestLimits,
    selector: PathSelector,
    requests: Slab<Request<E>>,
    attempts: Slab<Attempt>,
    queue: VecDeque<Waiting>,
    timers: BTreeSet<(Instant, RequestId)>,
    outputs: VecDeque<Output<E>>,
    /// Number of sessions that were lost while no request was alone on them as the suspected cause.
    plain_losses: u64,
    /// The reason why requests are refused.
    refusal: Option<E>,
    ports: Ports,
    /// When a path over which the unit has just refused a request takes requests again; set while requests wait.
    hold_up_end: Option<Instant>,
    /// Time from which the unit has refused requests and executed none.
    refused_since: Option<Instant>,
}

/// Facts about the ports of the unit, and about the memory of the disk.
#[derive(Clone, Copy, Debug, Default)]
struct Ports {
    /// Whether the unit reports the states of its port groups.
    follows_access: bool,
    /// Whether sessions are opened at other portals when no port serves the unit.
    discovers_ports: bool,
    /// Whether requests wait for memory, so that an idle path does not show that there is no work.
    has_backlog: bool,
}

impl<E: Clone> Requests<E> {
    /// Creates the requests of a disk without a path.
    pub fn new(limits: RequestLimits) -> Self {
        let selector = PathSelector::new(limits.total, limits.hedge);
        Self {
            limits,
            selector,
            requests: Slab::default(),
            attempts: Slab::default(),
            queue: VecDeque::new(),
            timers: BTreeSet::new(),
            outputs: VecDeque::new(),
            plain_losses: 0,
            refusal: None,
            ports: Ports::default(),
            hold_up_end: None,
            refused_since: None,
        }
    }

    /// Returns the next action.
    pub fn poll_output(&mut self) -> Option<Output<E>> {
        self.outputs.pop_front()
    }

    /// Returns when to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timer = self.timers.first().map(|(at, _)| *at);
        timer.into_iter().chain(self.hold_up_end).min()
    }

    /// Returns the paths, with what is in flight on each, and their ranks.
    pub const fn paths(&self) -> &PathSelector {
        &self.selector
    }

    /// Returns whether requests wait for a path.
    pub fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Returns whether requests wait for a path, or for memory before they are submitted.
    pub fn has_backlog(&self) -> bool {
        !self.queue.is_empty() || self.ports.has_backlog
    }

    /// Sets whether requests wait for memory before they are submitted.
    pub const fn set_backlog(&mut self, has_backlog: bool) {
        self.ports.has_backlog = has_backlog;
    }

    /// Sets whether the unit reports the states of its port groups.
    pub const fn set_follows_access(&mut self, follows: bool) {
        self.ports.follows_access = follows;
    }

    /// Sets whether sessions are opened at other portals when no port serves the unit.
    pub const fn set_discovers_ports(&mut self, discovers: bool) {
        self.ports.discovers_ports = discovers;
    }

    /// Adds a path, which requests may take immediately. Requests are not refused any more.
    pub fn add_path(&mut self, path: PathId, credit: Credit, now: Instant) {
        self.refusal = None;
        self.selector.add(path, credit);
        self.arm_hedges(now);
        let choosing = |key: &Key| {
            self.requests.get(*key).is_some_and(|record| matches!(record.state, State::Choosing))
        };
        let choosing = self.requests.keys().filter(choosing).map(RequestId);
        self.outputs.extend(choosing.map(Output::Choose));
        self.dispatch(now);
    }

    /// Sets the limits of what may be in flight on a path.
    pub fn set_credit(&mut self, path: PathId, credit: Credit, now: Instant) {
        self.selector.set_credit(path, credit);
        self.dispatch(now);
    }

    /// Sets the access states of the ports of paths. If the state of a port has changed, pausing requests are
    /// retried, because that port may accept them.
    pub fn set_access(&mut self, all: impl IntoIterator<Item = (PathId, Access)>, now: Instant) {
        let mut has_changed = false;
        for (path, access) in all {
            has_changed |= self.selector.set_access(path, access);
        }
        if !has_changed {
            return;
        }
        let pausing: Vec<_> = self.requests.keys().map(RequestId).collect();
        for request in pausing {
            self.end_pause(request, true, now);
        }
        self.dispatch(now);
    }

    /// Closes a path: it takes no more requests. [`Output::PathDrained`] follows when nothing is in flight
    /// there.
    pub fn close_path(&mut self, path: PathId) {
        self.selector.close(path);
        self.check_drained(path);
    }

    /// Removes a closed path that has drained.
    pub fn remove_path(&mut self, path: PathId) {
        self.selector.remove(path);
    }

    /// Removes a lost path, so that nothing more is sent over it. Report the end of each attempt in flight on the
    /// path by [`ended`](Self::ended), as soon as it is known whether its command was sent.
    pub fn remove_lost_path(&mut self, path: PathId, now: Instant) {
        if !self.selector.is_alone(path) {
            self.plain_losses += 1;
        }
        self.selector.remove(path);
        // If all other paths are closed, they have to serve requests again.
        self.selector.reopen_if_none_is_left();
        self.dispatch(now);
    }

    /// Refuses requests with `why`: waiting requests, and new requests until a path is added. Attempts in
    /// flight continue.
    pub fn refuse(&mut self, why: &E) {
        self.refusal = Some(why.clone());
        self.queue.clear();
        let all: Vec<_> = self.requests.keys().map(RequestId).collect();
        for id in all {
            let Some(record) = self.requests.get_mut(id.0) else { continue };
            match record.state {
                State::InFlight => {
                    if record.hedge == Hedge::Queued {
                        record.hedge = Hedge::None;
                        self.outputs.push_back(Output::Unreserve(id));
                    }
                    continue;
                }
                State::Pausing { permit } => self.selector.release(&permit),
                State::Held
                | State::Charging { .. }
                | State::Preparing
                | State::Choosing
                | State::Queued => {}
            }
            let failure = record.refused(why.clone());
            self.complete(id, Err(failure));
        }
    }

    /// Returns whether requests are refused.
    pub const fn is_refusing(&self) -> bool {
        self.refusal.is_some()
    }

    /// Submits a request.
    pub fn submit(&mut self, spec: RequestSpec, now: Instant) -> RequestId {
        let request = self.submit_held(spec, now);
        self.admitted(request, now);
        request
    }

    /// Submits a request that waits for its range until [`admitted`](Self::admitted). Its caller has
    /// requested it at `asked`: while the unit refuses requests, the time limit of its retries counts from
    /// that time.
    pub fn submit_held(&mut self, spec: RequestSpec, asked: Instant) -> RequestId {
        let request = RequestId(self.requests.insert(Request::new(spec, asked)));
        if let Some(why) = self.refusal.clone() {
            self.complete(request, Err(Failure::Refused(why)));
        }
        request
    }

    /// Notes that the request has its range.
    pub fn admitted(&mut self, request: RequestId, now: Instant) {
        let is_held = |record: &Request<E>| matches!(record.state, State::Held);
        if self.requests.get(request.0).is_some_and(is_held) {
            self.make_ready(request, false, now);
        }
    }

    /// Begins the steps before a request takes a path: the wait for its traffic class, or the preparation of a
    /// flush. With `is_retry` the request goes before requests that have not had a path yet.
    fn make_ready(&mut self, request: RequestId, is_retry: bool, now: Instant) {
        let Some(record) = self.requests.get_mut(request.0) else { return };
        if record.spec.route == Route::Vouching {
            record.state = State::Preparing;
            self.outputs.push_back(Output::Prepare(request));
        } else if self.limits.is_shaped {
            record.state = State::Charging { since: now, is_retry };
            let (len, is_hedge) = (record.spec.len, false);
            self.outputs.push_back(Output::Charge { request, len, is_hedge });
        } else {
            self.enqueue(request, is_retry, now);
        }
    }

    /// Notes that the flush may take a path. With `own_path` it waits for a path without other requests;
    /// otherwise it takes the path that is chosen next.
    pub fn prepared(&mut self, request: RequestId, own_path: bool, now: Instant) {
        let Some(record) = self.requests.get_mut(request.0) else { return };
        let State::Preparing = record.state else { return };
        record.wants_own_path = own_path;
        if record.requirements().is_alone {
            return self.enqueue(request, false, now);
        }
        record.state = State::Choosing;
        self.outputs.push_back(Output::Choose(request));
    }

    /// Sends a flush over the path that was chosen for it, regardless of other requests in flight there.
    pub fn choose(&mut self, request: RequestId, path: PathId, now: Instant) {
        let Some(record) = self.requests.get_mut(request.0) else { return };
        let State::Choosing = record.state else { return };
        if let Some(permit) = self.selector.take_beside(path, now) {
            record.state = State::InFlight;
            self.send(request, permit, false);
        }
    }

    /// Notes that the traffic class of the request has admitted its bytes, so that it may take a path.
    pub fn charged(&mut self, request: RequestId, now: Instant) {
        let Some(record) = self.requests.get_mut(request.0) else { return };
        if let Hedge::Charging { is_stuck } = record.hedge {
            return self.place_hedge(request, is_stuck, now);
        }
        let State::Charging { since, is_retry } = record.state else { return };
        let waited = now.saturating_duration_since(since);
        if is_retry {
            record.history().waited_in_class(waited);
        } else {
            record.asked = record.asked.checked_add(waited).unwrap_or(now);
        }
        self.enqueue(request, is_retry, now);
    }

    /// Notes that the traffic class admits no more requests. A request that waits for its class fails with `why`;
    /// a second copy that waits for its class is not sent.
    pub fn not_charged(&mut self, request: RequestId, why: E) {
        let Some(record) = self.requests.get_mut(request.0) else { return };
        if let Hedge::Charging { .. } = record.hedge {
            return self.drop_hedge(request);
        }
        if let State::Charging { .. } = record.state {
            let failure = record.refused(why);
            self.complete(request, Err(failure));
        }
    }

    /// Cancels a request, because its caller does not wait any more. Attempts that were not sent are dropped,
    /// and the others are aborted.
    pub fn cancel(&mut self, request: RequestId, now: Instant) {
        let Some(record) = self.requests.get(request.0) else { return };
        let held = match record.state {
            State::Pausing { permit } => Some(permit),
            State::Held
            | State::Charging { .. }
            | State::Preparing
            | State::Choosing
            | State::Queued
            | State::InFlight => None,
        };
        for attempt in record.attempts.clone() {
            self.outputs.push_back(Output::Abort { request, attempt });
        }
        self.forget(request);
        if let Some(permit) = held {
            self.release(&permit, now);
        }
    }

    /// Records the end of an attempt. An attempt that is unknown, or has ended before, is ignored.
    pub fn ended(&mut self, attempt: AttemptId, end: AttemptEnd<E>, now: Instant) {
        let Some(record) = self.attempts.remove(attempt.0) else { return };
        let Attempt { request, permit, .. } = record;
        let path = permit.path();
        if end.end == End::Good {
            self.refused_since = None;
        }
        let Some(request) = request else {
            if end.end == End::Good {
                self.selector.answered(&permit, now);
            } else {
                self.selector.release(&permit);
            }
            return self.released(path, now);
        };
        let Some(record) = self.requests.get_mut(request.0) else { return };
        record.attempts.retain(|other| *other != attempt);
        if end.end != End::Good {
            return self.failed(request, permit, end, now);
        }
        if record.spec.route == Route::Vouching {
            self.selector.release(&permit);
        } else {
            self.selector.answered(&permit, now);
        }
        self.complete(request, Ok(attempt));
        self.released(path, now);
    }

    /// Returns whether a request still needs the end of an attempt.
    pub fn is_awaited(&self, attempt: AttemptId) -> bool {
        self.attempts.get(attempt.0).is_some_and(|attempt| attempt.request.is_some())
    }

    /// Returns when an attempt in flight took its path.
    pub fn taken_at(&self, attempt: AttemptId) -> Option<Instant> {
        self.attempts.get(attempt.0).map(|attempt| attempt.permit.taken_at())
    }

    /// Returns when to call [`handle_timeout`](Self::handle_timeout) for this request. A caller that uses these
    /// timers must also call `handle_timeout` periodically, because they do not cover the time at which a path
    /// takes requests again after the unit has refused one over it.
    pub fn timer(&self, request: RequestId) -> Option<Instant> {
        self.requests.get(request.0)?.timer
    }

    /// Handles all timers that are due: pauses end, and requests in flight may be late.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((at, request)) = self.timers.first().copied()
            && at <= now
        {
            self.timers.pop_first();
            let Some(record) = self.requests.get_mut(request.0) else { continue };
            record.timer = None;
            match record.state {
                State::Pausing { .. } => self.end_pause(request, false, now),
                State::InFlight => self.check_hedge(request, now),
                State::Held
                | State::Charging { .. }
                | State::Preparing
                | State::Choosing
                | State::Queued => {}
            }
        }
        // A path may have stopped responding since the last call, so that another path is the best now.
        self.dispatch(now);
    }

    fn enqueue(&mut self, request: RequestId, is_first: bool, now: Instant) {
        let Some(record) = self.requests.get_mut(request.0) else { return };
        record.state = State::Queued;
        let requirements = record.requirements();
        let waiting = Waiting { request, requirements, is_hedge: false };
        // The usual case: the queue is empty and a path has credit, so the request need not enter the queue.
        if self.queue.is_empty() && !requirements.is_alone {
            self.selector.unreserve();
            if let Some(path) = self.selector.pick(record.spec.len, requirements, now) {
                return self.start(path, waiting, now);
            }
        }
        if is_first {
            self.queue.push_front(waiting);
        } else {
            self.queue.push_back(waiting);
        }
        self.dispatch(now);
    }

    /// Assigns paths to the waiting requests, in their order. If no path takes a request now, later requests wait
    /// behind it. Exceptions: a request that must avoid a path, and a request that must be the only one on its
    /// path.
    fn dispatch(&mut self, now: Instant) {
        self.start_all(now);
        let waits = !self.queue.is_empty();
        self.hold_up_end = if waits { self.selector.hold_up_end(now) } else { None };
    }

    fn start_all(&mut self, now: Instant) {
        self.selector.unreserve();
        let mut at = 0;
        while let Some(waiting) = self.queue.get(at).copied() {
            let Some(record) = self.requests.get(waiting.request.0) else {
                self.queue.remove(at);
                continue;
            };
            let (len, requirements) = (record.spec.len, waiting.requirements);
            if let Some(path) = self.selector.pick(len, requirements, now) {
                self.queue.remove(at);
                self.start(path, waiting, now);
                continue;
            }
            if requirements.is_alone {
                self.selector.reserve(now);
            } else if requirements.avoid.is_none() {
                return;
            }
            at += 1;
        }
    }

    /// Starts an attempt over a path.
    fn start(&mut self, path: PathId, waiting: Waiting, now: Instant) {
        let Waiting { request, requirements, is_hedge } = waiting;
        let is_crowded = self.has_backlog();
        let Some(record) = self.requests.get_mut(request.0) else { return };
        let len = record.spec.len;
        let Some(permit) = self.selector.take(path, len, requirements, is_crowded, now) else {
            return;
        };
        if is_hedge {
            record.hedge = Hedge::None;
        } else {
            record.state = State::InFlight;
        }
        self.send(request, permit, is_hedge);
        // With a single path, as most disks have, no second copy can be sent, so no timer is needed.
        if !is_hedge && !requirements.is_alone && !self.selector.is_only(path) {
            self.arm_hedge(request, now);
        }
    }

    fn send(&mut self, request: RequestId, permit: PathPermit, is_hedge: bool) {
        let attempt = Attempt { request: Some(request), permit };
        let attempt = AttemptId(self.attempts.insert(attempt));
        let Some(record) = self.requests.get_mut(request.0) else { return };
        record.attempts.push(attempt);
        let (path, is_short) = (permit.path(), record.is_short);
        self.outputs.push_back(Output::Send { request, attempt, path, is_short, is_hedge });
    }

    /// Completes a request. If it is a read, its other attempts continue; if it is a write, they are aborted.
    fn complete(&mut self, request: RequestId, result: Result<AttemptId, Failure<E>>) {
        let Some(record) = self.requests.get(request.0) else { return };
        if record.spec.writes {
            let abort = |attempt| Output::Abort { request, attempt };
            self.outputs.extend(record.attempts.iter().copied().map(abort));
        }
        self.forget(request);
        self.outputs.push_back(Output::Completed { request, result });
    }

    fn forget(&mut self, request: RequestId) {
        let Some(record) = self.requests.get(request.0) else { return };
        record.timer.into_iter().for_each(|at| _ = self.timers.remove(&(at, request)));
        for attempt in &record.attempts {
            if let Some(attempt) = self.attempts.get_mut(attempt.0) {
                attempt.request = None;
            }
        }
        let is_queued = matches!(record.state, State::Queued) || record.hedge == Hedge::Queued;
        if is_queued {
            self.queue.retain(|waiting| waiting.request != request);
        }
        self.requests.discard(request.0);
    }

    fn set_timer(&mut self, request: RequestId, at: Option<Instant>) {
        let Some(record) = self.requests.get_mut(request.0) else { return };
        if let Some(before) = std::mem::replace(&mut record.timer, at) {
            self.timers.remove(&(before, request));
        }
        self.timers.extend(at.map(|at| (at, request)));
    }

    fn release(&mut self, permit: &PathPermit, now: Instant) {
        self.selector.release(permit);
        self.released(permit.path(), now);
    }

    /// Handles the credit that was released because a request has left a path.
    fn released(&mut self, path: PathId, now: Instant) {
        self.dispatch(now);
        self.check_drained(path);
    }

    fn check_drained(&mut self, path: PathId) {
        if self.selector.is_closing(path) && self.selector.in_flight(path) == 0 {
            self.outputs.push_back(Output::PathDrained(path));
        }
    }
}
