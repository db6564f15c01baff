//! Evaluates the ends of commands: what each reports about the unit, and the consequences for its request or
//! flush.

use std::time::Instant;

use iscsi_pdu::scsi::{Sense, Status};
use iscsi_session::TaskError;

use super::flush::Act;
use super::output::{AttemptId, Command, DiskId, Done, Event, Output, RequestId};
use super::record::{Attempt, Progress, What};
use super::{Machine, flush};
use crate::access::Access;
use crate::flushing::{self, FlushId};
use crate::identity::Verdict;
use crate::ids::PathId;
use crate::requests::AttemptEnd;
use crate::requests::end::End;
use crate::unit::{Begun, CommandEnd, CommandFacts, GoodEnd, Unit};

/// The end of an attempt, as far as its request or flush needs it.
struct Judged<E> {
    end: End,
    access: Option<Access>,
    error: Option<E>,
    may_have_executed: bool,
    status: Option<Status>,
    sense: Option<Sense>,
}

impl<E> Judged<E> {
    const fn plain(end: End, error: Option<E>) -> Self {
        Self { end, access: None, error, may_have_executed: false, status: None, sense: None }
    }

    fn of(how: CommandEnd<'_>, error: impl FnOnce() -> E) -> Self {
        let (status, sense) = match how {
            CommandEnd::Status(status, sense) => (status, sense),
            CommandEnd::Error(why) => {
                let plain = Self::plain(End::of_failure(why), Some(error()));
                return Self { may_have_executed: may_have_executed(why), ..plain };
            }
        };
        let end = End::of(status, sense);
        if end == End::Good {
            return Self::plain(end, None);
        }
        let is_check = status == Status::CHECK_CONDITION;
        let sense = if is_check { Sense::decode(sense).ok() } else { None };
        let of_port = |sense| Access::of_refusal(sense).or_else(|| Access::suspected(sense));
        let access = sense.as_ref().and_then(of_port);
        Self { access, status: Some(status), sense, ..Self::plain(end, Some(error())) }
    }
}

/// Returns whether a command without a status may have been executed.
const fn may_have_executed(why: &TaskError) -> bool {
    matches!(
        why,
        TaskError::Aborted
            | TaskError::TimedOut
            | TaskError::TargetFailure(_)
            | TaskError::Session { sent: true, .. }
            | TaskError::ConnectionLost { sent: true, .. }
    )
}

impl<E: Clone> Machine<E> {
    /// Records the end of an attempt. An attempt that is unknown, has ended before, or was lost with its path
    /// is ignored. `error` creates the error of a failed command.
    pub fn completed(
        &mut self,
        attempt: AttemptId,
        how: CommandEnd<'_>,
        error: impl FnOnce() -> E,
        now: Instant,
    ) {
        let Some(record) = self.attempts.get(attempt).copied() else { return };
        let Progress::Sent(begun) = record.progress else { return };
        self.record_end(&record, &begun, how);
        let judged = Judged::of(how, error);
        let is_in_question = self.unit.identity.needs_revalidation(record.path);
        if judged.end != End::Good {
            self.ended(attempt, &record, judged, now);
        } else if matches!(record.what, What::Identify(_)) {
            // A successful identification ends by `identified`. An identification that ends here has no
            // result, so it is repeated.
            self.question_failed(attempt, &record, End::NoAnswer, now);
        } else if is_in_question {
            if let Some(attempt) = self.attempts.get_mut(attempt) {
                attempt.progress = Progress::Unproven(begun);
            }
            if let Some(path) = self.paths.get_mut(&record.path) {
                path.unproven.push_back(attempt);
            }
            self.end_if_elsewhere(record.path, now);
        } else {
            self.good(attempt, &record, &begun, now);
        }
        self.run(now);
    }

