//! Where blocks lie, and which of them a write of a writer goes to.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};

/// Bytes of a block.
pub(crate) const BLOCK: usize = 4096;
/// The same, where places are computed.
const LEN: u64 = BLOCK as u64;
/// Writers that share a disk.
pub(crate) const WRITERS: usize = 4;
/// The distance, in blocks, between two blocks of one writer.
const STRIDE: u64 = WRITERS as u64;
/// Blocks of a MiB. At first, every other MiB of the disk is a hole.
const STRETCH: u64 = (1 << 20) / LEN;

/// The blocks of a disk, each of which belongs to one writer: neighbours belong to different ones.
///
/// A writer's writes are numbered from 1. The number of a write is the generation of the block that it leaves, and says by
/// itself where it goes; so a checker that knows how many are flushed knows what each block must have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Blocks of each writer.
    each: u64,
}

impl Layout {
    /// Divides a disk of `len` bytes. The rest at its end belongs to no writer. `None` if it has no block for each writer.
    pub(crate) fn new(len: u64) -> Option<Self> {
        let each = len / (LEN * STRIDE);
        (each > 0).then_some(Self { each })
    }

    /// The layout of a disk.
    ///
    /// # Errors
    /// When its size cannot be had, or is too small.
    pub(crate) fn of(mut disk: &File) -> io::Result<Self> {
        let len = disk.seek(SeekFrom::End(0))?;
        Self::new(len).ok_or_else(|| io::Error::other(format!("{len} bytes are no disk")))
    }

    /// The blocks of all writers.
    pub(crate) const fn blocks(self) -> u64 {
        self.each * STRIDE
    }

    /// The number of the block that a write of a writer goes to.
    pub(crate) const fn place(self, writer: u64, generation: u64) -> u64 {
        mixed(generation ^ mixed(writer)) % self.each * STRIDE + writer
    }

    /// Where a block begins, in bytes.
    pub(crate) const fn offset(number: u64) -> u64 {
        number * LEN
    }

    /// The writer that a block belongs to.
    pub(crate) const fn writer(self, number: u64) -> u64 {
        number % STRIDE
    }

    /// Whether nothing is written to a block before the writers begin.
    pub(crate) const fn is_hole(self, number: u64) -> bool {
        number / STRETCH % 2 == 1
    }
}

/// A number that looks drawn at random, always the same for the same `seed`; different ones for different seeds (the step
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
