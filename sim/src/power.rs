//! Losses of power, and drives that write parts of their caches back without a request.

use crate::rng::Rng;
use crate::settings::Class;
use crate::world::World;

/// Probability that a target that receives data writes a part of its cache back, out of 1000.
const WRITE_BACKS: u64 = 20;

impl World {
    /// Loses the power of all units.
    pub(crate) fn lose_all_power(&mut self) {
        (0..self.units.count()).for_each(|unit| self.lose_power(unit));
    }

    /// Loses the power of a unit. All of its unflushed blocks are lost, or any part of them.
    pub(crate) fn lose_power(&mut self, unit: usize) {
        self.keep_a_part(unit);
        self.units.disk(unit).lose_power();
        self.losses.reason();
        self.has_lost(unit);
    }

    /// Restarts the targets of a unit, as after a loss of power.
    pub(crate) fn restart(&mut self, unit: usize) {
        self.keep_a_part(unit);
        self.units.targets_of(unit).into_iter().for_each(|target| self.targets[target].restart());
        self.losses.reason();
        self.has_lost(unit);
    }

    /// Informs the oracle that the unflushed writes of a unit may be lost.
    fn has_lost(&mut self, unit: usize) {
        if self.units.count() == 1 {
            return self.oracle.crashed();
        }
        let disk = self.units.disk(unit);
        if disk.cache() == iscsi_testkit::disk::Cache::Volatile {
            let grains = self.units.grains(unit, 0..disk.blocks());
            grains.into_iter().for_each(|grains| self.oracle.lost(grains));
        }
    }

    /// Writes a part of the cache back before it is lost, if drives do that in this episode.
    pub(crate) fn keep_a_part(&mut self, unit: usize) {
        let unflushed = self.units.disk(unit).unflushed_blocks();
        let written = self.write_back(unit);
        if written > 0 && written < unflushed {
            self.counts.fault(Class::Torn);
        }
    }

    /// Writes a part of the cache back with a certain probability, if drives do that in this episode.
    pub(crate) fn may_write_back(&mut self, unit: usize) {
        if self.torn.as_mut().is_some_and(|rng| rng.within(0..1000) < WRITE_BACKS) {
            self.write_back(unit);
        }
    }

    fn write_back(&mut self, unit: usize) -> usize {
        let disk = self.units.disk(unit);
        let unflushed = disk.unflushed_blocks();
        match &mut self.torn {
            Some(rng) if unflushed > 0 => {
                let written = disk.write_back(some_of(unflushed, rng));
                self.trace.record("blocks are written back", &[unit as u64, written as u64]);
                written
            }
            _ => 0,
        }
    }

    /// Informs the oracle of the caches that have lost something. Returns whether any has.
    pub(crate) fn report_cache_losses(&mut self) -> bool {
        let mut has_lost = false;
        while let Some(unit) = self.units.next_cache_loss() {
            self.trace.record("the cache is lost", &[]);
            // Only the process whose flush failed is informed of that failure. All processes are informed of
            // a reset.
            if let Some(process) = self.losing.first() {
                let open = &self.open;
                self.oracle.mark_unreported(|disk| open.get(&disk) != Some(process));
            }
            self.has_lost(unit);
            self.losses.reason();
            has_lost = true;
        }
        has_lost
    }
}

/// Draws which of `count` blocks are on the medium: no block, one, all but one, all before or all from a
/// random block on, every second block, or any set. The closure must be called for the blocks in ascending
/// order.
fn some_of(count: usize, rng: &mut Rng) -> impl FnMut(u64) -> bool {
    let (kind, place) = (rng.within(0..9), rng.index(0..count));
    let (share, mut each, mut asked) = (rng.within(1..100), rng.fork(), 0);
    move |_| {
        let at = asked;
        asked += 1;
        match kind {
            0 | 1 => false,
            2 => at == place,
            3 => at != place,
            4 => at < place,
            5 => at >= place,
            6 => at % 2 == 0,
            _ => each.percent(share),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_cache_may_be_any_part() {
        let mut rng = Rng::new(7);
        let mut drawn = || {
            let mut is_written = some_of(4, &mut rng);
            (0..4).fold(0, |all, lba| all << 1 | u8::from(is_written(lba)))
        };
        let parts: std::collections::BTreeSet<u8> = (0..1000).map(|_| drawn()).collect();
        assert_eq!(parts.len(), 16);
    }
}
