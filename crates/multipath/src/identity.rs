//! Keeps for each path of a disk the reasons to query its unit again, and the verdict. Also keeps the present properties of
//! the unit. `revalidating/interview.rs` evaluates the responses, and `name.rs` compares the names.
//!
//! Design: `docs/design/identity.md`.

mod blocks;
mod capacity;
mod name;
mod profile;
mod reasons;
mod resize;
pub mod revalidating;
mod transitions;
mod unknown_commands;

pub use blocks::{BlockError, Blocks};
pub use capacity::{Capacity, check_block_size, short_capacity, short_capacity_now};
pub use name::{Mismatch, Model, UnitAddress, UnitName, Unproven};
pub use profile::{Answers, Pages, Profile, max_transfer, unmapped_reads_zeros};
pub use reasons::{Reasons, SharedReasons, Verdict};
pub use resize::{RangeError, Resized, SizeQuestion};
pub use transitions::Transitions;
pub use unknown_commands::UnknownCommands;

use std::hash::{Hash, Hasher};

use crate::by_path::ByPath;
use crate::ids::PathId;
pub(crate) use reasons::Before;
use reasons::Revalidation;
use resize::Size;

/// Identity of the unit that the paths of a disk lead to, and the reasons to query it again.
///
/// A target may put another unit behind a LUN while a session continues. It reports this by a unit attention,
/// if at all. A report that may mean another unit (REPORTED LUNS DATA HAS CHANGED, INQUIRY DATA HAS CHANGED,
/// resets, LOGICAL UNIT NOT SUPPORTED and others) is a reason to query the name and the block size of the unit
/// again, and so is an end of a command that may have hidden such a report. This query is the revalidation.
/// Until it has ended, only its commands are sent to the unit, and GOOD of another command is not trusted. A
/// command is not trusted either if two such reasons came since it began, because another unit may have been
/// there for a time.
///
/// - Each path has separate reasons, because the unit reports to each session. Reports that a session
///   receives while it reconnects count as well ([`Unit::merge`](crate::Unit::merge)), because the unit does
///   not repeat them. A path that leads to another unit, or to blocks of another size, is never used again,
///   and is a reason to revalidate all other paths.
/// - Only another name of the same type means another unit ([`UnitName`]).
/// - A unit whose medium can be removed (RMB) keeps its name with each medium. After NOT READY TO READY CHANGE,
///   nothing more is sent to it over any path, as in Linux.
/// - A unit may grow and shrink while it is used. Results of READ CAPACITY are used in the order in which the
///   commands were sent.
#[derive(Clone, Debug)]
pub struct Identity {
    unit: Option<KnownUnit>,
    /// The number of reasons to revalidate that hold for every path.
    shared: SharedReasons,
    paths: ByPath<Revalidation>,
    /// Changes whenever the result of [`needs_revalidation`](Self::needs_revalidation) changes for any path.
    revision: u64,
    medium: Medium,
    size: Size,
    /// Commands that the unit does not support.
    pub unknown_commands: UnknownCommands,
    /// Time that a port may take to change its state.
    pub transitions: Transitions,
    attentions: u64,
}

/// Properties of a unit that the evaluation of its reports depends on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KnownUnit {
    /// RMB: the medium can be removed.
    pub is_removable: bool,
    /// Capacity when the unit became known, in bytes.
    pub capacity: u64,
}

/// Reports of the unit about its medium. The unit keeps its name with each medium, so no command can
/// distinguish two media.
#[derive(Clone, Copy, Debug, Default)]
struct Medium {
    /// Whether a change was ever reported, before or after the unit became known.
    is_reported: bool,
    /// Whether the medium may be another one than the known one.
    is_in_question: bool,
}

