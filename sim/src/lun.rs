//! The unit at the LUN by which disks are opened, and the units that replace it for a while.

use std::collections::BTreeMap;

use bytes::Bytes;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::scsi::{Sense, Unit};
use iscsi_testkit::target::Target;

use crate::oracle::{GRAIN, Moment, Oracle};

/// The LUN by which disks are opened.
const NUMBER: u16 = 0;

/// How initiators find out that the unit was replaced.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ChangeNotice {
    /// By a unit attention at their next command.
    Attention(Sense),
    /// By the loss of all connections, without a report.
    Restart,
}

/// The unit at the LUN, and its replacements.
#[derive(Debug)]
pub(crate) struct Lun {
    original: Unit,
    /// Number of blocks of the original at the start, and the fewest that it has had.
    blocks: u64,
    min_blocks: u64,
    strangers: Vec<Stranger>,
    /// Whether the last of the `strangers`, units that replace the original for a while, is present.
    is_exchanged: bool,
    /// When the original was last put back.
    restored: Option<Moment>,
    /// When a target last delayed a unit attention until the data of a command had arrived.
    withheld: Option<Moment>,
}

/// Another unit, to which nothing may be written.
#[derive(Debug)]
struct Stranger {
    disk: RamDisk,
    image: Bytes,
    /// When each disk was informed that this is another unit. Writes that the disk begins after that may not
    /// reach this unit.
    was_found: BTreeMap<usize, Moment>,
}

impl Lun {
    pub(crate) fn new(original: Unit) -> Self {
        let blocks = original.disk.blocks();
        Self {
            original,
            blocks,
            min_blocks: blocks,
            strangers: Vec::new(),
            is_exchanged: false,
            restored: None,
            withheld: None,
        }
    }

    /// Returns the medium of the original.
    pub(crate) const fn disk(&self) -> &RamDisk {
        &self.original.disk
    }

    /// Returns whether the original may leave blocks unchanged that it is to deallocate.
    pub(crate) const fn may_keep_blocks(&self) -> bool {
        self.original.behavior.unmap_granularity.is_some()
    }

    /// Returns the number of blocks that the original had at the start.
    pub(crate) const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the number of blocks that were present all the time. The data beyond them is lost.
    pub(crate) const fn min_blocks(&self) -> u64 {
        self.min_blocks
    }

    /// Notes that the size of the original has changed.
    pub(crate) fn resized(&mut self) {
        self.min_blocks = self.min_blocks.min(self.original.disk.blocks());
    }

    /// Sets the smallest number of blocks to the current number.
    pub(crate) fn forget_resizes(&mut self) {
        self.min_blocks = self.original.disk.blocks();
    }

    pub(crate) const fn is_exchanged(&self) -> bool {
        self.is_exchanged
    }

    /// Replaces the unit by another one of the same size in bytes: under the same name with another block size,
    /// or under another name.
    pub(crate) fn exchange(
        &mut self,
        targets: &mut [Target],
        block_size: u32,
        is_renamed: bool,
        notice: ChangeNotice,
    ) {
        let bytes = self.blocks * u64::from(self.original.disk.block_size());
        let disk = RamDisk::new(block_size, bytes / u64::from(block_size));
        let image = self.image_of_strangers(&disk);
        disk.set_cache(self.original.disk.cache());
        let mut unit = self.original.clone();
        unit.disk = disk.clone();
        if is_renamed {
            let naa = unit.naa + 1 + self.strangers.len() as u64;
            unit = unit.with_identity("another one", naa);
        }
        self.strangers.push(Stranger { disk, image, was_found: BTreeMap::new() });
        self.is_exchanged = true;
        put(targets, &unit, notice);
    }

    /// Returns the data that a replacement unit has at its start. It is the same for all of them.
    fn image_of_strangers(&self, disk: &RamDisk) -> Bytes {
        if let Some(stranger) = self.strangers.first() {
            disk.write(0, &stranger.image);
            return stranger.image.clone();
        }
        disk.fill(0);
        disk.read(0, usize::MAX)
    }

    /// Puts the original back.
    pub(crate) fn restore(&mut self, targets: &mut [Target], notice: ChangeNotice, now: Moment) {
        if std::mem::take(&mut self.is_exchanged) {
            self.restored = Some(now);
            put(targets, &self.original, notice);
        }
    }

    /// Notes that a disk was informed that another unit is present.
    pub(crate) fn found_another(&mut self, disk: usize, now: Moment) {
        if let Some(stranger) = self.strangers.last_mut().filter(|_| self.is_exchanged) {
            stranger.was_found.entry(disk).or_insert(now);
        }
    }

    /// Returns whether another unit was present at any time since `begun`.
    fn was_another_since(&self, begun: Moment) -> bool {
        self.is_exchanged || self.restored.is_some_and(|restored| restored > begun)
    }

    /// Returns whether another unit may have responded to a request that began at `begun` before the
    /// initiator could notice the replacement. If a session has several connections, GOOD over one connection
    /// may arrive before the unit attention over another. And a write that meets the unit attention gets its
    /// response once its data has arrived, after reads that were sent later.
    pub(crate) fn may_have_misled(&self, has_connections: bool, begun: Moment) -> bool {
        let is_overtaken = self.withheld.is_some_and(|withheld| withheld > begun);
        (has_connections || is_overtaken) && self.was_another_since(begun)
    }

    /// Notes that a unit attention waits at a target for the data of the command that has met it.
    pub(crate) const fn withheld(&mut self, now: Moment) {
        self.withheld = Some(now);
    }

    /// Returns whether another unit was ever present.
    pub(crate) const fn was_exchanged(&self) -> bool {
        !self.strangers.is_empty()
    }

    /// Checks that no disk has written to a stranger after it was informed of it. Requests in flight during the
    /// exchange may have reached the stranger: each session receives one report, and the stranger serves the
    /// commands after that.
    ///
    /// # Errors
    /// The first such write.
    pub(crate) fn check_strangers(&self, oracle: &Oracle) -> Result<(), String> {
        self.strangers.iter().try_for_each(|stranger| stranger.check(oracle))
    }
}

impl Stranger {
    fn check(&self, oracle: &Oracle) -> Result<(), String> {
        if self.disk.holds(0, &self.image) {
            return Ok(());
        }
        let now = self.disk.read(0, usize::MAX);
        let grains = now.chunks_exact(GRAIN).zip(self.image.chunks_exact(GRAIN));
        for (at, (now, _)) in (0..).zip(grains).filter(|(_, (now, before))| now != before) {
            let write = now.first_chunk().and_then(|word| oracle.begun(u64::from_be_bytes(*word)));
            let knew =
                |(disk, begun)| self.was_found.get(&disk).is_some_and(|found| begun > *found);
            if write.is_some_and(knew) {
                return Err(format!(
                    "another unit was written to at byte {:#x}, though it was known to be one",
                    at * GRAIN
                ));
            }
        }
        Ok(())
    }
}

fn put(targets: &mut [Target], unit: &Unit, notice: ChangeNotice) {
    for target in targets {
        match notice {
            ChangeNotice::Attention(sense) => {
                target.replace_unit_with_attention(NUMBER, unit.clone(), sense)
            }
            ChangeNotice::Restart => {
                target.replace_unit(NUMBER, unit.clone());
                target.drop_connections();
            }
        }
    }
}
