//! Counters of losses and of reported losses.

/// A number of losses. Each handle keeps the number that it has reported.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct LossCount(pub u64);

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Losses {
    count: LossCount,
    /// The highest number of losses that any handle has reported.
    reported: LossCount,
}

impl Losses {
    pub(super) const fn add(&mut self) {
        self.count.0 += 1;
    }

    pub(super) const fn count(&self) -> LossCount {
        self.count
    }

    pub(super) const fn reported(&self) -> LossCount {
        self.reported
    }

    /// Returns whether some handle has reported every loss. If not, the next flush that ends reports a
    /// loss anyway.
    pub(super) fn are_reported(&self) -> bool {
        self.reported == self.count
    }

    pub(super) fn report(&mut self) -> LossCount {
        self.reported = self.count;
        self.count
    }
}
