//! Makes the data of a block, and checks it.

use std::fmt;

use crate::layout::{BLOCK, Layout, mixed};

/// A block in memory, aligned for transfers that bypass the page cache (open(2), `O_DIRECT`).
///
/// A block begins with its number on the disk and its generation. These two determine all further bytes. So a
/// block that is damaged, or that belongs to another place or generation, is detected.
#[derive(Clone, Eq, PartialEq)]
#[repr(C, align(4096))]
pub(crate) struct Block(pub(crate) [u8; BLOCK]);

/// The error for a block that no writer has ever written to its place. It has the number and the generation at
/// the beginning of the block.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Damaged {
    /// The number at the beginning of the block.
    number: u64,
    /// The generation at the beginning of the block.
    generation: u64,
}

impl Block {
    /// Returns a block of zeros.
    pub(crate) fn zeros() -> Box<Self> {
        Box::new(Self([0; BLOCK]))
    }

    /// Returns the block that the write with this generation leaves at a place.
    pub(crate) fn new(number: u64, generation: u64) -> Box<Self> {
        let mut block = Self::zeros();
        let (words, _) = block.0.as_chunks_mut();
        let mut seed = mixed(number ^ mixed(generation));
        for (at, word) in words.iter_mut().enumerate() {
            seed = mixed(seed);
            *word = match at {
                0 => number,
                1 => generation,
                _ => seed,
            }
            .to_le_bytes();
        }
        block
    }

    /// Returns the block at a place before the writers begin.
    pub(crate) fn first(layout: Layout, number: u64) -> Box<Self> {
        if layout.is_hole(number) { Self::zeros() } else { Self::new(number, 0) }
    }

    /// Returns the generation of a block that was read at a place.
    ///
    /// # Errors
    /// When no write to this place leaves such a block.
    pub(crate) fn generation(&self, layout: Layout, number: u64) -> Result<u64, Damaged> {
        let [said, generation] = self.head();
        let (is_due, expected) = if generation == 0 {
            (true, Self::first(layout, number))
        } else {
            let place = layout.place(layout.writer(number), generation);
            (place == number, Self::new(number, generation))
        };
        if is_due && *self == *expected {
            Ok(generation)
        } else {
            Err(Damaged { number: said, generation })
        }
    }

    /// Returns the number and the generation at the beginning of the block.
    fn head(&self) -> [u64; 2] {
        let (words, _) = self.0.as_chunks();
        let word = |at| words.get(at).copied().map_or(0, u64::from_le_bytes);
        [word(0), word(1)]
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [number, generation] = self.head();
        f.debug_struct("Block").field("number", &number).field("generation", &generation).finish()
    }
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, generation } = self;
        write!(
            f,
            "is not what was ever written there; it begins like block {number} of generation {generation}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout::new(2 << 20).unwrap()
    }

    #[test]
    fn a_block_tells_its_generation_at_its_place_only() {
        let layout = layout();
        for (writer, generation) in [(0, 1), (1, 2), (3, 77)] {
            let number = layout.place(writer, generation);
            let block = Block::new(number, generation);
            assert_eq!(block.generation(layout, number), Ok(generation));
            let damaged = Damaged { number, generation };
            assert_eq!(block.generation(layout, number + 1), Err(damaged));
        }
    }

    #[test]
    fn a_generation_that_never_goes_to_a_place_is_not_believed() {
        let layout = layout();
        let number = layout.place(2, 5);
        let elsewhere = (6..).find(|other| layout.place(2, *other) != number).unwrap();
        assert!(Block::new(number, elsewhere).generation(layout, number).is_err());
    }

    #[test]
    fn each_byte_counts() {
        let layout = layout();
        let number = layout.place(0, 9);
        for at in 0..BLOCK {
            let mut block = Block::new(number, 9);
            block.0[at] ^= 1;
            assert!(block.generation(layout, number).is_err(), "{at}");
        }
    }

    #[test]
    fn at_first_half_of_the_disk_is_a_hole() {
        let layout = layout();
        for number in 0..layout.blocks() {
            let hole = Block::zeros().generation(layout, number);
            let data = Block::new(number, 0).generation(layout, number);
            assert_eq!(hole.is_ok(), number >= 256, "{number}");
            assert_eq!(data.is_ok(), number < 256, "{number}");
        }
    }
}