impl Identity {
    /// Creates the identity of a unit with its first path. The unit is not known yet.
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
            unknown_commands: UnknownCommands::default(),
            transitions: Transitions::default(),
            attentions: 0,
        }
    }

    /// Adds a path. `asked_at` is the result of `shared_reasons` when the unit was identified over the session of the path.
    pub(crate) fn join(&mut self, path: PathId, asked_at: SharedReasons) {
        self.paths.insert(path, Revalidation::asked_at(asked_at));
        self.revision += 1;
    }

    pub(crate) fn leave(&mut self, path: PathId) {
        self.paths.remove(path);
        self.revision += 1;
    }

    /// Records that the unit has become known. A later call changes nothing.
    pub fn on_known(&mut self, unit: KnownUnit) {
        if self.unit.is_none() {
            self.unit = Some(unit);
            self.size.begin(unit.capacity);
            self.revision += 1;
        }
    }

    /// Returns whether the unit is known, so that it can be recognized.
    pub const fn is_known(&self) -> bool {
        self.unit.is_some()
    }

    /// Returns the number of reasons to revalidate so far that hold for all paths.
    pub const fn shared_reasons(&self) -> SharedReasons {
        self.shared
    }

    /// Adds a reason to revalidate this path.
    pub fn add_reason(&mut self, path: PathId) {
        if let Some(record) = self.paths.get_mut(path) {
            record.add_reason();
            self.revision += 1;
        }
    }

    /// Records that a command of this path was given up. Its missing status might have reported a reason to revalidate, so
    /// this counts as a reason too.
    pub fn add_given_up(&mut self, path: PathId) {
        if let Some(record) = self.paths.get_mut(path) {
            record.add_given_up();
            self.revision += 1;
        }
    }

    /// Returns the number of reasons so far to revalidate this path.
    pub fn reasons(&self, path: PathId) -> Reasons {
        self.paths.get(path).map_or_else(Reasons::default, |record| record.reasons(self.shared))
    }

    /// Records that the unit is still the known one. `asked_at` is the number of reasons when the
    /// revalidation began.
    pub fn on_revalidated(&mut self, path: PathId, asked_at: Reasons) {
        if let Some(record) = self.paths.get_mut(path) {
            record.resolve(asked_at);
            self.revision += 1;
        }
    }

    /// Records that the path leads to another unit, for good. This is a reason to revalidate the other paths.
    pub fn on_another_unit(&mut self, path: PathId, verdict: Verdict) {
        if let Some(record) = self.paths.get_mut(path) {
            record.set_verdict(verdict);
        }
        self.shared.add();
        self.revision += 1;
        self.add_attention();
    }

    /// Returns whether the path may be used.
    ///
    /// # Errors
    /// The reason, which is final, if the path leads to another unit, or the unit may have another medium.
    pub fn verdict(&self, path: PathId) -> Result<(), Verdict> {
        if self.medium.is_in_question() {
            return Err(Verdict::OtherMedium);
        }
        self.paths.get(path).and_then(Revalidation::verdict).cloned().map_or(Ok(()), Err)
    }

    /// Returns whether the path must be revalidated, or must not be used any more. The result does not depend on whether the
    /// unit is known.
    pub fn has_reasons(&self, path: PathId) -> bool {
        let is_open = |record: &Revalidation| record.is_open(self.shared);
        self.medium.is_in_question() || self.paths.get(path).is_some_and(is_open)
    }

    /// Returns whether the unit is known, and the path must be revalidated before anything else is sent.
    pub fn needs_revalidation(&self, path: PathId) -> bool {
        self.is_known() && self.has_reasons(path)
    }

    /// Returns whether any path needs a revalidation.
    pub fn any_needs_revalidation(&self) -> bool {
        let is_open = |record: &Revalidation| record.is_open(self.shared);
        self.is_known() && (self.medium.is_in_question() || self.paths.iter().any(is_open))
    }

    /// Returns a number that changes whenever [`needs_revalidation`](Self::needs_revalidation) may have changed
    /// for any path.
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the present state of the reasons to revalidate a path. A command keeps this state from its start.
    pub(crate) fn before(&self, path: PathId) -> Before {
        self.paths.get(path).map(Revalidation::before).unwrap_or_default()
    }

    /// Returns whether another unit may have been there for a time since a command began: at least two reasons to revalidate
    /// have arisen since.
    pub(crate) fn may_be_two_since(&self, path: PathId, before: Before) -> bool {
        self.paths.get(path).is_some_and(|record| record.may_be_two_since(self.shared, before))
    }

    /// Hashes the state of a path, of a command that began with `before`, and of a query that began at the
    /// reasons `asked_at`, as far as it affects later behavior. Counts are hashed as differences.
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

    /// Records that the medium may be another one (NOT READY TO READY CHANGE). If the known unit has a
    /// removable medium, no path may be used any more. If the unit is not known yet, all paths may still be
    /// used, because the unit becomes known with the new medium.
    pub fn on_ready_change(&mut self) {
        let was_known = self.unit.is_some_and(|unit| unit.is_removable);
        self.medium.may_have_changed(was_known);
        self.revision += 1;
    }

    /// Returns whether the unit has ever reported that its medium may be another one.
    pub const fn is_ready_change_reported(&self) -> bool {
        self.medium.is_reported()
    }

    /// Counts a report of the unit that something about it has changed, or may have changed. Also call this
    /// for a report that a command may have hidden, or that a lost session would have received. Call it
    /// before the caller of the command receives the result.
    pub const fn add_attention(&mut self) {
        self.attentions += 1;
    }

    /// Returns the number of calls of [`add_attention`](Self::add_attention). Only differences have a
    /// meaning.
    pub const fn attentions(&self) -> u64 {
        self.attentions
    }

    /// Notes that READ CAPACITY is about to be sent.
    pub const fn ask_size(&mut self) -> SizeQuestion {
        self.size.ask()
    }

    /// Records the capacity of a unit, in bytes, and returns the change, if there is one. Changes nothing if
    /// the unit is not known, or a READ CAPACITY that was sent later has returned before.
    pub fn on_size(&mut self, question: SizeQuestion, bytes: u64) -> Option<Resized> {
        self.unit?;
        let resized = self.size.answer(question, bytes)?;
        self.add_attention();
        Some(resized)
    }

    /// Returns the present capacity in bytes; 0 while it is unknown.
    pub const fn size(&self) -> u64 {
        self.size.now()
    }

    /// Checks that a range lies on the unit.
    ///
    /// # Errors
    /// [`RangeError`], which shows whether the range was ever on the unit.
    pub const fn check_range(&self, offset: u64, len: u64) -> Result<(), RangeError> {
        self.size.check(offset, len)
    }
}

impl Medium {
    /// Records a report of a change. `was_known` is whether the medium is removable and was known by then.
    const fn may_have_changed(&mut self, was_known: bool) {
        self.is_reported = true;
        self.is_in_question |= was_known;
    }

    const fn is_reported(self) -> bool {
        self.is_reported
    }

    /// Returns whether nothing may be sent to the unit any more, over any path.
    const fn is_in_question(self) -> bool {
        self.is_in_question
    }
}

#[cfg(test)]
mod tests;
