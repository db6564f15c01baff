//! Whether a path still leads to the unit that it led to, and what the unit is by now.
//!
//! Why it is so: `docs/design/identity.md`.

mod blocks;
mod capacity;
mod forms;
mod medium;
mod name;
mod profile;
pub mod revalidating;
mod revalidation;
mod size;
mod transitions;

pub use blocks::{BlockError, Blocks};
pub use capacity::{Capacity, check_block_size, short_capacity, short_capacity_now};
pub use forms::UnknownForms;
pub use name::{Mismatch, Model, UnitAddress, UnitName, Unproven};
pub use profile::{Answers, Pages, Profile, max_transfer, unmapped_reads_zeros};
pub use revalidation::{Reasons, SharedReasons, Verdict};
pub use size::{RangeError, Resized, SizeQuestion};
pub use transitions::Transitions;

use std::hash::{Hash, Hasher};

use crate::by_path::ByPath;
use crate::ids::PathId;
use medium::Medium;
pub(crate) use revalidation::Before;
use revalidation::Revalidation;
use size::Size;

/// Knows which unit the paths of a disk lead to, and when that has to be asked again.
///
/// A target may put another unit behind a number while a session goes on. It reports that by a unit attention, if at all.
/// After a report that may mean it (REPORTED LUNS DATA HAS CHANGED, INQUIRY DATA HAS CHANGED, resets, 25/00 and the like), or
/// an end of a command that may have hidden one, the unit is asked again for its name and its block size: the
/// revalidation. Until then, nothing is sent to it but those questions, and a command that has ended with GOOD meanwhile does
/// not count. It does not count either if two such reasons came since it began: another unit may have come and gone.
///
/// - Each path has its own reasons, since the unit reports to each session. What it reports while it is asked after a reconnect
///   counts as well ([`Unit::merge`](crate::Unit::merge)), since it is not repeated. A path that leads to another unit, or to blocks of
///   another size, is never used again, and its verdict is a reason for all other paths.
/// - Only another name of the same type proves another unit ([`UnitName`]).
/// - A unit whose medium can be removed (RMB) keeps its name with each medium. After NOT READY TO READY CHANGE, nothing is sent
///   to it any more, over any path, as Linux has it.
/// - A unit may grow and shrink while it is used. Each answer to READ CAPACITY counts, in the order of the questions.
#[derive(Clone, Debug)]
pub struct Identity {
    unit: Option<KnownUnit>,
    /// The reasons that hold for every path.
    shared: SharedReasons,
    paths: ByPath<Revalidation>,
    /// Changes with every change of the answer of [`needs_revalidation`](Self::needs_revalidation), for any path.
    revision: u64,
    medium: Medium,
    size: Size,
    /// Which commands the unit has refused to know.
    pub unknown_forms: UnknownForms,
    /// How long a port may take to change its state.
    pub transitions: Transitions,
    attentions: u64,
}

/// What has to be known of a unit to judge what it reports.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KnownUnit {
    /// RMB: the medium can be removed.
    pub is_removable: bool,
    /// Capacity when the unit became known, bytes.
    pub capacity: u64,
}

impl Identity {
    /// A unit with its first path, which will be asked what it is.
    pub(crate) fn new(first: PathId) -> Self {
        let mut paths = ByPath::default();
        paths.insert(first, Revalidation::default());
        Self {
            unit: None,
            shared: SharedReasons::default(),
            paths,
            revision: 0,
            medium: Medium::default(),
            size: Size::default(),
            unknown_forms: UnknownForms::default(),
            transitions: Transitions::default(),
            attentions: 0,
        }
    }

    /// A further path, which was asked which unit it leads to when there had been these reasons.
    pub(crate) fn join(&mut self, path: PathId, asked_at: SharedReasons) {
        self.paths.insert(path, Revalidation::asked_at(asked_at));
        self.revision += 1;
    }

    pub(crate) fn leave(&mut self, path: PathId) {
        self.paths.remove(path);
        self.revision += 1;
    }

    /// The unit has reported what it is. A later call changes nothing.
    pub fn on_known(&mut self, unit: KnownUnit) {
        if self.unit.is_none() {
            self.unit = Some(unit);
            self.size.begin(unit.capacity);
            self.revision += 1;
        }
    }

    /// Whether something is known by which the unit can be recognized.
    pub const fn is_known(&self) -> bool {
        self.unit.is_some()
    }

    /// The number of reasons so far that hold for all paths.
    pub const fn shared_reasons(&self) -> SharedReasons {
        self.shared
    }

    /// There is a reason to ask over this path.
    pub fn add_reason(&mut self, path: PathId) {
        if let Some(record) = self.paths.get_mut(path) {
            record.add_reason();
            self.revision += 1;
        }
    }

    /// A command of this path was given up: what its status would have reported is unknown.
    pub fn add_given_up(&mut self, path: PathId) {
        if let Some(record) = self.paths.get_mut(path) {
            record.add_given_up();
            self.revision += 1;
        }
    }