    /// Records the result of an identification: either the unit is the known one, or the path leads to another
    /// unit, which is final.
    pub fn identified(
        &mut self,
        attempt: AttemptId,
        verdict: Result<(), (Verdict, E)>,
        now: Instant,
    ) {
        let Some(record) = self.attempts.get(attempt).copied() else { return };
        let (Progress::Sent(begun), What::Identify(asked_at)) = (record.progress, record.what)
        else {
            return;
        };
        self.record_end(&record, &begun, CommandEnd::Status(Status::GOOD, &[]));
        self.attempts.remove(attempt);
        if let Some(path) = self.paths.get_mut(&record.path) {
            (path.question, path.unanswered) = (None, 0);
        }
        match verdict {
            Ok(()) => self.recognized(record.path, asked_at, now),
            Err((verdict, why)) => {
                if let Some(path) = self.paths.get_mut(&record.path) {
                    path.verdict = Some(why);
                }
                self.unit.identity.on_another_unit(record.path, verdict);
                self.end_if_elsewhere(record.path, now);
            }
        }
        self.run(now);
    }

    /// Records what the end of a command reports about the unit.
    fn record_end(&mut self, record: &Attempt, begun: &Begun, how: CommandEnd<'_>) {
        let synchronizes_cache = record.command == Command::Flush;
        let facts = CommandFacts { number: begun.number, synchronizes_cache, is_preempted: false };
        let effects = self.unit.end_command(record.path, facts, how);
        if let Some(attention) = effects.attention {
            self.outputs.push_back(Output::Event(Event::Attention(record.path, attention)));
        }
        if effects.has_failed_flush {
            self.outputs.push_back(Output::Event(Event::FlushFailed(record.path)));
        }
        if effects.may_be_another_unit && self.unit.identity.needs_revalidation(record.path) {
            self.outputs.push_back(Output::Withdraw(record.path));
        }
    }

    /// Records that the unit was identified over a path. `asked_at` is the number of reasons when the
    /// identification began.
    fn recognized(&mut self, path: PathId, asked_at: crate::Reasons, now: Instant) {
        self.unit.identity.on_revalidated(path, asked_at);
        if self.unit.identity.needs_revalidation(path) {
            return;
        }
        let Some(state) = self.paths.get_mut(&path) else { return };
        let (held, unproven) =
            (std::mem::take(&mut state.held), std::mem::take(&mut state.unproven));
        for id in held {
            // A read may have completed over another path meanwhile. Then the held attempt is not sent.
            let request = self.request_of(id);
            if request.is_none_or(|request| self.record(request).is_some()) {
                self.begin(id);
            } else {
                self.withdraw(id, now);
            }
        }
        for id in unproven {
            let Some(record) = self.attempts.get(id).copied() else { continue };
            if let Progress::Unproven(begun) = record.progress {
                self.good(id, &record, &begun, now);
            }
        }
    }

    /// Ends attempts that are held or unproven, if the path leads to another unit.
    pub(super) fn end_if_elsewhere(&mut self, path: PathId, now: Instant) {
        let Some(state) = self.paths.get_mut(&path) else { return };
        let Some(why) = state.verdict.clone() else { return };
        let held = std::mem::take(&mut state.held);
        let all = held.into_iter().chain(std::mem::take(&mut state.unproven));
        for id in all.collect::<Vec<_>>() {
            let Some(record) = self.attempts.get(id).copied() else { continue };
            self.ended(id, &record, Judged::plain(End::OtherUnit, Some(why.clone())), now);
        }
    }

    /// Handles a command that has ended with GOOD, when no reason is left to doubt which unit has executed
    /// it.
    fn good(&mut self, id: AttemptId, record: &Attempt, begun: &Begun, now: Instant) {
        let path = record.path;
        // A write adds nothing to flush if its other copy has ended first, or its caller was cancelled.
        let request = self.request_of(id);
        let is_wanted = request.is_some_and(|request| self.record(request).is_some());
        let means = match record.what {
            What::Request { writes: true, .. } => GoodEnd::Wrote,
            // The meaning of this GOOD is recorded when the whole flush has ended.
            What::Flush(..) if record.command == Command::Flush => GoodEnd::SaysNothing,
            What::Request { .. } | What::Flush(..) => GoodEnd::NoReset,
            What::Identify(_) => GoodEnd::SaysNothing,
        };
        let means = if is_wanted { means } else { means.if_not_awaited() };
        if !self.unit.end_with_good(path, begun, means) {
            // Another unit may have been there for a time, so the command counts as not executed.
            return self.ended(id, record, Judged::plain(End::Withdrawn, None), now);
        }
        match record.what {
            What::Request { .. } => {
                self.ended(id, record, Judged::plain(End::Good, None), now);
            }
            What::Flush(flush, question) => {
                self.attempts.remove(id);
                // Nothing orders the connections of a session: the unit may have executed commands before the
                // flush that were sent after it, and their statuses may arrive later. So the flush waits for
                // all commands that the path has sent so far.
                let end = flushing::End::Good(self.unit.next_command(path), &[]);
                self.flushes.on_end((flush, question), end, None, &mut self.unit);
            }
            What::Identify(_) => {}
        }
    }

