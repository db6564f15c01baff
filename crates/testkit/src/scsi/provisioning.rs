//! UNMAP, WRITE SAME and GET LBA STATUS (SBC-3 §5.4, §5.28, §5.42).

use super::operation;
use super::sense::Sense;
use super::transfer::{PROTECT, Range, refuse_flags, refuse_if_protected};
use super::unit::Unit;
use super::work::{Sink, Work, answer};
use crate::convert::{be, be32, clamp32, index, len32};

/// Byte 1 of UNMAP: anchor instead of deallocating. The unit anchors nothing (ANC_SUP is clear).
const UNMAP_ANCHOR: u8 = 0x01;
/// Byte 1 of WRITE SAME: anchor instead of deallocating.
const WRITE_SAME_ANCHOR: u8 = 0x10;
/// Byte 1 of WRITE SAME: deallocate instead of writing, if reads of the blocks then return the data to write.
const UNMAP_BIT: u8 = 0x08;
/// Byte 1 of WRITE SAME (16): the command has no data, and writes zeros.
const NO_DATA: u8 = 0x01;

/// The most descriptors of one list (MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT).
pub(super) const MAX_DESCRIPTORS: u32 = 256;

/// LBPU: UNMAP is served.
const LBPU: u8 = 0x80;
/// LBPWS: WRITE SAME (16) deallocates.
const LBPWS: u8 = 0x40;
/// LBPWS10: WRITE SAME (10) deallocates.
const LBPWS10: u8 = 0x20;
/// LBPRZ: deallocated blocks read as zeros.
const LBPRZ: u8 = 0x04;

/// Returns byte 5 of VPD page B2h, which reports the commands that deallocate blocks.
pub(super) fn ways(unit: &Unit) -> u8 {
    let all = LBPU | LBPWS | LBPWS10 | LBPRZ;
    if unit.thin { unit.behavior.provisioning.unwrap_or(all) } else { 0 }
}

pub(super) fn begin_unmap(unit: &Unit, cdb: [u8; 16]) -> Result<Work, Sense> {
    if ways(unit) & LBPU == 0 {
        return Err(Sense::INVALID_OPCODE);
    }
    refuse_flags(cdb, UNMAP_ANCHOR)?;
    refuse_if_protected(unit)?;
    Ok(Work::Take(Sink::Parameters(Vec::new()), be(&cdb[7..], 2)))
}

/// Zeroes the blocks of all ranges in the list, or, if a range is invalid, no block. Blocks that the unit
/// does not deallocate stay unchanged.
pub(super) fn unmap(unit: &Unit, parameters: &[u8]) -> Result<(), Sense> {
    for blocks in deallocated(unit, parameters)? {
        unit.disk.unmap(blocks.start, blocks.end - blocks.start);
    }
    Ok(())
}

/// Zeroes those blocks of an ended UNMAP for which `is_done` returns `true`.
pub(super) fn unmap_part(unit: &Unit, parameters: &[u8], is_done: impl FnMut(&u64) -> bool) {
    let ranges = deallocated(unit, parameters).unwrap_or_default();
    ranges.into_iter().flatten().filter(is_done).for_each(|lba| unit.disk.unmap(lba, 1));
}

/// Returns the blocks that an UNMAP zeroes.
fn deallocated(unit: &Unit, parameters: &[u8]) -> Result<Vec<std::ops::Range<u64>>, Sense> {
    let ranges = descriptors(unit, parameters)?;
    let most = unit.behavior.max_unmap_blocks.unwrap_or(u32::MAX);
    let blocks: u64 = ranges.iter().map(|range| range.blocks).sum();
    if len32(ranges.len()) > MAX_DESCRIPTORS || blocks > u64::from(most) {
        return Err(Sense::INVALID_PARAMETER);
    }
    let parts = |range: Range| {
        let (start, end) = whole_granules(unit, &range);
        let kept = &unit.behavior.kept_by_unmap;
        [start..end.min(kept.start), start.max(kept.end)..end]
    };
    let parts = ranges.into_iter().flat_map(parts);
    Ok(parts.filter(|blocks| !blocks.is_empty()).collect())
}

/// Returns the start and the end of the whole granules in a range.
fn whole_granules(unit: &Unit, range: &Range) -> (u64, u64) {
    let (length, alignment) = unit.behavior.unmap_granularity.unwrap_or((1, 0));
    let length = u64::from(length.max(1));
    let first = u64::from(alignment) % length;
    let end = (range.lba + range.blocks).saturating_sub(first);
    let start = range.lba.saturating_sub(first).next_multiple_of(length);
    (first + start, first + end - end % length)
}

