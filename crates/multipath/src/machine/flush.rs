//! Runs the flushes of all disks. Each flush is an attempt of a request over the path that was chosen for it.

use std::hash::{Hash, Hasher};
use std::time::Instant;

use super::output::DiskId;
use crate::durability::Epoch;
use crate::flushing::{self, FlushId, FlushOwner, Question, Step, Terms};
use crate::ids::PathId;
use crate::requests::{self, AttemptEnd};
use crate::unit::Unit;

/// Number of consecutive unit attentions after which a command is not sent again.
pub(super) const MAX_ATTENTIONS: u32 = 8;
/// All disks of a machine share one [`Durability`](crate::Durability), so they count as one owner of flushes.
const OWNER: FlushOwner = FlushOwner(0);

#[derive(Clone, Debug)]
struct Running<E> {
    id: FlushId,
    disk: DiskId,
    path: PathId,
    /// The attempt of the request for this flush; `None` after it was cancelled.
    attempt: Option<requests::AttemptId>,
    has_begun: bool,
    is_answered: bool,
    /// Number of unit attentions for the last command.
    attentions: u32,
    /// The end of the last command, if it failed.
    failure: Option<AttemptEnd<E>>,
}

/// The flushes that wait for their turn, and the one in progress.
#[derive(Clone, Debug)]
pub(super) struct Flushes<E> {
    running: Vec<Running<E>>,
    procedures: flushing::Flushes,
    begun: u64,
}

/// An action for a flush.
#[derive(Clone, Debug)]
pub(super) enum Act<E> {
    /// Send this command, and report its end.
    Ask(DiskId, FlushId, Question),
    /// The attempt of the flush request has ended, with this failure if there is one.
    End(DiskId, requests::AttemptId, Option<AttemptEnd<E>>),
    /// No action: a flush has ended whose caller was cancelled.
    Nothing,
}

impl<E> Default for Flushes<E> {
    fn default() -> Self {
        Self { running: Vec::new(), procedures: flushing::Flushes::default(), begun: 0 }
    }
}

impl<E: Clone> Flushes<E> {
    /// Starts a flush over the path that was chosen for it.
    pub(super) fn start(
        &mut self,
        (disk, attempt): (DiskId, requests::AttemptId),
        path: PathId,
        terms: Terms,
        unit: &mut Unit,
    ) {
        let id = self.procedures.start(OWNER, path, terms, unit);
        self.running.push(Running {
            id,
            disk,
            path,
            attempt: Some(attempt),
            has_begun: false,
            is_answered: false,
            attentions: 0,
            failure: None,
        });
    }

    /// Notes that the caller of a flush was cancelled. A flush in progress continues, so that its status still
    /// arrives: the status may report that the medium has failed. Returns whether the attempt belongs to a
    /// flush that has not ended.
    pub(super) fn cancel(&mut self, disk: DiskId, attempt: requests::AttemptId) -> bool {
        let is_it = |it: &&mut Running<E>| it.disk == disk && it.attempt == Some(attempt);
        let Some(running) = self.running.iter_mut().find(is_it) else { return false };
        running.attempt = None;
        let (id, has_begun) = (running.id, running.has_begun);
        if !has_begun {
            self.procedures.cancel(id);
            self.running.retain(|running| running.id != id);
        }
        true
    }

    /// Returns the next action. `witness` returns the most suitable witness of a flush over the given path:
    /// another path.
    pub(super) fn advance(
        &mut self,
        unit: &mut Unit,
        witness: impl Fn(&Unit, PathId) -> Option<PathId>,
        now: Instant,
    ) -> Option<Act<E>> {
        let mut at = 0;
        while let Some(running) = self.running.get_mut(at) {
            match self.procedures.poll(running.id, unit, now) {
                Step::Wait => at += 1,
                Step::AwaitCommands(..) => {
                    running.is_answered = true;
                    at += 1;
                }
                Step::Ask(question) => {
                    self.begun += u64::from(!running.has_begun);
                    (running.has_begun, running.attentions) = (true, 0);
                    return Some(Act::Ask(running.disk, running.id, question));
                }
                Step::ChooseWitness => {
                    let witness = witness(unit, running.path);
                    self.procedures.on_witness(running.id, witness, unit);
                }
                Step::Done(result) => {
                    let Running { disk, attempt, failure, .. } = self.running.remove(at);
                    let failure = failure.filter(|_| result.is_err());
                    let end = |attempt| Act::End(disk, attempt, failure);
                    return Some(attempt.map_or(Act::Nothing, end));
                }
            }
        }
        None
    }

