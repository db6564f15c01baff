//! The flushes of a unit: one at a time, whichever disk wants it.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::mem::discriminant;
use std::time::{Duration, Instant};

use super::output::DiskId;
use crate::commands::CommandNumber;
use crate::durability::{Epoch, Flush, LossCount};
use crate::ids::PathId;
use crate::slab::Key;
use crate::unit::Unit;

/// UNIT ATTENTIONs in a row after which a command is not sent again.
pub(super) const MAX_ATTENTIONS: u32 = 8;

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

/// How far the flush that has its turn has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// SYNCHRONIZE CACHE is in flight.
    Flushing,
    /// The unit has flushed. Commands are in flight that were sent before: a report may come with each.
    Hearing(CommandNumber),
    /// TEST UNIT READY is in flight over the path of the witness.
    Asking(PathId),
    /// The unit has answered the witness; the same for its path.
    HearingWitness(PathId, CommandNumber),
}

#[derive(Clone, Debug)]
struct Running {
    wanted: Wanted,
    flush: Flush,
    path: PathId,
    stage: Stage,
    attentions: u32,
    /// When commands that were sent before are not waited for any more.
    deadline: Option<Instant>,
}

/// The flushes that wait for their turn, and the one that has it.
#[derive(Clone, Debug, Default)]
pub(super) struct Flushes {
    waiting: VecDeque<Wanted>,
    running: Option<Running>,
    begun: u64,
}

/// What a flush wants done.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// SYNCHRONIZE CACHE over this path.
    Flush(DiskId, PathId),
    /// TEST UNIT READY over this path.
    Ask(DiskId, PathId),
    /// The flush has ended.
    End(Wanted),
}

impl Flushes {
    pub(super) fn add(&mut self, wanted: Wanted) {
        self.waiting.push_back(wanted);
    }

    /// The caller has lost interest. A flush that has its turn goes on: it might fail on the medium without a word.
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

    /// What is to be done next. `pick` chooses a path for a disk, `witness` another path than this one.
    pub(super) fn advance(
        &mut self,
        unit: &mut Unit,
        pick: impl Fn(&Unit, DiskId) -> Option<PathId>,
        witness: impl Fn(&Unit, PathId) -> Option<PathId>,
        now: Instant,
    ) -> Option<Act> {
        let Some(running) = &mut self.running else {
            for wanted in &mut self.waiting {
                wanted.not_before = wanted.not_before.filter(|at| *at > now);
            }
            let due = self.waiting.iter().enumerate().filter(|(_, it)| it.not_before.is_none());
            let (at, path) = due
                .filter_map(|(at, wanted)| Some((at, pick(unit, wanted.disk)?)))
                .next()?;
            let wanted = self.waiting.remove(at)?;
            let disk = wanted.disk;
            let flush = unit.durability.begin_flush(path);
            self.begun += 1;
            let (stage, attentions, deadline) = (Stage::Flushing, 0, None);
            self.running = Some(Running { wanted, flush, path, stage, attentions, deadline });
            return Some(Act::Flush(disk, path));
        };
        match running.stage {
            Stage::Hearing(number) if unit.have_ended_before(running.path, number) => {
                let needs = unit.durability.needs_witness(&running.flush);
                let witness = if needs { witness(unit, running.path) } else { None };
                let covers = |path: &PathId| unit.durability.covers(&running.flush, *path);
                if let Some(path) = witness.filter(covers) {
                    (running.stage, running.attentions) = (Stage::Asking(path), 0);
                    running.deadline = None;
                    return Some(Act::Ask(running.wanted.disk, path));
                }
                self.end(unit, None)
            }
            Stage::HearingWitness(path, number) if unit.have_ended_before(path, number) => {
                self.end(unit, Some(path))
            }
            Stage::Flushing
            | Stage::Asking(_)
            | Stage::Hearing(_)
            | Stage::HearingWitness(..) => None,
        }
    }

    fn end(&mut self, unit: &mut Unit, witness: Option<PathId>) -> Option<Act> {
        let Running { wanted, flush, .. } = self.running.take()?;
        unit.durability.end_flush(flush, witness);
        Some(Act::End(wanted))
    }

    /// The unit has answered the flush, or the witness, with success. `number` is the command's, `next` that of the next one
    /// of the path.
    pub(super) fn answered(
        &mut self,
        number: CommandNumber,
        next: CommandNumber,
        patience: Duration,
        now: Instant,
    ) {
        let Some(running) = &mut self.running else { return };
        running.deadline = now.checked_add(patience);
        running.stage = match running.stage {
            Stage::Flushing => Stage::Hearing(number),
            Stage::Asking(path) => Stage::HearingWitness(path, next),
            stage @ (Stage::Hearing(_) | Stage::HearingWitness(..)) => stage,
        };
    }

