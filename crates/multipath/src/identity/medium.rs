//! Tracks changes of the medium of a unit.

/// Reports of the unit about its medium. The unit keeps its name with each medium, so no command can
/// distinguish two media.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Medium {
    /// Whether a change was ever reported, before or after the unit became known.
    is_reported: bool,
    /// Whether the medium may be another one than the known one.
    is_in_question: bool,
}

impl Medium {
    /// Records a report of a change. `was_known` is whether the medium is removable and was known by then.
    pub(super) const fn may_have_changed(&mut self, was_known: bool) {
        self.is_reported = true;
        self.is_in_question |= was_known;
    }

    pub(super) const fn is_reported(self) -> bool {
        self.is_reported
    }

    /// Returns whether nothing may be sent to the unit any more, over any path.
    pub(super) const fn is_in_question(self) -> bool {
        self.is_in_question
    }
}
