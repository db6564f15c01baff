//! Losses that a member has told, and the volume has not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iscsi_block_device::{DeviceError, DeviceErrorKind};

/// What a handle of a volume has still to tell. A member counts a loss as told when its own flush has ended, also where
/// that of the volume, which it is a part of, goes on: it may be dropped then.
#[derive(Debug, Default)]
pub(crate) struct Untold {
    own: Mutex<Option<Loss>>,
    /// How many losses the handle has told.
    told: AtomicU64,
    of_all: Arc<Mutex<Latest>>,
}

/// The latest loss that any handle was to tell.
#[derive(Debug, Default)]
struct Latest {
    count: u64,
    /// As long as nobody was told.
    loss: Option<Loss>,
}

#[derive(Clone, Debug)]
struct Loss {
    number: u64,
    error: DeviceError,
}

impl Untold {
    /// The flush of a member has ended thus: if with a loss, that is to be told.
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

    /// What is to be told, which whoever asks tells now.
    pub(crate) fn take(&self) -> Option<DeviceError> {
        let Loss { number, error } = lock(&self.own).take()?;
        self.told.fetch_add(1, Ordering::SeqCst);
        let latest = &mut lock(&self.of_all).loss;
        // One that came later may be another.
        *latest = latest.take().filter(|latest| latest.number > number);
        Some(error)
    }

    /// How many losses the handle has told.
    pub(crate) fn told(&self) -> u64 {
        self.told.load(Ordering::SeqCst)
    }
}

/// A handle that is made later is told of what nobody was told.
impl Clone for Untold {
    fn clone(&self) -> Self {
        let own = lock(&self.of_all).loss.clone();
        Self { own: Mutex::new(own), told: AtomicU64::default(), of_all: Arc::clone(&self.of_all) }
    }
}

/// Whether an error says that writes may be lost.
pub(crate) fn is_loss(error: &DeviceError) -> bool {
    error.kind() == DeviceErrorKind::LostWrites
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lose(untold: &Untold) {
        untold.keep(&DeviceErrorKind::LostWrites.into());
    }

    #[test]
    fn a_loss_is_told_once_and_nothing_else_is() {
        let untold = Untold::default();
        untold.keep(&DeviceErrorKind::TimedOut.into());
        untold.keep(&DeviceErrorKind::Other.into());
        assert!(untold.take().is_none());
        lose(&untold);
        lose(&untold);
        assert!(untold.take().is_some() && untold.take().is_none());
    }

    fn tells_a_later_handle(of: &Untold) -> bool {
        of.clone().take().is_some()
    }

    #[test]
    fn a_later_handle_is_told_until_one_was_that_knew() {
        let one = Untold::default();
        let other = one.clone();
        lose(&one);
        lose(&other);
        assert!(one.take().is_some());
        assert!(tells_a_later_handle(&one), "that of the other handle may be another loss");
        assert!(!tells_a_later_handle(&one));
        assert!(other.take().is_some(), "it has not told");
    }
}
