//! Counts the faults that a target will still make.

use iscsi_testkit::fault::{Effect, Fault, Trigger};
use iscsi_testkit::scsi::Access;
use iscsi_testkit::target::Target;

use crate::settings::Class;

/// Number of faults per class.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Pending {
    counts: [u64; Self::CLASSES.len()],
    /// Number of flushes that will fail.
    pub(crate) flushes: u64,
    /// Number of flushes that will lose the data in the cache.
    pub(crate) losing: u64,
}

impl Pending {
    const CLASSES: [Class; 5] =
        [Class::Busy, Class::Hole, Class::Slow, Class::Zombie, Class::Medium];

    pub(crate) fn of(target: &mut Target) -> Self {
        let mut pending = Self::default();
        target.config_mut().faults.iter().for_each(|fault| pending.add(fault));
        pending
    }

    fn add(&mut self, fault: &Fault) {
        let class = match &fault.effect {
            Effect::Status(_) => Class::Busy,
            Effect::Swallow => Class::Hole,
            Effect::Delay(_) => Class::Slow,
            Effect::ExecuteLate(_) => Class::Zombie,
            Effect::Sense(_) | Effect::LoseCached(_) | _ => Class::Medium,
        };
        let times = u64::from(fault.times.unwrap_or(1));
        let at = Self::CLASSES.iter().position(|known| *known == class);
        if let Some(count) = at.and_then(|at| self.counts.get_mut(at)) {
            *count += times;
        }
        if let Trigger::Command(blocks) = fault.trigger
            && blocks.access == Some(Access::SynchronizeCache)
        {
            self.flushes += times;
        }
        if matches!(fault.effect, Effect::LoseCached(_)) {
            self.losing += times;
        }
    }

    /// Returns how many faults of each class were made between the counts `self` and `now`.
    pub(crate) fn made(self, now: Self) -> impl Iterator<Item = (Class, u64)> {
        let counts = self.counts.into_iter().zip(now.counts);
        let made = counts.map(|(before, now)| before.saturating_sub(now));
        Self::CLASSES.into_iter().zip(made).filter(|(_, made)| *made > 0)
    }
}
