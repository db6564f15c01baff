//! Whether the medium of a unit may be another one than before.

/// What the unit has reported of its medium. The unit keeps its name with each medium that is put in, so no question can tell
/// them apart.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Medium {
    /// It may have changed, whether or not the unit was known then.
    is_reported: bool,
    /// It may be another one than the one that is known.
    is_in_question: bool,
}

impl Medium {
    /// The unit has reported that it may have changed. `was_known`: it can be removed, and one was known by then.
    pub(super) const fn may_have_changed(&mut self, was_known: bool) {
        self.is_reported = true;
        self.is_in_question |= was_known;
    }

    pub(super) const fn is_reported(self) -> bool {
        self.is_reported
    }

    /// Whether nothing may be sent to the unit any more, over any path.
    pub(super) const fn is_in_question(self) -> bool {
        self.is_in_question
    }
}
