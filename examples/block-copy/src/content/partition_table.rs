//! Recognises partition tables: GPT (UEFI 2.10 §5.3) and MBR.

use super::held::{Held, le32};
use super::sample::{Place, Sample};

const GPT: &[u8] = b"EFI PART";
/// Possible lengths of a logical block in bytes.
const BLOCKS: [u64; 2] = [512, 4096];
/// Bytes of a GPT entry. All known programs write entries of this length.
const GPT_ENTRY: usize = 128;
/// Offset of the entries in an MBR. `MBR_ENTRY` is the length of an entry, and `PROTECTIVE` the type of the
/// entry that protects a GPT.
const MBR_ENTRIES: u64 = 446;
const MBR_ENTRY: usize = 16;
const PROTECTIVE: u8 = 0xee;

/// Returns the partition table of a medium.
pub(super) fn find(sample: &Sample) -> Option<Held> {
    if let Some(block) = gpt_block_size(sample) {
        let used = entries(sample, block);
        return Some(Held::new("a GPT partition table").with_partitions(used));
    }
    // If only the beginning of the disk was overwritten, the second GPT header remains.
    let is_second = |block: u64| sample.at(Place::End(block), 0, GPT.len()) == Some(GPT);
    if BLOCKS.into_iter().any(is_second) {
        return Some(Held::new("the second header of a GPT partition table"));
    }
    mbr(sample)
}

/// Returns the length of the logical blocks of a GPT, from the place of its header.
pub(crate) fn gpt_block_size(sample: &Sample) -> Option<u64> {
    BLOCKS.into_iter().find(|block| sample.bytes(*block, GPT.len()) == Some(GPT))
}

/// Returns whether there is an MBR with partitions. A protective MBR of a GPT does not count.
pub(crate) fn has_mbr(sample: &Sample) -> bool {
    mbr(sample).is_some_and(|held| held.has_partitions())
}

/// Returns the number of used GPT entries in the sample.
fn entries(sample: &Sample, block: u64) -> usize {
    let entry = |at: u64| sample.bytes(2 * block + at * GPT_ENTRY as u64, 16);
    let seen = (0..128).map_while(entry);
    seen.filter(|kind| kind.iter().any(|byte| *byte != 0)).count()
}

fn mbr(sample: &Sample) -> Option<Held> {
    if sample.bytes(510, 2) != Some(&[0x55, 0xaa]) {
        return None;
    }
    let entries: Option<Vec<_>> = (0..4)
        .map(|index| sample.bytes(MBR_ENTRIES + index * MBR_ENTRY as u64, MBR_ENTRY))
        .collect();
    let entries = entries?;
    // The first byte of an entry is 0 or 0x80. With any other value it is the code of a boot sector.
    if !entries.iter().all(|entry| matches!(entry.first(), Some(0 | 0x80))) {
        return None;
    }
    let is_used = |entry: &&&[u8]| {
        entry.get(4).is_some_and(|kind| *kind != 0) && le32(entry.get(12..16)) > Some(0)
    };
    let used: Vec<_> = entries.iter().filter(is_used).collect();
    let is_protective = used.iter().any(|entry| entry.get(4) == Some(&PROTECTIVE));
    match used.len() {
        0 => None,
        _ if is_protective => Some(Held::new("an MBR that stands for a GPT partition table")),
        count => Some(Held::new("an MBR partition table").with_partitions(count)),
    }
}
