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

    /// What the flush that begins now vouches for.
    pub(crate) fn begin_flush(&self) -> Option<u64> {
        self.oldest().take()
    }

    /// Whether all the writes that a flush vouches for were there when it ended.
    pub(crate) fn survived(&self, oldest: Option<u64>) -> bool {
        oldest.is_none_or(|before| before == self.resets.load(Ordering::Relaxed))
    }

    /// The flush failed: its writes are still not flushed.
    pub(crate) fn end_failed(&self, flushed: Option<u64>) {
        let mut oldest = self.oldest();
        *oldest = flushed.or(*oldest);
    }

    fn oldest(&self) -> std::sync::MutexGuard<'_, Option<u64>> {
        self.oldest.lock().unwrap_or_else(PoisonError::into_inner)
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
        let flush = state.begin_flush();
        assert!(state.survived(flush));
        state.reset();
        assert!(state.survived(state.begin_flush()), "nothing was unflushed");
        state.wrote();
        state.reset();
        state.wrote();
        assert!(!state.survived(state.begin_flush()));
    }

    #[test]
    fn a_failed_flush_leaves_its_writes_unflushed() {
        let state = Unflushed::default();
        state.wrote();
        let flush = state.begin_flush();
        state.reset();
        state.wrote();
        state.end_failed(flush);
        assert!(!state.survived(state.begin_flush()));
    }
}
