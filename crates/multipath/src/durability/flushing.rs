//! The flush of a unit, from its turn to its result.

mod procedure;
mod step;
#[cfg(test)]
mod tests;

use std::hash::Hasher;
use std::time::Instant;

use super::epoch::Epoch;
use crate::PathId;
use crate::unit::Unit;
use procedure::Procedure;
pub use step::{Command, End, Failure, FlushOwner, Question, Step, Terms};

/// The flushes of a unit (SYNCHRONIZE CACHE), one after the other.
///
/// | stage | what happens | then |
/// |---|---|---|
/// | turn | another flush is unanswered: until the unit answers it, it is unknown whether that flush fails on the medium | flushes get their turn in the order of [`start`](Self::start) |
/// | flush | SYNCHRONIZE CACHE is in flight. While it takes long, TEST UNIT READY is sent every 60 seconds: a unit whose commands another initiator has cleared without a status reports that only to a later command | GOOD: stage "earlier commands"; the unit does not support the command: stage "cache"; a failure of the medium: the writes are lost; another end: they are unflushed again |
/// | cache | the unit does not support the command. Unless it was known to have no volatile cache, MODE SENSE asks whether it has one now | without a cache there is nothing to flush; otherwise the flush has failed |
/// | earlier commands | commands have not ended that were sent before over the path: one of them may receive the report of a reset. After the retry timeout they are given up | stage "witness" |
/// | witness | if the path cannot vouch for all writes ([`Durability::needs_witness`](crate::Durability::needs_witness)), TEST UNIT READY makes the unit report its resets over the path of a witness, whose earlier commands are waited for in the same way. NOT READY proves as much as GOOD: a unit attention goes before any other CHECK CONDITION (SAM-5 §5.14). BUSY, TASK SET FULL and ABORTED COMMAND prove nothing, and are temporary: the witness is asked again every second, within the retry timeout | [`Durability::end_flush`](crate::Durability::end_flush) |
///
/// Once a flush has its turn, it runs to its end, even if no caller waits for it any more: a flush that was
/// given up might have failed on the medium without a report.
///
/// Disks that have separate [`Unit`]s may share the flushes of the unit that they lead to. Then the turn passes
/// to another disk when the unit has answered, and to the same disk when the flush has ended ([`FlushOwner`]).
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use iscsi_multipath::Unit;
/// use iscsi_multipath::flushing::{Command, End, FlushOwner, Flushes, Step, Terms};
///
/// let (mut flushes, mut unit, now) = (Flushes::default(), Unit::new(), Instant::now());
/// let path = Unit::FIRST_PATH;
/// let terms = Terms { write_cache: Some(true), retry_timeout: Duration::from_secs(300) };
/// let flush = flushes.start(FlushOwner(0), path, terms, &mut unit);
/// let Step::Ask(question) = flushes.poll(flush, &mut unit, now) else { unreachable!() };
/// assert_eq!(question.command, Command::SynchronizeCache);
/// let number = unit.begin_command(path).number;
/// unit.forget(path, number);
/// flushes.on_end(flush, question.number, End::Good(number, &[]), &mut unit);
/// assert_eq!(flushes.poll(flush, &mut unit, now), Step::Done(Ok(())));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Flushes {
    /// In the order of their start, which is the order of their turns.
    procedures: Vec<(FlushId, Procedure)>,
    next: u64,
}

/// Identifies a flush. No number is used twice.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FlushId(u64);

impl Flushes {
    /// Adds a flush over this path. It covers all that has been written by the time of its turn. To run it,
    /// call [`poll`](Self::poll) until it is done; pass the same unit to each call.
    pub fn start(
        &mut self,
        owner: FlushOwner,
        path: PathId,
        terms: Terms,
        unit: &mut Unit,
    ) -> FlushId {
        if terms.write_cache != Some(false) {
            unit.durability.on_cache();
        }
        let id = FlushId(self.next);
        self.next += 1;
        self.procedures.push((id, Procedure::new(owner, path, terms)));
        id
    }

