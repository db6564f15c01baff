//! Whether the medium of a unit may be another one than before.

use std::sync::atomic::{AtomicBool, Ordering};

/// What the unit has told of its medium: the unit keeps its name with each that is put in, so that no question tells
/// them apart.
#[derive(Debug, Default)]
pub(crate) struct Medium {
    /// It may have changed, whether or not anything was known of the unit then.
    is_told: AtomicBool,
    /// It may be another one than that which is known.
    is_in_question: AtomicBool,
}

impl Medium {
    /// The unit has told that it may have changed; `was_known` says whether it can, and one was known by then.
    pub(super) fn may_have_changed(&self, was_known: bool) {
        self.is_told.store(true, Ordering::SeqCst);
        self.is_in_question.fetch_or(was_known, Ordering::SeqCst);
    }

    pub(super) fn is_told(&self) -> bool {
        self.is_told.load(Ordering::SeqCst)
    }

    /// Whether nothing may be sent to it any more, over whichever session.
    pub(super) fn is_in_question(&self) -> bool {
        self.is_in_question.load(Ordering::SeqCst)
    }
}
