//! Handles one request of a disk for its caller, which takes one [`Order`] after the other.

use std::future::poll_fn;
use std::mem;
use std::sync::Weak;
use std::task::{Poll, Waker};
use std::time::Instant;

use iscsi_multipath::PathId;
use iscsi_multipath::requests::{AttemptId, Failure, RequestId, RequestSpec};
use tokio::time::sleep_until;

use crate::error::Error;
use crate::multipath::paths::{Paths, State, now};
use crate::multipath::requests::inbox::{Answer, Attempt, Order};
use crate::multipath::requests::outputs::Flight;
use crate::state::attempt::{Attempted, Requester, Wakers};
use crate::state::counters::RequestKind;

/// A request that was submitted. If it is dropped before it has completed, it is cancelled.
pub(super) struct Request<'a> {
    paths: &'a Paths,
    id: RequestId,
    kind: RequestKind,
    len: u64,
    /// Set if the task's waker is registered and the inbox had no step then: the next wait does not check
    /// the inbox, and ends at the inner time, if there is one. `None` if the next wait must check the inbox.
    listens: Option<Option<Instant>>,
    /// The answer to the attempt that has succeeded; `None` before.
    pub(super) answer: Option<Answer>,
    has_completed: bool,
}

impl<'a> Request<'a> {
    /// Submits a request. Returns its first step, if there is one.
    pub(super) fn submit(
        paths: &'a Paths,
        kind: RequestKind,
        spec: RequestSpec,
        now: Instant,
    ) -> (Self, Option<Order>) {
        Self::submit_with(paths, (kind, spec), None, (now, now))
    }

    /// Submits a request like [`submit`](Self::submit), and registers the task to be woken. The task must
    /// call [`next`](Self::next) before it returns to its runtime. `times` are the time when the caller began
    /// the request, and the current time.
    pub(super) async fn submit_and_listen(
        paths: &'a Paths,
        kind: RequestKind,
        spec: RequestSpec,
        times: (Instant, Instant),
    ) -> (Self, Option<Order>) {
        let spec = (kind, spec);
        poll_fn(|context| Poll::Ready(Self::submit_with(paths, spec, Some(context.waker()), times)))
            .await
    }

    fn submit_with(
        paths: &'a Paths,
        (kind, spec): (RequestKind, RequestSpec),
        waker: Option<&Waker>,
        (asked, now): (Instant, Instant),
    ) -> (Self, Option<Order>) {
        let mut guard = paths.lock_for_change();
        let (state, unit) = guard.beside();
        let id = state.requests.submit_held(spec, asked);
        state.requests.admitted(id, now);
        state.inboxes.open(id, spec.len, waker.cloned());
        let mut wakers = Wakers::default();
        let of = (&mut *state, unit);
        let order = paths.carry_out_outputs(of, Some(id), &mut None, &mut wakers);
        let is_all = waker.is_some() && !state.inboxes.has_orders(id);
        let listens = is_all.then(|| state.requests.timer(id));
        drop(guard);
        wakers.wake();
        let answer = None;
        (Self { paths, id, kind, len: spec.len, listens, answer, has_completed: false }, order)
    }

    /// Waits until there is a path that takes requests.
    ///
    /// # Errors
    /// The reason why requests are refused.
    pub(super) async fn await_path(paths: &'a Paths) -> Result<(), Error> {
        // This request sends no command. It is submitted as a flush, which needs no credit, so that it waits for
        // nothing but a path.
        let spec = RequestSpec::FLUSH;
        let (mut request, mut order) = Self::submit(paths, RequestKind::Other, spec, now());
        loop {
            let next = match order.take() {
                Some(order) => order,
                None => request.next().await,
            };
            if let Order::Prepare = next {
                paths.change(|state| state.requests.prepared(request.id, false, now()));
            } else if let Order::Completed(Err(Failure::Refused(why))) = next {
                request.complete();
                return Err(why);
            } else {
                if let Order::Send(attempt) = next {
                    // There is a path. The attempt is dropped without sending a command.
                    drop(request.flight(request.attempted(&attempt)));
                }
                return Ok(());
            }
        }
    }

    pub(super) const fn id(&self) -> RequestId {
        self.id
    }

    /// Returns the record of an attempt of the request.
    pub(super) const fn attempted(&self, attempt: &Attempt) -> Attempted {
        self.attempted_over(attempt.id, attempt.path)
    }

    /// Returns the record of an attempt by the number of the attempt and its path.
    pub(super) const fn attempted_over(&self, attempt: AttemptId, path: PathId) -> Attempted {
        let Self { id: request, kind, len, .. } = *self;
        Attempted { request, attempt, path, kind, len, can_shorten: false }
    }

    /// Returns an attempt that the caller must end.
    pub(super) fn flight(&self, attempted: Attempted) -> Flight {
        self.paths.flight(attempted)
    }

    /// Returns the object to which sessions report the ends of attempts.
    pub(super) fn requester(&self) -> Weak<dyn Requester> {
        self.paths.requester()
    }

    /// Waits for the next step. Meanwhile handles the timer of the request: its pauses end, and it may
    /// become late.
    pub(super) async fn next(&mut self) -> Order {
        loop {
            let timer = match self.listens.take() {
                Some(timer) => timer,
                None => match self.check().await {
                    Ok(order) => return order,
                    Err(timer) => timer,
                },
            };
            // A change that sets a timer also adds a step ([`Order::TimerSet`] if there is no other), or the
            // caller makes the change itself. So without a timer, it is enough to wait for a step.
            let Some(timer) = timer else { return self.order().await };
            tokio::select! {
                biased;
                order = self.order() => return order,
                () = sleep_until(timer.into()) => self.paths.handle_timeout(),
            }
        }
    }

    /// Takes the next step. If there is none, registers the task's waker and returns the time of the
    /// request's timer.
    async fn check(&mut self) -> Result<Order, Option<Instant>> {
        poll_fn(|context| {
            Poll::Ready(self.take(context.waker(), |id, state| state.requests.timer(id)))
        })
        .await
    }

    /// Waits for the next step, after a [`check`](Self::check).
    async fn order(&mut self) -> Order {
        let mut is_checked = true;
        poll_fn(|context| {
            if mem::take(&mut is_checked) {
                return Poll::Pending;
            }
            match self.take(context.waker(), |_, _| ()) {
                Ok(order) => Poll::Ready(order),
                Err(()) => Poll::Pending,
            }
        })
        .await
    }

    /// Takes the next step. If there is none, registers `waker` and returns what `otherwise` returns.
    fn take<T>(
        &mut self,
        waker: &Waker,
        otherwise: impl FnOnce(RequestId, &State) -> T,
    ) -> Result<Order, T> {
        let mut guard = self.paths.lock();
        let state = &mut *guard;
        match state.inboxes.take(self.id, &mut self.answer) {
            Some(order) => Ok(order),
            None => {
                state.inboxes.wake(self.id, waker);
                Err(otherwise(self.id, state))
            }
        }
    }

    /// Marks the request as completed, so that its drop cancels nothing.
    pub(super) const fn complete(&mut self) {
        self.has_completed = true;
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if !self.has_completed {
            let left = self.paths.change(|state| {
                state.requests.cancel(self.id, now());
                state.drop_attempts(self.id);
                state.inboxes.close(self.id)
            });
            drop(left);
        }
    }
}
