//! Keeps losses that a member has reported to the volume until the volume reports them to its caller.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iscsi_block_device::{DeviceError, DeviceErrorKind};

/// Losses that a handle of a volume has yet to report. A member counts a loss as reported when its own flush
/// returns. At that time the flush of the volume may still be running, and may be dropped. So the loss is kept
/// here until a flush of the volume returns it.
#[derive(Debug, Default)]
pub(crate) struct UnreportedLosses {
    /// The loss that this handle has yet to report; `None` if there is none.
    own: Mutex<Option<Loss>>,
    /// Number of losses that the handle has reported.
    reported: AtomicU64,
    /// Shared by all handles of the volume.
    of_all: Arc<Mutex<Latest>>,
}

/// The latest loss that no handle has reported, and the number of losses so far.
#[derive(Debug, Default)]
struct Latest {
    count: u64,
    /// The latest loss; `None` after a handle has reported it.
    loss: Option<Loss>,
}

#[derive(Clone, Debug)]
struct Loss {
    number: u64,
    error: DeviceError,
}

impl UnreportedLosses {
    /// Keeps the error of a member's flush, if it is a loss, until the handle reports it.
    pub(crate) fn keep(&self, error: &DeviceError) {
        if !is_loss(error) {
            return;
        }
        let loss = {
            let mut latest = lock(&self.of_all);
            latest.count += 1;
            let loss = Loss { number: latest.count, error: error.clone() };
            latest.loss = Some(loss.clone());
            loss
        };
        *lock(&self.own) = Some(loss);
    }

    /// Returns the loss that is still to be reported. The caller must report it.
    pub(crate) fn take(&self) -> Option<DeviceError> {
        let Loss { number, error } = lock(&self.own).take()?;
        self.reported.fetch_add(1, Ordering::SeqCst);
        let latest = &mut lock(&self.of_all).loss;
        // Keep a loss that is later than the reported one.
        *latest = latest.take().filter(|latest| latest.number > number);
        Some(error)
    }

    /// Returns the number of losses that the handle has reported.
    pub(crate) fn reported_count(&self) -> u64 {
        self.reported.load(Ordering::SeqCst)
    }
}

/// A clone reports the latest loss if no handle has reported it.
impl Clone for UnreportedLosses {
    fn clone(&self) -> Self {
        let own = lock(&self.of_all).loss.clone();
        Self {
            own: Mutex::new(own),
            reported: AtomicU64::default(),
            of_all: Arc::clone(&self.of_all),
        }
    }
}

/// Returns whether an error says that writes may be lost.
pub(crate) fn is_loss(error: &DeviceError) -> bool {
    error.kind() == DeviceErrorKind::LostWrites
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add_loss(unreported: &UnreportedLosses) {
        unreported.keep(&DeviceErrorKind::LostWrites.into());
    }

    #[test]
    fn a_loss_is_told_once_and_nothing_else_is() {
        let unreported = UnreportedLosses::default();
        unreported.keep(&DeviceErrorKind::TimedOut.into());
        unreported.keep(&DeviceErrorKind::Other.into());
        assert!(unreported.take().is_none());
        add_loss(&unreported);
        add_loss(&unreported);
        assert!(unreported.take().is_some() && unreported.take().is_none());
    }

    fn reports_to_later_handle(of: &UnreportedLosses) -> bool {
        of.clone().take().is_some()
    }

    #[test]
    fn a_later_handle_is_told_until_one_was_that_knew() {
        let one = UnreportedLosses::default();
        let other = one.clone();
        add_loss(&one);
        add_loss(&other);
        assert!(one.take().is_some());
        assert!(reports_to_later_handle(&one), "that of the other handle may be another loss");
        assert!(!reports_to_later_handle(&one));
        assert!(other.take().is_some(), "it has not told");
    }
}