    /// Ends an attempt after its report about the unit was recorded.
    fn ended(&mut self, id: AttemptId, record: &Attempt, judged: Judged<E>, now: Instant) {
        match record.what {
            What::Request { engine, .. } => {
                self.request_ended(id, record, engine, judged, now);
            }
            What::Flush(flush, question) => {
                self.attempts.remove(id);
                self.flush_failed(record, (flush, question), judged, now);
            }
            What::Identify(_) => self.question_failed(id, record, judged.end, now),
        }
    }

    fn request_ended(
        &mut self,
        id: AttemptId,
        record: &Attempt,
        engine: crate::requests::AttemptId,
        judged: Judged<E>,
        now: Instant,
    ) {
        let Judged { end, access, error, may_have_executed, .. } = judged;
        self.attempts.remove(id);
        let of_engine = AttemptEnd { end, access, error, may_have_executed };
        self.end_of_engine(record.disk, engine, of_engine, now);
        if let Some(range) = record.range {
            if end == End::SessionLost && may_have_executed {
                self.writes.mark_in_doubt(record.path, range);
            } else {
                self.writes.release(range);
            }
        }
    }

    /// Ends an attempt that its request does not need any more, and that is not in flight at the unit.
    pub(super) fn withdraw(&mut self, id: AttemptId, now: Instant) {
        let Some(record) = self.attempts.get(id).copied() else { return };
        if let Some(path) = self.paths.get_mut(&record.path) {
            path.held.retain(|other| *other != id);
            path.unproven.retain(|other| *other != id);
        }
        self.ended(id, &record, Judged::plain(End::Withdrawn, None), now);
    }

    fn question_failed(&mut self, id: AttemptId, record: &Attempt, end: End, now: Instant) {
        self.attempts.remove(id);
        let pauses = self.disks.get(&record.disk).map(|disk| disk.pauses);
        let Some(path) = self.paths.get_mut(&record.path) else { return };
        path.question = None;
        path.unanswered += 1;
        // After a unit attention the identification is repeated immediately, but a limited number of times.
        if !matches!(end, End::Attention | End::Withdrawn)
            || path.unanswered > flush::MAX_ATTENTIONS
        {
            let pause = pauses.map(|pauses| pauses.after(path.unanswered).next());
            path.ask_at = pause.and_then(|pause| now.checked_add(pause));
        }
    }

    /// Handles a command of a flush that has failed.
    fn flush_failed(
        &mut self,
        record: &Attempt,
        (flush, question): (FlushId, flushing::Question),
        judged: Judged<E>,
        now: Instant,
    ) {
        let is_again = matches!(judged.end, End::Attention | End::Withdrawn);
        if is_again && self.flushes.is_sent_again(flush) {
            self.send(record.disk, record.path, record.what, record.command, None);
            return self.end_if_elsewhere(record.path, now);
        }
        let Judged { end, access, error, may_have_executed, status, sense } = judged;
        let failure = Some(AttemptEnd { end, access, error, may_have_executed });
        let end = match (&sense, status) {
            (Some(sense), _) => flushing::End::Check(sense),
            (None, Some(status)) => flushing::End::Status(status),
            (None, None) => flushing::End::NoAnswer,
        };
        self.flushes.on_end((flush, question), end, failure, &mut self.unit);
    }

