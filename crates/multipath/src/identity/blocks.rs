//! Commands that address the blocks of a unit.

use iscsi_pdu::scsi::Cdb;

use super::capacity::Capacity;

/// The blocks of a unit: conversion to bytes, and the commands that address them, in the width that the unit
/// supports.
#[derive(Clone, Copy, Debug)]
pub struct Blocks<'a>(pub &'a Capacity);

/// Error of blocks that no command can address.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BlockError {
    /// The length is not a whole number of blocks.
    #[error("{len} bytes are not a whole number of blocks of {block_size} bytes")]
    NotWhole {
        /// Length, in bytes.
        len: usize,
        /// Length of a block, in bytes.
        block_size: u32,
    },
    /// The blocks lie beyond what 10-byte commands can address, and the unit supports no other commands.
    #[error("{len} bytes at offset {offset} do not fit a unit of {capacity} bytes")]
    OutOfRange {
        /// Offset, in bytes.
        offset: u64,
        /// Length, in bytes.
        len: u64,
        /// Capacity of the unit, in bytes.
        capacity: u64,
    },
}

impl Blocks<'_> {
    /// Maximum number of blocks of one command. It is the limit of the shortest form, because a unit may turn
    /// out to support only that form. It is a multiple of 8, so that blocks of 512 bytes fill whole blocks of
    /// 4096.
    pub const MAX: u32 = (Cdb::MAX_BLOCKS_10 / 8 * 8) as u32;

    /// Returns the number of bytes of these blocks.
    pub const fn bytes_of(self, blocks: u32) -> usize {
        (blocks as usize).saturating_mul(self.0.block_size as usize)
    }

    /// Returns the number of blocks of `len` bytes.
    ///
    /// # Errors
    /// [`BlockError::NotWhole`] if the bytes end within a block.
    pub fn count(self, len: usize) -> Result<u32, BlockError> {
        let block_size = self.0.block_size;
        let blocks = u32::try_from(len / block_size as usize).ok();
        let whole = blocks.filter(|_| len.is_multiple_of(block_size as usize));
        whole.ok_or(BlockError::NotWhole { len, block_size })
    }

    /// Returns a READ command.
    ///
    /// # Errors
    /// [`BlockError::OutOfRange`] if the unit supports only READ (10), which cannot address the blocks.
    pub fn read(self, lba: u64, blocks: u32) -> Result<Cdb, BlockError> {
        if self.0.long_commands {
            return Ok(Cdb::read_16(lba, blocks));
        }
        let (lba, blocks) = self.short_address(lba, blocks)?;
        Ok(Cdb::read_10(lba, blocks))
    }

    /// Returns a WRITE command.
    ///
    /// # Errors
    /// [`BlockError::OutOfRange`] if the unit supports only WRITE (10), which cannot address the blocks.
    pub fn write(self, lba: u64, blocks: u32) -> Result<Cdb, BlockError> {
        if self.0.long_commands {
            return Ok(Cdb::write_16(lba, blocks));
        }
        let (lba, blocks) = self.short_address(lba, blocks)?;
        Ok(Cdb::write_10(lba, blocks))
    }

    /// Returns a SYNCHRONIZE CACHE command for the whole medium.
    pub fn flush(self) -> Cdb {
        if self.0.long_commands {
            Cdb::synchronize_cache_16(0, 0)
        } else {
            Cdb::synchronize_cache_10(0, 0)
        }
    }

    /// Returns the address and the length in the widths of 10-byte commands.
    fn short_address(self, lba: u64, blocks: u32) -> Result<(u32, u16), BlockError> {
        let block_size = u64::from(self.0.block_size);
        let short = u32::try_from(lba).ok().zip(u16::try_from(blocks).ok());
        short.ok_or_else(|| BlockError::OutOfRange {
            offset: lba.saturating_mul(block_size),
            len: u64::from(blocks) * block_size,
            capacity: self.0.bytes(),
        })
    }
}

#[cfg(test)]
mod tests {
    use iscsi_pdu::scsi::ReadCapacity10;

    use super::*;
    use crate::identity::capacity::short_capacity;

    fn capacity(long_commands: bool) -> Capacity {
        let answer = ReadCapacity10::decode(&[0, 0, 0, 7, 0, 0, 2, 0]).unwrap();
        Capacity { blocks: 1 << 40, long_commands, ..short_capacity(answer).unwrap() }
    }

    #[test]
    fn commands_have_the_width_that_the_unit_knows() {
        let [short, long] = [capacity(false), capacity(true)];
        let (short, long) = (Blocks(&short), Blocks(&long));
        assert_eq!(short.read(7, 8).unwrap(), Cdb::read_10(7, 8));
        assert_eq!(long.read(7, 8).unwrap(), Cdb::read_16(7, 8));
        assert_eq!(short.write(7, 8).unwrap(), Cdb::write_10(7, 8));
        assert_eq!(long.write(1 << 33, 1 << 17).unwrap(), Cdb::write_16(1 << 33, 1 << 17));
        assert_eq!(short.flush(), Cdb::synchronize_cache_10(0, 0));
        assert_eq!(long.flush(), Cdb::synchronize_cache_16(0, 0));
    }

    #[test]
    fn short_commands_refuse_what_they_cannot_hold() {
        let short = capacity(false);
        let short = Blocks(&short);
        assert!(matches!(short.read(1 << 32, 1), Err(BlockError::OutOfRange { .. })));
        assert!(matches!(short.write(0, 65536), Err(BlockError::OutOfRange { .. })));
        let not_whole = BlockError::NotWhole { len: 513, block_size: 512 };
        assert_eq!(short.count(513), Err(not_whole));
        assert_eq!((short.count(1024), short.bytes_of(2)), (Ok(2), 1024));
    }
}
