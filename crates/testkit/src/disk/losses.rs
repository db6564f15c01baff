//! Faults of a volatile cache: it loses power, cannot write blocks back, or writes back only some of them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;

use super::{Block, Content, RamDisk};
use crate::convert::index;

impl RamDisk {
    /// Loses power and restores it. A volatile cache is empty afterwards; everything else is unchanged. Each
    /// nexus, of any target that serves this disk, then receives the unit attention POWER ON, RESET, OR BUS
    /// DEVICE RESET OCCURRED. [`Target::restart`](crate::target::Target::restart) does this for all disks of
    /// a target, and drops the connections of that target.
    pub fn lose_power(&self) {
        self.lose_power_but(|_| false);
    }

    /// Loses power after a part of the volatile cache has reached the medium. A drive writes its cache back
    /// in any order and at any time, and reports nothing before a flush. So after a loss of power any block
    /// may be on the medium and any other may be missing, even within one command: a write is torn at the
    /// bounds of its blocks, and never within a block. `is_written` is called with the LBA of each block that
    /// waits for a flush, in ascending order, and returns whether that block is on the medium.
    ///
    /// ```
    /// use iscsi_testkit::disk::{Cache, RamDisk};
    ///
    /// let disk = RamDisk::new(512, 4);
    /// disk.set_cache(Cache::Volatile);
    /// // An initiator has written blocks 1 to 3, and has not flushed them: the drive keeps block 2.
    /// disk.lose_power_but(|lba| lba == 2);
    /// assert_eq!(disk.unflushed_blocks(), 0);
    /// ```
    pub fn lose_power_but(&self, is_written: impl FnMut(u64) -> bool) {
        let mut content = self.content_mut();
        content.write_back(is_written);
        self.empty_cache(&mut content);
    }

    /// Writes a part of the volatile cache back without a request. The blocks for whose LBA `is_written`
    /// returns `true` become durable with their present data. Nothing is reported, and later writes to these
    /// blocks wait for a flush again: a loss of power may restore data that no flush has covered. Returns the
    /// number of blocks that were written back.
    pub fn write_back(&self, is_written: impl FnMut(u64) -> bool) -> usize {
        self.content_mut().write_back(is_written)
    }

    /// Loses the cached data of these blocks, as when the medium refuses a write: the blocks return to their
    /// data at the last flush. Each nexus, of any target that serves this disk, then receives the deferred
    /// error WRITE ERROR (SPC-4 §4.5.7). Returns the number of lost blocks. If it is 0, no error is reported.
    pub fn fail_write_back(&self, blocks: Range<u64>) -> usize {
        let lost = self.lose_cached(blocks);
        if lost > 0 {
            self.0.deferred_errors.fetch_add(1, Ordering::Relaxed);
        }
        lost
    }

    /// Loses the cached data of these blocks, and returns the number of lost blocks.
    pub(crate) fn lose_cached(&self, blocks: Range<u64>) -> usize {
        let mut content = self.content_mut();
        let lost = content.take_durable(index(blocks.start)..index(blocks.end));
        let count = lost.len();
        self.bring_back(&mut content, lost);
        if count > 0 {
            self.0.cache_losses.fetch_add(1, Ordering::Relaxed);
        }
        count
    }

    fn empty_cache(&self, content: &mut Content) {
        let lost = std::mem::take(&mut content.durable);
        self.bring_back(content, lost);
        self.0.power_losses.fetch_add(1, Ordering::Relaxed);
    }

    /// Restores the durable data of blocks.
    fn bring_back(&self, content: &mut Content, durable: BTreeMap<usize, Block>) {
        let size = self.0.block_size as usize;
        for (lba, block) in durable {
            content.bytes[lba * size..(lba + 1) * size].copy_from_slice(&block.bytes);
            content.mapped[lba] = block.mapped;
        }
    }

    /// Returns how often a volatile cache lost blocks for a reason other than a loss of power.
    #[must_use]
    pub fn cache_losses(&self) -> u64 {
        self.0.cache_losses.load(Ordering::Relaxed)
    }

    /// Returns the number of deferred errors.
    pub(crate) fn deferred_errors(&self) -> u64 {
        self.0.deferred_errors.load(Ordering::Relaxed)
    }

    /// Returns the number of losses of power.
    pub(crate) fn power_losses(&self) -> u64 {
        self.0.power_losses.load(Ordering::Relaxed)
    }
}

impl Content {
    fn write_back(&mut self, mut is_written: impl FnMut(u64) -> bool) -> usize {
        let before = self.durable.len();
        self.durable.retain(|lba, _| !is_written(*lba as u64));
        before - self.durable.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cache, RamDisk};

    fn cached(blocks: u64) -> RamDisk {
        let disk = RamDisk::new(512, blocks);
        disk.set_cache(Cache::Volatile);
        disk.write(0, &vec![1; 512 * usize::try_from(blocks).unwrap()]);
        disk
    }

    fn first_bytes(disk: &RamDisk) -> Vec<u8> {
        (0..disk.blocks()).map(|lba| disk.read(lba * 512, 1)[0]).collect()
    }

    #[test]
    fn a_loss_of_power_keeps_any_blocks_of_a_write() {
        let disk = cached(6);
        disk.write_cached(512, &[2; 4 * 512]);
        let mut asked = Vec::new();
        disk.lose_power_but(|lba| {
            asked.push(lba);
            lba % 2 == 0
        });
        assert_eq!(asked, [1, 2, 3, 4]);
        assert_eq!(first_bytes(&disk), [1, 1, 2, 1, 2, 1]);
        assert_eq!((disk.unflushed_blocks(), disk.power_losses()), (0, 1));
        disk.lose_power();
        assert_eq!(first_bytes(&disk), [1, 1, 2, 1, 2, 1]);
    }

    #[test]
    fn what_a_drive_has_written_back_is_there_and_not_what_came_later() {
        let disk = cached(3);
        disk.write_cached(0, &[2; 3 * 512]);
        assert_eq!(disk.write_back(|lba| lba < 2), 2);
        disk.write_cached(0, &[3; 512]);
        disk.unmap(2, 1);
        assert_eq!(first_bytes(&disk), [3, 2, 0]);
        disk.lose_power();
        assert_eq!(first_bytes(&disk), [2, 2, 1]);
        assert_eq!(disk.extent(0), (true, 3));
    }
}
