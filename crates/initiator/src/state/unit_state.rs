//! Holds the state that all handles of one logical unit within a session share.

use std::sync::{Arc, OnceLock};

use bytes::BytesMut;
use iscsi_multipath::requests::end::End;
use iscsi_multipath::{
    Begun, Capacity, CommandEnd, CommandFacts, CommandNumber, Effects, GoodEnd, KnownUnit, PathId,
    Profile, Reasons, Resized, SharedReasons, SizeQuestion, Unit,
};
use iscsi_pdu::scsi::{AdditionalSense, Lun, Operation};
use iscsi_session::{Completion, TaskError};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::completion::{attention_of, failure_of, sense_of};
use crate::error::{Error, UnitCause};
use crate::state::attempt::{AttemptReport, Ended};
use crate::state::fencing::Membership;
use crate::state::outstanding::Outstanding;
use crate::state::revalidating::Revalidating;
use crate::state::unit_flushes::UnitFlushes;
use crate::state::unit_lock::{UnitGuard, UnitLock};

/// The part of one session in what is known of a unit: its path, and the tasks that wait for it.
#[derive(Debug)]
pub(crate) struct UnitState {
    path: PathId,
    known: Arc<UnitLock>,
    outstanding: Outstanding,
    /// The flushes of all disks of the initiator with this unit, once the unit is identified.
    flushes: OnceLock<Arc<UnitFlushes>>,
    revalidating: Arc<Revalidating>,
    pub(crate) membership: Membership,
    pub(crate) profile: OnceCell<Arc<Profile>>,
}

impl Default for UnitState {
    fn default() -> Self {
        let known = Arc::default();
        Self {
            path: Unit::FIRST_PATH,
            revalidating: Arc::new(Revalidating::new(&known)),
            known,
            outstanding: Outstanding::default(),
            flushes: OnceLock::new(),
            membership: Membership::default(),
            profile: OnceCell::default(),
        }
    }
}

impl UnitState {
    /// Returns the session's path to the unit.
    pub(crate) const fn path(&self) -> PathId {
        self.path
    }

    /// Returns what the sessions of the disk know of the unit.
    pub(crate) const fn known(&self) -> &Arc<UnitLock> {
        &self.known
    }

