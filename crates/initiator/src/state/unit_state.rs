//! What all handles of one logical unit know together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use iscsi_session::Completion;
use tokio::sync::OnceCell;

use crate::completion::attention_of;
use crate::state::profile::Profile;
use crate::state::range_locks::RangeLocks;
use crate::state::unflushed::Unflushed;

/// What is known of a logical unit within a session.
#[derive(Debug, Default)]
pub(crate) struct UnitState {
    pub(crate) profile: OnceCell<Arc<Profile>>,
    pub(crate) range_locks: RangeLocks,
    pub(crate) unflushed: Unflushed,
    pub(crate) unknown_forms: UnknownForms,
}

/// The forms of commands that the unit has refused, over whichever session: one bit for each
/// operation code of the commands of 16 bytes, 80h to 9Fh.
///
/// A unit need not know any of them, whatever READ CAPACITY (16) says; each is found out by itself,
/// so that a unit without SYNCHRONIZE CACHE (16) is still read beyond 2 TiB.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnknownForms(Arc<AtomicU32>);

impl UnknownForms {
    pub(crate) fn add(&self, operation_code: u8) {
        self.0.fetch_or(Self::bit(operation_code), Ordering::Relaxed);
    }

    pub(crate) fn contains(&self, operation_code: u8) -> bool {
        self.0.load(Ordering::Relaxed) & Self::bit(operation_code) != 0
    }

    const fn bit(operation_code: u8) -> u32 {
        if operation_code >> 5 == 4 { 1 << (operation_code & 0x1f) } else { 0 }
    }
}

impl UnitState {
    /// Takes in what the unit tells of earlier writes.
    pub(crate) fn hear(&self, completion: &Completion) {
        let Some(sense) = attention_of(completion) else { return };
        tracing::debug!(%sense, "the unit has something to tell");
        if sense.additional.is_reset() {
            self.unflushed.reset();
        }
    }

    /// What is known of the same unit within a further session: what it is, and what is being
    /// written. Resets are reported to each session for itself.
    pub(crate) fn shared_with_another_session(&self) -> Self {
        Self {
            profile: self.profile.clone(),
            range_locks: self.range_locks.clone(),
            unflushed: self.unflushed.follow(),
            unknown_forms: self.unknown_forms.clone(),
        }
    }
}
