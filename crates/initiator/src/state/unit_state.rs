//! What all handles of one logical unit within a session share.

use std::sync::{Arc, OnceLock};

use iscsi_multipath::{
    Begun, Capacity, CommandEnd, CommandFacts, CommandNumber, KnownUnit, PathId, Profile, Reasons,
    Resized, SharedReasons, SizeQuestion, Unit,
};
use iscsi_pdu::scsi::Cdb;
use iscsi_session::{Completion, TaskError};
use tokio::sync::OnceCell;

use crate::completion::attention_of;
use crate::state::fencing::Membership;
use crate::state::outstanding::Outstanding;
use crate::state::revalidating::Revalidating;
use crate::state::unit_flushes::UnitFlushes;
use crate::state::unit_lock::{UnitGuard, UnitLock};

/// One session's part in what is known of a unit: which path it is, and what waits there.
#[derive(Debug)]
pub(crate) struct UnitState {
    path: PathId,
    known: Arc<UnitLock>,
    outstanding: Outstanding,
    /// The flushes of all disks of the initiator with the unit, once that is known.
    flushes: OnceLock<Arc<UnitFlushes>>,
    revalidating: Arc<Revalidating>,
    pub(crate) membership: Membership,
    pub(crate) profile: OnceCell<Arc<Profile>>,
}

impl Default for UnitState {
    fn default() -> Self {
        Self {
            path: Unit::FIRST_PATH,
            known: Arc::default(),
            outstanding: Outstanding::default(),
            flushes: OnceLock::new(),
            revalidating: Arc::default(),
            membership: Membership::default(),
            profile: OnceCell::default(),
        }
    }
}

impl UnitState {
    /// Which path to the unit the session is.
    pub(crate) const fn path(&self) -> PathId {
        self.path
    }

    /// What the sessions of the disk know of the unit.
    pub(crate) const fn known(&self) -> &Arc<UnitLock> {
        &self.known
    }

    pub(crate) fn lock(&self) -> UnitGuard<'_> {
        self.known.lock()
    }

    /// Those that wait until it is certain which unit the session leads to.
    pub(crate) const fn revalidating(&self) -> &Arc<Revalidating> {
        &self.revalidating
    }

    /// Begins a command and sends it; no other one is sent in between.
    pub(crate) fn send<T>(&self, send: impl FnOnce(Begun) -> T) -> (Begun, T) {
        let _order = self.outstanding.order();
        let begun = self.lock().begin(self.path);
        (begun, send(begun))
    }

    /// The number of the next command: all that were sent so far come before it.
    pub(crate) fn next_command(&self) -> CommandNumber {
        self.lock().next_command(self.path)
    }

    /// Waits until all commands have ended that were sent before this one.
    pub(crate) async fn ended_before(&self, number: CommandNumber) {
        let have_ended = || self.lock().have_ended_before(self.path, number);
        self.outstanding.wait(have_ended).await;
    }

    /// Some commands have been given up. Wakes the tasks that wait for them.
    pub(crate) fn notify_given_up(&self) {
        self.outstanding.notify();
    }

    /// The unit has accepted a command in place of which it would have reported a reset.
    pub(crate) fn accepted(&self, begun: &Begun) {
        // Mostly an earlier one was accepted, and then nothing changes.
        if !begun.follows_accepted() {
            self.lock().durability.accept(self.path, begun.epoch);
        }
    }

    /// A write has ended with GOOD.
    pub(crate) fn wrote(&self, begun: &Begun) {
        self.lock().durability.on_write(self.path, begun.epoch);
    }

    /// The unit has reported what it is.
    pub(crate) fn on_known(&self, profile: &Profile) {
        let capacity = profile.capacity.bytes();
        let known = KnownUnit { is_removable: profile.removable, capacity };
        self.lock().identity.on_known(known);
    }

    /// Whether the unit was known, and has to be asked again before anything else is sent.
    pub(crate) fn needs_revalidation(&self) -> bool {
        self.known.may_need_revalidation() && self.lock().identity.needs_revalidation(self.path)
    }

    /// Whether the known unit has executed a command that has ended with GOOD.
    pub(crate) fn is_of_known_unit(&self, begun: &Begun) -> bool {
        self.known.is_calm_since(begun) || self.lock().is_of_known_unit(self.path, begun)
    }

    /// There is a reason to ask over this session which unit it is.
    pub(crate) fn add_reason(&self) {
        self.lock().identity.add_reason(self.path);
    }

    /// The reasons so far to ask over this session.
    pub(crate) fn reasons(&self) -> Reasons {
        self.lock().identity.reasons(self.path)
    }

    /// The unit was asked when there had been these reasons, and is still the known one.
    pub(crate) fn recognized(&self, asked_at: Reasons) {
        self.lock().identity.on_revalidated(self.path, asked_at);
    }

    /// A question for the capacity is about to be sent.
    pub(crate) fn ask_size(&self) -> SizeQuestion {
        self.lock().identity.ask_size()
    }

    /// A unit that was recognized has reported its capacity.
    pub(crate) fn learn_size(&self, question: SizeQuestion, found: &Capacity) {
        let resized = self.lock().identity.on_size(question, found.bytes());
        if let Some(resized) = resized {
            self.report_resized(resized);
        }
    }

    /// Informs the subscribers to changes.
    pub(crate) fn report_resized(&self, Resized { before, now }: Resized) {
        tracing::info!(before, now, "the unit has another capacity, bytes");
        self.known.events.resized(before, now);
    }

    /// The flushes that take turns with those of the disk, and fail for it as well. The first call finds them.
    pub(crate) fn flushes_or(&self, find: impl FnOnce() -> Arc<UnitFlushes>) -> &Arc<UnitFlushes> {
        self.flushes.get_or_init(|| {
            let flushes = find();
            flushes.add(&self.known);
            flushes
        })
    }

    /// Whether another disk of the initiator has the unit as well.
    pub(crate) fn is_unit_of_another_disk(&self) -> bool {
        self.flushes.get().is_some_and(|flushes| flushes.are_shared())
    }

    /// Takes over what the unit has reported while it was asked which one it is: it does not repeat that.
    pub(crate) fn merge(&self, asked: &Self) {
        let reported = asked.lock().reported(asked.path);
        self.lock().merge(self.path, reported);
    }

    /// What is known of the unit within a further session, over which it has reported this profile. The unit reports resets to
    /// each session by itself. Before the unit was asked there, there had been these reasons to ask.
    pub(crate) fn shared_with_another_session(
        &self,
        profile: &Profile,
        asked_at: SharedReasons,
    ) -> Self {
        let path = {
            let mut unit = self.lock();
            // It may have been switched on since the unit was asked first.
            if profile.write_cache != Some(false) {
                unit.durability.on_cache();
            }
            unit.add_path(asked_at)
        };
        Self {
            path,
            known: Arc::clone(&self.known),
            outstanding: Outstanding::default(),
            flushes: self.flushes.clone(),
            revalidating: Arc::default(),
            membership: self.membership.follow(),
            profile: self.profile.clone(),
        }
    }
}

