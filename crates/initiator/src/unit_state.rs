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

impl UnitState {
    /// What is known of the same unit within a further session: what it is, and what is being
    /// written. Resets are reported to each session for itself.
    pub(crate) fn shared_with_another_session(&self) -> Self {
        Self {
            profile: self.profile.clone(),
            extents: self.extents.clone(),
            unflushed: self.unflushed.follow(),
        }
    }
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

    /// The same for a further session with the unit, before its first write.
    fn follow(&self) -> Self {
        let resets = self.resets.load(Ordering::Relaxed);
        Self { resets: resets.into(), oldest: Mutex::default() }
    }

    /// Whether writes have ended that no flush has followed.
    pub(crate) fn is_any(&self) -> bool {
        self.oldest().is_some()
    }

    /// Takes over the writes of a session that is gone: a reset that it was not told of any more,
    /// this one is.
    pub(crate) fn inherit(&self, gone: &Self) {
        if let Some(theirs) = *gone.oldest() {
            let mut ours = self.oldest();
            *ours = Some(ours.map_or(theirs, |ours| ours.min(theirs)));
        }
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
    fn writes_of_a_session_that_is_gone_are_flushed_by_another() {
        let gone = Unflushed::default();
        gone.reset();
        let other = gone.follow();
        gone.wrote();
        assert!(!other.is_any());
        other.inherit(&gone);
        assert!(other.is_any() && other.begin_flush().ended());
        // The unit was reset, and only the other session heard of it.
        gone.wrote();
        other.reset();
        other.inherit(&gone);
        other.wrote();
        assert!(!other.begin_flush().ended());
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
