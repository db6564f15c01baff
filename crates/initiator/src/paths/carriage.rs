//! The carriage of one request: over the path that it was granted, and over others when that one is
//! late, is lost, or leads to a unit that does not take it now.

use std::pin::Pin;
use std::time::Instant;

use tokio::time::sleep_until;

use super::schedule::{Schedule, Ticket, Wish};
use super::trials::Trials;
use super::{Carrier, PathId, Paths, now};
use crate::error::Error;
use crate::transfer::Transfer;

/// A request's place on a path.
pub(super) struct Grant<C: Carrier> {
    paths: Paths<C>,
    carrier: C,
    path: PathId,
    begun: Instant,
    ticket: Option<Ticket>,
}

/// A try that has failed still has its place on the path.
type Failure<C> = (Grant<C>, Error);
type Attempt<C> = Pin<Box<dyn Future<Output = Result<<C as Carrier>::Answer, Failure<C>>> + Send>>;

impl<C: Carrier> Paths<C> {
    /// Carries a transfer out over whichever path can take it, and over another one if that is lost
    /// on the way. Invariant: a second execution of it changes nothing that the first did not.
    ///
    /// # Errors
    /// The error of the last try that may have been executed, if there was one, or else the last error.
    /// But what the unit answers for good to the last try stands, whatever became of those before.
    pub(crate) async fn persist(&self, mut transfer: Transfer) -> Result<C::Answer, Error> {
        let len = transfer.len();
        let mut trials = Trials::new(self, transfer.name(), transfer.blocks());
        let mut grant = self.grant(len, trials.wish()).await?;
        loop {
            let spare = transfer.again();
            let (failed, error) = match self.attempt(grant, transfer, trials.wish()).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            grant = self.once_more(&mut trials, failed, error, len).await?;
            transfer = spare;
        }
    }

    /// The place for the next try, when its time has come.
    async fn once_more(
        &self,
        trials: &mut Trials<'_, C>,
        failed: Grant<C>,
        error: Error,
        len: usize,
    ) -> Result<Grant<C>, Error> {
        let path = failed.path;
        if let Some(limit) = trials.endurance(&error) {
            // It keeps its place, so that no other request is refused there in its stead.
            self.0.lock().schedule.hold_up(path, now());
            trials.pause(error, limit).await?;
            failed.carrier.count_retry();
            let again = self.grant_again(failed, len, trials.wish()).await;
            return again.map_err(|end| trials.end(end));
        }
        if error.is_of_path() && self.set_aside(path, &error) {
            drop(failed);
        } else if error.is_of_session() || error.is_of_connection() {
            let was_alone = trials.wish().is_alone;
            let goes_on = error.is_of_connection() || self.lose(path, &error);
            drop(failed);
            trials.lost(error, was_alone, goes_on)?;
        } else {
            return Err(error);
        }
        self.grant(len, trials.wish()).await.map_err(|end| trials.end(end))
    }

    /// Sends a transfer over its path, and if it is late there, over another one as well.
    async fn attempt(
        &self,
        grant: Grant<C>,
        transfer: Transfer,
        wish: Wish,
    ) -> Result<C::Answer, Failure<C>> {
        let (path, begun) = (grant.path, grant.begun);
        if wish.is_alone || self.is_alone() {
            return grant.carry(transfer).await;
        }
        let spare = transfer.again();
        let mut first: Attempt<C> = Box::pin(grant.carry(transfer));
        let second = tokio::select! {
            result = &mut first => return result,
            second = self.second_grant(path, begun, spare.len()) => second,
        };
        let Ok(second) = second else { return first.await };
        tracing::debug!(?path, other = ?second.path, "a request is late, and sent over another path");
        let mut second: Attempt<C> = Box::pin(second.carry(spare));
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
                    self.lose(failed.path, &error);
                }
                drop(failed);
                loser.await
            }
        }
    }

    /// Waits until a request that is under way on a path is late and another path has nothing to do,
    /// or until it is stuck and another path has room.
    async fn second_grant(
        &self,
        path: PathId,
        begun: Instant,
        len: usize,
    ) -> Result<Grant<C>, Error> {
        let (late, stuck) = {
            let state = self.0.lock();
            (state.schedule.late_after(path), state.schedule.stuck_after(path))
        };
        let wish = Wish { avoid: Some(path), is_alone: false };
        let mut look = begun;
        while look < begun + stuck {
            look += late;
            sleep_until(look.into()).await;
            let (mut state, now) = (self.0.lock(), now());
            if state.waiting.is_empty()
                && let Some(idle) = state.schedule.idle(path, now)
                && let Some(grant) = self.take(&mut state, idle, len as u64, wish, now)
            {
                return Ok(grant);
            }
        }
        self.grant(len, wish).await
    }
}

impl<C: Carrier> Grant<C> {
    pub(super) const fn new(
        paths: Paths<C>,
        carrier: C,
        path: PathId,
        begun: Instant,
        ticket: Ticket,
    ) -> Self {
        Self { paths, carrier, path, begun, ticket: Some(ticket) }
    }

    /// The path, and what goes over it.
    pub(super) fn path(&self) -> (PathId, C) {
        (self.path, self.carrier.clone())
    }

    /// Gives the place back; dropping the grant does the same, and lets the next one have it.
    pub(super) fn give_up(mut self, schedule: &mut Schedule) {
        if let Some(ticket) = self.ticket.take() {
            schedule.give_up(&ticket);
        }
    }

    async fn carry(mut self, transfer: Transfer) -> Result<C::Answer, (Self, Error)> {
        let len = transfer.len() as u64;
        match self.carrier.clone().carry(transfer).await {
            Ok(answer) => {
                self.answered(len);
                Ok(answer)
            }
            Err(error) => Err((self, error)),
        }
    }

    fn answered(&mut self, len: u64) {
        let Some(ticket) = self.ticket.take() else { return };
        let (mut state, now) = (self.paths.0.lock(), now());
        state.schedule.end(&ticket, now);
        state.moved += len;
        self.paths.dispatch(&mut state, now);
        state.was_idle |= state.schedule.under_way(self.path) == 0;
    }
}

impl<C: Carrier> Drop for Grant<C> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let mut state = self.paths.0.lock();
            state.schedule.give_up(&ticket);
            self.paths.dispatch(&mut state, now());
        }
    }
}
