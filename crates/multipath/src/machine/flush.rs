//! The flushes that disks want, and the path that each takes when its turn comes.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::time::Instant;

use super::output::DiskId;
use crate::durability::{Epoch, LossCount};
use crate::flushing::{self, FlushId, FlushOwner, Question, Step, Terms};
use crate::ids::PathId;
use crate::slab::Key;
use crate::unit::Unit;

/// UNIT ATTENTIONs in a row after which a command is not sent again.
pub(super) const MAX_ATTENTIONS: u32 = 8;
/// All disks of a machine share one [`Durability`](crate::Durability).
const OWNER: FlushOwner = FlushOwner(0);

/// A flush that a disk wants.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// `None` after its caller has lost interest.
    pub(super) request: Option<Key>,
    pub(super) disk: DiskId,
    /// The losses that the disk had reported when the flush was submitted.
    pub(super) seen: LossCount,
    pub(super) since: Instant,
    /// The unit did not take it: it is not sent before.
    pub(super) not_before: Option<Instant>,
    pub(super) pauses: u32,
}

/// Why a flush has failed, and whether it is worth another path.
#[derive(Clone, Debug)]
pub(super) struct FlushError<E> {
    /// `None` if its path was lost.
    pub(super) error: Option<E>,
    pub(super) goes_on: bool,
}

#[derive(Clone, Debug)]
struct Running<E> {
    wanted: Wanted,
    id: FlushId,
    path: PathId,
    is_answered: bool,
    /// UNIT ATTENTIONs since the last question was given out.
    attentions: u32,
    failure: Option<FlushError<E>>,
}

/// The flushes that wait for a path, and the one in progress.
#[derive(Clone, Debug)]
pub(super) struct Flushes<E> {
    waiting: VecDeque<Wanted>,
    running: Option<Running<E>>,
    procedures: flushing::Flushes,
    begun: u64,
}

/// What a flush wants done.
#[derive(Clone, Debug)]
pub(super) enum Act<E> {
    /// The end of this command.
    Ask(DiskId, Question),
    /// The flush has ended well, or failed.
    End(Wanted, Option<FlushError<E>>),
}

impl<E> Default for Flushes<E> {
    fn default() -> Self {
        let (waiting, procedures) = (VecDeque::new(), flushing::Flushes::default());
        Self { waiting, running: None, procedures, begun: 0 }
    }
}

impl<E> Flushes<E> {
    pub(super) fn add(&mut self, wanted: Wanted) {
        self.waiting.push_back(wanted);
    }

    /// The caller has lost interest. A flush in progress goes on: it might fail on the medium without a word.
    pub(super) fn cancel(&mut self, request: Key) {
        self.waiting.retain(|wanted| wanted.request != Some(request));
        if let Some(running) = &mut self.running
            && running.wanted.request == Some(request)
        {
            running.wanted.request = None;
        }
    }

    /// Takes out the flushes of a disk that wait.
    pub(super) fn refuse(&mut self, disk: DiskId) -> Vec<Wanted> {
        let (refused, waiting) =
            self.waiting.drain(..).partition::<Vec<_>, _>(|wanted| wanted.disk == disk);
        self.waiting = waiting.into();
        refused
    }

    /// What is to be done next. `pick` chooses a path for a disk, `witness` another path than this one, `terms` says how long
    /// commands of a disk are waited for.
    pub(super) fn advance(
        &mut self,
        unit: &mut Unit,
        pick: impl Fn(&Unit, DiskId) -> Option<PathId>,
        witness: impl Fn(&Unit, PathId) -> Option<PathId>,
        terms: impl Fn(DiskId) -> Terms,
        now: Instant,
    ) -> Option<Act<E>> {
        if self.running.is_none() {
            self.begin(unit, pick, terms, now)?;
        }
        let running = self.running.as_mut()?;
        let (id, path) = (running.id, running.path);
        loop {
            match self.procedures.poll(id, unit, now) {
                Step::Wait => return None,
                Step::Hear(..) => {
                    running.is_answered = true;
                    return None;
                }
                Step::Ask(question) => {
                    running.attentions = 0;
                    return Some(Act::Ask(running.wanted.disk, question));
                }
                Step::ChooseWitness => {
                    let witness = witness(unit, path);
                    self.procedures.on_witness(id, witness, unit);
                }
                Step::Done(result) => {
                    let Running { wanted, failure, .. } = self.running.take()?;
                    let lost = || FlushError { error: None, goes_on: true };
                    let failure = result.is_err().then(|| failure.unwrap_or_else(lost));
                    return Some(Act::End(wanted, failure));
                }
            }
        }
    }

