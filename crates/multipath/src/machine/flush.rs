//! The flushes of all disks, each an attempt of a request over the path that was chosen for it.

use std::hash::{Hash, Hasher};
use std::time::Instant;

use super::output::DiskId;
use crate::durability::Epoch;
use crate::flushing::{self, FlushId, FlushOwner, Question, Step, Terms};
use crate::ids::PathId;
use crate::requests::{self, AttemptEnd};
use crate::unit::Unit;

/// UNIT ATTENTIONs in a row after which a command is not sent again.
pub(super) const MAX_ATTENTIONS: u32 = 8;
/// All disks of a machine share one [`Durability`](crate::Durability).
const OWNER: FlushOwner = FlushOwner(0);

#[derive(Clone, Debug)]
struct Running<E> {
    id: FlushId,
    disk: DiskId,
    path: PathId,
    /// The attempt of the engine, until that is cancelled.
    attempt: Option<requests::AttemptId>,
    has_begun: bool,
    is_answered: bool,
    /// UNIT ATTENTIONs since the last question was given out.
    attentions: u32,
    /// How the last command has ended, if not well.
    failure: Option<AttemptEnd<E>>,
}

/// The flushes that wait for their turn, and the one in progress.
#[derive(Clone, Debug)]
pub(super) struct Flushes<E> {
    running: Vec<Running<E>>,
    procedures: flushing::Flushes,
    begun: u64,
}

/// What a flush wants done.
#[derive(Clone, Debug)]
pub(super) enum Act<E> {
    /// The end of this command.
    Ask(DiskId, FlushId, Question),
    /// The attempt of the engine has ended, in this way unless well.
    End(DiskId, requests::AttemptId, Option<AttemptEnd<E>>),
    /// A flush has ended that nobody waits for.
    Nothing,
}

impl<E> Default for Flushes<E> {
    fn default() -> Self {
        Self { running: Vec::new(), procedures: flushing::Flushes::default(), begun: 0 }
    }
}

impl<E: Clone> Flushes<E> {
    /// A path was chosen for a flush.
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

    /// The caller has lost interest. A flush in progress goes on: it might fail on the medium without a word. Returns whether
    /// there was such an attempt.
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

    /// What is to be done next. `witness` chooses another path than this one.
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
                Step::Hear(..) => {
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

    /// A question has ended. `failure` is how, unless it is well.
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

    /// A command has ended in a UNIT ATTENTION, or was taken back. Returns whether it is sent again.
    pub(super) fn is_sent_again(&mut self, flush: FlushId) -> bool {
        let running = self.running.iter_mut().find(|running| running.id == flush);
        running.is_some_and(|running| {
            running.attentions += 1;
            running.attentions <= MAX_ATTENTIONS
        })
    }

    /// A path was lost: the flushes that wait for their turn to go over it end.
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

    /// Whether a flush in progress still judges by what a path has received.
    pub(super) fn uses(&self, path: PathId) -> bool {
        self.procedures.needs_path(path)
    }

    /// Whether a flush goes over a path, or waits to.
    pub(super) fn takes(&self, path: PathId) -> bool {
        self.running.iter().any(|running| running.path == path)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let all = self.running.iter();
        all.filter_map(|running| self.procedures.poll_timeout(running.id)).min()
    }

    /// The path of a flush in progress that the unit has answered.
    pub(super) fn is_answered(&self) -> bool {
        self.running.iter().any(|running| running.is_answered)
    }

    /// How many flushes have begun.
    pub(super) const fn begun(&self) -> u64 {
        self.begun
    }

    /// The moments that the flushes keep.
    pub(super) fn epochs(&self) -> Vec<Option<Epoch>> {
        self.procedures.epochs().collect()
    }

    /// Which flush it is, among all.
    pub(super) fn place(&self, flush: FlushId) -> Option<usize> {
        self.running.iter().position(|running| running.id == flush)
    }

    /// The attempts of the engines, in the order of their start.
    pub(super) fn attempts(&self) -> impl Iterator<Item = (DiskId, requests::AttemptId)> {
        self.running.iter().filter_map(|running| Some((running.disk, running.attempt?)))
    }

    /// Hashes how far the flushes have come; `place` names paths.
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