    /// The number of reasons so far for this path.
    pub fn reasons(&self, path: PathId) -> Reasons {
        self.paths.get(path).map_or_else(Reasons::default, |record| record.reasons(self.shared))
    }

    /// The unit was asked when there had been these reasons, and is still the known one.
    pub fn on_revalidated(&mut self, path: PathId, asked_at: Reasons) {
        if let Some(record) = self.paths.get_mut(path) {
            record.resolve(asked_at);
            self.revision += 1;
        }
    }

    /// The path leads to another unit, for good. The other paths have a reason to ask.
    pub fn on_another_unit(&mut self, path: PathId, verdict: Verdict) {
        if let Some(record) = self.paths.get_mut(path) {
            record.set_verdict(verdict);
        }
        self.shared.add();
        self.revision += 1;
        self.add_attention();
    }

    /// Whether the path may be used at all.
    ///
    /// # Errors
    /// The reason, for good, if it leads to another unit, or the unit may have another medium.
    pub fn verdict(&self, path: PathId) -> Result<(), Verdict> {
        if self.medium.is_in_question() {
            return Err(Verdict::OtherMedium);
        }
        self.paths.get(path).and_then(Revalidation::verdict).cloned().map_or(Ok(()), Err)
    }

    /// Whether the unit has to be asked over this path, or must not be used any more; also where nothing is known of it yet.
    pub fn has_reasons(&self, path: PathId) -> bool {
        let is_open = |record: &Revalidation| record.is_open(self.shared);
        self.medium.is_in_question() || self.paths.get(path).is_some_and(is_open)
    }

    /// Whether the unit was known, and has to be asked again over this path before anything else is sent.
    pub fn needs_revalidation(&self, path: PathId) -> bool {
        self.is_known() && self.has_reasons(path)
    }

    /// Whether any path needs it.
    pub fn any_needs_revalidation(&self) -> bool {
        let is_open = |record: &Revalidation| record.is_open(self.shared);
        self.is_known() && (self.medium.is_in_question() || self.paths.iter().any(is_open))
    }

    /// A number that changes whenever [`needs_revalidation`](Self::needs_revalidation) may have changed, for any path.
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// What a command begins with.
    pub(crate) fn before(&self, path: PathId) -> Before {
        self.paths.get(path).map(Revalidation::before).unwrap_or_default()
    }

    /// Whether another unit may have come and gone since a command began: there were two reasons.
    pub(crate) fn may_be_two_since(&self, path: PathId, before: Before) -> bool {
        self.paths.get(path).is_some_and(|record| record.may_be_two_since(self.shared, before))
    }

    /// Hashes what decides about a path, and about a command that has begun with `before`, or a question that was asked at
    /// these reasons. Counts are hashed as differences.
    pub(crate) fn fingerprint(
        &self,
        path: PathId,
        before: Option<Before>,
        asked_at: Option<Reasons>,
        state: &mut impl Hasher,
    ) {
        (self.is_known(), self.medium.is_in_question()).hash(state);
        if let Some(record) = self.paths.get(path).filter(|_| self.is_known()) {
            record.fingerprint(self.shared, before, asked_at, state);
        }
    }

    /// The medium may be another one (NOT READY TO READY CHANGE). Before anything is known of the unit, it is the medium that
    /// will be known.
    pub fn on_ready_change(&mut self) {
        let was_known = self.unit.is_some_and(|unit| unit.is_removable);
        self.medium.may_have_changed(was_known);
        self.revision += 1;
    }

    /// Whether the unit has reported, at any time, that its medium may be another one.
    pub const fn is_ready_change_reported(&self) -> bool {
        self.medium.is_reported()
    }

    /// The unit has reported that something about it has changed, or may have: a report that a command may have hidden counts,
    /// and one that a lost session would have received. It counts before the caller of the command receives its end.
    pub const fn add_attention(&mut self) {
        self.attentions += 1;
    }

    /// How often [`add_attention`](Self::add_attention) was called. Only differences have a meaning.
    pub const fn attentions(&self) -> u64 {
        self.attentions
    }

    /// A question for the capacity is about to be sent.
    pub const fn ask_size(&mut self) -> SizeQuestion {
        self.size.ask()
    }

    /// A unit that was recognized has answered, bytes. Returns the change, if it is one. Changes nothing if a later question
    /// was answered before.
    pub fn on_size(&mut self, question: SizeQuestion, bytes: u64) -> Option<Resized> {
        self.unit?;
        let resized = self.size.answer(question, bytes)?;
        self.add_attention();
        Some(resized)
    }

    /// The capacity now, bytes; 0 as long as it is unknown.
    pub const fn size(&self) -> u64 {
        self.size.now()
    }

    /// Whether a range lies on the unit.
    ///
    /// # Errors
    /// Whether it did once, or never.
    pub const fn check_range(&self, offset: u64, len: u64) -> Result<(), RangeError> {
        self.size.check(offset, len)
    }
}

#[cfg(test)]
mod tests;
