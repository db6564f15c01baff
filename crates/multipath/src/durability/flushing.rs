//! Runs the flushes of a unit, each from its turn to its result.

mod procedure;
mod step;
#[cfg(test)]
mod tests;

use std::hash::Hasher;
use std::time::Instant;

use super::reports::Epoch;
use crate::PathId;
use crate::unit::Unit;
use procedure::Procedure;
pub use step::{Command, End, Failure, FlushOwner, Question, Step, Terms};

/// The flushes of a unit (SYNCHRONIZE CACHE), one after the other.
///
/// | stage | what happens | then |
/// |---|---|---|
/// | turn | the flush waits while another flush has no status: until then it is unknown whether that flush fails on the medium | flushes get their turn in the order of [`start`](Self::start) |
/// | flush | SYNCHRONIZE CACHE is in flight. While it has no status, TEST UNIT READY is sent every 60 seconds: another initiator may have cleared the command without a status, and the unit reports that only to a later command | GOOD: stage "earlier commands"; the unit does not support the command: stage "cache"; a failure of the medium: the writes are lost; another end: the writes are unflushed again |
/// | cache | the unit does not support the command. Unless it was known to have no volatile cache, MODE SENSE queries whether it has one now | without a cache there is nothing to flush; otherwise the flush has failed |
/// | earlier commands | the flush waits for commands that were sent over the path before it: one of them may receive the report of a reset. After the retry timeout the flush stops waiting | stage "witness" |
/// | witness | if the path cannot vouch for all writes ([`Durability::needs_witness`](crate::Durability::needs_witness)), TEST UNIT READY makes the unit report its resets over the path of a witness. The flush also waits for the earlier commands of that path. NOT READY shows as much as GOOD: a unit attention is reported before any other CHECK CONDITION (SAM-5 §5.14). BUSY, TASK SET FULL and ABORTED COMMAND do not show whether there was a reset, and are temporary: TEST UNIT READY is repeated every second, within the retry timeout | [`Durability::end_flush`](crate::Durability::end_flush) |
///
/// Once a flush has its turn, it runs to its end, even if its caller is cancelled: an abandoned flush might fail
/// on the medium without a report.
///
/// Disks with separate [`Unit`]s for the same logical unit may share one `Flushes`. Then the turn passes to another
/// disk when SYNCHRONIZE CACHE has a status, and to the same disk when the flush has ended ([`FlushOwner`]).
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
    /// The flushes in the order of their start, which is the order of their turns.
    procedures: Vec<(FlushId, Procedure)>,
    next: u64,
}

/// Identifies a flush. No identifier is used twice.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FlushId(u64);

impl Flushes {
    /// Adds a flush over this path. It covers all writes that have ended when it gets its turn. To run it, call
    /// [`poll`](Self::poll) until it is done; pass the same unit to each call.
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

    /// Returns the next step of a flush. Each command is returned once. Poll again after
    /// [`on_end`](Self::on_end), at [`poll_timeout`](Self::poll_timeout), when commands of the unit have ended,
    /// and when another flush has a status or has ended.
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

    /// Records the end of a command of the flush. A second end of the same command, or an end that no stage waits
    /// for, changes nothing.
    pub fn on_end(&mut self, flush: FlushId, question: u32, end: End<'_>, unit: &mut Unit) {
        if let Some(procedure) = self.get_mut(flush) {
            procedure.on_end(question, end, unit);
        }
    }

    /// Records the result of [`Step::ChooseWitness`]: the path of another session, if there is one.
    pub fn on_witness(&mut self, flush: FlushId, witness: Option<PathId>, unit: &mut Unit) {
        if let Some(procedure) = self.get_mut(flush) {
            procedure.on_witness(witness, unit);
        }
    }

    /// Returns when to [`poll`](Self::poll) the flush at the latest, if nothing happens before.
    pub fn poll_timeout(&self, flush: FlushId) -> Option<Instant> {
        self.get(flush).and_then(Procedure::poll_timeout)
    }

    /// Notes that the caller of a flush does not wait any more. A flush that has not had its turn is removed; any
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

    /// Returns whether a flush in progress needs the state of this path. While it does, keep a lost path in the
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

    /// Returns the epochs in the flushes.
    pub(crate) fn epochs(&self) -> impl Iterator<Item = Option<Epoch>> {
        self.procedures.iter().flat_map(|(_, it)| it.epochs())
    }

    /// Returns whether a waiting flush may begin: no flush in progress lacks a status, no flush of the same
    /// owner is in progress, and no earlier flush may begin.
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
