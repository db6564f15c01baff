//! A request that is late on its path, sent over another as well: the first answer counts.

use std::pin::Pin;
use std::sync::Arc;

use tokio::time::sleep_until;

use crate::error::Error;
use crate::multipath::carrier::Carrier;
use crate::multipath::dispatch::{Grant, Paths, now};
use crate::multipath::lane::{PathId, Requirements};
use crate::unit::transfer::Transfer;

/// A try that has failed still has its place on the path.
pub(super) type Failure<C> = (Grant<C>, Error);
type Carried<C> = Pin<Box<dyn Future<Output = Result<<C as Carrier>::Answer, Failure<C>>> + Send>>;

impl<C: Carrier> Paths<C> {
    /// Sends a transfer over its path, and if it is late there, over another one as well.
    pub(super) async fn attempt(
        &self,
        grant: Grant<C>,
        transfer: Transfer,
        requirements: Requirements,
    ) -> Result<C::Answer, Failure<C>> {
        if requirements.is_alone || self.is_alone() {
            return grant.carry(transfer).await;
        }
        let (path, begun) = (grant.id(), grant.begun());
        let spare = transfer.again();
        let mut first: Carried<C> = Box::pin(grant.carry(transfer));
        let second = tokio::select! {
            result = &mut first => return result,
            second = self.second(path, begun.into(), spare) => second,
        };
        let Ok((grant, transfer)) = second else { return first.await };
        let other = grant.id();
        let log =
            || tracing::debug!(?path, ?other, "a request is late, and sent over another path");
        self.report().log(log);
        self.count_duplicate();
        let mut second: Carried<C> = Box::pin(grant.carry(transfer));
        let (result, loser) = tokio::select! {
            result = &mut first => (result, second),
            result = &mut second => (result, first),
        };
        match result {
            Ok(answer) => {
                // To abort it would take as long; that it ends later does no harm.
                tokio::spawn(loser);
                Ok(answer)
            }
            // Over the other session it may go well.
            Err((failed, error)) => {
                if error.is_of_session() {
                    self.lose(failed.id(), &error);
                }
                drop(failed);
                loser.await
            }
        }
    }

    /// Waits until a request that is under way on a path is late and another path has nothing to do,
    /// or until it is stuck and another path has room. Then the duplicate may go, if there is room in
    /// the budget for it.
    async fn second(
        &self,
        path: PathId,
        begun: tokio::time::Instant,
        spare: Transfer,
    ) -> Result<(Grant<C>, Transfer), Error> {
        let (late, stuck) = {
            let state = self.lock();
            let lateness = &self.policy().lateness;
            (state.schedule.late_after(path, lateness), state.schedule.stuck_after(path, lateness))
        };
        let requirements = Requirements { avoid: Some(path), is_alone: false };
        let mut check = begun;
        loop {
            check += late;
            sleep_until(check).await;
            let Some(duplicate) = self.duplicate(&spare) else { continue };
            if let Some(grant) = self.grant_idle(path, spare.len()) {
                return Ok((grant, duplicate));
            }
            if check >= begun + stuck {
                return Ok((self.grant(spare.len(), requirements).await?, duplicate));
            }
        }
    }

    /// The duplicate of a request: a write sends the same pages, a read needs a buffer of its own, and
    /// takes room for it only if nobody waits for that.
    fn duplicate(&self, transfer: &Transfer) -> Option<Transfer> {
        let duplicate = transfer.again();
        if transfer.writes() {
            return Some(duplicate);
        }
        let permit = self.try_reserve(transfer.len())?;
        Some(duplicate.within_budget(Arc::new(permit)))
    }
}

impl<C: Carrier> Grant<C> {
    async fn carry(self, transfer: Transfer) -> Result<C::Answer, Failure<C>> {
        let (kind, len) = (transfer.kind(), transfer.len() as u64);
        let result = {
            let running = self.carrier().counters().begin(kind, len, self.begun());
            let result = self.carrier().clone().carry(transfer).await;
            let now = now();
            running.end(result.is_ok(), now);
            result.map(|answer| (answer, now))
        };
        match result {
            Ok((answer, now)) => {
                self.answered(len, now);
                Ok(answer)
            }
            Err(error) => Err((self, error)),
        }
    }
}
