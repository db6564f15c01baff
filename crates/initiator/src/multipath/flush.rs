//! A flush over several sessions.

use std::sync::Arc;
use std::time::Instant;

use iscsi_multipath::requests::{RequestSpec, Route};
use iscsi_multipath::{Access, PathId, Unit};

use crate::error::Error;
use crate::multipath::inbox::{Attempt, Order};
use crate::multipath::path::Path;
use crate::multipath::paths::{Paths, State, now};
use crate::multipath::request::Request;
use crate::multipath::request_report::RequestReport;
use crate::state::budget::Permit;
use crate::state::counters::RequestKind;
use crate::unit::logical_unit::LogicalUnit;

/// A flush as a request of the disk. A unit without a cache that does not know the command never gets one, so a refusal may
/// be about the port.
const FLUSH: RequestSpec = RequestSpec {
    len: 0,
    writes: false,
    is_plain: true,
    can_shorten: false,
    can_double: false,
    route: Route::Vouching,
};

impl Paths {
    /// Flushes what was written over all sessions: one of them does it for all, the least busy of those that would receive the
    /// report of a reset since the oldest write.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub(crate) async fn flush(&self) -> Result<(), Error> {
        // As for every request: first the share of the budget, then a path.
        let permit = Arc::new(self.reserve(0).await?);
        let (mut request, mut order) = Request::submit(self, RequestKind::Flush, FLUSH, now());
        let mut report = RequestReport::new(self.report(), "SYNCHRONIZE CACHE", None);
        loop {
            let next = match order.take() {
                Some(order) => order,
                None => request.next().await,
            };
            match next {
                Order::Prepare => {
                    let (id, own_path) = (request.id(), self.needs_own_path().await);
                    self.change(|state| state.requests.prepared(id, own_path, now()));
                }
                Order::Send(attempt) => {
                    let flight = request.flight(&attempt);
                    let result = self.flush_over(attempt, Arc::clone(&permit)).await;
                    order = flight.end_and_take(result.as_ref().copied(), now());
                }
                Order::Report(reported) => report.apply(reported),
                Order::Completed(result) => {
                    request.complete();
                    return result.map(drop).map_err(|failure| report.error_of(failure));
                }
                // It waits for no class, is never in flight twice, and ends its attempts itself.
                Order::Abort(_)
                | Order::Ended(..)
                | Order::Prove(_)
                | Order::Charge { .. }
                | Order::Reserve { .. }
                | Order::Unreserve => {}
            }
        }
    }

    /// Whether a flush needs a path without other requests: it may take long. One that may end the only session first waits
    /// for a second one.
    async fn needs_own_path(&self) -> bool {
        let written = self.written();
        let covered = self.lock().flushes.estimate.covered(written);
        self.await_session_for_flush(covered).await;
        self.lock().flushes.estimate.may_be_long(covered)
    }

    async fn flush_over(&self, attempt: Attempt, permit: Arc<Permit>) -> Result<(), Error> {
        let Attempt { path: id, carrier: path, .. } = attempt;
        let (begun, written) = (now(), self.written());
        let covered = self.lock().flushes.estimate.covered(written);
        let paths = self.clone();
        let witness = move || paths.other_witness(id);
        path.unit.flush_with(LogicalUnit::patience_of_a_path, Some(permit), witness).await?;
        let took = now().saturating_duration_since(begun);
        let round_trip = path.unit.session().of_plan(|plan| plan.link.round_trip());
        let own = took.saturating_sub(round_trip.unwrap_or_default());
        self.lock().flushes.estimate.on_end(written, covered, own);
        self.witness_has_spoken();
        Ok(())
    }

    /// Whether flushes take long, so that one had better not wait for the writes on its path.
    pub(super) fn has_slow_flushes(&self) -> bool {
        self.lock().flushes.estimate.is_slow()
    }

    /// All that was written, bytes.
    fn written(&self) -> u64 {
        self.counters().stats().writes.bytes
    }
}

impl State {
    /// The path that had better flush for all: one that can vouch for all that was written; of those one whose requests the
    /// unit takes, one that has received the report of the last reset already, for the unit reports it to each, and of those
    /// the least busy.
    pub(super) fn flush_path(&self, unit: &Unit, now: Instant) -> Option<PathId> {
        let paths = self.requests.paths();
        let rank = |(id, _): &&(PathId, Path)| {
            let rank = unit.durability.flush_rank(*id);
            (
                paths.is_closing(*id) || paths.is_alone(*id),
                paths.is_silent(*id, now),
                !paths.access(*id).is_some_and(Access::serves),
                !rank.is_witness,
                rank.may_know_reset,
                paths.is_held_up(*id, now),
                rank.last_reset,
                paths.in_flight(*id),
            )
        };
        self.paths.open().iter().min_by_key(rank).map(|(id, _)| *id)
    }
}
