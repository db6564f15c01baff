//! A flush over several sessions.

use std::sync::Arc;
use std::time::Duration;

use iscsi_multipath::Access;

use crate::error::Error;
use crate::multipath::attempts::Attempts;
use crate::multipath::dispatch::{Grant, Paths, now};
use crate::multipath::path::Path;
use crate::state::counters::RequestKind;
use crate::unit::logical_unit::LogicalUnit;
use iscsi_multipath::PathId;
use iscsi_multipath::paths::Requirements;
use iscsi_multipath::requests::disposition::Disposition;

/// A flush that is counted on the path of its witness, until it has ended or this is dropped.
struct Counting<'a> {
    paths: &'a Paths<Path>,
    path: PathId,
    has_ended: bool,
}

impl<'a> Counting<'a> {
    fn begin(paths: &'a Paths<Path>, path: PathId) -> Self {
        paths.lock().paths.counted(path).begin(0);
        Self { paths, path, has_ended: false }
    }

    /// It has ended: if well, after this time.
    fn end(mut self, time: Option<Duration>) {
        self.has_ended = true;
        self.paths.lock().paths.counted(self.path).end(RequestKind::Flush, 0, time);
    }
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.paths.lock().paths.counted(self.path).give_up(0);
        }
    }
}

impl Paths<Path> {
    /// Flushes what was written over all sessions: one of them does it for all, the least busy of
    /// those that would be told of a reset since the oldest write.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub(crate) async fn flush(&self) -> Result<(), Error> {
        // As for every request: first the share of the budget, then a path.
        let permit = Arc::new(self.reserve(0).await?);
        let mut attempts = Attempts::new(self);
        loop {
            let requirements = attempts.requirements();
            let mut alone = self.own_path(requirements).await.map_err(|end| attempts.end(end))?;
            // Without a path this waits for the next, or says why there is none.
            let there = alone
                .as_ref()
                .map(|grant| (grant.id(), grant.carrier.clone()))
                .or_else(|| self.witness());
            let Some((id, path)) = there else {
                let next = self.grant(0, Requirements::default()).await;
                drop(next.map_err(|end| attempts.end(end))?);
                continue;
            };
            attempts.begin(self.access_changes());
            alone.iter_mut().for_each(|grant| grant.uncount(None));
            let (counting, begun) = (Counting::begin(self, id), now());
            let written = self.written();
            let covered = self.lock().flushes.estimate.covered(written);
            let paths = self.clone();
            let witness = move || paths.other_witness(id);
            let (patience, permit) = (LogicalUnit::patience_of_a_path, Some(Arc::clone(&permit)));
            let result = path.unit.flush_with(patience, permit, witness).await;
            counting.end(result.is_ok().then(|| now().saturating_duration_since(begun)));
            let Err(error) = result else {
                let took = now().saturating_duration_since(begun);
                let round_trip = path.unit.session().of_plan(|plan| plan.link.round_trip());
                let own = took.saturating_sub(round_trip.unwrap_or_default());
                self.lock().flushes.estimate.on_end(written, covered, own);
                self.witness_has_spoken();
                return Ok(());
            };
            // A unit without a cache that does not know the command never gets here, so a refusal may be the port's.
            match self.dispose(id, &error, true, &mut attempts) {
                Disposition::Failover => self.count_retry(id),
                Disposition::Pause(limit) => {
                    self.lock().selector.hold_up(id, now());
                    attempts.pause(error, self.retry_limit(limit)).await?;
                    self.count_retry(id);
                }
                Disposition::SetPathAside if self.set_aside(id, &error) => drop(alone),
                Disposition::NextPath => {
                    let goes_on = error.is_of_connection() || self.lose(id, &error);
                    drop(alone);
                    let request = ("SYNCHRONIZE CACHE", None);
                    attempts.lost(request, error, requirements.is_alone, goes_on)?;
                }
                Disposition::Complete
                | Disposition::Fail
                | Disposition::FailByReservation
                | Disposition::RetryImmediately
                | Disposition::RetryShorter
                | Disposition::SetPathAside => return Err(error),
            }
        }
    }

    /// Grants a path without other requests to a flush that may take long, or that may be the reason why sessions end. A flush that may
    /// end the only session first waits for a second one.
    async fn own_path(&self, requirements: Requirements) -> Result<Option<Grant<Path>>, Error> {
        let written = self.written();
        let covered = self.lock().flushes.estimate.covered(written);
        self.await_session_for_flush(covered).await;
        let may_be_long = self.lock().flushes.estimate.may_be_long(covered);
        if !requirements.is_alone && !may_be_long {
            return Ok(None);
        }
        self.grant(0, Requirements { is_alone: true, ..requirements }).await.map(Some)
    }

    /// Whether flushes take long, so that one had better not wait for the writes on its path.
    pub(super) fn has_slow_flushes(&self) -> bool {
        self.lock().flushes.estimate.is_slow()
    }

    /// All that was written, bytes.
    fn written(&self) -> u64 {
        self.counters().stats().writes.bytes
    }

    /// Who had better flush for all: somebody who can vouch for all that was written; of those one
    /// whose requests the unit takes, one that has been told of the last reset already, for the unit
    /// tells each of them, and of those the least busy.
    fn witness(&self) -> Option<(PathId, Path)> {
        let (state, now) = (self.lock(), now());
        let rank = |(id, path): &&(PathId, Path)| {
            let unit = path.unit.state();
            let rank = unit.lock().durability.flush_rank(unit.path());
            (
                state.selector.is_closing(*id) || state.selector.is_alone(*id),
                state.selector.is_silent(*id, now),
                !state.selector.access(*id).is_some_and(Access::serves),
                !rank.is_witness,
                rank.may_know_reset,
                state.selector.is_held_up(*id, now),
                rank.last_reset,
                state.selector.in_flight(*id),
            )
        };
        state.paths.open().iter().min_by_key(rank).cloned()
    }
}
