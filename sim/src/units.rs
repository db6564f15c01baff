//! The units of a disk or a volume: one, or the members.

use std::ops::Range;

use iscsi_testkit::disk::RamDisk;

use crate::oracle::GRAIN;
use crate::rng::Rng;

/// Chunk size of a volume: the number of consecutive bytes on one unit before the next unit follows. This is
/// the smallest chunk size that a volume may have.
pub(crate) const CHUNK: usize = 64 << 10;

/// Units that hold the bytes of one disk or of one volume. The place of each byte of a volume is calculated
/// here, by the RAID-0 layout of md, and not by the volume itself. So a volume that writes bytes to wrong
/// places, and reads them from the same wrong places, is detected.
#[derive(Debug)]
pub(crate) struct Units {
    disks: Vec<RamDisk>,
    /// The unit that each target serves.
    of_target: Vec<usize>,
    /// Chunk size in bytes.
    chunk: usize,
    /// Number of losses of each unit's cache that the oracle has been informed of.
    cache_losses: Vec<u64>,
}

impl Units {
    /// Makes the units from the disks of one volume, and from the unit that each target serves. If there is
    /// one disk, it holds all bytes.
    pub(crate) fn new(disks: &[RamDisk], of_target: Vec<usize>, chunk: usize) -> Self {
        Self { disks: disks.to_vec(), of_target, chunk, cache_losses: vec![0; disks.len()] }
    }

    pub(crate) const fn count(&self) -> usize {
        self.disks.len()
    }

    pub(crate) fn disk(&self, unit: usize) -> &RamDisk {
        &self.disks[unit]
    }

    /// Returns the unit that a target serves.
    pub(crate) fn of_target(&self, target: usize) -> usize {
        self.of_target[target]
    }

    /// Returns the targets that serve a unit.
    pub(crate) fn targets_of(&self, unit: usize) -> Vec<usize> {
        (0..self.of_target.len()).filter(|target| self.of_target[*target] == unit).collect()
    }

    /// Draws one of the units. With a single unit, this uses no random number.
    pub(crate) fn any(&self, rng: &mut Rng) -> usize {
        if self.disks.len() == 1 { 0 } else { rng.index(0..self.disks.len()) }
    }

    /// Returns all bytes as a read sees them.
    pub(crate) fn image(&self) -> Vec<u8> {
        let mut images = self.disks.iter().map(|disk| disk.read(0, usize::MAX));
        if self.disks.len() == 1 {
            return images.next().unwrap_or_default().to_vec();
        }
        let images: Vec<_> = images.collect();
        let rows = images.iter().map(|image| image.len() / self.chunk).min().unwrap_or(0);
        let row =
            |row: usize| images.iter().map(move |image| &image[row * self.chunk..][..self.chunk]);
        (0..rows).flat_map(row).flatten().copied().collect()
    }

    /// Returns the grains of a range of blocks of a unit.
    pub(crate) fn grains(&self, unit: usize, blocks: Range<u64>) -> Vec<Range<usize>> {
        let size = u64::from(self.disks[unit].block_size());
        let [start, end] =
            [blocks.start, blocks.end].map(|lba| usize::try_from(lba * size).unwrap_or(usize::MAX));
        if self.disks.len() == 1 {
            return std::iter::once(start / GRAIN..end / GRAIN).collect();
        }
        let mut grains = Vec::new();
        let mut at = start;
        while at < end {
            let (row, next) = (at / self.chunk, (at / self.chunk + 1) * self.chunk);
            let place = (row * self.disks.len() + unit) * self.chunk + at % self.chunk;
            let len = next.min(end) - at;
            grains.push(place / GRAIN..(place + len) / GRAIN);
            at += len;
        }
        grains
    }

    /// Returns a unit whose cache has lost something since the last call, and marks the loss as known. `None`
    /// if there is none.
    pub(crate) fn next_cache_loss(&mut self) -> Option<usize> {
        let lost = |(disk, known): (&RamDisk, &mut u64)| {
            let now = disk.cache_losses();
            std::mem::replace(known, now) != now
        };
        self.disks.iter().zip(&mut self.cache_losses).position(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_volume_lie_chunk_by_chunk_on_its_units() {
        let disks = [RamDisk::new(512, 5), RamDisk::new(512, 4)];
        for (disk, first) in disks.iter().zip([10, 20]) {
            (0..4)
                .for_each(|lba| disk.write(lba * 512, &[first + u8::try_from(lba).unwrap(); 512]));
        }
        let units = Units::new(&disks, vec![0, 1, 1], 1024);
        let blocks: Vec<_> = units.image().chunks(512).map(|block| block[0]).collect();
        assert_eq!(blocks, [10, 11, 20, 21, 12, 13, 22, 23]);
        assert_eq!(units.grains(1, 1..3), [24..32, 48..56]);
        assert_eq!(units.grains(0, 0..4), [0..16, 32..48]);
        assert_eq!((units.targets_of(1), units.of_target(0)), (vec![1, 2], 0));
        let one = Units::new(&disks[..1], vec![0], 1024);
        assert_eq!((one.image().len(), one.grains(0, 1..4).first()), (5 * 512, Some(&(8..32))));
    }
}
