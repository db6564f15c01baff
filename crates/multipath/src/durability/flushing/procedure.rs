//! Runs one flush: its commands to the unit, and the consequences of each result.

use std::hash::{Hash, Hasher};
use std::mem::discriminant;
use std::time::{Duration, Instant};

use iscsi_pdu::scsi::{AdditionalSense, ModeParameters, Sense, SenseKey, Status};

use super::step::{Command, End, Failure, FlushOwner, Question, Step, Terms};
use crate::durability::{Durability, Epoch, Flush};
use crate::unit::{Unit, is_write_failure};
use crate::{CommandNumber, PathId};

/// Time without a status of SYNCHRONIZE CACHE after which TEST UNIT READY is sent. It is longer than the time
/// for which a target may leave a NOP-Out unanswered. Each command delays the end of that time, so more
/// frequent commands would keep a dead session open.
const ASK_AFTER: Duration = Duration::from_secs(60);
/// Pause before a witness that has refused TEST UNIT READY is polled again.
const WITNESS_PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of witnesses that one flush polls, one after the other.
const MAX_WITNESSES: u32 = 8;

#[derive(Clone, Debug)]
pub(super) struct Procedure {
    owner: FlushOwner,
    path: PathId,
    terms: Terms,
    stage: Stage,
    /// Number of commands of this flush so far.
    questions: u32,
    /// Number of witnesses that were chosen so far.
    witnesses: u32,
}

#[derive(Clone, Debug)]
enum Stage {
    /// The flush waits for its turn.
    Waiting,
    InProgress(Flush, Progress),
    Done(Result<(), Failure>),
}

#[derive(Clone, Copy, Debug)]
enum Progress {
    Flushing(Flushing),
    /// The unit has refused SYNCHRONIZE CACHE, the command `refused`, and MODE SENSE queries whether the unit
    /// has a cache now.
    AskingCache {
        question: Asked,
        refused: u32,
    },
    AwaitingCommands(CommandWait),
    ChoosingWitness {
        is_asked: bool,
        /// The previous witness, which did not show that there was no reset; `None` before the first one.
        before: Option<PathId>,
    },
    AskingWitness {
        witness: PathId,
        asking: Asking,
    },
    AwaitingWitness(CommandWait),
}

/// SYNCHRONIZE CACHE is in flight.
#[derive(Clone, Copy, Debug)]
struct Flushing {
    question: Asked,
    /// When TEST UNIT READY is sent next; `None` if that exceeds the range of the clock.
    ask_at: Option<Instant>,
    /// The number of the TEST UNIT READY that is in flight, if there is one.
    ready: Option<u32>,
}

/// A command of the flush. It gets its number when it is returned to the caller.
#[derive(Clone, Copy, Debug, Default)]
struct Asked(Option<u32>);

/// TEST UNIT READY to a witness. While the unit refuses it for a temporary reason, it is repeated, because
/// such a refusal does not show which reports the session has received.
#[derive(Clone, Copy, Debug, Default)]
struct Asking {
    question: Asked,
    /// Number of times that the unit has refused TEST UNIT READY.
    refusals: u32,
    /// When TEST UNIT READY is sent again; `None` until the next poll after a refusal.
    ask_at: Option<Instant>,
}

/// The wait for the commands of a path that were sent before `number`.
#[derive(Clone, Copy, Debug)]
struct CommandWait {
    path: PathId,
    number: CommandNumber,
    /// When the flush stops waiting for the commands; `None` before the first poll, or without a limit.
    until: Option<Instant>,
    is_limited: bool,
}

/// Consequence of the end of the command of a stage.
enum Next {
    AwaitCommands(CommandNumber),
    /// The unit has refused SYNCHRONIZE CACHE, the command `refused`.
    AskCache {
        refused: u32,
    },
    /// All data are on the medium, as far as the unit and the path know.
    Flushed,
    /// The command with this number has failed with sense data that report a failed write to the medium.
    Lost(u32),
    /// The flush has failed, because the command with this number has failed.
    Failed(u32),
    /// No other session has received the reports of all resets since the oldest write.
    NoWitness,
    /// Choose another witness: the session of this witness is lost, or its response does not show whether
    /// there was a reset.
    AnotherWitness(PathId),
    AwaitWitness(PathId),
    /// The witness has refused TEST UNIT READY for a temporary reason.
    AskWitnessAgain(PathId, Asking),
}

impl Procedure {
    pub(super) const fn new(owner: FlushOwner, path: PathId, terms: Terms) -> Self {
        Self { owner, path, terms, stage: Stage::Waiting, questions: 0, witnesses: 0 }
    }

    pub(super) const fn owner(&self) -> FlushOwner {
        self.owner
    }