    pub(crate) fn lock(&self) -> UnitGuard<'_> {
        self.known.lock()
    }

    /// Returns the callers that wait until the unit of the session is confirmed.
    pub(crate) const fn revalidating(&self) -> &Arc<Revalidating> {
        &self.revalidating
    }

    /// Returns the number of the next command. All commands that were sent so far have lower numbers.
    pub(crate) fn next_command(&self) -> CommandNumber {
        self.lock().next_command(self.path)
    }

    /// Waits until all commands that were sent before command `number` have ended.
    pub(crate) async fn ended_before(&self, number: CommandNumber) {
        let have_ended = || self.lock().have_ended_before(self.path, number);
        self.outstanding.wait(have_ended).await;
    }

    /// Wakes the tasks that wait for commands, because some commands were given up.
    pub(crate) fn notify_given_up(&self) {
        self.outstanding.notify();
    }

    /// Records that a command has changed blocks, although it has failed.
    pub(crate) fn wrote(&self, begun: &Begun) {
        self.lock().durability.on_write(self.path, begun.epoch);
    }

    /// Ends a command with status GOOD, when no reason is left to confirm the unit that has executed it.
    /// Returns whether that was the known unit.
    pub(crate) fn end_with_good(&self, begun: &Begun, means: GoodEnd) -> bool {
        self.lock().end_with_good(self.path, begun, means)
    }

    /// Stores the properties that the unit has reported.
    pub(crate) fn on_known(&self, profile: &Profile) {
        let capacity = profile.capacity.bytes();
        let known = KnownUnit { is_removable: profile.removable, capacity };
        self.lock().identity.on_known(known);
    }

    /// Returns whether the unit was known, and must be confirmed before any other command is sent.
    pub(crate) fn needs_revalidation(&self) -> bool {
        self.known.may_need_revalidation() && self.lock().identity.needs_revalidation(self.path)
    }

    /// Adds a reason to confirm the unit over this session.
    pub(crate) fn add_reason(&self) {
        self.lock().identity.add_reason(self.path);
    }

    /// Returns the reasons so far to confirm the unit over this session.
    pub(crate) fn reasons(&self) -> Reasons {
        self.lock().identity.reasons(self.path)
    }

    /// Records that the unit was confirmed. `asked_at` are the reasons that were known when the check began.
    pub(crate) fn recognized(&self, asked_at: Reasons) {
        self.lock().identity.on_revalidated(self.path, asked_at);
    }

    /// Begins a query of the capacity, whose command is about to be sent.
    pub(crate) fn ask_size(&self) -> SizeQuestion {
        self.lock().identity.ask_size()
    }

    /// Handles the capacity that a confirmed unit has reported.
    pub(crate) fn on_size(&self, question: SizeQuestion, found: &Capacity) {
        let resized = self.lock().identity.on_size(question, found.bytes());
        if let Some(resized) = resized {
            self.report_resized(resized);
        }
    }

    /// Publishes a new capacity to subscribers.
    pub(crate) fn report_resized(&self, Resized { before, now }: Resized) {
        tracing::info!(before, now, "the unit has another capacity, bytes");
        self.known.events.resized(before, now);
    }

    /// Returns the flushes of all disks with this unit, which take turns and whose failures concern all these
    /// disks. The first call finds them with `find`.
    pub(crate) fn flushes_or(&self, find: impl FnOnce() -> Arc<UnitFlushes>) -> &Arc<UnitFlushes> {
        self.flushes.get_or_init(|| {
            let flushes = find();
            flushes.add(&self.known);
            flushes
        })
    }

    /// Returns whether another disk of the initiator has the same unit.
    pub(crate) fn is_unit_of_another_disk(&self) -> bool {
        self.flushes.get().is_some_and(|flushes| flushes.are_shared())
    }

    /// Returns the error of a command that has failed. If the unit existed before and has vanished, the error
    /// says so.
    pub(crate) fn failure_of(
        &self,
        lun: Lun,
        command: &'static str,
        completion: &Completion,
    ) -> Error {
        let error = failure_of(command, completion);
        let is_gone = is_no_unit(&error) && self.profile.initialized();
        if is_gone { Error::from(UnitCause::UnitGone(lun)) } else { error }
    }

    /// Takes over the reports that the unit has sent to `asked` while it was being confirmed. The unit does
    /// not repeat these reports.
    pub(crate) fn merge(&self, asked: &Self) {
        let reported = asked.lock().reported(asked.path);
        self.lock().merge(self.path, reported);
    }

    /// Creates the state of a further session, over which the unit has reported this profile. The unit itself
    /// reports resets to each session. `asked_at` are the reasons to confirm the unit that were known before
    /// the unit was queried over that session.
    pub(crate) fn shared_with_another_session(
        &self,
        profile: &Profile,
        asked_at: SharedReasons,
    ) -> Self {
        // The write cache may have been switched on after the unit was first queried, so that a reset can
        // lose writes.
        if profile.write_cache != Some(false) {
            self.lock().durability.on_cache();
        }
        self.further_path(asked_at)
    }

    /// Creates the state of a further path to the unit.
    pub(crate) fn further_path(&self, asked_at: SharedReasons) -> Self {
        let path = self.lock().add_path(asked_at);
        Self {
            path,
            known: Arc::clone(&self.known),
            outstanding: Outstanding::default(),
            flushes: self.flushes.clone(),
            revalidating: Arc::new(Revalidating::new(&self.known)),
            membership: self.membership.follow(),
            profile: self.profile.clone(),
        }
    }
}

/// Returns whether the error says that the unit does not exist.
fn is_no_unit(error: &Error) -> bool {
    let code = AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED;
    let of_this_command = error.sense().filter(|sense| !sense.deferred);
    of_this_command.is_some_and(|sense| sense.additional == code)
}