    /// Completes the request of a flush, after the result was recorded in `Unit::durability`.
    pub(super) fn flushed(&mut self, request: RequestId) {
        let Some(record) = self.record(request).copied() else { return };
        let losses = self.unit.durability.report_losses();
        if let Some(disk) = self.disks.get_mut(&request.disk) {
            disk.seen = disk.seen.max(losses);
        }
        let is_lost = losses > record.seen;
        self.complete(request, Ok(if is_lost { Done::LostWrites } else { Done::Flushed }));
    }

    /// Handles the next action of the flushes; returns `false` if there is none.
    pub(super) fn advance_flush(&mut self, now: Instant) -> bool {
        let paths = &self.paths;
        let witness = |unit: &Unit, flushing: PathId| {
            let others = paths.keys().filter(|path| **path != flushing);
            others.min_by_key(|path| unit.durability.witness_rank(**path)).copied()
        };
        let Some(act) = self.flushes.advance(&mut self.unit, witness, now) else {
            return false;
        };
        match act {
            // The witness was lost before the command was repeated, so the command cannot be sent.
            Act::Ask(_, flush, question) if !self.paths.contains_key(&question.path) => {
                let end = flushing::End::NoAnswer;
                self.flushes.on_end((flush, question), end, None, &mut self.unit);
            }
            Act::Ask(disk, flush, question) => {
                let command = match question.command {
                    flushing::Command::SynchronizeCache => Command::Flush,
                    flushing::Command::TestUnitReady => Command::Ready,
                    flushing::Command::ModeSense => Command::ModeSense,
                };
                self.send(disk, question.path, What::Flush(flush, question), command, None);
                self.end_if_elsewhere(question.path, now);
            }
            Act::End(disk, attempt, failure) => {
                let Judged { end, access, error, may_have_executed, .. } =
                    Judged::plain(End::Good, None);
                let good = AttemptEnd { end, access, error, may_have_executed };
                self.end_of_engine(disk, attempt, failure.unwrap_or(good), now);
            }
            Act::Nothing => {}
        }
        true
    }

    /// Returns the path of the disk over which to flush the writes of all paths. Paths that take requests come
    /// first, then those that respond, then those whose ports serve the unit. Among these, the order of
    /// preference is: a path that joined before the oldest unflushed write; a path that has neither received
    /// nor missed a report of a reset since; a path over which the unit has refused no request just now; a
    /// path that has received the report of the last reset, because the unit reports it to each path; the best
    /// port; the fewest bytes in flight.
    pub(super) fn flush_path(&self, disk: DiskId, now: Instant) -> Option<PathId> {
        let selector = self.disks.get(&disk)?.requests.paths();
        let own = self.paths.iter().filter(|(_, path)| path.disk == disk && path.verdict.is_none());
        let rank = |id: &PathId| {
            let (id, access) = (*id, selector.access(*id));
            let rank = self.unit.durability.flush_rank(id);
            (
                selector.is_closing(id) || selector.is_alone(id),
                selector.is_silent(id, now),
                !access.is_some_and(Access::serves),
                !rank.is_witness,
                rank.may_know_reset,
                selector.is_held_up(id, now),
                rank.last_reset,
                access.map(Access::priority),
                selector.in_flight(id),
            )
        };
        own.map(|(id, _)| *id).min_by_key(rank)
    }

    /// Returns whether a flush has a status and waits for commands that were sent before it.
    pub fn awaits_commands(&self) -> bool {
        self.flushes.is_answered()
    }

    /// Returns the number of flushes that have begun. Each covers the writes that had completed by then.
    pub const fn flushes_begun(&self) -> u64 {
        self.flushes.begun()
    }

    /// Returns the request of an attempt, if it has one.
    pub fn request_of(&self, attempt: AttemptId) -> Option<RequestId> {
        match self.attempts.get(attempt)?.command {
            Command::Request { request, .. } => Some(request),
            Command::Flush | Command::Ready | Command::ModeSense | Command::Identify => None,
        }
    }
}
