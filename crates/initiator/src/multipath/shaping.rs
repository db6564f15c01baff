//! What a request pays to its class before it is sent.

use std::time::Instant;

use crate::error::{CallerCause, Error};
use crate::multipath::carrier::Carrier;
use crate::multipath::dispatch::{Grant, Paths};
use crate::scheduler::Charge;
use iscsi_multipath::paths::Requirements;

impl<C: Carrier> Paths<C> {
    /// Waits until the class lets so many bytes pass. Each try of a request pays, and so does a
    /// duplicate: their bytes are on the link as well.
    pub(super) async fn pass(&self, len: usize) -> Result<Option<Charge>, Error> {
        let Some(class) = &self.policy().class else { return Ok(None) };
        // Boxed, since most requests have no class, and the future of each is copied into its task.
        let charge = Box::pin(async {
            let _waiting = self.in_class().join();
            tokio::select! {
                biased;
                charge = class.pass(len as u64) => charge.ok_or_else(|| CallerCause::ClassClosed.into()),
                end = self.ended() => Err(end),
            }
        });
        charge.await.map(Some)
    }

    /// The path for a request that has its share of the budget by `now`, if it need wait neither for a class nor for a
    /// path.
    pub(super) fn try_pass_and_grant(
        &self,
        len: usize,
        now: Instant,
    ) -> Result<Option<Grant<C>>, Error> {
        if self.policy().class.is_some() { Ok(None) } else { self.try_grant(len, now) }
    }

    /// Waits for the class, then for a path with room.
    pub(super) async fn pass_and_grant(&self, len: usize) -> Result<Grant<C>, Error> {
        let charge = self.pass(len).await?;
        Ok(self.grant(len, Requirements::default()).await?.paid_by(charge))
    }

    /// The longest that a request of the disk should be by its class, bytes, if that has a limit.
    pub(crate) fn max_shaped_len(&self) -> Option<u64> {
        self.policy().class.as_ref()?.max_request_len()
    }

    /// How many requests of so many bytes the class lets pass in a second, two at least, if it has a limit:
    /// more would only wait.
    pub(crate) fn shaped_depth(&self, io_size: usize) -> Option<usize> {
        let bytes = self.policy().class.as_ref()?.bytes_in_second()?;
        let depth = bytes.div_ceil((io_size as u64).max(1)).max(2);
        Some(usize::try_from(depth).unwrap_or(usize::MAX))
    }
}

impl<C: Carrier> Grant<C> {
    /// The request has paid this to its class.
    pub(super) fn paid_by(mut self, charge: Option<Charge>) -> Self {
        self.charge = charge;
        self
    }
}
