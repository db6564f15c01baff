//! The requests that a session has and has not finished with.

use std::sync::Arc;

use iscsi_pdu::Itt;
use iscsi_pdu::scsi::Operation;
use iscsi_session::{Session, SubmitError, TaskError, TransportError};
use rustc_hash::FxHashMap;
use tokio::time::Instant;

use super::answers::Answers;
use crate::driver::peer::Peer;
use crate::driver::request::{Answer, Holds, Outcome, RequestId, Submission};
use crate::driver::shared::Shared;
use crate::error::{Cause, Error, SessionCause};
use crate::state::unit_state::Listener;

/// The target is to have what is unsent once that is one in so many of the requests under way.
const UNDER_WAY_PER_UNSENT: usize = 4;

/// Fewer requests than so many are not worth a system call of their own.
const FEWEST_UNSENT: usize = 4;

/// The requests in flight, and the callers who may ask for more.
pub(super) struct Requests {
    pending: FxHashMap<Itt, Pending>,
    /// Requests since the sockets were written to last.
    pub(super) unsent: usize,
    pub(super) answers: Answers,
}

/// A request that the session has and has not finished with.
struct Pending {
    id: RequestId,
    operation: Operation,
    answer: Answer,
    holds: Holds,
}

impl Requests {
    pub(super) fn new(now: Instant) -> Self {
        Self { pending: FxHashMap::default(), unsent: 0, answers: Answers::new(now) }
    }

    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether so many requests are unsent that they are sent before more are added. If all requests in flight were sent
    /// together, this side would wait while the target works, and the target while this side does
    /// (docs/design/hot-path.md).
    pub(super) fn has_enough_unsent(&self) -> bool {
        self.unsent >= FEWEST_UNSENT && UNDER_WAY_PER_UNSENT * self.unsent >= self.pending.len()
    }

    /// Whether so many callers have an answer, and may ask again, that what they ask for would be sent.
    pub(super) const fn have_enough_answers(&self) -> bool {
        self.answers.may_ask() >= FEWEST_UNSENT
    }

    /// Gives a request up, whose caller does not wait any more.
    pub(super) fn cancel(&mut self, id: RequestId, session: &mut Session, now: Instant) {
        let found = self.pending.iter().find(|(_, pending)| pending.id == id);
        let Some(itt) = found.map(|(itt, _)| *itt) else { return };
        let was_sent = session.give_up(itt, now.into_std());
        // What the unit never saw, it did not answer.
        if let Some(pending) = self.pending.get_mut(&itt).filter(|_| !was_sent) {
            pending.holds.listener.iter_mut().for_each(Listener::was_not_sent);
        }
    }

    /// Hands a request to the session.
    pub(super) fn start(
        &mut self,
        Submission { id, request, mut holds }: Submission,
        session: &mut Session,
        shared: &Shared,
        now: Instant,
    ) {
        if request.is_abandoned() {
            return;
        }
        let operation = request.operation();
        if holds.is_in_doubt() {
            let (answer, cause) = (request.into_answer(), TaskError::Withdrawn);
            let request = answer.name_of(operation);
            return fail(answer, &mut holds, SessionCause::Task { request, cause }.into(), now);
        }
        holds.listener.iter_mut().for_each(Listener::begin);
        let (result, answer) = request.start(session, now.into_std());
        let why = match result {
            Ok(itt) => {
                if holds.extent.is_some() {
                    shared.units.unsettled.begin();
                }
                self.pending.insert(itt, Pending { id, operation, answer, holds });
                self.unsent += 1;
                return;
            }
            Err(SubmitError::Closed) => Error::closed(),
            Err(why) => Cause::from(why).into(),
        };
        fail(answer, &mut holds, why, now);
    }

    /// Passes the end of a request on to its caller.
    pub(super) fn end(
        &mut self,
        itt: Itt,
        outcome: Outcome,
        session: &mut Session,
        (shared, peer): (&Shared, &Peer),
        now: Instant,
    ) {
        let Some(Pending { operation, answer, mut holds, .. }) = self.pending.remove(&itt) else {
            return;
        };
        self.answers.given();
        match holds.extent {
            Some(extent) if outcome.is_unsettled() => shared.units.unsettled.put(extent),
            Some(_) => shared.units.unsettled.end(),
            None => {}
        }
        let may_be_another_unit = match (answer, outcome) {
            (Answer::Attempt, Outcome::Command(result)) => {
                let explain = |why| peer.explain_task(operation.name(), why);
                let listener = holds.listener.as_mut();
                listener.is_some_and(|it| it.attempt_ended(operation, result, explain, now))
            }
            (answer, outcome) => {
                let name = answer.name_of(operation);
                let explain = |why| peer.explain_task(name, why);
                let judged = match (&mut holds.listener, &outcome) {
                    (Some(listener), Outcome::Command(result)) => {
                        listener.ended(result, answer.is_abandoned())
                    }
                    _ => None,
                };
                answer.give(outcome, judged, explain);
                judged.is_some_and(|judged| judged.may_be_another_unit)
            }
        };
        if may_be_another_unit {
            self.withdraw_doubtful(session, now);
        }
    }

    /// Takes back what is not on its way yet and must not be sent before its unit has been asked which
    /// one it is.
    fn withdraw_doubtful(&self, session: &mut Session, now: Instant) {
        let doubtful = self.pending.iter().filter(|(_, pending)| pending.holds.is_in_doubt());
        let mut doubtful: Vec<_> = doubtful.map(|(itt, _)| *itt).collect();
        doubtful.sort_unstable();
        doubtful.into_iter().for_each(|itt| session.withdraw(itt, now.into_std()));
    }

    /// Nobody runs the session any more: what the target does with these requests is not known.
    pub(super) fn leave_unsettled(&self, shared: &Shared) {
        let extents = self.pending.values().filter_map(|pending| pending.holds.extent.as_ref());
        extents.for_each(|extent| shared.units.unsettled.put(Arc::clone(extent)));
    }

    /// Fails all requests: nobody runs the session any more.
    pub(super) fn fail(&mut self, peer: &Peer, now: Instant) {
        for Pending { operation, answer, mut holds, .. } in
            std::mem::take(&mut self.pending).into_values()
        {
            let cause = TransportError::Io("the task of its session has ended".to_owned()).into();
            let request = answer.name_of(operation);
            let error = peer.explain_task(request, TaskError::Session { cause, sent: true });
            fail(answer, &mut holds, error, now);
        }
    }
}

/// Fails a request that the session does not have, or not any more.
fn fail(answer: Answer, holds: &mut Holds, error: Error, now: Instant) {
    match (answer, &mut holds.listener) {
        (Answer::Attempt, Some(listener)) => listener.attempt_failed(error, now),
        (answer, _) => answer.fail(error),
    }
}
