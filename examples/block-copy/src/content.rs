//! Recognises the data on a medium by signatures: image formats, compression, partition tables, file systems.
//!
//! Each kind has a table. Only the signature and the name or label of a format are read.

mod container;
mod file_system;
mod held;
mod partition_table;
mod sample;

pub(crate) use container::{Container, Remedy, container};
pub(crate) use partition_table::{gpt_block_size, has_mbr};
pub(crate) use sample::Sample;

use held::Held;

/// Returns a description of the data on a medium as readable text: "a GPT partition table of 2 partitions, an
/// XFS file system \"data\" of 10 GiB". Returns `None` if nothing is recognised.
pub(crate) fn held(sample: &Sample) -> Option<String> {
    let mut found: Vec<String> = Vec::new();
    if let Some(container) = container(sample) {
        found.push(container.thing());
    }
    let mut held = file_system::all(sample);
    // The first sector of a FAT or NTFS volume ends with the signature of an MBR. It has code in place of
    // partition entries, so no partition table is searched there.
    if !held.iter().any(|held| file_system::is_boot_sector(held.kind())) {
        held.extend(partition_table::find(sample));
    }
    found.extend(held.iter().map(Held::text));
    (!found.is_empty()).then(|| found.join(", "))
}

#[cfg(test)]
mod tests;