impl Drop for UnitState {
    fn drop(&mut self) {
        self.lock().remove_path(self.path);
    }
}

/// A command in flight, until its status is known or it is known that none will come. If it is dropped before it has
/// [ended](Self::ended), it was never sent, or went with its session.
#[derive(Debug)]
pub(crate) struct Listener {
    unit: Arc<UnitState>,
    begun: Begun,
    synchronizes_cache: bool,
    has_ended: bool,
}

impl Listener {
    /// A command is sent that has begun so.
    pub(crate) fn new(unit: &Arc<UnitState>, begun: Begun, cdb: &Cdb) -> Self {
        let synchronizes_cache = cdb.synchronizes_cache();
        Self { unit: Arc::clone(unit), begun, synchronizes_cache, has_ended: false }
    }

    /// The command has ended. Returns whether the unit may be another one from now on.
    pub(crate) fn ended(&mut self, result: &Result<Completion, TaskError>) -> bool {
        self.has_ended = true;
        let (unit, number) = (&self.unit, self.begun.number);
        // What is queued is taken back, and then ends by the verdict.
        let attention = result.as_ref().ok().and_then(attention_of);
        let is_preempted =
            attention.is_some_and(|it| unit.membership.on_unit_attention(it.additional));
        let end = match result {
            Ok(completion) => CommandEnd::Status(completion.status, &completion.sense),
            Err(why) => CommandEnd::Error(why),
        };
        let synchronizes_cache = self.synchronizes_cache;
        let command = CommandFacts { number, synchronizes_cache, is_preempted };
        let effects = unit.lock().end(unit.path, command, end);
        if let Some(attention) = effects.attention {
            unit.known.events.on_unit_attention(attention);
        }
        if effects.has_failed_flush
            && let Some(flushes) = unit.flushes.get()
        {
            flushes.failed(&unit.known);
        }
        effects.may_be_another_unit
    }

    /// Whether the unit has to be asked first which one it is.
    pub(crate) fn needs_revalidation(&self) -> bool {
        !self.unit.known.is_calm_since(&self.begun) && self.unit.needs_revalidation()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if !self.has_ended {
            self.unit.lock().forget(self.unit.path, self.begun.number);
        }
        // Not before: the caller of the command is woken first.
        self.unit.outstanding.notify();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn send(unit: &Arc<UnitState>) -> (Begun, Listener) {
        unit.send(|begun| Listener::new(unit, begun, &Cdb::test_unit_ready()))
    }

    #[test]
    fn it_waits_for_those_that_were_sent_before_and_for_no_other() {
        let unit = Arc::default();
        let [(_, mut first), (_, second), (begun, third), (fourth, _)] =
            [(); 4].map(|()| send(&unit));
        drop(third);
        let mut before = pin!(unit.ended_before(begun.number));
        let mut context = Context::from_waker(Waker::noop());
        assert!(before.as_mut().poll(&mut context).is_pending());
        drop(second);
        assert!(before.as_mut().poll(&mut context).is_pending());
        assert!(!first.ended(&Err(TaskError::Closed)));
        drop(first);
        assert!(before.as_mut().poll(&mut context).is_ready());
        assert!(pin!(unit.ended_before(fourth.number)).poll(&mut context).is_ready());
        assert!(unit.next_command() > fourth.number);
    }

    #[test]
    fn a_task_that_waits_for_commands_that_are_given_up_is_woken() {
        let unit = Arc::default();
        let [(_, _first), (second, _two), (third, _three)] = [(); 3].map(|()| send(&unit));
        let mut before = pin!(unit.ended_before(third.number));
        let mut context = Context::from_waker(Waker::noop());
        assert!(before.as_mut().poll(&mut context).is_pending());
        let give_up_before = |number| {
            unit.lock().give_up_before(unit.path(), number);
            unit.notify_given_up();
        };
        give_up_before(second.number);
        assert!(before.as_mut().poll(&mut context).is_pending(), "the second has not ended");
        give_up_before(third.number);
        assert!(before.as_mut().poll(&mut context).is_ready());
    }
}