    pub(super) const fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Waiting)
    }

    pub(super) const fn is_in_progress(&self) -> bool {
        matches!(self.stage, Stage::InProgress(..))
    }

    /// Returns whether the flush is in progress and SYNCHRONIZE CACHE has no status yet.
    pub(super) const fn is_unanswered(&self) -> bool {
        matches!(self.stage, Stage::InProgress(_, Progress::Flushing(_)))
    }

    pub(super) fn needs_path(&self, path: PathId) -> bool {
        let Stage::InProgress(_, progress) = &self.stage else { return false };
        path == self.path || progress.witness() == Some(path)
    }

    pub(super) fn epochs(&self) -> [Option<Epoch>; 2] {
        match &self.stage {
            Stage::InProgress(flush, _) => flush.epochs(),
            Stage::Waiting | Stage::Done(_) => [None; 2],
        }
    }

    pub(super) fn fingerprint(
        &self,
        place: impl Fn(PathId) -> Option<usize>,
        unit: &Unit,
        state: &mut impl Hasher,
    ) {
        (self.owner, place(self.path), discriminant(&self.stage)).hash(state);
        let Stage::InProgress(_, progress) = &self.stage else { return };
        discriminant(progress).hash(state);
        let asked = |asked: &Asked| asked.0.map(|number| self.questions - number);
        match progress {
            Progress::Flushing(Flushing { question, ask_at, ready }) => {
                (asked(question), ask_at.is_some(), ready.map(|it| self.questions - it))
                    .hash(state);
            }
            Progress::AskingCache { question, refused } => {
                (asked(question), self.questions - refused).hash(state);
            }
            Progress::AwaitingCommands(wait) | Progress::AwaitingWitness(wait) => {
                let CommandWait { path, number, is_limited, .. } = *wait;
                (place(path), unit.place(path, number), is_limited).hash(state);
            }
            Progress::ChoosingWitness { is_asked, before } => {
                (is_asked, before.map(&place), self.witnesses).hash(state);
            }
            Progress::AskingWitness { witness, asking } => {
                let has_paused = asking.refusals > 0;
                let question = asked(&asking.question);
                (place(*witness), question, has_paused, asking.ask_at.is_some()).hash(state);
                self.witnesses.hash(state);
            }
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let Stage::InProgress(_, progress) = &self.stage else { return None };
        match progress {
            Progress::Flushing(flushing) if flushing.ready.is_none() => flushing.ask_at,
            Progress::AwaitingCommands(wait) | Progress::AwaitingWitness(wait) => wait.until,
            Progress::AskingWitness { asking, .. } => asking.ask_at,
            Progress::Flushing(_)
            | Progress::AskingCache { .. }
            | Progress::ChoosingWitness { .. } => None,
        }
    }

    /// Begins the flush, in its turn.
    pub(super) fn begin(&mut self, unit: &mut Unit, now: Instant) {
        let flush = unit.durability.begin_flush(self.path);
        let ask_at = now.checked_add(ASK_AFTER);
        let flushing = Flushing { question: Asked::default(), ask_at, ready: None };
        self.stage = Stage::InProgress(flush, Progress::Flushing(flushing));
    }

    pub(super) fn poll(&mut self, unit: &mut Unit, now: Instant) -> Step {
        self.end_command_wait(unit, now);
        let number = self.questions;
        let progress = match &mut self.stage {
            Stage::Waiting => return Step::Wait,
            Stage::Done(result) => return Step::Done(*result),
            Stage::InProgress(_, progress) => progress,
        };
        let next = match progress {
            Progress::Flushing(flushing) => {
                flushing.next(number, now).map(|command| (self.path, command))
            }
            Progress::AskingCache { question, .. } => {
                question.give_out(number).then_some((self.path, Command::ModeSense))
            }
            Progress::AskingWitness { witness, asking } => {
                asking.give_out(number, now).then_some((*witness, Command::TestUnitReady))
            }
            Progress::ChoosingWitness { is_asked, .. } => {
                let is_first = !std::mem::replace(is_asked, true);
                return if is_first { Step::ChooseWitness } else { Step::Wait };
            }
            Progress::AwaitingCommands(wait) | Progress::AwaitingWitness(wait) => {
                return Step::AwaitCommands(wait.path, wait.number);
            }
        };
        let Some((path, command)) = next else { return Step::Wait };
        self.questions = number.saturating_add(1);
        Step::Ask(Question { number, path, command })
    }

    pub(super) fn on_end(&mut self, number: u32, end: End<'_>, unit: &mut Unit) {
        let Stage::InProgress(_, progress) = &mut self.stage else { return };
        let next = match progress {
            Progress::Flushing(flushing) if flushing.ready == Some(number) => {
                flushing.ready = None;
                return;
            }
            Progress::Flushing(Flushing { question, .. }) if question.is(number) => {
                let had_cache = self.terms.write_cache != Some(false);
                flushed(number, end, had_cache || unit.durability.has_cache())
            }
            Progress::AskingCache { question, refused } if question.is(number) => {
                asked_cache(self.terms.write_cache, end, *refused, number)
            }
            Progress::AskingWitness { witness, asking } if asking.question.is(number) => {
                asked_witness(*witness, *asking, end, self.terms.retry_timeout)
            }
            // No stage waits for the end of this command any more.
            Progress::Flushing(_)
            | Progress::AskingCache { .. }
            | Progress::AskingWitness { .. }
            | Progress::ChoosingWitness { .. }
            | Progress::AwaitingCommands(_)
            | Progress::AwaitingWitness(_) => return,
        };
        self.go_on(next, unit);
    }

    pub(super) fn on_witness(&mut self, witness: Option<PathId>, unit: &mut Unit) {
        let Stage::InProgress(flush, progress) = &mut self.stage else { return };
        let Progress::ChoosingWitness { is_asked: true, before } = *progress else { return };
        let is_new = |path: &PathId| Some(*path) != before && self.witnesses < MAX_WITNESSES;
        match witness.filter(is_new).filter(|path| unit.durability.covers(flush, *path)) {
            Some(witness) => {
                self.witnesses += 1;
                *progress = Progress::AskingWitness { witness, asking: Asking::default() };
            }
            None => self.go_on(Next::NoWitness, unit),
        }
    }

    /// Ends a flush that cannot be run any more.
    pub(super) fn abandon(&mut self, unit: &mut Unit) {
        let stage = std::mem::replace(&mut self.stage, Stage::Done(Err(Failure::GivenUp)));
        if let Stage::InProgress(flush, _) = stage {
            unit.durability.abandon_flush(flush);
        }
    }

    /// Ends the wait for earlier commands, if they have ended or the time limit is over.
    fn end_command_wait(&mut self, unit: &mut Unit, now: Instant) {
        let Stage::InProgress(_, progress) = &mut self.stage else { return };
        let witness = progress.witness();
        let (Progress::AwaitingCommands(wait) | Progress::AwaitingWitness(wait)) = progress else {
            return;
        };
        if !wait.is_over(self.terms.retry_timeout, unit, now) {
            return;
        }
        match witness {
            Some(witness) => self.end(Some(witness), unit),
            None => self.go_on(Next::Flushed, unit),
        }
    }

    fn go_on(&mut self, next: Next, unit: &mut Unit) {
        let Stage::InProgress(flush, progress) = &mut self.stage else { return };
        let question = Asked::default();
        match next {
            Next::AwaitCommands(number) => {
                *progress = Progress::AwaitingCommands(CommandWait::new(self.path, number))
            }
            Next::AwaitWitness(path) => {
                let wait = CommandWait::new(path, unit.next_command(path));
                *progress = Progress::AwaitingWitness(wait);
            }
            Next::AskWitnessAgain(witness, asking) => {
                *progress = Progress::AskingWitness { witness, asking };
            }
            Next::AskCache { refused } => *progress = Progress::AskingCache { question, refused },
            Next::Flushed if unit.durability.needs_witness(flush) => {
                *progress = Progress::ChoosingWitness { is_asked: false, before: None };
            }
            Next::AnotherWitness(before) => {
                *progress = Progress::ChoosingWitness { is_asked: false, before: Some(before) };
            }
            Next::Flushed | Next::NoWitness => self.end(None, unit),
            Next::Lost(question) => self.fail(question, Durability::fail_flush, unit),
            Next::Failed(question) => self.fail(question, Durability::abandon_flush, unit),
        }
    }

    fn end(&mut self, witness: Option<PathId>, unit: &mut Unit) {
        if let Stage::InProgress(flush, _) = std::mem::replace(&mut self.stage, Stage::Done(Ok(())))
        {
            unit.durability.end_flush(flush, witness);
        }
    }

    fn fail(&mut self, question: u32, end: fn(&mut Durability, Flush), unit: &mut Unit) {
        let failed = Stage::Done(Err(Failure::Question(question)));
        if let Stage::InProgress(flush, _) = std::mem::replace(&mut self.stage, failed) {
            end(&mut unit.durability, flush);
        }
    }
}

