//! The lock around all that is known of a unit.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iscsi_multipath::{Begun, LossCount, PathId, Transitions, Unit, UnknownForms};

use crate::events::disk_event::DiskEvent;
use crate::events::disk_events::EventLog;

/// What the sessions of a disk know of their unit, under one lock.
///
/// A driver takes it while it holds the lock of its session. So nothing calls into a session while it holds this one, and
/// tasks are woken after it is released.
#[derive(Debug, Default)]
pub(crate) struct UnitLock {
    copies: Copies,
    unit: Mutex<Unit>,
    /// The events of the disk.
    pub(crate) events: Arc<EventLog>,
}

/// Copies of what every request looks at, so that it need not take the lock for that. They are renewed before the lock is
/// released.
///
/// All are in one place: with 1,000 disks no cache has any of them.
#[derive(Debug, Default)]
struct Copies {
    size: AtomicU64,
    revision: AtomicU64,
    attentions: AtomicU64,
    losses: AtomicU64,
    reported_losses: AtomicU64,
    unknown_forms: AtomicU32,
    transitions: AtomicU32,
    needs_revalidation: AtomicBool,
}

/// What is known of the unit, until it is dropped.
#[derive(Debug)]
pub(crate) struct UnitGuard<'a> {
    // Dropped in this order: subscribers are woken after the lock is released.
    unit: MutexGuard<'a, Unit>,
    copies: &'a Copies,
    losses: NewLosses<'a>,
}

/// Publishes that writes were lost, if they were.
#[derive(Debug)]
struct NewLosses<'a> {
    events: &'a EventLog,
    are_some: bool,
}

impl UnitLock {
    pub(crate) fn lock(&self) -> UnitGuard<'_> {
        let unit = self.unit.lock().unwrap_or_else(PoisonError::into_inner);
        let losses = NewLosses { events: &self.events, are_some: false };
        UnitGuard { unit, copies: &self.copies, losses }
    }

    /// A command of this path begins. Nothing of which there are copies changes.
    pub(crate) fn begin(&self, path: PathId) -> Begun {
        self.unit.lock().unwrap_or_else(PoisonError::into_inner).begin(path)
    }

    /// The capacity of the unit, bytes; 0 as long as it is unknown.
    pub(crate) fn size(&self) -> u64 {
        self.copies.size.load(Ordering::Acquire)
    }

    /// The number of unit attentions, and of ends of commands that may have hidden one.
    pub(crate) fn attentions(&self) -> u64 {
        self.copies.attentions.load(Ordering::Acquire)
    }

    /// The number of losses that some handle has reported.
    pub(crate) fn reported_losses(&self) -> LossCount {
        LossCount(self.copies.reported_losses.load(Ordering::Acquire))
    }

    /// Whether the unit has refused to know this operation code.
    pub(crate) fn is_unknown_form(&self, operation_code: u8) -> bool {
        let bits = self.copies.unknown_forms.load(Ordering::Acquire);
        UnknownForms::from_bits(bits).contains(operation_code)
    }

    /// How long a port may take to change its state.
    pub(crate) fn transitions(&self) -> Transitions {
        Transitions::from_bits(self.copies.transitions.load(Ordering::Acquire))
    }

    /// Whether some path may have to ask which unit it is; which one, the lock says.
    pub(crate) fn may_need_revalidation(&self) -> bool {
        self.copies.needs_revalidation.load(Ordering::Acquire)
    }

    /// Whether there was no reason to ask which unit it is when the command began, nor since.
    pub(crate) fn is_calm_since(&self, begun: &Begun) -> bool {
        begun.is_calm(self.copies.revision.load(Ordering::Acquire))
    }
}

impl Copies {
    /// Writes only what has changed: most commands change none of them, and other processors read them. Returns whether more
    /// writes were lost.
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
        let forms = (&self.unknown_forms, identity.unknown_forms.to_bits());
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

impl Deref for UnitGuard<'_> {
    type Target = Unit;

    fn deref(&self) -> &Unit {
        &self.unit
    }
}

impl DerefMut for UnitGuard<'_> {
    fn deref_mut(&mut self) -> &mut Unit {
        &mut self.unit
    }
}

impl Drop for UnitGuard<'_> {
    fn drop(&mut self) {
        self.losses.are_some = self.copies.renew(&self.unit);
    }
}

impl Drop for NewLosses<'_> {
    fn drop(&mut self) {
        if self.are_some {
            self.events.publish(&DiskEvent::WritesLost);
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
        let begun = lock.lock().begin(Unit::FIRST_PATH);
        assert!(lock.is_calm_since(&begun) && !lock.may_need_revalidation());
        lock.lock().identity.on_known(KnownUnit { is_removable: false, capacity: 4096 });
        assert_eq!(lock.size(), 4096);
        let begun = lock.lock().begin(Unit::FIRST_PATH);
        {
            let mut unit = lock.lock();
            unit.identity.add_reason(Unit::FIRST_PATH);
            unit.identity.add_attention();
            unit.identity.unknown_forms.add(0x91);
        }
        assert!(!lock.is_calm_since(&begun) && lock.may_need_revalidation());
        assert!(lock.attentions() == 1 && lock.is_unknown_form(0x91));
        let mut unit = lock.lock();
        let reasons = unit.identity.reasons(Unit::FIRST_PATH);
        unit.identity.on_revalidated(Unit::FIRST_PATH, reasons);
        drop(unit);
        assert!(!lock.may_need_revalidation());
    }
}
