//! Keeps the requests of a session that have not ended.

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

/// Unsent requests are sent as soon as their number, multiplied by this, reaches the number of all requests
/// that have not ended.
const UNDER_WAY_PER_UNSENT: usize = 4;

/// Fewest unsent requests that are worth a system call.
const FEWEST_UNSENT: usize = 4;

/// The requests in flight, and how many callers may submit more.
pub(super) struct Requests {
    pending: FxHashMap<Itt, Pending>,
    /// Number of requests that were handed to the session since the sockets were last written to.
    pub(super) unsent: usize,
    pub(super) answers: Answers,
}

/// A request that the session has not finished with.
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

    /// Returns whether a disk has answers over another portal, while the path of this session has completed nothing
    /// for long.
    pub(super) fn others_answer(&self) -> bool {
        let mut listeners = self.pending.values().filter_map(|it| it.holds.listener.as_ref());
        listeners.any(Listener::others_answer)
    }

    /// Returns whether so many requests are unsent that they should be sent before more are added. If all
    /// requests in flight were sent together, initiator and target would take turns: each would be idle while
    /// the other works (docs/design/hot-path.md).
    pub(super) fn has_enough_unsent(&self) -> bool {
        self.unsent >= FEWEST_UNSENT && UNDER_WAY_PER_UNSENT * self.unsent >= self.pending.len()
    }

    /// Returns whether the callers that have a response could submit enough requests for a system call.
    pub(super) const fn have_enough_answers(&self) -> bool {
        self.answers.may_ask() >= FEWEST_UNSENT
    }

    /// Gives up a request whose caller no longer waits.
    pub(super) fn cancel(&mut self, id: RequestId, session: &mut Session, now: Instant) {
        let found = self.pending.iter().find(|(_, pending)| pending.id == id);
        let Some(itt) = found.map(|(itt, _)| *itt) else { return };
        let was_sent = session.give_up(itt, now.into_std());
        // A command that was not sent never reached the unit.
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

    /// Passes the result of a request on to its caller.
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

    /// Withdraws the commands that are not sent yet and must wait until the unit's identity has been checked
    /// again.
    fn withdraw_doubtful(&self, session: &mut Session, now: Instant) {
        let doubtful = self.pending.iter().filter(|(_, pending)| pending.holds.is_in_doubt());
        let mut doubtful: Vec<_> = doubtful.map(|(itt, _)| *itt).collect();
        doubtful.sort_unstable();
        doubtful.into_iter().for_each(|itt| session.withdraw(itt, now.into_std()));
    }

    /// Keeps the ranges of all writes locked as unsettled: no task runs the session any more, so the target may
    /// still execute the writes.
    pub(super) fn leave_unsettled(&self, shared: &Shared) {
        let extents = self.pending.values().filter_map(|pending| pending.holds.extent.as_ref());
        extents.for_each(|extent| shared.units.unsettled.put(Arc::clone(extent)));
    }

    /// Fails all requests, when no task runs the session any more.
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

/// Reports an error for a request that was not handed to the session, or that the session no longer runs.
fn fail(answer: Answer, holds: &mut Holds, error: Error, now: Instant) {
    match (answer, &mut holds.listener) {
        (Answer::Attempt, Some(listener)) => listener.attempt_failed(error, now),
        (answer, _) => answer.fail(error),
    }
}