    /// The command has ended in a UNIT ATTENTION, or was taken back. Returns whether it is sent again.
    pub(super) fn is_sent_again(&mut self) -> bool {
        let Some(running) = &mut self.running else { return false };
        running.attentions += 1;
        running.attentions <= MAX_ATTENTIONS
    }

    /// The witness has not answered: it vouches for nothing.
    pub(super) fn witness_failed(&mut self, unit: &mut Unit) -> Option<Wanted> {
        match self.end(unit, None)? {
            Act::End(wanted) => Some(wanted),
            Act::Flush(..) | Act::Ask(..) => None,
        }
    }

    /// The unit could not write to its medium.
    pub(super) fn failed(&mut self, unit: &mut Unit) -> Option<Wanted> {
        let Running { wanted, flush, .. } = self.running.take()?;
        unit.durability.fail_flush(flush);
        Some(wanted)
    }

    /// The command has not ended well: its writes are unflushed again.
    pub(super) fn abandon(&mut self, unit: &mut Unit) -> Option<Wanted> {
        let Running { wanted, flush, .. } = self.running.take()?;
        unit.durability.abandon_flush(flush);
        Some(wanted)
    }

    /// The flush goes again, first of all, and not before this time.
    pub(super) fn retry(&mut self, wanted: Wanted) {
        if wanted.request.is_some() {
            self.waiting.push_front(wanted);
        }
    }

    /// A path was lost. Returns a flush that has ended by that.
    pub(super) fn path_lost(&mut self, unit: &mut Unit, path: PathId) -> Option<Wanted> {
        let running = self.running.as_ref()?;
        match running.stage {
            Stage::Flushing if running.path == path => {
                let wanted = self.abandon(unit)?;
                self.retry(wanted);
                None
            }
            Stage::Asking(witness) if witness == path => self.witness_failed(unit),
            _ => None,
        }
    }

    /// Whether the flush that has its turn still judges by what a path has received.
    pub(super) fn uses(&self, path: PathId) -> bool {
        self.running.as_ref().is_some_and(|running| match running.stage {
            Stage::Asking(witness) | Stage::HearingWitness(witness, _) => {
                witness == path || running.path == path
            }
            Stage::Flushing | Stage::Hearing(_) => running.path == path,
        })
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let Some(running) = &self.running else {
            return self.waiting.iter().filter_map(|wanted| wanted.not_before).min();
        };
        running.deadline
    }

    /// Commands that were sent before are not waited for any more.
    pub(super) fn handle_timeout(&mut self, unit: &mut Unit, now: Instant) {
        let Some(running) = &mut self.running else { return };
        if running.deadline.is_none_or(|at| at > now) {
            return;
        }
        running.deadline = None;
        match running.stage {
            Stage::Hearing(number) => unit.give_up_before(running.path, number),
            Stage::HearingWitness(path, number) => unit.give_up_before(path, number),
            Stage::Flushing | Stage::Asking(_) => {}
        }
    }

    /// Hashes how far the flush has come that has its turn.
    pub(super) fn fingerprint(
        &self,
        place: impl Fn(PathId) -> Option<usize>,
        unit: &Unit,
        state: &mut impl Hasher,
    ) {
        let Some(running) = &self.running else { return };
        (place(running.path), running.attentions, running.deadline.is_some()).hash(state);
        discriminant(&running.stage).hash(state);
        match running.stage {
            Stage::Flushing => {}
            Stage::Hearing(number) => unit.place(running.path, number).hash(state),
            Stage::Asking(path) => place(path).hash(state),
            Stage::HearingWitness(path, number) => {
                (place(path), unit.place(path, number)).hash(state);
            }
        }
    }

    /// The moments that the flush keeps.
    pub(super) fn epochs(&self) -> Vec<Option<Epoch>> {
        self.running.iter().flat_map(|running| running.flush.epochs()).collect()
    }

    /// How many flushes have had their turn.
    pub(super) const fn begun(&self) -> u64 {
        self.begun
    }

    /// The path and the stage of the flush that has its turn.
    pub(super) fn stage(&self) -> Option<(PathId, Stage, u32)> {
        self.running.as_ref().map(|running| (running.path, running.stage, running.attentions))
    }

    /// All that are wanted, the one that has its turn first.
    pub(super) fn wanted(&self) -> impl Iterator<Item = &Wanted> {
        self.running.iter().map(|running| &running.wanted).chain(&self.waiting)
    }
}
