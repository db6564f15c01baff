//! The flush of a unit, from its turn to what it proves.

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
/// | turn | another flush is in progress: until it is answered, it is not known whether it fails on the medium | in the order of [`start`](Self::start) |
/// | flush | SYNCHRONIZE CACHE is in flight. While it takes long, TEST UNIT READY follows every 60 seconds: a unit whose commands another initiator has cleared without a status reports that to a later command only | GOOD: all commands are heard; the unit does not know the command: its cache decides; a failure of the medium: the writes are lost; another end: they are unflushed again |
/// | cache | the unit does not know the command. Unless it was known to have no volatile cache, MODE SENSE asks whether it has one by now | without a cache there is nothing to bring onto the medium; otherwise the flush has failed |
/// | hearing | the commands have not ended that were sent before over the path: one of them may have the report of a reset. After the retry timeout they are given up | |
/// | witness | if the path cannot vouch for all that was written ([`Durability::needs_witness`](crate::Durability::needs_witness)), TEST UNIT READY has the unit report its resets over the path of a witness, and again the commands before it are heard. NOT READY proves as much as GOOD: a unit attention goes before any other CHECK CONDITION (SAM-5 §5.14). BUSY, TASK SET FULL and ABORTED COMMAND prove nothing, and pass: the witness is asked again every second, within the retry timeout | [`Durability::end_flush`](crate::Durability::end_flush) |
///
/// Once a flush has its turn it runs to its end, also where its caller waits no longer: a flush that is given up might have
/// failed on the medium without a report.
///
/// Disks that have a [`Unit`] each may share the flushes of the unit that they lead to. Then the turn of a flush passes to another
/// disk when the unit has answered, and to the same disk when the flush has ended ([`FlushOwner`]).
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
/// let number = unit.begin(path).number;
/// unit.forget(path, number);
/// flushes.on_end(flush, question.number, End::Good(number, &[]), &mut unit);
/// assert_eq!(flushes.poll(flush, &mut unit, now), Step::Done(Ok(())));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Flushes {
    /// In the order of their start, which is that of their turns.
    procedures: Vec<(FlushId, Procedure)>,
    next: u64,
}

/// Identifies a flush. No number is used twice.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FlushId(u64);

impl Flushes {
    /// Adds a flush, over this path, of all that has been written by the time of its turn. To run it, [`poll`](Self::poll) it
    /// until it is done; pass the same unit to each call.
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

    /// Returns what a flush does next. Each question is returned once. Poll again after [`on_end`](Self::on_end), when
    /// [`poll_timeout`](Self::poll_timeout) has come, when commands of the unit have ended, and when another flush has been
    /// answered or has ended.
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

    /// Takes the end of a question. An end that was taken before, or that nothing waits for any more, changes nothing.
    pub fn on_end(&mut self, flush: FlushId, question: u32, end: End<'_>, unit: &mut Unit) {
        if let Some(procedure) = self.get_mut(flush) {
            procedure.on_end(question, end, unit);
        }
    }

    /// Takes the answer to [`Step::ChooseWitness`]: the path of another session, if there is one.
    pub fn on_witness(&mut self, flush: FlushId, witness: Option<PathId>, unit: &mut Unit) {
        if let Some(procedure) = self.get_mut(flush) {
            procedure.on_witness(witness, unit);
        }
    }

    /// Returns when to [`poll`](Self::poll) the flush, whatever happens before.
    pub fn poll_timeout(&self, flush: FlushId) -> Option<Instant> {
        self.get(flush).and_then(Procedure::poll_timeout)
    }

    /// The caller of a flush waits no longer: without a turn the flush is given up, otherwise it runs to its end.
    pub fn cancel(&mut self, flush: FlushId) {
        if self.get(flush).is_some_and(Procedure::is_waiting) {
            self.remove(flush);
        }
    }

    /// The flush cannot be run any more. What it was for counts as unflushed.
    pub fn abandon(&mut self, flush: FlushId, unit: &mut Unit) {
        if let Some(procedure) = self.get_mut(flush) {
            procedure.abandon(unit);
        }
        self.remove(flush);
    }

    /// Returns whether a flush in progress needs what the unit knows of this path. A path that is lost stays in the
    /// [`Unit`] until then.
    pub fn needs_path(&self, path: PathId) -> bool {
        self.procedures.iter().any(|(_, it)| it.needs_path(path))
    }

    /// Hashes how far each flush has come; `place` names paths.
    pub(crate) fn fingerprint(
        &self,
        place: impl Fn(PathId) -> Option<usize>,
        unit: &Unit,
        state: &mut impl Hasher,
    ) {
        self.procedures.iter().for_each(|(_, it)| it.fingerprint(&place, unit, state));
    }

    /// The moments that the flushes keep.
    pub(crate) fn epochs(&self) -> impl Iterator<Item = Option<Epoch>> {
        self.procedures.iter().flat_map(|(_, it)| it.epochs())
    }

    /// Whether a flush that waits may begin: no other one is unanswered, none of the same owner is in progress, and no
    /// earlier one may begin.
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
