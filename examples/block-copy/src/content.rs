//! The content of a medium, recognised by signatures: image formats, compression, partition tables, file
//! systems.
//!
//! There is a table for each kind. Of each format only the signature and the name or label are read.

mod container;
mod file_system;
mod held;
mod partition_table;
mod sample;

pub(crate) use container::{Container, Remedy, container};
pub(crate) use partition_table::{gpt_block_size, has_mbr};
pub(crate) use sample::Sample;

use held::Held;

/// Returns the content of a medium, for people: "a GPT partition table of 2 partitions, an XFS file system
/// \"data\" of 10 GiB". Returns `None` if nothing is recognised.
pub(crate) fn held(sample: &Sample) -> Option<String> {
    let mut found: Vec<String> = Vec::new();
    if let Some(container) = container(sample) {
        found.push(container.thing());
    }
    let mut held = file_system::all(sample);
    // The first sector of a FAT or NTFS volume ends with the signature of an MBR, and has code in the
    // place of its entries.
    if !held.iter().any(|held| file_system::is_boot_sector(held.kind())) {
        held.extend(partition_table::find(sample));
    }
    found.extend(held.iter().map(Held::text));
    (!found.is_empty()).then(|| found.join(", "))
}

#[cfg(test)]
mod tests;
