//! Protects everything that is known of a unit, and what a disk stores beside it, by one lock.
//!
//! Design: `docs/design/unit-lock.md`.

use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iscsi_multipath::{Begun, LossCount, PathId, Transitions, Unit, UnknownCommands};
use qcell::{QCell, QCellOwner};

use crate::events::disk_event::DiskEvent;
use crate::events::disk_events::EventLog;

/// Knowledge of one unit that the sessions of a disk share, protected by one lock.
///
/// A driver takes this lock while it holds the lock of its session. So no code may call into a session while
/// it holds this lock, and tasks are woken after it is released.
#[derive(Debug, Default)]
pub(crate) struct UnitLock {
    copies: Copies,
    locked: Mutex<Locked>,
    left: LeftPaths,
    /// The events of the disk.
    pub(crate) events: Arc<EventLog>,
}

/// Data under the lock.
struct Locked {
    unit: Unit,
    /// Key to the cells that are [guarded](Guarded) beside the unit.
    owner: QCellOwner,
}

/// Paths whose sessions have ended. They are removed when the lock is taken next, because the last handle of
/// a session may be dropped while the lock is held.
#[derive(Debug, Default)]
pub(crate) struct LeftPaths {
    paths: Mutex<Vec<PathId>>,
    are_some: AtomicBool,
}

/// Data that is protected by the lock of a unit. The data is stored outside the lock, so it can have types
/// that the lock does not know.
pub(crate) struct Guarded<T> {
    unit: Arc<UnitLock>,
    data: QCell<T>,
}

/// Copies of values that every request reads, so that it need not take the lock. They are updated before the
/// lock is released.
///
/// All copies are next to each other: with 1,000 disks, none of them is in a cache, so one access should load
/// them all.
#[derive(Debug, Default)]
struct Copies {
    size: AtomicU64,
    revision: AtomicU64,
    attentions: AtomicU64,
    losses: AtomicU64,
    reported_losses: AtomicU64,
    unknown_commands: AtomicU32,
    transitions: AtomicU32,
    needs_revalidation: AtomicBool,
}

/// Access to what is known of the unit. Dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct UnitGuard<'a> {
    // Fields are dropped in this order, so subscribers are woken after the lock is released.
    locked: MutexGuard<'a, Locked>,
    losses: NewLosses<'a>,
    lock: &'a UnitLock,
    /// Whether the copies may differ from the unit.
    is_changed: bool,
}

/// Access to what is known of the unit and to data beside it. Dropping it releases the lock.
pub(crate) struct GuardBeside<'a, T> {
    unit: UnitGuard<'a>,
    data: &'a QCell<T>,
}

/// On drop, publishes an event if writes were lost.
#[derive(Debug)]
struct NewLosses<'a>(Option<&'a EventLog>);

impl UnitLock {
    #[inline]
    pub(crate) fn lock(&self) -> UnitGuard<'_> {
        let locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        let losses = NewLosses(None);
        let mut guard = UnitGuard { locked, losses, lock: self, is_changed: false };
        if self.left.are_some() {
            guard.forget(&self.left);
        }
        guard
    }

    /// Begins a command of this path.
    pub(crate) fn begin_command(&self, path: PathId) -> Begun {
        // Beginning a command changes none of the copied values, so they need no update.
        self.lock().locked.unit.begin_command(path)
    }

    /// Removes a path whose session has ended, when the lock is taken next.
    pub(crate) fn leave(&self, path: PathId) {
        self.left.add(path);
    }

    /// Returns the capacity of the unit, bytes; 0 as long as it is unknown.
    pub(crate) fn size(&self) -> u64 {
        self.copies.size.load(Ordering::Acquire)
    }

    /// Returns the number of unit attentions, and of ends of commands that may have hidden a unit attention.
    pub(crate) fn attentions(&self) -> u64 {
        self.copies.attentions.load(Ordering::Acquire)
    }

    /// Returns the number of losses that some handle has reported.
    pub(crate) fn reported_losses(&self) -> LossCount {
        LossCount(self.copies.reported_losses.load(Ordering::Acquire))
    }

    /// Returns whether the unit has rejected this operation code as unknown.
    pub(crate) fn is_unknown_form(&self, operation_code: u8) -> bool {
        let bits = self.copies.unknown_commands.load(Ordering::Acquire);
        UnknownCommands::from_bits(bits).contains(operation_code)
    }

    /// Returns how long a port may take to change its state.
    pub(crate) fn transitions(&self) -> Transitions {
        Transitions::from_bits(self.copies.transitions.load(Ordering::Acquire))
    }

    /// Returns whether some path may have to confirm its unit. The state under the lock says which path.
    pub(crate) fn may_need_revalidation(&self) -> bool {
        self.copies.needs_revalidation.load(Ordering::Acquire)
    }

    /// Returns whether there has been no reason to confirm the unit since before the command began.
    pub(crate) fn is_calm_since(&self, begun: &Begun) -> bool {
        begun.is_calm(self.copies.revision.load(Ordering::Acquire))
    }
}

impl Copies {
    /// Updates the copies. Writes only the values that have changed, because most commands change none, and
    /// other processors read the copies. Returns whether more writes were lost.
    fn renew(&self, unit: &Unit) -> bool {
        let identity = &unit.identity;
        if self.revision.load(Ordering::Relaxed) != identity.revision() {
            self.needs_revalidation.store(identity.any_needs_revalidation(), Ordering::Release);
            self.revision.store(identity.revision(), Ordering::Release);
        }
        for (copy, now) in [
            (&self.size, identity.size()),
            (&self.attentions, identity.attentions()),
            (&self.reported_losses, unit.durability.reported_losses().0),
        ] {
            if copy.load(Ordering::Relaxed) != now {
                copy.store(now, Ordering::Release);
            }
        }
        let forms = (&self.unknown_commands, identity.unknown_commands.to_bits());
        for (copy, now) in [forms, (&self.transitions, identity.transitions.to_bits())] {
            if copy.load(Ordering::Relaxed) != now {
                copy.store(now, Ordering::Release);
            }
        }
        let losses = unit.durability.losses().0;
        let is_new = self.losses.load(Ordering::Relaxed) != losses;
        if is_new {
            self.losses.store(losses, Ordering::Relaxed);
        }
        is_new
    }
}

