//! Writes that processes had in flight when they died.

use std::collections::BTreeSet;

use super::Oracle;
use super::version::{Version, is_replaced};

impl Oracle {
    /// Notes that a process has died that had opened these disks. The flag of each disk says whether the
    /// target had completed everything that was sent and acknowledged. `block` is the number of grains per
    /// block.
    pub(crate) fn orphaned(&mut self, disks: &[(usize, bool)], block: usize) {
        let now = self.now();
        for block in self.grains.chunks_mut(block) {
            let orphans = orphans_of(block, disks, self.answers_early);
            let is_orphan = |version: &Version| orphans.contains(&version.write);
            let covers_all = |write: &usize| {
                block.iter().all(|grain| grain.iter().any(|version| version.write == *write))
            };
            // A write of a part of a block writes back the rest of the block as it was read.
            let partial = orphans.iter().filter(|write| !covers_all(write));
            let begun = |write: &usize| {
                block.iter().flatten().find(|version| version.write == *write).map(|it| it.begun)
            };
            let first = partial.filter_map(begun).min();
            for grain in block {
                let returns: Vec<bool> = grain
                    .iter()
                    .map(|version| {
                        let was_there =
                            |first| !grain.iter().any(|later| is_replaced(version, later, first));
                        is_orphan(version) || first.is_some_and(was_there)
                    })
                    .collect();
                for (version, returns) in grain.iter_mut().zip(returns) {
                    let is_of_process = disks.iter().any(|(disk, _)| *disk == version.disk);
                    if is_of_process && version.ended.is_none() {
                        (version.ended, version.settled) = (Some(now), Some(now));
                    }
                    version.is_unanswered &= !is_of_process;
                    if returns {
                        (version.settled, version.was_orphan) = (None, true);
                    }
                }
            }
        }
    }

    /// Notes that no request of any dead process is in flight.
    pub(crate) fn no_orphans(&mut self) {
        let now = self.now();
        let is_over = |version: &&mut Version| version.was_orphan && !version.is_unanswered;
        for version in self.grains.iter_mut().flatten().filter(is_over) {
            version.settled.get_or_insert(now);
        }
    }
}

/// Returns the writes of a block that may still be executed after the death of the process that had opened
/// these disks. A write that the same process has overwritten is not among them, since the later write has
/// waited for it. If a server acknowledges writes early, an acknowledged write may still be in flight to the
/// unit: only a flush shows that the unit has it.
fn orphans_of(
    block: &[Vec<Version>],
    disks: &[(usize, bool)],
    answers_early: bool,
) -> BTreeSet<usize> {
    let has_come =
        |version: &Version| version.is_acknowledged && (version.is_durable || !answers_early);
    let of_process =
        |version: &Version| disks.iter().find(|(disk, _)| *disk == version.disk).copied();
    let may_come = |version: &Version, grain: &[Version]| {
        let Some((_, is_settled)) = of_process(version) else { return false };
        let waited = |later: &Version| {
            let began_after = version.ended.is_some_and(|ended| ended < later.begun);
            began_after && has_come(later) && of_process(later).is_some()
        };
        let is_over = version.ended.is_some() && has_come(version) && is_settled;
        !is_over && !grain.iter().any(waited)
    };
    let orphans = block.iter().flat_map(|grain| {
        grain.iter().filter(|version| may_come(version, grain)).map(|version| version.write)
    });
    orphans.collect()
}