/// Returns the ranges of a list: descriptors of 16 bytes after a header of 8.
pub(super) fn descriptors(unit: &Unit, parameters: &[u8]) -> Result<Vec<Range>, Sense> {
    let Some(length) = parameters.get(2..4) else {
        return if parameters.is_empty() { Ok(Vec::new()) } else { Err(Sense::PARAMETER_LENGTH) };
    };
    let length = usize::try_from(be(length, 2)).unwrap_or(0);
    let entries = parameters.get(8..8 + length).ok_or(Sense::PARAMETER_LENGTH)?;
    entries.chunks_exact(16).map(|entry| descriptor(unit, entry)).collect()
}

fn descriptor(unit: &Unit, entry: &[u8]) -> Result<Range, Sense> {
    Range { lba: be(entry, 8), blocks: be(&entry[8..], 4) }.check(unit)
}

pub(super) fn begin_write_same(unit: &Unit, cdb: [u8; 16]) -> Result<Work, Sense> {
    let way = if cdb[0] == operation::WRITE_SAME_16 { LBPWS } else { LBPWS10 };
    let unserved = if ways(unit) & way == 0 { UNMAP_BIT } else { 0 };
    refuse_flags(cdb, PROTECT | WRITE_SAME_ANCHOR | unserved)?;
    Range::of(cdb).check(unit)?;
    refuse_if_protected(unit)?;
    if has_no_data(cdb) {
        write_same(unit, cdb, &[])?;
        return Ok(Work::Done);
    }
    Ok(Work::Take(Sink::Parameters(Vec::new()), u64::from(unit.disk.block_size())))
}

/// Writes the data of one block to each block of the range. A length of 0 means all blocks up to the end.
pub(super) fn write_same(unit: &Unit, cdb: [u8; 16], block: &[u8]) -> Result<(), Sense> {
    let Range { lba, blocks } = same_blocks(unit, cdb)?;
    if deallocates(cdb, block) {
        unit.disk.unmap(lba, blocks);
        return Ok(());
    }
    check_block(unit, block)?;
    unit.disk.write_same(lba, blocks, block);
    Ok(())
}

/// Writes those blocks of an ended WRITE SAME for which `is_done` returns `true`.
pub(super) fn write_same_part(
    unit: &Unit,
    cdb: [u8; 16],
    block: &[u8],
    is_done: impl FnMut(&u64) -> bool,
) {
    let Ok(Range { lba, blocks }) = same_blocks(unit, cdb) else { return };
    let unmaps = deallocates(cdb, block);
    if !unmaps && check_block(unit, block).is_err() {
        return;
    }
    for lba in (lba..lba + blocks).filter(is_done) {
        if unmaps {
            unit.disk.unmap(lba, 1);
        } else {
            unit.disk.write_same(lba, 1, block);
        }
    }
}

/// Returns the blocks that a WRITE SAME names.
fn same_blocks(unit: &Unit, cdb: [u8; 16]) -> Result<Range, Sense> {
    let Range { lba, blocks } = Range::of(cdb).check(unit)?;
    let blocks = if blocks == 0 { unit.disk.blocks().saturating_sub(lba) } else { blocks };
    Ok(Range { lba, blocks })
}

/// Returns whether a WRITE SAME of this block deallocates.
fn deallocates(cdb: [u8; 16], block: &[u8]) -> bool {
    let is_zero = block.iter().all(|byte| *byte == 0);
    is_zero && (cdb[1] & UNMAP_BIT != 0 || has_no_data(cdb))
}

fn check_block(unit: &Unit, block: &[u8]) -> Result<(), Sense> {
    let is_whole = block.len() == unit.disk.block_size() as usize;
    if is_whole { Ok(()) } else { Err(Sense::PARAMETER_LENGTH) }
}

fn has_no_data(cdb: [u8; 16]) -> bool {
    cdb[0] == operation::WRITE_SAME_16 && cdb[1] & NO_DATA != 0
}

