//! The reasons to ask a unit again which one it is, over one path, and what has resolved them.

use std::hash::{Hash, Hasher};

/// What is known of one path.
///
/// Reasons are counted, since some come while the unit is being asked: an answer resolves those that there were when the
/// question was sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Revalidation {
    /// Reasons that have come over this path.
    own: u64,
    /// Commands of this path that this side has given up: their status may have been a reason.
    given_up: u64,
    /// How many of all there were when the unit was asked before it was recognized last.
    resolved: u64,
    /// The path does not lead to the unit.
    verdict: Option<Box<Verdict>>,
}

/// A number of reasons that hold for all paths: another path has found another unit.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct SharedReasons(u64);

/// A number of reasons that hold for one path.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Reasons(u64);

/// What there was of reasons when a command began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Before {
    resolved: u64,
    given_up: u64,
}

/// Why a path must not be used any more.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Verdict {
    /// It leads to another unit.
    #[error("the path leads to {found}, not to {expected}")]
    OtherUnit {
        /// The name of the unit that it led to.
        expected: String,
        /// The name of the unit that is there.
        found: String,
    },
    /// The blocks have another size: their data would lie elsewhere, also where they are as many bytes.
    #[error("the blocks of the unit had {before} bytes, and have {now} bytes now")]
    OtherBlockSize {
        /// Bytes of a block before.
        before: u32,
        /// Bytes of a block now.
        now: u32,
    },
    /// The unit may have another medium.
    #[error("the medium of the unit may be another one")]
    OtherMedium,
}

impl Revalidation {
    pub(super) fn asked_at(SharedReasons(resolved): SharedReasons) -> Self {
        Self { resolved, ..Self::default() }
    }

    pub(super) const fn add_reason(&mut self) {
        self.own += 1;
    }

    pub(super) const fn add_given_up(&mut self) {
        self.given_up += 1;
    }

    pub(super) const fn reasons(&self, shared: SharedReasons) -> Reasons {
        Reasons(self.own + self.given_up + shared.0)
    }

    pub(super) fn resolve(&mut self, asked_at: Reasons) {
        self.resolved = self.resolved.max(asked_at.0);
    }

    pub(super) const fn is_open(&self, shared: SharedReasons) -> bool {
        self.reasons(shared).0 > self.resolved
    }

    pub(super) fn set_verdict(&mut self, verdict: Verdict) {
        self.verdict.get_or_insert_with(|| Box::new(verdict));
    }

    pub(super) fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_deref()
    }

    pub(super) const fn before(&self) -> Before {
        Before { resolved: self.resolved, given_up: self.given_up }
    }

    pub(super) fn fingerprint(
        &self,
        shared: SharedReasons,
        before: Option<Before>,
        asked_at: Option<Reasons>,
        state: &mut impl Hasher,
    ) {
        let reasons = self.reasons(shared).0;
        (reasons.wrapping_sub(self.resolved), self.verdict.is_some()).hash(state);
        if let Some(before) = before {
            (reasons.wrapping_sub(before.resolved), self.given_up - before.given_up).hash(state);
        }
        asked_at.map(|asked_at| reasons.wrapping_sub(asked_at.0)).hash(state);
    }

    /// All commands that this side has given up count as one reason: otherwise a command that takes long would never end where
    /// many others are given up. TASK ABORTED and unreadable sense data are reasons of their own, since each may have come in the
    /// place of a report.
    pub(super) const fn may_be_two_since(&self, shared: SharedReasons, before: Before) -> bool {
        let given_up = self.given_up - before.given_up;
        let reasons = self.reasons(shared).0.saturating_sub(before.resolved);
        let reported = reasons.saturating_sub(given_up);
        reported > 1 || reported == 1 && given_up > 0
    }
}

impl SharedReasons {
    pub(super) const fn add(&mut self) {
        self.0 += 1;
    }
}

impl Reasons {
    /// With one more that is known to have come before the question was answered.
    #[must_use]
    pub const fn and_one(self) -> Self {
        Self(self.0 + 1)
    }
}