impl Drop for UnitState {
    fn drop(&mut self) {
        self.known.leave(self.path);
    }
}

/// Rules by which the end of a command is judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandTerms {
    /// Whether the command is SYNCHRONIZE CACHE.
    pub(crate) synchronizes_cache: bool,
    /// Whether the known unit must execute the command. While the unit may be another one, the command is not
    /// sent, and a GOOD status for it does not count.
    pub(crate) is_for_known_unit: bool,
    /// Whether GOOD counts only after all earlier reports of the unit, over all connections, have been
    /// received.
    pub(crate) wants_proof: bool,
    /// Meaning for durability if the known unit has ended the command with GOOD.
    pub(crate) good: GoodEnd,
}

/// Which unit has executed a command that has ended with GOOD.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ExecutedBy {
    /// The known unit has executed the command. The consequences for durability are recorded.
    KnownUnit,
    /// Another unit may have executed the command, so its result means nothing.
    AnotherUnit,
    /// Unknown: the unit must be confirmed. No consequence is recorded.
    Unknown,
}

/// The end of a command, as judged for its unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judged {
    /// State of the unit when the command began.
    pub(crate) begun: Begun,
    pub(crate) executed_by: ExecutedBy,
    /// Whether unsent commands must be taken back, because the unit may have been replaced by another one.
    pub(crate) may_be_another_unit: bool,
}

/// A command, until its status is known or it is known that no status will arrive. If it is dropped before it
/// has ended, the command was never sent, or was lost with its session.
#[derive(Debug)]
pub(crate) struct Listener {
    unit: Arc<UnitState>,
    terms: CommandTerms,
    /// State of the unit when the command was handed to the session; `None` before, and after its end.
    begun: Option<Begun>,
    /// Report for an attempt of a disk's request; `None` after the report was made.
    report: Option<AttemptReport>,
}

/// Conclusions from the end of a command: what it shows of the unit, and which unit has executed it.
struct Judgement {
    effects: Effects,
    executed_by: ExecutedBy,
}

impl Listener {
    pub(crate) const fn new(unit: Arc<UnitState>, terms: CommandTerms) -> Self {
        Self { unit, terms, begun: None, report: None }
    }

    /// Sets the report of a command that is an attempt of a disk's request.
    pub(crate) fn reporting(mut self, report: AttemptReport) -> Self {
        self.report = Some(report);
        self
    }

    /// Returns whether the command is an attempt of a disk's request, its path has completed nothing for long, and
    /// the disk has answers over another portal.
    pub(crate) fn others_answer(&self) -> bool {
        self.report.as_ref().is_some_and(AttemptReport::others_answer)
    }

    /// Begins the command, which is handed to the session at this moment. Commands of one unit must be sent
    /// in the order in which they begin.
    pub(crate) fn begin(&mut self) {
        self.begun = Some(self.unit.known.begin_command(self.unit.path));
    }

    /// Removes a command that was taken back before it was sent: the unit never received it.
    pub(crate) fn was_not_sent(&mut self) {
        if let Some(begun) = self.begun.take() {
            self.unit.lock().forget(self.unit.path, begun.number);
        }
    }

    /// Handles the end of a command. `is_abandoned` is whether its caller has given up the command. Returns
    /// `None` if the command had not begun.
    pub(crate) fn ended(
        &mut self,
        result: &Result<Completion, TaskError>,
        is_abandoned: bool,
    ) -> Option<Judged> {
        let begun = self.begun.take()?;
        let is_preempted = self.is_preempted(result);
        let Judgement { effects, executed_by } = {
            let mut known = self.unit.lock();
            self.judge(&mut known, &begun, result, (is_preempted, !is_abandoned))
        };
        self.publish(effects);
        Some(Judged { begun, executed_by, may_be_another_unit: effects.may_be_another_unit })
    }

