//! What a medium holds, by the bytes that its formats begin with: image formats, compression, partition tables, file systems.
//!
//! A table for each kind; nothing of a format is read but what says that it is there, and how it is called.

mod container;
mod file_system;
mod held;
mod partition_table;
mod sample;

pub(crate) use container::{Container, Remedy, container};
pub(crate) use partition_table::{gpt_block_size, has_mbr};
pub(crate) use sample::Sample;

use held::Held;

/// What a medium holds, for people: "a GPT partition table of 2 partitions, an XFS file system \"data\" of 10 GiB". `None` if
/// nothing is recognised.
pub(crate) fn held(sample: &Sample) -> Option<String> {
    let mut found: Vec<String> = Vec::new();
    if let Some(container) = container(sample) {
        found.push(container.thing());
    }
    let mut held = file_system::all(sample);
    // The first sector of a FAT or NTFS volume ends as that of a partition table, and its code stands where the entries are.
    if !held.iter().any(|held| file_system::is_boot_sector(held.kind())) {
        held.extend(partition_table::find(sample));
    }
    found.extend(held.iter().map(Held::text));
    (!found.is_empty()).then(|| found.join(", "))
}

#[cfg(test)]
mod tests;