    /// Records the end of a command. `failure` is set if the command failed.
    pub(super) fn on_end(
        &mut self,
        (flush, question): (FlushId, Question),
        end: flushing::End<'_>,
        failure: Option<AttemptEnd<E>>,
        unit: &mut Unit,
    ) {
        if let Some(running) = self.running.iter_mut().find(|running| running.id == flush) {
            running.failure = failure;
            self.procedures.on_end(flush, question.number, end, unit);
        }
    }

    /// Records that a command ended with a unit attention, or was withdrawn. Returns whether to send it
    /// again.
    pub(super) fn is_sent_again(&mut self, flush: FlushId) -> bool {
        let running = self.running.iter_mut().find(|running| running.id == flush);
        running.is_some_and(|running| {
            running.attentions += 1;
            running.attentions <= MAX_ATTENTIONS
        })
    }

    /// Removes the flushes that have not begun and would go over a lost path, and returns their attempts.
    pub(super) fn path_lost(&mut self, path: PathId) -> Vec<(DiskId, requests::AttemptId)> {
        let waits = |it: &&Running<E>| it.path == path && !it.has_begun;
        let ended: Vec<_> =
            self.running.iter().filter(waits).map(|it| (it.id, it.disk, it.attempt)).collect();
        for (id, ..) in &ended {
            self.procedures.cancel(*id);
            self.running.retain(|running| running.id != *id);
        }
        ended.into_iter().filter_map(|(_, disk, attempt)| Some((disk, attempt?))).collect()
    }

    /// Returns whether a flush in progress still needs the reports that a path receives from the unit: the
    /// flush goes over the path, or the session of the path is its witness.
    pub(super) fn uses(&self, path: PathId) -> bool {
        self.procedures.needs_path(path)
    }

    /// Returns whether a flush goes over a path, or waits to go over it.
    pub(super) fn takes(&self, path: PathId) -> bool {
        self.running.iter().any(|running| running.path == path)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let all = self.running.iter();
        all.filter_map(|running| self.procedures.poll_timeout(running.id)).min()
    }

    /// Returns whether a flush in progress has a status from the unit.
    pub(super) fn is_answered(&self) -> bool {
        self.running.iter().any(|running| running.is_answered)
    }

    /// Returns the number of flushes that have begun.
    pub(super) const fn begun(&self) -> u64 {
        self.begun
    }

    /// Returns the epochs in the flushes.
    pub(super) fn epochs(&self) -> Vec<Option<Epoch>> {
        self.procedures.epochs().collect()
    }

    /// Returns the position of a flush in the list of flushes.
    pub(super) fn place(&self, flush: FlushId) -> Option<usize> {
        self.running.iter().position(|running| running.id == flush)
    }

    /// Returns the attempts of the flush requests, in the order of their start.
    pub(super) fn attempts(&self) -> impl Iterator<Item = (DiskId, requests::AttemptId)> {
        self.running.iter().filter_map(|running| Some((running.disk, running.attempt?)))
    }

    /// Hashes the progress of the flushes; `place` names paths.
    pub(super) fn fingerprint(
        &self,
        place: impl Fn(PathId) -> Option<usize>,
        unit: &Unit,
        state: &mut impl Hasher,
    ) {
        for running in &self.running {
            let is_wanted = running.attempt.is_some();
            let is_failed = running.failure.is_some();
            (running.disk, place(running.path), is_wanted, is_failed).hash(state);
            (running.has_begun, running.is_answered, running.attentions).hash(state);
        }
        self.procedures.fingerprint(place, unit, state);
    }
}