impl LeftPaths {
    pub(crate) fn add(&self, path: PathId) {
        let mut paths = self.lock();
        paths.push(path);
        self.are_some.store(true, Ordering::Release);
    }

    pub(crate) fn are_some(&self) -> bool {
        self.are_some.load(Ordering::Acquire)
    }

    pub(crate) fn take(&self) -> Vec<PathId> {
        let mut paths = self.lock();
        self.are_some.store(false, Ordering::Release);
        mem::take(&mut *paths)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<PathId>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Locked {
    fn default() -> Self {
        Self { unit: Unit::new(), owner: QCellOwner::new() }
    }
}

impl fmt::Debug for Locked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locked").field("unit", &self.unit).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Guarded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded").finish_non_exhaustive()
    }
}

impl Deref for UnitGuard<'_> {
    type Target = Unit;

    fn deref(&self) -> &Unit {
        &self.locked.unit
    }
}

impl DerefMut for UnitGuard<'_> {
    fn deref_mut(&mut self) -> &mut Unit {
        self.is_changed = true;
        &mut self.locked.unit
    }
}

impl UnitGuard<'_> {
    /// Removes the paths whose sessions have ended.
    #[cold]
    fn forget(&mut self, left: &LeftPaths) {
        for path in left.take() {
            self.remove_path(path);
        }
    }
}

impl Drop for UnitGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.is_changed && self.lock.copies.renew(&self.locked.unit) {
            self.losses = NewLosses(Some(&self.lock.events));
        }
    }
}

impl<T> Guarded<T> {
    pub(crate) fn new(unit: &Arc<UnitLock>, data: T) -> Self {
        let data = unit.lock().locked.owner.cell(data);
        Self { unit: Arc::clone(unit), data }
    }

    /// Locks the unit and the data.
    #[inline]
    pub(crate) fn lock(&self) -> GuardBeside<'_, T> {
        self.locked_by(self.unit.lock())
    }

    /// Returns access to the data, whose unit is already locked.
    pub(crate) const fn locked_by<'a>(&'a self, unit: UnitGuard<'a>) -> GuardBeside<'a, T> {
        GuardBeside { unit, data: &self.data }
    }

    /// Reads the data, whose unit is already locked.
    pub(crate) fn read<'a>(&'a self, unit: &'a UnitGuard<'_>) -> &'a T {
        self.data.ro(&unit.locked.owner)
    }
}

impl<T> GuardBeside<'_, T> {
    /// Returns what is known of the unit.
    pub(crate) fn unit(&self) -> &Unit {
        &self.unit
    }

    /// Returns the data for a change, and what is known of the unit.
    pub(crate) fn beside(&mut self) -> (&mut T, &Unit) {
        let Locked { unit, owner } = &mut *self.unit.locked;
        (self.data.rw(owner), unit)
    }

    /// Returns the data and what is known of the unit, both for a change.
    pub(crate) fn both(&mut self) -> (&mut T, &mut Unit) {
        self.unit.is_changed = true;
        let Locked { unit, owner } = &mut *self.unit.locked;
        (self.data.rw(owner), unit)
    }
}

impl<T> Deref for GuardBeside<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.data.ro(&self.unit.locked.owner)
    }
}

impl<T> DerefMut for GuardBeside<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.data.rw(&mut self.unit.locked.owner)
    }
}

impl Drop for NewLosses<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(events) = self.0 {
            events.publish(&DiskEvent::WritesLost);
        }
    }
}

#[cfg(test)]
mod tests {
    use iscsi_multipath::KnownUnit;

    use super::*;

    #[test]
    fn the_copies_are_those_of_the_last_change() {
        let lock = UnitLock::default();
        let begun = lock.lock().begin_command(Unit::FIRST_PATH);
        assert!(lock.is_calm_since(&begun) && !lock.may_need_revalidation());
        lock.lock().identity.on_known(KnownUnit { is_removable: false, capacity: 4096 });
        assert_eq!(lock.size(), 4096);
        let begun = lock.lock().begin_command(Unit::FIRST_PATH);
        {
            let mut unit = lock.lock();
            unit.identity.add_reason(Unit::FIRST_PATH);
            unit.identity.add_attention();
            unit.identity.unknown_commands.add(0x91);
        }
        assert!(!lock.is_calm_since(&begun) && lock.may_need_revalidation());
        assert!(lock.attentions() == 1 && lock.is_unknown_form(0x91));
        let mut unit = lock.lock();
        let reasons = unit.identity.reasons(Unit::FIRST_PATH);
        unit.identity.on_revalidated(Unit::FIRST_PATH, reasons);
        drop(unit);
        assert!(!lock.may_need_revalidation());
    }

    /// A path may be removed while the lock is held, because the last handle of a session may be dropped
    /// then.
    #[test]
    fn a_path_may_leave_under_the_lock() {
        let lock = Arc::default();
        let beside = Guarded::new(&lock, 7);
        lock.begin_command(Unit::FIRST_PATH);
        let guard = beside.lock();
        lock.leave(Unit::FIRST_PATH);
        assert!(*guard == 7 && !guard.unit().is_idle(Unit::FIRST_PATH));
        drop(guard);
        assert!(lock.lock().is_idle(Unit::FIRST_PATH));
    }
}
