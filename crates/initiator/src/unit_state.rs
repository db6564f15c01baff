//! What all handles of one logical unit know together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;

use crate::extent::Extents;
use crate::profile::Profile;

/// What is known of a logical unit within a session.
#[derive(Debug, Default)]
pub(crate) struct UnitState {
    pub(crate) profile: OnceCell<Arc<Profile>>,
    pub(crate) extents: Extents,
    pub(crate) unflushed: Unflushed,
}

/// Whether the unit may have lost writes that it had acknowledged: it keeps them in a volatile
/// cache until a flush, and a reset empties that.
#[derive(Debug, Default)]
pub(crate) struct Unflushed {
    /// Resets that the unit has reported (UNIT ATTENTION, additional sense code 29h).
    resets: AtomicU64,
    /// How many of them had been reported when the oldest unflushed write ended.
    oldest: Mutex<Option<u64>>,
}

impl Unflushed {
    pub(crate) fn reset(&self) {
        self.resets.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn wrote(&self) {
        let resets = self.resets.load(Ordering::Relaxed);
        self.oldest().get_or_insert(resets);
    }

    /// Begins a flush of the writes that have ended.
    pub(crate) fn begin_flush(&self) -> Flush<'_> {
        let oldest = self.oldest().take();
        Flush { unflushed: self, oldest }
    }

    fn oldest(&self) -> std::sync::MutexGuard<'_, Option<u64>> {
        self.oldest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A flush under way. If it is dropped before it is known to have ended well, its writes count as
/// unflushed again.
#[derive(Debug)]
pub(crate) struct Flush<'a> {
    unflushed: &'a Unflushed,
    /// How many resets had been reported when the oldest of its writes ended.
    oldest: Option<u64>,
}

impl Flush<'_> {
    /// The flush has ended well: whether the writes were still there to be flushed.
    pub(crate) fn ended(mut self) -> bool {
        let resets = self.unflushed.resets.load(Ordering::Relaxed);
        self.oldest.take().is_none_or(|before| before == resets)
    }
}

impl Drop for Flush<'_> {
    fn drop(&mut self) {
        if self.oldest.is_some() {
            *self.unflushed.oldest() = self.oldest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reset_between_write_and_flush_loses_writes() {
        let state = Unflushed::default();
        state.reset();
        state.wrote();
        assert!(state.begin_flush().ended());
        state.reset();
        assert!(state.begin_flush().ended(), "nothing was unflushed");
        state.wrote();
        state.reset();
        state.wrote();
        assert!(!state.begin_flush().ended());
        assert!(state.begin_flush().ended(), "the loss is told once");
    }

    #[test]
    fn a_flush_that_does_not_end_leaves_its_writes_unflushed() {
        let state = Unflushed::default();
        state.wrote();
        let flush = state.begin_flush();
        state.reset();
        state.wrote();
        drop(flush);
        assert!(!state.begin_flush().ended());
    }
}