    /// Returns the next step of a flush. Each question is returned once. Poll again after
    /// [`on_end`](Self::on_end), at [`poll_timeout`](Self::poll_timeout), when commands of the unit have ended,
    /// and when another flush was answered or has ended.
    pub fn poll(&mut self, flush: FlushId, unit: &mut Unit, now: Instant) -> Step {
        if self.has_turn(flush) {
            self.get_mut(flush).into_iter().for_each(|it| it.begin(unit, now));
        }
        let step =
            self.get_mut(flush).map_or(Step::Done(Err(Failure::GivenUp)), |it| it.poll(unit, now));
        if matches!(step, Step::Done(_)) {
            self.remove(flush);
        }
        step
    }

    /// Records the end of a question. A second end of the same question, or one that no stage waits for,
    /// changes nothing.
    pub fn on_end(&mut self, flush: FlushId, question: u32, end: End<'_>, unit: &mut Unit) {
        if let Some(procedure) = self.get_mut(flush) {
            procedure.on_end(question, end, unit);
        }
    }

    /// Records the answer to [`Step::ChooseWitness`]: the path of another session, if there is one.
    pub fn on_witness(&mut self, flush: FlushId, witness: Option<PathId>, unit: &mut Unit) {
        if let Some(procedure) = self.get_mut(flush) {
            procedure.on_witness(witness, unit);
        }
    }

    /// Returns when to [`poll`](Self::poll) the flush at the latest, if nothing happens before.
    pub fn poll_timeout(&self, flush: FlushId) -> Option<Instant> {
        self.get(flush).and_then(Procedure::poll_timeout)
    }

    /// Notes that the caller of a flush waits no longer. A flush that has not had its turn is given up; any
    /// other one runs to its end.
    pub fn cancel(&mut self, flush: FlushId) {
        if self.get(flush).is_some_and(Procedure::is_waiting) {
            self.remove(flush);
        }
    }

    /// Ends a flush that cannot be run any more. Its writes count as unflushed.
    pub fn abandon(&mut self, flush: FlushId, unit: &mut Unit) {
        if let Some(procedure) = self.get_mut(flush) {
            procedure.abandon(unit);
        }
        self.remove(flush);
    }

    /// Returns whether a flush in progress needs the state of this path. Until then, a lost path stays in the
    /// [`Unit`].
    pub fn needs_path(&self, path: PathId) -> bool {
        self.procedures.iter().any(|(_, it)| it.needs_path(path))
    }

    /// Hashes the progress of each flush; `place` names paths.
    pub(crate) fn fingerprint(
        &self,
        place: impl Fn(PathId) -> Option<usize>,
        unit: &Unit,
        state: &mut impl Hasher,
    ) {
        self.procedures.iter().for_each(|(_, it)| it.fingerprint(&place, unit, state));
    }

    /// Returns the epochs that the flushes keep.
    pub(crate) fn epochs(&self) -> impl Iterator<Item = Option<Epoch>> {
        self.procedures.iter().flat_map(|(_, it)| it.epochs())
    }

    /// Returns whether a waiting flush may begin: no other flush is unanswered, none of the same owner is in
    /// progress, and no earlier one may begin.
    fn has_turn(&self, flush: FlushId) -> bool {
        if self.procedures.iter().any(|(_, it)| it.is_unanswered()) {
            return false;
        }
        let is_busy = |owner| {
            self.procedures.iter().any(|(_, it)| it.owner() == owner && it.is_in_progress())
        };
        let mut waiting = self.procedures.iter().filter(|(_, it)| it.is_waiting());
        waiting.find(|(_, it)| !is_busy(it.owner())).is_some_and(|(id, _)| *id == flush)
    }

    fn get(&self, flush: FlushId) -> Option<&Procedure> {
        self.procedures.iter().find(|(id, _)| *id == flush).map(|(_, it)| it)
    }

    fn get_mut(&mut self, flush: FlushId) -> Option<&mut Procedure> {
        self.procedures.iter_mut().find(|(id, _)| *id == flush).map(|(_, it)| it)
    }

    fn remove(&mut self, flush: FlushId) {
        self.procedures.retain(|(id, _)| *id != flush);
    }
}