    fn begin(
        &mut self,
        unit: &mut Unit,
        pick: impl Fn(&Unit, DiskId) -> Option<PathId>,
        terms: impl Fn(DiskId) -> Terms,
        now: Instant,
    ) -> Option<()> {
        for wanted in &mut self.waiting {
            wanted.not_before = wanted.not_before.filter(|at| *at > now);
        }
        let mut due = self.waiting.iter().enumerate().filter(|(_, it)| it.not_before.is_none());
        let (at, path) =
            due.find_map(|(at, wanted)| Some((at, pick(unit, wanted.disk)?)))?;
        let wanted = self.waiting.remove(at)?;
        self.begun += 1;
        let id = self.procedures.start(OWNER, path, terms(wanted.disk), unit);
        let (is_answered, attentions, failure) = (false, 0, None);
        self.running = Some(Running { wanted, id, path, is_answered, attentions, failure });
        Some(())
    }

    /// A question has ended. `failure` says what follows if the flush fails by that.
    pub(super) fn on_end(
        &mut self,
        question: u32,
        end: flushing::End<'_>,
        failure: Option<FlushError<E>>,
        unit: &mut Unit,
    ) {
        if let Some(running) = &mut self.running {
            running.failure = failure;
            self.procedures.on_end(running.id, question, end, unit);
        }
    }

    /// A command has ended in a UNIT ATTENTION, or was taken back. Returns whether it is sent again.
    pub(super) fn is_sent_again(&mut self) -> bool {
        let Some(running) = &mut self.running else { return false };
        running.attentions += 1;
        running.attentions <= MAX_ATTENTIONS
    }

    /// The flush goes again, first of all.
    pub(super) fn retry(&mut self, wanted: Wanted) {
        if wanted.request.is_some() {
            self.waiting.push_front(wanted);
        }
    }

    /// Whether the flush in progress still judges by what a path has received.
    pub(super) fn uses(&self, path: PathId) -> bool {
        self.procedures.needs_path(path)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match &self.running {
            Some(running) => self.procedures.poll_timeout(running.id),
            None => self.waiting.iter().filter_map(|wanted| wanted.not_before).min(),
        }
    }

    /// The path of the flush in progress, and whether the unit has answered it.
    pub(super) fn in_progress(&self) -> Option<(PathId, bool)> {
        self.running.as_ref().map(|running| (running.path, running.is_answered))
    }

    /// How many flushes have begun.
    pub(super) const fn begun(&self) -> u64 {
        self.begun
    }

    /// The moments that the flush keeps.
    pub(super) fn epochs(&self) -> Vec<Option<Epoch>> {
        self.procedures.epochs().collect()
    }

    /// Hashes how far the flushes have come; `place` names paths, and `request` requests.
    pub(super) fn fingerprint(
        &self,
        place: impl Fn(PathId) -> Option<usize>,
        request: impl Fn(Key) -> Option<usize>,
        unit: &Unit,
        state: &mut impl Hasher,
    ) {
        let running = self.running.iter().map(|running| &running.wanted);
        for wanted in running.chain(&self.waiting) {
            let request = wanted.request.and_then(&request);
            (request, wanted.disk, wanted.not_before.is_some(), wanted.pauses).hash(state);
        }
        self.procedures.fingerprint(place, unit, state);
        let running = self.running.as_ref();
        running.map(|it| (it.attentions, it.is_answered, it.failure.is_some())).hash(state);
    }
}
