//! Reports of resets that one session has received.

/// Logical time of a disk. Only events that matter to the durability of writes advance it: a session that
/// joins, the report of a reset, a command that may have hidden one, and a failure to write.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Epoch(u64);

impl Epoch {
    pub(crate) const NEVER: Self = Self(u64::MAX);

    pub(super) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Reports of the unit that one session has received and that affect writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reports {
    /// When the session joined. Until a command is accepted, each report of a reset moves this time to its own time,
    /// because the reset may have happened before the session joined.
    joined: Epoch,
    /// When the first command began that the unit has accepted.
    first_accepted: Epoch,
    /// When the session last received the report of a reset.
    last_reset: Epoch,
    /// When a command last ended in a way that may have hidden a report.
    last_uncertain: Epoch,
}

impl Reports {
    /// Creates the reports of the first session: nothing was written before it.
    pub(super) fn of_the_first() -> Self {
        let never_mind = Epoch::default();
        Self {
            joined: never_mind,
            first_accepted: never_mind,
            last_reset: never_mind,
            last_uncertain: never_mind,
        }
    }

    /// Returns the epochs in this record, in a fixed order.
    pub(super) fn epochs(&self) -> [Epoch; 4] {
        [self.joined, self.first_accepted, self.last_reset, self.last_uncertain]
    }

    pub(super) fn of_a_further(joined: Epoch) -> Self {
        Self { joined, first_accepted: Epoch::NEVER, ..Self::of_the_first() }
    }

    pub(super) fn on_reset(&mut self, now: Epoch) {
        *self.place(|reports| &mut reports.last_reset) = now;
    }

    pub(super) fn on_uncertain_end(&mut self, now: Epoch) {
        *self.place(|reports| &mut reports.last_uncertain) = now;
    }

    /// Returns the field that a report changes: the field that `usual` selects, or `joined` before the first
    /// accepted command, because the unit then reports events from before the login.
    fn place(&mut self, usual: impl FnOnce(&mut Self) -> &mut Epoch) -> &mut Epoch {
        if self.first_accepted == Epoch::NEVER { &mut self.joined } else { usual(self) }
    }

    pub(super) fn accept(&mut self, begun: Epoch) {
        self.first_accepted = self.first_accepted.min(begun);
    }

    pub(super) const fn last_reset(&self) -> Epoch {
        self.last_reset
    }

    /// Returns the time since which the session receives the report of every reset.
    pub(super) fn complete_since(&self) -> Epoch {
        self.joined.max(self.first_accepted)
    }

    pub(super) fn is_uncertain_since(&self, moment: Epoch) -> bool {
        self.last_uncertain > moment
    }

    /// Returns whether every reset after `moment` is reported to the session, unless the report is hidden.
    pub(super) fn stood_at(&self, moment: Epoch) -> bool {
        self.complete_since() <= moment
    }

    /// Returns whether every reset after `moment` was reported to the session, and no report may have been
    /// hidden.
    pub(super) fn knows_since(&self, moment: Epoch) -> bool {
        self.stood_at(moment) && !self.is_uncertain_since(moment)
    }

    /// Returns whether the session knows that there was no reset after `moment`.
    pub(super) fn vouches_for(&self, moment: Epoch) -> bool {
        self.knows_since(moment) && self.last_reset <= moment
    }
}
