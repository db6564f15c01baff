//! Tracks which losses of writes a handle of a disk has reported.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use iscsi_multipath::LossCount;

use crate::error::{Error, UnitCause};
use crate::state::unit_lock::UnitLock;

/// Number of losses of writes that one handle has reported. Each handle of a disk reports each loss once, as
/// Linux does for each open file that had a failed write-back (`errseq_t`).
#[derive(Debug)]
pub(crate) struct LossCursor {
    unit: Arc<UnitLock>,
    seen: AtomicU64,
}

/// The number of losses that a handle had reported when its flush, or a change, began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenLosses(LossCount);

impl LossCursor {
    /// Creates the cursor of a new handle, which reports the losses that no handle has reported yet.
    pub(crate) fn new(unit: &Arc<UnitLock>) -> Self {
        Self { unit: Arc::clone(unit), seen: unit.reported_losses().0.into() }
    }

    /// Returns the number of losses that the handle has reported so far. Called when a flush or a change
    /// begins.
    pub(crate) fn begin(&self) -> SeenLosses {
        SeenLosses(LossCount(self.seen.load(Ordering::SeqCst)))
    }

    /// Returns whether there are more losses than the handle had reported when its flush began. Does not
    /// report them.
    pub(crate) fn are_more_than(&self, seen: SeenLosses) -> bool {
        self.unit.lock().durability.losses() > seen.0
    }

    /// Executes a change. Executes it again if a flush of this handle has reported a loss meanwhile, because
    /// the changed data may be lost and no later flush reports that.
    pub(crate) async fn until_not_lost<F: Future<Output = Result<(), Error>>>(
        &self,
        change: impl Fn() -> F,
    ) -> Result<(), Error> {
        loop {
            let seen = self.begin();
            change().await?;
            if self.begin().0 <= seen.0 {
                return Ok(());
            }
        }
    }

    /// Ends a successful flush. The caller must return the result to the user.
    ///
    /// # Errors
    /// [`UnitCause::UnflushedWritesLost`] if there is a loss that the handle had not reported when the flush
    /// began. So all flushes in progress report the loss.
    pub(crate) fn end(&self, seen: SeenLosses) -> Result<(), Error> {
        let losses = self.unit.lock().durability.report_losses();
        self.seen.fetch_max(losses.0, Ordering::SeqCst);
        if seen.0 >= losses { Ok(()) } else { Err(UnitCause::UnflushedWritesLost.into()) }
    }
}

/// A clone begins at the latest loss that any handle has reported. So a clone that is made for each flush
/// does not report that loss again.
impl Clone for LossCursor {
    fn clone(&self) -> Self {
        let clone = Self::new(&self.unit);
        clone.seen.fetch_max(self.seen.load(Ordering::SeqCst), Ordering::SeqCst);
        clone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_handle_reports_each_loss_once() {
        let unit = Arc::default();
        let [one, other] = [(); 2].map(|()| LossCursor::new(&unit));
        let [early, late] = [one.begin(), one.begin()];
        unit.lock().durability.on_lost_writes();
        assert!(one.are_more_than(early));
        assert!(one.end(early).is_err());
        assert!(one.end(late).is_err(), "all that flush at the same time report it");
        assert!(one.end(one.begin()).is_ok());
        let (clone, fresh) = (other.clone(), LossCursor::new(&unit));
        assert!(other.end(other.begin()).is_err(), "another handle has reported it, not this one");
        assert!(other.end(other.begin()).is_ok());
        assert!(
            clone.end(clone.begin()).is_ok() && fresh.end(fresh.begin()).is_ok(),
            "some handle had reported it"
        );
    }

    #[test]
    fn a_new_handle_reports_what_no_handle_has_reported() {
        let unit = Arc::default();
        let first = LossCursor::new(&unit);
        unit.lock().durability.on_lost_writes();
        let [clone, later] = [first.clone(), LossCursor::new(&unit)];
        let seen = [&first, &clone, &later].map(|cursor| (cursor, cursor.begin()));
        assert!(seen.into_iter().all(|(cursor, seen)| cursor.end(seen).is_err()));
    }
}
