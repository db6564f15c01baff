//! What all handles of one logical unit know together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
///
/// Every session with the unit is told of every reset, at its next command. So one session can
/// vouch for the writes of all, if it stood before the oldest of them.
#[derive(Debug, Default)]
pub(crate) struct Unflushed {
    writes: Arc<Writes>,
    /// Resets that the unit has reported to this session (UNIT ATTENTION), and those before it.
    heard: AtomicU64,
    /// How many sessions had joined before this one.
    joined: u64,
}

/// What all sessions of a disk have written.
#[derive(Debug, Default)]
struct Writes {
    /// The resets that any session has heard of.
    known: AtomicU64,
    /// Sessions that have joined the first one.
    joins: AtomicU64,
    oldest: Mutex<Option<Mark>>,
}

/// When the oldest unflushed write ended.
#[derive(Clone, Copy, Debug)]
struct Mark {
    known: u64,
    joins: u64,
}

impl Unflushed {
    pub(crate) fn reset(&self) {
        let heard = self.heard.fetch_add(1, Ordering::Relaxed) + 1;
        self.writes.known.fetch_max(heard, Ordering::Relaxed);
    }

    pub(crate) fn wrote(&self) {
        let known = self.writes.known.load(Ordering::Relaxed);
        let joins = self.writes.joins.load(Ordering::Relaxed);
        self.writes.lock().get_or_insert(Mark { known, joins });
    }

    /// The same for a further session with the unit, before its first write.
    fn follow(&self) -> Self {
        let writes = Arc::clone(&self.writes);
        let joined = writes.joins.fetch_add(1, Ordering::Relaxed) + 1;
        let heard = writes.known.load(Ordering::Relaxed).into();
        Self { writes, heard, joined }
    }

    /// Whether this session stood before the oldest unflushed write, so that it is told of any reset
    /// since.
    pub(crate) fn is_witness(&self) -> bool {
        self.writes.lock().is_none_or(|oldest| self.joined <= oldest.joins)
    }

    /// Begins a flush of the writes that have ended.
    pub(crate) fn begin_flush(&self) -> Flush<'_> {
        let oldest = self.writes.lock().take();
        Flush { unflushed: self, oldest }
    }
}

impl Writes {
    fn lock(&self) -> MutexGuard<'_, Option<Mark>> {
        self.oldest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A flush under way. If it is dropped before it is known to have ended well, its writes count as
/// unflushed again.
#[derive(Debug)]
pub(crate) struct Flush<'a> {
    unflushed: &'a Unflushed,
    oldest: Option<Mark>,
}

/// What is known of the writes that a flush was for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kept {
    /// They were there to be flushed.
    Yes,
    /// The unit was reset before.
    No,
    /// No session that stood before them is left to tell.
    Unknown,
}

impl Flush<'_> {
    /// The flush has ended well: whether the writes were still there to be flushed.
    pub(crate) fn ended(mut self) -> Kept {
        let heard = self.unflushed.heard.load(Ordering::Relaxed);
        match self.oldest.take() {
            Some(oldest) if heard > oldest.known => Kept::No,
            Some(oldest) if self.unflushed.joined > oldest.joins => Kept::Unknown,
            Some(_) | None => Kept::Yes,
        }
    }
}

impl Drop for Flush<'_> {
    fn drop(&mut self) {
        if self.oldest.is_some() {
            *self.unflushed.writes.lock() = self.oldest;
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
        assert_eq!(state.begin_flush().ended(), Kept::Yes);
        state.reset();
        assert_eq!(state.begin_flush().ended(), Kept::Yes, "nothing was unflushed");
        state.wrote();
        state.reset();
        state.wrote();
        assert_eq!(state.begin_flush().ended(), Kept::No);
        assert_eq!(state.begin_flush().ended(), Kept::Yes, "the loss is told once");
    }

    #[test]
    fn one_session_vouches_for_the_writes_of_all() {
        let first = Unflushed::default();
        first.reset();
        let second = first.follow();
        second.wrote();
        assert!(first.is_witness() && second.is_witness());
        assert_eq!(first.begin_flush().ended(), Kept::Yes);
        second.wrote();
        // Each is told of the same reset.
        first.reset();
        second.reset();
        second.wrote();
        assert_eq!(first.begin_flush().ended(), Kept::No);
        second.wrote();
        assert_eq!(first.begin_flush().ended(), Kept::Yes);
    }

    #[test]
    fn a_session_that_came_later_cannot_vouch() {
        let first = Unflushed::default();
        first.wrote();
        let later = first.follow();
        assert!(!later.is_witness());
        assert_eq!(later.begin_flush().ended(), Kept::Unknown);
        later.wrote();
        assert_eq!(later.begin_flush().ended(), Kept::Yes);
    }

    #[test]
    fn a_flush_that_does_not_end_leaves_its_writes_unflushed() {
        let state = Unflushed::default();
        state.wrote();
        let flush = state.begin_flush();
        state.reset();
        state.wrote();
        drop(flush);
        assert_eq!(state.begin_flush().ended(), Kept::No);
    }
}
