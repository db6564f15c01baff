//! Number and size of the blocks of a unit.

use iscsi_pdu::scsi::{ReadCapacity10, ReadCapacity16};

use super::reasons::Verdict;

/// Capacity and block size of a disk (SBC-3, READ CAPACITY).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Capacity {
    /// Number of logical blocks.
    pub blocks: u64,
    /// Length of a logical block, in bytes, 1 to 2^20.
    pub block_size: u32,
    /// Length of a physical block, in bytes.
    pub physical_block_size: u64,
    /// LBPME: blocks can be deallocated.
    #[doc(alias = "thin provisioning")]
    pub provisioning_management: bool,
    /// LBPRZ: deallocated blocks read as zeros.
    pub unmapped_reads_zeros: bool,
    /// Whether the unit supports READ CAPACITY (16). If so, the 16-byte form of a command is sent first, and
    /// the 10-byte form after the unit has refused the long form.
    pub long_commands: bool,
}

impl Capacity {
    /// Returns the capacity in bytes, at most `u64::MAX`.
    pub fn bytes(&self) -> u64 {
        let block_size = u64::from(self.block_size);
        self.blocks.min(u64::MAX / block_size) * block_size
    }
}

impl From<ReadCapacity16> for Capacity {
    fn from(answer: ReadCapacity16) -> Self {
        Self {
            blocks: answer.blocks(),
            block_size: answer.block_length,
            physical_block_size: answer.physical_block_length(),
            provisioning_management: answer.provisioning_management,
            unmapped_reads_zeros: answer.unmapped_reads_zeros,
            long_commands: true,
        }
    }
}

/// Returns the capacity of a unit that supports only READ CAPACITY (10). `None` if the unit has more blocks
/// than this command can count, because a part of the unit must not count as the whole.
pub fn short_capacity(answer: ReadCapacity10) -> Option<Capacity> {
    Some(Capacity {
        blocks: answer.blocks()?,
        block_size: answer.block_length,
        physical_block_size: answer.block_length.into(),
        provisioning_management: false,
        unmapped_reads_zeros: false,
        long_commands: false,
    })
}

/// Returns the present capacity of a unit that supports only READ CAPACITY (10). If this command cannot count
/// its blocks, the number of blocks of `before` stays.
pub fn short_capacity_now(before: &Capacity, answer: ReadCapacity10) -> Capacity {
    let blocks = answer.blocks().unwrap_or(before.blocks);
    Capacity { blocks, block_size: answer.block_length, ..*before }
}

/// Compares the block sizes that a unit had before and has now.
///
/// # Errors
/// [`Verdict::OtherBlockSize`] if they differ. The data of each block would lie elsewhere, even if the unit has
/// the same number of bytes.
pub const fn check_block_size(before: &Capacity, now: &Capacity) -> Result<(), Verdict> {
    let (before, now) = (before.block_size, now.block_size);
    if now == before { Ok(()) } else { Err(Verdict::OtherBlockSize { before, now }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(last: [u8; 4]) -> ReadCapacity10 {
        ReadCapacity10::decode(&[last, [0, 0, 2, 0]].concat()).unwrap()
    }

    /// SBC-3: 0xffffffff as the address of the last block means that READ CAPACITY (16) must be used.
    #[test]
    fn what_the_short_answer_cannot_count_is_not_taken_for_the_whole() {
        assert_eq!(short_capacity(answer([0xff; 4])), None);
        let most = short_capacity(answer([0xff, 0xff, 0xff, 0xfe])).unwrap();
        assert_eq!((most.blocks, most.block_size, most.long_commands), (0xffff_ffff, 512, false));
        let later = short_capacity_now(&most, answer([0, 0, 0, 7]));
        assert_eq!((later.blocks, later.bytes()), (8, 4096));
        assert_eq!(short_capacity_now(&later, answer([0xff; 4])).blocks, 8, "it is unknown");
    }

    #[test]
    fn an_impossible_capacity_is_still_whole_blocks() {
        let most = Capacity { blocks: u64::MAX, ..short_capacity(answer([0; 4])).unwrap() };
        assert_eq!(most.bytes(), u64::MAX - 511);
    }

    #[test]
    fn blocks_of_another_size_are_others_also_where_they_are_as_many_bytes() {
        let small = short_capacity(answer([0, 0, 0, 7])).unwrap();
        let large = Capacity { blocks: 1, block_size: 4096, ..small };
        assert_eq!(small.bytes(), large.bytes());
        assert_eq!(check_block_size(&small, &small), Ok(()));
        let verdict = Verdict::OtherBlockSize { before: 512, now: 4096 };
        assert_eq!(check_block_size(&small, &large), Err(verdict));
    }
}
