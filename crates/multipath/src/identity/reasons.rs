//! Counts the reasons to revalidate one path, and resolves them.

use std::hash::{Hash, Hasher};

/// Reasons and verdict of one path.
///
/// Reasons are counted, because some arise while the revalidation runs: its result resolves only the reasons
/// that existed when its commands were sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Revalidation {
    /// Number of reasons to revalidate that arose over this path.
    own: u64,
    /// Number of commands of this path that the initiator has given up. Their statuses might have reported a
    /// reason.
    given_up: u64,
    /// Total number of reasons when the last successful revalidation began.
    resolved: u64,
    /// Set if the path must not be used any more.
    verdict: Option<Box<Verdict>>,
}

/// A number of reasons to revalidate that hold for all paths, because another path has found another unit.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct SharedReasons(u64);

/// A number of reasons to revalidate one path.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Reasons(u64);

/// State of the reasons to revalidate a path, when a command began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Before {
    resolved: u64,
    given_up: u64,
}

/// Reason why a path must not be used any more.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Verdict {
    /// The path leads to another unit.
    #[error("the path leads to {found}, not to {expected}")]
    OtherUnit {
        /// Name of the unit that the path led to before.
        expected: String,
        /// Name of the unit that the path leads to.
        found: String,
    },
    /// The block size of the unit has changed. The same block address would mean other data, even if the unit
    /// still has the same number of bytes.
    #[error("the blocks of the unit had {before} bytes, and have {now} bytes now")]
    OtherBlockSize {
        /// Block size before, in bytes.
        before: u32,
        /// Block size now, in bytes.
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

    /// Returns whether another unit may have been there for a time since a command began: at least two
    /// reasons have arisen since.
    ///
    /// All commands that the initiator has given up count as one reason: otherwise a command that takes long
    /// could never end while many others are given up. TASK ABORTED and unreadable sense data count as one
    /// reason each, because each may have replaced a report.
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
    /// Returns the number with one more reason: one that the first command of the revalidation has reported,
    /// so that the later commands of the revalidation resolve it as well.
    #[must_use]
    pub const fn and_one(self) -> Self {
        Self(self.0 + 1)
    }
}