/// Returns the runs of blocks with equal provisioning status, from this LBA on, up to the limit of one
/// response.
pub(super) fn lba_status(unit: &Unit, cdb: [u8; 16]) -> Result<Work, Sense> {
    if unit.behavior.refuses_lba_status {
        return Err(Sense::INVALID_FIELD);
    }
    let mut lba = be(&cdb[2..], 8);
    if lba >= unit.disk.blocks() {
        return Err(Sense::OUT_OF_RANGE);
    }
    let allocation = u64::from(be32(&cdb[10..]));
    let room = index(allocation.saturating_sub(8) / 16);
    let mut data = vec![0; 8];
    for _ in 0..unit.behavior.lba_status_runs.unwrap_or(1).min(room) {
        if lba >= unit.disk.blocks() {
            break;
        }
        let (mapped, run) = unit.disk.extent(lba);
        let run = clamp32(run.min(unit.behavior.lba_status_blocks.unwrap_or(u64::MAX)));
        data.extend(lba.to_be_bytes());
        data.extend(run.to_be_bytes());
        data.extend([u8::from(!mapped), 0, 0, 0]);
        lba += u64::from(run);
    }
    let len = clamp32(data.len() as u64 - 4);
    data[..4].copy_from_slice(&len.to_be_bytes());
    Ok(answer(data, allocation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RamDisk;

    /// Returns the blocks that are still mapped after an UNMAP of this range.
    fn left(unit: &Unit, lba: u64, blocks: u32) -> Vec<u64> {
        unit.disk.fill(1);
        let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
        list.extend(lba.to_be_bytes());
        list.extend(blocks.to_be_bytes());
        list.extend([0; 4]);
        unmap(unit, &list).unwrap();
        (0..unit.disk.blocks()).filter(|lba| unit.disk.extent(*lba).0).collect()
    }

    #[test]
    fn only_whole_granules_are_unmapped_and_none_that_are_kept() {
        let mut unit = Unit::new(RamDisk::new(512, 16));
        assert_eq!(left(&unit, 1, 14), [0, 15]);
        unit.behavior.unmap_granularity = Some((4, 6));
        assert_eq!(left(&unit, 1, 14), [0, 1, 14, 15]);
        assert_eq!(left(&unit, 0, 16), [0, 1, 14, 15]);
        assert_eq!(left(&unit, 3, 3).len(), 16);
        unit.behavior.kept_by_unmap = 5..11;
        assert_eq!(left(&unit, 0, 16), [0, 1, 5, 6, 7, 8, 9, 10, 14, 15]);
        unit.behavior.kept_by_unmap = 0..u64::MAX;
        assert_eq!(left(&unit, 0, 16).len(), 16);
    }

    #[test]
    fn more_blocks_than_the_unit_takes_at_once_are_refused() {
        let mut unit = Unit::new(RamDisk::new(512, 16));
        unit.behavior.max_unmap_blocks = Some(7);
        assert_eq!(left(&unit, 0, 7).len(), 9);
        let list = [&[0, 22, 0, 16, 0, 0, 0, 0][..], &[0; 11], &[8, 0, 0, 0, 0]].concat();
        assert_eq!(unmap(&unit, &list), Err(Sense::INVALID_PARAMETER));
    }

    #[test]
    fn more_descriptors_than_the_unit_takes_at_once_are_refused() {
        let unit = Unit::new(RamDisk::new(512, 16));
        let list = |descriptors: u16| {
            let length = (descriptors * 16).to_be_bytes();
            let header = [0, 0, length[0], length[1], 0, 0, 0, 0];
            [&header[..], &vec![0; usize::from(descriptors) * 16]].concat()
        };
        assert_eq!(unmap(&unit, &list(256)), Ok(()));
        assert_eq!(unmap(&unit, &list(257)), Err(Sense::INVALID_PARAMETER));
    }

    /// SBC-3 §6.6.4: the unit serves the commands for deallocation that its VPD page B2h announces, and no
    /// others.
    #[test]
    fn only_announced_ways_to_give_blocks_back_are_served() {
        let mut unit = Unit::new(RamDisk::new(512, 16));
        let mut served = |ways: Option<u8>, thin: bool| {
            (unit.behavior.provisioning, unit.thin) = (ways, thin);
            let [mut ten, mut sixteen, unmap] =
                [operation::WRITE_SAME_10, operation::WRITE_SAME_16, operation::UNMAP].map(
                    |code| {
                        let mut cdb = [0; 16];
                        cdb[0] = code;
                        cdb
                    },
                );
            (ten[1], sixteen[1]) = (UNMAP_BIT, UNMAP_BIT);
            let why = |result: Result<Work, Sense>| result.err();
            [
                begin_unmap(&unit, unmap),
                begin_write_same(&unit, sixteen),
                begin_write_same(&unit, ten),
            ]
            .map(why)
        };
        let (code, field) = (Some(Sense::INVALID_OPCODE), Some(Sense::INVALID_FIELD));
        assert_eq!(served(None, true), [None; 3]);
        assert_eq!(served(None, false), [code, field, field]);
        assert_eq!(served(Some(0xe4), false), [code, field, field]);
        assert_eq!(served(Some(0x84), true), [None, field, field]);
        assert_eq!(served(Some(0x44), true), [code, None, field]);
        assert_eq!(served(Some(0x24), true), [code, field, None]);
    }
}
