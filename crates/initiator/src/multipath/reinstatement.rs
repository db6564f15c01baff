//! What a lost session has left at the target, and when that counts as past.
//!
//! What a session was writing when it was lost may still be executed. Its ranges stay taken until the
//! login that reinstates it (RFC 7143 §6.3.5) has made the target drop what was left, or until no
//! segment of the old connection can be on its way any more.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use crate::error::Error;
use crate::multipath::carrier::Carrier;
use crate::multipath::path::Path;

/// How long what a lost session had sent may still arrive at the target.
const MAX_SEGMENT_LIFETIME: Duration = Duration::from_secs(64);

/// A path that was lost. Dropped, it counts as settled.
#[derive(Debug)]
pub(crate) struct Lost {
    path: Path,
    at: Instant,
    /// What ended it.
    why: Error,
}

impl Lost {
    /// A path that is lost now.
    pub(super) fn new(path: Path, why: Error) -> Self {
        Self { path, at: Instant::now(), why }
    }

    pub(super) const fn path(&self) -> &Path {
        &self.path
    }

    pub(super) const fn why(&self) -> &Error {
        &self.why
    }

    /// The login has opened the session anew. Where sessions have no TSIH, it says nothing of what was
    /// left: `Some` then has still to be waited for.
    pub(super) fn reopened(self) -> Option<Self> {
        (!self.path.unit.session().is_reinstated_by_login()).then_some(self)
    }

    /// Ends when nothing of the old connection is on its way any more.
    pub(super) async fn past(self) {
        sleep_until(self.deadline()).await;
    }

    /// Waits for `reopening`; what was left is settled meanwhile, if that takes so long.
    pub(super) async fn settled_during<T>(&self, reopening: impl Future<Output = T>) -> T {
        unless_by(self.deadline(), || self.path.settle(), reopening).await
    }

    fn deadline(&self) -> Instant {
        self.at + MAX_SEGMENT_LIFETIME
    }
}

impl Drop for Lost {
    fn drop(&mut self) {
        self.path.settle();
    }
}

/// Waits for something, and does something else when that takes until then.
async fn unless_by<T>(
    deadline: Instant,
    late: impl FnOnce(),
    something: impl Future<Output = T>,
) -> T {
    let mut something = pin!(something);
    if let Ok(result) = timeout_at(deadline, &mut something).await {
        return result;
    }
    late();
    something.await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::sleep;

    use super::*;

    /// What a lost session was writing is free again after a while, also while the session is still
    /// being opened anew.
    #[tokio::test(start_paused = true)]
    async fn what_lingers_is_settled_before_patience_ends() {
        const LIMIT: Duration = MAX_SEGMENT_LIFETIME;
        for (seconds, is_late) in [(63, false), (65, true), (300, true)] {
            let settled = Cell::new(None);
            let begun = Instant::now();
            let settle = || settled.set(Some(begun.elapsed()));
            unless_by(begun + LIMIT, settle, sleep(Duration::from_secs(seconds))).await;
            assert_eq!(begun.elapsed().as_secs(), seconds);
            assert_eq!(settled.get().map(|at| at.as_secs()), is_late.then_some(LIMIT.as_secs()));
        }
    }
}