    /// Handles the end of an attempt's command. The state of the unit and the end of the attempt change under
    /// one lock, so that no other task sees one change without the other. Returns whether the unit may be
    /// another one after this command.
    pub(crate) fn attempt_ended(
        &mut self,
        operation: Operation,
        result: Result<Completion, TaskError>,
        explain: impl FnOnce(TaskError) -> Error,
        now: Instant,
    ) -> bool {
        let Some(report) = self.report.take() else { return false };
        let Some(requester) = report.requester.upgrade() else {
            return self.ended(&result, true).is_some_and(|judged| judged.may_be_another_unit);
        };
        let (begun, is_preempted) = (self.begun.take(), self.is_preempted(&result));
        let error = match &result {
            Ok(completion) if completion.is_success() => None,
            Ok(completion) => Some(self.unit.failure_of(report.lun, operation.name(), completion)),
            Err(why) => Some(explain(why.clone())),
        };
        let mut known = self.unit.lock();
        let is_awaited = requester.is_awaited(&known, report.attempted.attempt);
        let judgement =
            begun.map(|begun| self.judge(&mut known, &begun, &result, (is_preempted, is_awaited)));
        let executed_by = judgement.as_ref().map(|it| it.executed_by);
        let ended = match (error, result, begun) {
            (Some(error), result, _) => {
                let completion = result.ok();
                let is_unknown = |it: &Completion| End::of_completion(it) == End::UnknownCommand;
                if completion.as_ref().is_some_and(is_unknown) {
                    known.identity.unknown_commands.add(operation.code());
                    tracing::debug!(command = operation.name(), "the unit does not know this form");
                }
                Ended::Failed(error, completion.map(|it| it.data).unwrap_or_default())
            }
            (None, Ok(completion), Some(begun)) => {
                if let Some(sense) = sense_of(&completion) {
                    tracing::debug!(
                        command = operation.name(),
                        "the unit succeeded with effort: {sense}"
                    );
                }
                match executed_by {
                    Some(ExecutedBy::KnownUnit) => Ended::Good(completion),
                    Some(ExecutedBy::Unknown) => Ended::Unproven(begun, Box::new(completion)),
                    Some(ExecutedBy::AnotherUnit) | None => Ended::AnotherUnit(completion.data),
                }
            }
            // Unreachable: a command that has succeeded has begun.
            (None, _, _) => Ended::Failed(Error::closed(), BytesMut::new()),
        };
        let wakers = requester.ended(known, &report.attempted, ended, now);
        let effects = judgement.map(|it| it.effects).unwrap_or_default();
        self.publish(effects);
        wakers.wake();
        effects.may_be_another_unit
    }

    /// Reports an attempt that has failed without a response of the unit: its command was not sent, or the
    /// task of the session is gone.
    pub(crate) fn attempt_failed(&mut self, error: Error, now: Instant) {
        if let Some(report) = self.report.take() {
            report.end(&self.unit.known, Ended::Failed(error, BytesMut::new()), now);
        }
    }

    /// Returns whether this end reports that the registrations of this initiator were removed.
    fn is_preempted(&self, result: &Result<Completion, TaskError>) -> bool {
        // If the registrations were removed, commands that are not sent yet are withdrawn, and fail with
        // [`UnitCause::Preempted`].
        let attention = result.as_ref().ok().and_then(attention_of);
        let membership = &self.unit.membership;
        attention.is_some_and(|it| membership.on_unit_attention(it.additional))
    }