/// Evaluates the end of SYNCHRONIZE CACHE. `may_have_cache` is whether the unit had a cache, or may have one
/// now.
fn flushed(number: u32, end: End<'_>, may_have_cache: bool) -> Next {
    let sense = match end {
        End::Good(command, _) => return Next::AwaitCommands(command),
        End::Check(sense) => sense,
        End::Status(_) | End::NoAnswer => return Next::Failed(number),
    };
    if is_unsupported(sense) {
        return if may_have_cache { Next::AskCache { refused: number } } else { Next::Flushed };
    }
    if is_write_failure(sense.key) { Next::Lost(number) } else { Next::Failed(number) }
}

/// Evaluates the response to MODE SENSE of a unit that has refused the flush. `before` is whether the unit
/// reported a cache earlier; `None` if it did not report this.
fn asked_cache(before: Option<bool>, end: End<'_>, refused: u32, number: u32) -> Next {
    let now = match end {
        End::Good(_, data) => {
            ModeParameters::decode_6(data).ok().and_then(|mode| mode.write_cache_enabled())
        }
        End::Check(_) | End::Status(_) => None,
        End::NoAnswer => return Next::Failed(number),
    };
    if matches!((before, now), (_, Some(false)) | (None, None)) {
        tracing::debug!("the unit has no cache to flush");
        return Next::Flushed;
    }
    Next::Failed(refused)
}

