//! Computes a canonical hash of the requests of a disk, for an exhaustive search over states.

use std::hash::{Hash, Hasher};
use std::mem::discriminant;
use std::time::Instant;

use super::request::State;
use super::{AttemptId, RequestId, Requests};
use crate::ids::PathId;

impl<E: Clone> Requests<E> {
    /// Hashes the state that affects later behavior, without times and measurements, so that two states with
    /// the same future have the same hash.
    ///
    /// `requests` and `attempts` contain all that exist, in the order of their creation. `path` returns the
    /// position of a path in the list of paths.
    pub(crate) fn fingerprint(
        &self,
        requests: &[RequestId],
        attempts: &[AttemptId],
        path: impl Fn(PathId) -> Option<usize>,
        now: Instant,
        state: &mut impl Hasher,
    ) {
        let request_place = |id| requests.iter().position(|other| *other == id);
        let attempt_place = |id| attempts.iter().position(|other| *other == id);
        self.selector.fingerprint(now, state);
        for record in requests.iter().filter_map(|id| self.requests.get(id.0)) {
            discriminant(&record.state).hash(state);
            if let State::Pausing { permit } = &record.state {
                path(permit.path()).hash(state);
            }
            record.attempts.iter().for_each(|id| attempt_place(*id).hash(state));
            discriminant(&record.hedge).hash(state);
            (record.attentions, record.is_short, record.timer.is_some()).hash(state);
            record.wants_own_path.hash(state);
            record.history.as_deref().map(super::history::History::fingerprint).hash(state);
        }
        for record in attempts.iter().filter_map(|id| self.attempts.get(id.0)) {
            (record.request.and_then(request_place), path(record.path())).hash(state);
        }
        for waiting in &self.queue {
            let avoid = waiting.requirements.avoid.and_then(&path);
            (request_place(waiting.request), avoid, waiting.is_hedge).hash(state);
            waiting.requirements.is_alone.hash(state);
        }
        u8::MAX.hash(state);
        self.timers.iter().for_each(|(_, id)| request_place(*id).hash(state));
        (self.plain_losses, self.refusal.is_some(), self.hold_up_end.is_some()).hash(state);
    }
}