    /// Updates the unit's state with the end of a command. If the known unit has executed the command,
    /// updates the state with the consequences too.
    fn judge(
        &self,
        known: &mut UnitGuard<'_>,
        begun: &Begun,
        result: &Result<Completion, TaskError>,
        (is_preempted, is_awaited): (bool, bool),
    ) -> Judgement {
        let (path, terms) = (self.unit.path, &self.terms);
        let end = match result {
            Ok(completion) => CommandEnd::Status(completion.status, &completion.sense),
            Err(why) => CommandEnd::Error(why),
        };
        let (number, synchronizes_cache) = (begun.number, terms.synchronizes_cache);
        let command = CommandFacts { number, synchronizes_cache, is_preempted };
        let effects = known.end_command(path, command, end);
        let is_good = result.as_ref().is_ok_and(Completion::is_success);
        let is_open = terms.is_for_known_unit
            && (terms.wants_proof || known.identity.needs_revalidation(path));
        let good = if is_awaited { terms.good } else { terms.good.if_not_awaited() };
        let executed_by = if !is_good || is_open {
            ExecutedBy::Unknown
        } else if !terms.is_for_known_unit {
            known.on_good(path, begun, good);
            ExecutedBy::KnownUnit
        } else if known.end_with_good(path, begun, good) {
            ExecutedBy::KnownUnit
        } else {
            ExecutedBy::AnotherUnit
        };
        Judgement { effects, executed_by }
    }

    /// Publishes what the unit has reported to subscribers and other disks. Must be called without the lock
    /// of the unit.
    fn publish(&self, effects: Effects) {
        let unit = &self.unit;
        if let Some(attention) = effects.attention {
            unit.known.events.on_unit_attention(attention);
        }
        if effects.has_failed_flush
            && let Some(flushes) = unit.flushes.get()
        {
            flushes.failed(&unit.known);
        }
    }

    /// Returns whether the command must not be sent before the unit was confirmed.
    pub(crate) fn has_to_wait(&self) -> bool {
        let is_calm = |begun| self.unit.known.is_calm_since(begun);
        self.terms.is_for_known_unit
            && !self.begun.as_ref().is_some_and(is_calm)
            && self.unit.needs_revalidation()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.was_not_sent();
        if let Some(report) = self.report.take() {
            report.end(&self.unit.known, Ended::NotTaken, Instant::now());
        }
        // Notified last, because the caller of the command must be woken first.
        self.unit.outstanding.notify();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn send(unit: &Arc<UnitState>) -> (CommandNumber, Listener) {
        let terms = CommandTerms {
            synchronizes_cache: false,
            is_for_known_unit: true,
            wants_proof: false,
            good: GoodEnd::NoReset,
        };
        let mut listener = Listener::new(Arc::clone(unit), terms);
        let number = unit.next_command();
        listener.begin();
        (number, listener)
    }

    #[test]
    fn it_waits_for_those_that_were_sent_before_and_for_no_other() {
        let unit = Arc::default();
        let [(_, mut first), (_, second), (number, third), (fourth, _)] =
            [(); 4].map(|()| send(&unit));
        drop(third);
        let mut before = pin!(unit.ended_before(number));
        let mut context = Context::from_waker(Waker::noop());
        assert!(before.as_mut().poll(&mut context).is_pending());
        drop(second);
        assert!(before.as_mut().poll(&mut context).is_pending());
        let judged = first.ended(&Err(TaskError::Closed), false);
        assert!(judged.is_some_and(|it| !it.may_be_another_unit));
        drop(first);
        assert!(before.as_mut().poll(&mut context).is_ready());
        assert!(pin!(unit.ended_before(fourth)).poll(&mut context).is_ready());
        assert!(unit.next_command() > fourth);
    }

    #[test]
    fn a_task_that_waits_for_commands_that_are_given_up_is_woken() {
        let unit = Arc::default();
        let [(_, _first), (second, _two), (third, _three)] = [(); 3].map(|()| send(&unit));
        let mut before = pin!(unit.ended_before(third));
        let mut context = Context::from_waker(Waker::noop());
        assert!(before.as_mut().poll(&mut context).is_pending());
        let give_up_before = |number| {
            unit.lock().give_up_before(unit.path(), number);
            unit.notify_given_up();
        };
        give_up_before(second);
        assert!(before.as_mut().poll(&mut context).is_pending(), "the second has not ended");
        give_up_before(third);
        assert!(before.as_mut().poll(&mut context).is_ready());
    }
}