/// Evaluates the response of a witness: whether the witness has received the reports of all resets so far.
fn asked_witness(witness: PathId, asking: Asking, end: End<'_>, limit: Duration) -> Next {
    let passes = match end {
        End::Good(..) => return Next::AwaitWitness(witness),
        // A port that does not serve the unit still reports resets.
        End::Check(sense) if sense.key == SenseKey::NotReady && !sense.deferred => {
            return Next::AwaitWitness(witness);
        }
        End::Check(sense) => sense.key == SenseKey::AbortedCommand && !sense.deferred,
        End::Status(status) => matches!(status, Status::BUSY | Status::TASK_SET_FULL),
        End::NoAnswer => false,
    };
    if !passes {
        return Next::AnotherWitness(witness);
    }
    let refusals = asking.refusals.saturating_add(1);
    if WITNESS_PAUSE.saturating_mul(refusals) < limit {
        Next::AskWitnessAgain(witness, Asking { refusals, ..Asking::default() })
    } else {
        Next::NoWitness
    }
}

impl Progress {
    const fn witness(&self) -> Option<PathId> {
        match self {
            Self::AskingWitness { witness, .. } => Some(*witness),
            Self::AwaitingWitness(wait) => Some(wait.path),
            Self::Flushing(_)
            | Self::AskingCache { .. }
            | Self::ChoosingWitness { .. }
            | Self::AwaitingCommands(_) => None,
        }
    }
}

impl Flushing {
    /// Returns the next command, if there is one, and gives it this number.
    fn next(&mut self, number: u32, now: Instant) -> Option<Command> {
        if self.question.give_out(number) {
            return Some(Command::SynchronizeCache);
        }
        if self.ready.is_some() || self.ask_at.is_none_or(|at| now < at) {
            return None;
        }
        self.ask_at = now.checked_add(ASK_AFTER);
        self.ready = Some(number);
        Some(Command::TestUnitReady)
    }
}

impl Asking {
    /// Returns whether TEST UNIT READY is sent now, with this number.
    fn give_out(&mut self, number: u32, now: Instant) -> bool {
        if self.question.0.is_some() {
            return false;
        }
        if self.refusals > 0 {
            self.ask_at = self.ask_at.or_else(|| now.checked_add(WITNESS_PAUSE));
            if self.ask_at.is_some_and(|at| now < at) {
                return false;
            }
            self.ask_at = None;
        }
        self.question.give_out(number)
    }
}

impl Asked {
    /// Returns whether the command is sent now, with this number.
    const fn give_out(&mut self, number: u32) -> bool {
        let is_first = self.0.is_none();
        if is_first {
            self.0 = Some(number);
        }
        is_first
    }

    fn is(self, number: u32) -> bool {
        self.0 == Some(number)
    }
}

impl CommandWait {
    const fn new(path: PathId, number: CommandNumber) -> Self {
        Self { path, number, until: None, is_limited: false }
    }

    /// Returns whether all commands have ended or are given up. The first call starts the time limit.
    fn is_over(&mut self, limit: Duration, unit: &mut Unit, now: Instant) -> bool {
        if unit.have_ended_before(self.path, self.number) {
            return true;
        }
        if !std::mem::replace(&mut self.is_limited, true) {
            self.until = now.checked_add(limit);
        }
        let is_late = self.until.is_some_and(|until| now >= until);
        if is_late {
            unit.give_up_before(self.path, self.number);
        }
        is_late
    }
}

/// Returns whether the unit does not support the command, or a field of it. A unit that was removed also
/// refuses the command, but with other sense data.
fn is_unsupported(sense: &Sense) -> bool {
    let unsupported =
        [AdditionalSense::INVALID_COMMAND_OPERATION_CODE, AdditionalSense::INVALID_FIELD_IN_CDB];
    sense.key == SenseKey::IllegalRequest && unsupported.contains(&sense.additional)
}
