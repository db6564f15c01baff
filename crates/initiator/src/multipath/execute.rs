//! One request: over the path that it was granted, and over others when that one is lost, or leads to
//! a unit that does not take it now.

use std::sync::Arc;

use iscsi_multipath::requests::disposition::Disposition;
use tokio::time::Instant;

use crate::error::Error;
use crate::multipath::attempts::Attempts;
use crate::multipath::carrier::{Answered, Carrier};
use crate::multipath::dispatch::{Grant, Paths, now};
use crate::runtime;
use crate::scheduler::Charge;
use crate::state::counters::RequestKind;
use crate::unit::transfer::Transfer;

impl<C: Carrier> Paths<C> {
    /// Executes a transfer over whichever path can take it, and over another one if that is lost on
    /// the way. Invariant: a second execution of it changes nothing that the first did not.
    ///
    /// It waits for its share of the budget first, then for its class, then for a path: so it takes
    /// whichever has room when it can go, no path's time runs while it waits, and what it has paid to its class
    /// goes out at once.
    ///
    /// # Errors
    /// The error of the last try that may have been executed, if there was one, or else the last error.
    /// But what the unit answers for good to the last try stands, whatever became of those before.
    #[expect(clippy::manual_async_fn, reason = "an async fn would keep the transfer twice")]
    pub(crate) fn execute(
        &self,
        mut transfer: Transfer,
    ) -> impl Future<Output = Result<Answered<C::Answer>, Error>> + Send {
        async move {
            runtime::require()?;
            let len = transfer.len();
            let begun = now();
            // Mostly it need not wait, and the clock is not looked at again.
            let (permit, ready) = match self.try_reserve(len) {
                Some(permit) => (permit, begun),
                None => (self.reserve(len).await?, now()),
            };
            transfer.set_permit(Arc::new(permit));
            let mut attempts = Attempts::new(self);
            let mut grant = match self.try_pass_and_grant(len, ready)? {
                Some(grant) => grant,
                // Boxed, since a request that need not wait does not need the room.
                None => Box::pin(self.pass_and_grant(len)).await?,
            };
            loop {
                attempts.begin(grant.access_changes);
                let error = if attempts.requirements().is_alone || grant.is_only {
                    match grant.carry(&mut transfer).await {
                        Ok(timed) => return Ok(Answered::since(begun, timed)),
                        Err(error) => error,
                    }
                } else {
                    let copies = self.attempt_with_copies(grant, &mut transfer, &mut attempts);
                    // Boxed, since a request with one path does not need the room.
                    let (failed, error) = match Box::pin(copies).await {
                        Ok(timed) => return Ok(Answered::since(begun, timed)),
                        Err(failure) => failure,
                    };
                    grant = failed;
                    error
                };
                // Nor does one that goes well at once.
                grant = Box::pin(self.once_more(&mut attempts, grant, error, &transfer)).await?;
            }
        }
    }

    /// The place for the next attempt.
    async fn once_more(
        &self,
        attempts: &mut Attempts<'_, C>,
        failed: Grant<C>,
        error: Error,
        transfer: &Transfer,
    ) -> Result<Grant<C>, Error> {
        let (path, len) = (failed.id(), transfer.len());
        let is_plain = matches!(transfer.kind(), RequestKind::Read | RequestKind::Write);
        match self.dispose(path, &error, is_plain, attempts) {
            Disposition::Failover => return self.elsewhere(attempts, failed, len).await,
            Disposition::Pause(limit) => {
                // It keeps its place, so that no other request is refused there in its stead.
                self.lock().selector.hold_up(path, now());
                attempts.pause(error, self.retry_limit(limit)).await?;
                return self.elsewhere(attempts, failed, len).await;
            }
            Disposition::SetPathAside if self.set_aside(path, &error) => drop(failed),
            Disposition::NextPath => {
                let was_alone = attempts.requirements().is_alone;
                let goes_on = error.is_of_connection() || self.lose(path, &error);
                drop(failed);
                let request = (transfer.name(), transfer.blocks());
                attempts.lost(request, error, was_alone, goes_on)?;
            }
            Disposition::Complete
            | Disposition::Fail
            | Disposition::FailByReservation
            | Disposition::RetryImmediately
            | Disposition::RetryShorter
            | Disposition::SetPathAside => return Err(error),
        }
        let charge = self.pass_again(attempts, len).await?;
        let again = self.grant(len, attempts.requirements()).await;
        again.map(|grant| grant.paid_by(charge)).map_err(|end| attempts.end(end))
    }

    /// The place for the next try, over whichever path has room then. The request keeps its place in the line.
    async fn elsewhere(
        &self,
        attempts: &mut Attempts<'_, C>,
        failed: Grant<C>,
        len: usize,
    ) -> Result<Grant<C>, Error> {
        self.count_retry(failed.id());
        let charge = self.pass_again(attempts, len).await?;
        let again = self.grant_again(failed, len, attempts.requirements()).await;
        again.map(|grant| grant.paid_by(charge)).map_err(|end| attempts.end(end))
    }

    /// Waits for the class before the next try.
    async fn pass_again(
        &self,
        attempts: &mut Attempts<'_, C>,
        len: usize,
    ) -> Result<Option<Charge>, Error> {
        let begun = Instant::now();
        let charge = self.pass(len).await;
        attempts.waited_in_class(begun);
        charge.map_err(|end| attempts.end(end))
    }
}
