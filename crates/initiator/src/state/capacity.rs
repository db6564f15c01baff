//! How many blocks of which size, and the commands that address them.

use iscsi_pdu::scsi::{Cdb, ReadCapacity10, ReadCapacity16};

use crate::error::Error;

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
    /// Whether the unit supports READ CAPACITY (16). If so, the 16-byte commands are sent first,
    /// and the 10-byte ones once it has refused those.
    pub long_commands: bool,
}

impl Capacity {
    /// What the short answer tells; `None` if the unit has more blocks than it can count.
    pub(crate) fn counted_by(answer: ReadCapacity10) -> Option<Self> {
        Some(Self {
            blocks: answer.blocks()?,
            block_size: answer.block_length,
            physical_block_size: answer.block_length.into(),
            provisioning_management: false,
            unmapped_reads_zeros: false,
            long_commands: false,
        })
    }

    /// Returns the capacity in bytes, at most `u64::MAX`.
    pub fn bytes(&self) -> u64 {
        let block_size = u64::from(self.block_size);
        self.blocks.min(u64::MAX / block_size) * block_size
    }

    /// Blocks of another size would lie elsewhere, also where they are as many bytes.
    pub(crate) const fn check_block_size(&self, now: u32) -> Result<(), Error> {
        let before = self.block_size;
        if now == before { Ok(()) } else { Err(Error::BlockSizeChanged { before, now }) }
    }

    /// The most blocks that the length field of each form of a command can say, in whole blocks of
    /// 4096 bytes where there are eight to one: a unit may turn out to know the short form only.
    pub(crate) const MAX_BLOCKS: u32 = (Cdb::MAX_BLOCKS_10 / 8 * 8) as u32;

    pub(crate) const fn bytes_of(&self, blocks: u32) -> usize {
        (blocks as usize).saturating_mul(self.block_size as usize)
    }

    /// How many blocks these bytes are, if it is a whole number.
    pub(crate) fn blocks_of(&self, len: usize) -> Result<u32, Error> {
        let block_size = self.block_size;
        let blocks = u32::try_from(len / block_size as usize).ok();
        let whole = blocks.filter(|_| len.is_multiple_of(block_size as usize));
        whole.ok_or(Error::NotWholeBlocks { len, block_size })
    }

    /// READ of the width that the unit knows.
    pub(crate) fn read_command(&self, lba: u64, blocks: u32) -> Result<Cdb, Error> {
        if self.long_commands {
            return Ok(Cdb::read_16(lba, blocks));
        }
        let (lba, blocks) = self.short_address(lba, blocks)?;
        Ok(Cdb::read_10(lba, blocks))
    }

    /// WRITE of the width that the unit knows.
    pub(crate) fn write_command(&self, lba: u64, blocks: u32) -> Result<Cdb, Error> {
        if self.long_commands {
            return Ok(Cdb::write_16(lba, blocks));
        }
        let (lba, blocks) = self.short_address(lba, blocks)?;
        Ok(Cdb::write_10(lba, blocks))
    }

    /// SYNCHRONIZE CACHE of the whole medium.
    pub(crate) fn flush_command(&self) -> Cdb {
        if self.long_commands {
            Cdb::synchronize_cache_16(0, 0)
        } else {
            Cdb::synchronize_cache_10(0, 0)
        }
    }

    /// Address and length as commands of 10 bytes hold them.
    fn short_address(&self, lba: u64, blocks: u32) -> Result<(u32, u16), Error> {
        let block_size = u64::from(self.block_size);
        let short = u32::try_from(lba).ok().zip(u16::try_from(blocks).ok());
        short.ok_or_else(|| Error::OutOfRange {
            offset: lba.saturating_mul(block_size),
            len: u64::from(blocks) * block_size,
            capacity: self.bytes(),
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn capacity(long_commands: bool) -> Capacity {
        Capacity {
            blocks: 1 << 40,
            block_size: 512,
            physical_block_size: 512,
            provisioning_management: false,
            unmapped_reads_zeros: false,
            long_commands,
        }
    }

    #[test]
    fn commands_have_the_width_that_the_unit_knows() {
        let (short, long) = (capacity(false), capacity(true));
        assert_eq!(short.read_command(7, 8).unwrap(), Cdb::read_10(7, 8));
        assert_eq!(long.read_command(7, 8).unwrap(), Cdb::read_16(7, 8));
        assert_eq!(short.write_command(7, 8).unwrap(), Cdb::write_10(7, 8));
        assert_eq!(long.write_command(1 << 33, 1 << 17).unwrap(), Cdb::write_16(1 << 33, 1 << 17));
        assert_eq!(short.flush_command(), Cdb::synchronize_cache_10(0, 0));
        assert_eq!(long.flush_command(), Cdb::synchronize_cache_16(0, 0));
    }

    #[test]
    fn an_impossible_capacity_is_still_whole_blocks() {
        let most = Capacity { blocks: u64::MAX, ..capacity(true) };
        assert_eq!(most.bytes(), u64::MAX - 511);
        assert_eq!(capacity(true).bytes(), 1 << 49);
    }

    #[test]
    fn short_commands_refuse_what_they_cannot_say() {
        let short = capacity(false);
        assert!(matches!(short.read_command(1 << 32, 1), Err(Error::OutOfRange { .. })));
        assert!(matches!(short.write_command(0, 65536), Err(Error::OutOfRange { .. })));
        assert!(matches!(short.blocks_of(513), Err(Error::NotWholeBlocks { len: 513, .. })));
    }
}
