//! Flushes a disk that has several sessions.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use iscsi_multipath::requests::RequestSpec;
use iscsi_multipath::{Access, PathId, Unit};
use tokio::time::timeout;

use crate::error::Error;
use crate::multipath::paths::path::{Path, wait_limit};
use crate::multipath::paths::{Paths, State, now};
use crate::multipath::requests::inbox::{Attempt, Order};
use crate::multipath::requests::report::RequestReport;
use crate::multipath::requests::request::Request;
use crate::multipath::supervisor::witness::{other_witness, witness_has_spoken};
use crate::state::budget::Permit;
use crate::state::counters::RequestKind;
use crate::unit::logical_unit::LogicalUnit;

/// Flushes the writes of all sessions over one session: the least busy of the sessions that would have
/// received the report of a reset since the oldest unflushed write.
///
/// # Errors
/// The errors of [`execute`](crate::multipath::requests::execute::execute).
pub(crate) async fn flush(paths: &Paths) -> Result<(), Error> {
    // Like every request, a flush takes its share of the budget first, then a path.
    let permit = Arc::new(paths.reserve(0).await?);
    let (mut request, mut order) =
        Request::submit(paths, RequestKind::Flush, RequestSpec::FLUSH, now());
    let mut report = RequestReport::new(paths.report(), "SYNCHRONIZE CACHE", None);
    loop {
        let next = match order.take() {
            Some(order) => order,
            None => request.next().await,
        };
        match next {
            Order::Prepare => {
                let (id, own_path) = (request.id(), needs_own_path(paths).await);
                paths.change(|state| state.requests.prepared(id, own_path, now()));
            }
            Order::Send(attempt) => {
                let flight = request.flight(request.attempted(&attempt));
                let result = flush_over(paths, attempt, Arc::clone(&permit)).await;
                order = flight.end_and_take(result.as_ref().copied(), now());
            }
            Order::Report(reported) => report.apply(reported),
            Order::Completed(result) => {
                request.complete();
                return result.map(drop).map_err(|failure| report.error_of(failure));
            }
            // These steps need no action: a flush waits for no traffic class, is never in flight twice, and
            // ends its attempts itself.
            Order::Abort(_)
            | Order::Ended(..)
            | Order::Prove(_)
            | Order::Charge { .. }
            | Order::Reserve { .. }
            | Order::Unreserve
            | Order::TimerSet => {}
        }
    }
}

/// Returns whether a flush may take long and so needs a path without other requests. If the flush may take so
/// long that the target ends the only session, first waits for a second session.
async fn needs_own_path(paths: &Paths) -> bool {
    let written = written(paths);
    let covered = paths.lock().flushes.estimate.covered(written);
    await_session(paths, covered).await;
    paths.lock().flushes.estimate.may_be_long(covered)
}

async fn flush_over(paths: &Paths, attempt: Attempt, permit: Arc<Permit>) -> Result<(), Error> {
    let Attempt { path: id, carrier: path, .. } = attempt;
    let (begun, written) = (now(), written(paths));
    let covered = paths.lock().flushes.estimate.covered(written);
    let others = paths.clone();
    let witness = move || other_witness(&others, id);
    path.unit.flush_with(LogicalUnit::patience_of_a_path, Some(permit), witness).await?;
    let took = now().saturating_duration_since(begun);
    let round_trip = path.unit.session().of_plan(|plan| plan.link.round_trip());
    let own = took.saturating_sub(round_trip.unwrap_or_default());
    paths.lock().flushes.estimate.on_end(written, covered, own);
    witness_has_spoken(paths);
    Ok(())
}

/// Returns the total of bytes written.
fn written(paths: &Paths) -> u64 {
    paths.counters().stats().writes.bytes
}

/// Waits for a second session if a flush of `covered` bytes may take so long that the target ends the only
/// session. After the loss of the only session, no session could confirm that no write was lost. If no
/// session opens in time, the flush continues with one session.
async fn await_session(paths: &Paths, covered: u64) {
    let (only, news) = {
        let mut state = paths.lock();
        let [(_, only)] = state.paths.open() else { return };
        if !state.paths.is_supervised() || !state.flushes.estimate.may_be_very_long(covered) {
            return;
        }
        let only = only.clone();
        state.flushes.set_wants_session(true);
        (only, state.flushes.news())
    };
    paths.attention().notify_one();
    let limit = wait_limit(only.unit.session());
    let joined = async {
        loop {
            let mut joined = pin!(news.notified());
            // Register before the check, so that no change in between is missed.
            joined.as_mut().enable();
            if paths.open().len() != 1 || !paths.lock().flushes.wants_session() {
                return;
            }
            joined.await;
        }
    };
    drop(timeout(limit, joined).await);
    paths.lock().flushes.set_wants_session(false);
}

impl State {
    /// Returns the path that should flush for all paths; `None` if no path is open. Prefers, in this order, a
    /// path that
    /// 1. takes requests, and is not used for a single request alone;
    /// 2. responds, and whose port serves the unit;
    /// 3. receives the report of every reset since the oldest unflushed write;
    /// 4. has received no such report;
    /// 5. is not busy;
    /// 6. has received the latest report, and so all older ones too;
    /// 7. has the fewest requests.
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
