//! A request that is late on its path, sent over another as well: the first answer counts.
//!
//! The other copy of a write is aborted then: it could land on newer data when its range is free again,
//! so the range stays taken until that copy has ended, or what its session left is settled. That of a
//! read runs to its end.

use std::pin::Pin;
use std::sync::Arc;

use iscsi_multipath::requests::disposition::Disposition;
use tokio::time::{Instant, sleep_until};

use crate::error::Error;
use crate::multipath::attempts::Attempts;
use crate::multipath::carrier::Carrier;
use crate::multipath::carry::Timed;
use crate::multipath::dispatch::{Grant, Paths};
use crate::state::cancellation::Cancellation;
use crate::unit::transfer::Transfer;
use iscsi_multipath::PathId;
use iscsi_multipath::paths::Requirements;

/// A try that has failed still has its place on the path.
pub(super) type Failure<C> = (Grant<C>, Error);
/// How the copies of a request end.
type Copied<C> = Result<Timed<C>, Failure<C>>;
type Carried<C> = Pin<Box<dyn Future<Output = Copied<C>> + Send>>;

/// One of two copies of a request, on its way.
struct Copy<C: Carrier> {
    path: PathId,
    begun: Instant,
    carried: Carried<C>,
    /// By what it is given up; `None` for a read.
    cancellation: Option<Cancellation>,
}

impl<C: Carrier> Copy<C> {
    fn send(mut grant: Grant<C>, mut transfer: Transfer) -> Self {
        let cancellation = transfer.writes().then(Cancellation::default);
        if let Some(cancellation) = &cancellation {
            transfer = transfer.cancelled_by(cancellation.clone());
        }
        let (path, begun) = (grant.id(), grant.begun().into());
        let carried = Box::pin(async move {
            let result = grant.carry(&mut transfer).await;
            result.map_err(|error| (grant, error))
        });
        Self { path, begun, carried, cancellation }
    }

    /// The other one was answered. Nobody waits for the end of this one, but it keeps its place and its
    /// range until then.
    fn lose(self) {
        if let Some(cancellation) = self.cancellation {
            cancellation.cancel();
        }
        tokio::spawn(self.carried);
    }
}

impl<C: Carrier> Paths<C> {
    /// Sends a transfer over its path, and if it is late there, over another one as well; and again, if the port of
    /// the other one does not serve the unit.
    pub(super) async fn attempt_with_copies(
        &self,
        grant: Grant<C>,
        spare: &mut Transfer,
        attempts: &mut Attempts<'_, C>,
    ) -> Copied<C> {
        let again = spare.again();
        let mut first = Copy::send(grant, std::mem::replace(spare, again));
        loop {
            let (path, begun) = (first.path, first.begun);
            let second = tokio::select! {
                biased;
                result = &mut first.carried => return result,
                second = self.second(path, begun, spare) => second,
            };
            let Ok((grant, transfer)) = second else { return first.carried.await };
            let other = grant.id();
            let log =
                || tracing::debug!(?path, ?other, "a request is late, and sent over another path");
            self.report().log(log);
            self.count_duplicate();
            let mut second = Copy::send(grant, transfer);
            let (result, left) = tokio::select! {
                biased;
                result = &mut first.carried => (result, second),
                result = &mut second.carried => (result, first),
            };
            match result {
                Ok(answer) => {
                    left.lose();
                    return Ok(answer);
                }
                // Over the other session it may go well.
                Err((failed, error)) => {
                    if error.is_of_session() {
                        self.lose(failed.id(), &error);
                    }
                    let next = self.dispose(failed.id(), &error, false, attempts);
                    drop(failed);
                    attempts.note(error);
                    if next != Disposition::Failover {
                        return left.carried.await;
                    }
                    first = left;
                }
            }
        }
    }

    /// Waits until a request that is under way on a path is late and another path has nothing to do,
    /// or until it is stuck and another path has room. Then the duplicate may go, if there is room in
    /// the budget for it.
    async fn second(
        &self,
        path: PathId,
        begun: Instant,
        spare: &Transfer,
    ) -> Result<(Grant<C>, Transfer), Error> {
        let (late, stuck) = {
            let state = self.lock();
            (state.selector.late_after(path), state.selector.stuck_after(path))
        };
        let requirements = Requirements { avoid: Some(path), is_alone: false };
        let mut check = begun;
        loop {
            check += late;
            sleep_until(check).await;
            let is_stuck = check >= begun + stuck;
            let Some(duplicate) = self.duplicate(spare, is_stuck).await? else { continue };
            let charge = self.pass(spare.len()).await?;
            if let Some(grant) = self.grant_idle(path, spare.len()) {
                return Ok((grant.paid_by(charge), duplicate));
            }
            if is_stuck {
                let grant = self.grant(spare.len(), requirements).await?;
                return Ok((grant.paid_by(charge), duplicate));
            }
        }
    }

    /// The duplicate of a request: a write sends the same pages, a read needs a buffer of its own. One
    /// that is late takes room for it only if nobody waits for that; one that is stuck waits, too, unless there
    /// never is room for two of them: all others would wait behind it for the end of the first.
    async fn duplicate(
        &self,
        transfer: &Transfer,
        is_stuck: bool,
    ) -> Result<Option<Transfer>, Error> {
        let mut duplicate = transfer.again();
        if transfer.writes() {
            return Ok(Some(duplicate));
        }
        let len = transfer.len();
        let permit = if is_stuck && self.budget().max_of(len) >= 2 {
            Some(self.reserve(len).await?)
        } else {
            self.try_reserve(len)
        };
        Ok(permit.map(|permit| {
            duplicate.set_permit(Arc::new(permit));
            duplicate
        }))
    }
}
