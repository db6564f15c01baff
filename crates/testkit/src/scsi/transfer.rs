//! READ, WRITE and SYNCHRONIZE CACHE with 10 and 16 bytes (SBC-3 §5).

use super::operation;
use super::sense::Sense;
use super::unit::Unit;
use super::work::{Sink, Source, Work};
use crate::convert::be;

/// RDPROTECT or WRPROTECT in byte 1: the unit has no protection information (SBC-3 §4.22.2).
pub(super) const PROTECT: u8 = 0xe0;
/// DPO and FUA in byte 1: served if MODE SENSE reports DPOFUA (SBC-3 §6.4.1).
const DPO_FUA: u8 = 0x18;
/// FUA in byte 1: the medium itself is read, or written before the command ends.
const FUA: u8 = 0x08;
/// IMMED in byte 1 of SYNCHRONIZE CACHE: the status is sent before the blocks are durable.
const IMMEDIATE: u8 = 0x02;

/// The range of blocks in a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) lba: u64,
    pub(super) blocks: u64,
}

impl Range {
    /// Reads LBA and length from the CDB.
    pub(super) fn of(cdb: [u8; 16]) -> Self {
        match cdb[0] {
            operation::READ_16
            | operation::WRITE_16
            | operation::WRITE_SAME_16
            | operation::SYNCHRONIZE_CACHE_16 => {
                Self { lba: be(&cdb[2..], 8), blocks: be(&cdb[10..], 4) }
            }
            _ => Self { lba: be(&cdb[2..], 4), blocks: be(&cdb[7..], 2) },
        }
    }

    pub(super) fn check(self, unit: &Unit) -> Result<Self, Sense> {
        let end = self.lba.checked_add(self.blocks);
        match end {
            Some(end) if end <= unit.disk.blocks() => Ok(self),
            _ => Err(Sense::OUT_OF_RANGE),
        }
    }

    fn span(self) -> std::ops::Range<u64> {
        self.lba..self.lba.saturating_add(self.blocks)
    }

    fn check_length(self, unit: &Unit) -> Result<Self, Sense> {
        let limit = u64::from(unit.max_transfer_blocks);
        if limit > 0 && self.blocks > limit { Err(Sense::INVALID_FIELD) } else { Ok(self) }
    }
}

pub(super) fn read(unit: &Unit, cdb: [u8; 16]) -> Result<Work, Sense> {
    refuse_flags(cdb, PROTECT | unserved(unit))?;
    let range = Range::of(cdb).check(unit)?.check_length(unit)?;
    if cdb[1] & FUA != 0 {
        unit.disk.flush(range.span());
    }
    let size = u64::from(unit.disk.block_size());
    let (offset, length) = (range.lba * size, range.blocks * size);
    Ok(Work::Send(Source::Disk { disk: unit.disk.clone(), offset, length, inverted: None }))
}

pub(super) fn write(unit: &Unit, cdb: [u8; 16]) -> Result<Work, Sense> {
    refuse_flags(cdb, PROTECT | unserved(unit))?;
    let range = Range::of(cdb).check(unit)?.check_length(unit)?;
    refuse_if_protected(unit)?;
    let size = u64::from(unit.disk.block_size());
    let sink = Sink::Disk { disk: unit.disk.clone(), offset: range.lba * size, inverted: None };
    Ok(Work::Take(sink, range.blocks * size))
}

/// Makes the blocks of a write durable if FUA is set. Fails if the unit became too small after the start of
/// the write.
pub(super) fn finish_write(unit: &Unit, cdb: [u8; 16]) -> Result<(), Sense> {
    let range = Range::of(cdb).check(unit)?;
    if cdb[1] & FUA != 0 {
        unit.disk.flush(range.span());
    }
    Ok(())
}

/// Serves SYNCHRONIZE CACHE. With IMMED no block becomes durable, because the status guarantees nothing then.
pub(super) fn synchronize(unit: &Unit, cdb: [u8; 16]) -> Result<Work, Sense> {
    let range = Range::of(cdb).check(unit)?;
    unit.disk.count_flush();
    if cdb[1] & IMMEDIATE == 0 {
        let end = if range.blocks == 0 { unit.disk.blocks() } else { range.lba + range.blocks };
        unit.disk.flush(range.lba..end);
    }
    Ok(Work::Done)
}

/// Returns the bits DPO and FUA if the unit does not serve them, else 0.
fn unserved(unit: &Unit) -> u8 {
    if unit.disk.is_volatile() { 0 } else { DPO_FUA }
}

/// Refuses a command that sets any of these bits of byte 1.
pub(super) fn refuse_flags(cdb: [u8; 16], flags: u8) -> Result<(), Sense> {
    if cdb[1] & flags == 0 { Ok(()) } else { Err(Sense::INVALID_FIELD) }
}

pub(super) fn refuse_if_protected(unit: &Unit) -> Result<(), Sense> {
    if unit.disk.is_read_only() { Err(Sense::WRITE_PROTECTED) } else { Ok(()) }
}
