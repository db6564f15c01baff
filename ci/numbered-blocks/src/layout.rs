//! Calculates the places of blocks on a disk, and the place of each write.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};

/// Bytes of a block.
pub(crate) const BLOCK: usize = 4096;
/// Bytes of a block, for the calculation of places.
const LEN: u64 = BLOCK as u64;
/// Number of writers that share a disk.
pub(crate) const WRITERS: usize = 4;
/// Distance between two blocks of one writer, in blocks.
const STRIDE: u64 = WRITERS as u64;
/// Number of blocks per MiB. Before the writers begin, every other MiB of the disk is a hole.
const STRETCH: u64 = (1 << 20) / LEN;

/// The blocks of a disk. Each belongs to one writer, and neighbouring blocks belong to different writers.
///
/// The writes of a writer are numbered from 1. The number of a write is the generation of the block that it
/// writes, and determines the place of that block. So a checker that knows the number of flushed writes knows
/// the data of each block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Number of blocks of each writer.
    each: u64,
}

impl Layout {
    /// Divides a disk of `len` bytes among the writers, with the same number of blocks for each. A rest at
    /// the end of the disk that is too short for one more block per writer belongs to no writer. Returns
    /// `None` if the disk is shorter than one block per writer.
    pub(crate) fn new(len: u64) -> Option<Self> {
        let each = len / (LEN * STRIDE);
        (each > 0).then_some(Self { each })
    }

    /// Returns the layout of a disk.
    ///
    /// # Errors
    /// When the size of the disk is too small or cannot be determined.
    pub(crate) fn of(mut disk: &File) -> io::Result<Self> {
        let len = disk.seek(SeekFrom::End(0))?;
        Self::new(len).ok_or_else(|| io::Error::other(format!("{len} bytes are no disk")))
    }

    /// Returns the number of blocks of all writers.
    pub(crate) const fn blocks(self) -> u64 {
        self.each * STRIDE
    }

    /// Returns the number of the block to which a write of a writer goes.
    pub(crate) const fn place(self, writer: u64, generation: u64) -> u64 {
        mixed(generation ^ mixed(writer)) % self.each * STRIDE + writer
    }

    /// Returns the offset of a block in bytes.
    pub(crate) const fn offset(number: u64) -> u64 {
        number * LEN
    }

    /// Returns the writer that a block belongs to.
    pub(crate) const fn writer(self, number: u64) -> u64 {
        number % STRIDE
    }

    /// Returns whether a block is in a hole before the writers begin.
    pub(crate) const fn is_hole(self, number: u64) -> bool {
        number / STRETCH % 2 == 1
    }
}

/// Returns a pseudo-random number that depends on `seed` only. Different seeds give different numbers (the step
/// and the finalizer of SplitMix64).
pub(crate) const fn mixed(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_goes_to_a_block_of_its_writer() {
        let layout = Layout::new(64 * LEN + 100).unwrap();
        assert_eq!(layout.blocks(), 64);
        for writer in 0..STRIDE {
            let mut reached: Vec<u64> = (1..1000).map(|at| layout.place(writer, at)).collect();
            assert!(reached.iter().all(|number| layout.writer(*number) == writer));
            reached.sort_unstable();
            reached.dedup();
            assert_eq!(reached.len(), 16, "each of them");
        }
    }

    #[test]
    fn a_disk_without_a_block_for_each_writer_has_no_layout() {
        assert!(Layout::new(STRIDE * LEN - 1).is_none());
    }
}
