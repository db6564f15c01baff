//! What a medium holds, by the bytes that its formats begin with: image formats, compression, partition tables, file systems.
//!
//! A table for each kind; nothing of a format is read but what says that it is there, and how it is called.

mod container;
mod file_system;
mod partition_table;
mod sample;

use std::fmt::Write as _;

use iscsi_initiator::tuning::Size;

pub(crate) use container::{Container, Remedy, container};
pub(crate) use partition_table::{gpt_block_size, has_mbr};
pub(crate) use sample::Sample;

/// What was found on a medium.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Held {
    kind: &'static str,
    /// What people have called it; nothing where it has no name.
    label: String,
    bytes: Option<u64>,
    partitions: usize,
}

impl Held {
    const fn new(kind: &'static str) -> Self {
        Self { kind, label: String::new(), bytes: None, partitions: 0 }
    }

    /// With a name that fills a field of fixed size, with zeros or spaces behind it.
    fn with_label(mut self, field: Option<&[u8]>) -> Self {
        let field = field.unwrap_or_default();
        let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
        let text = String::from_utf8_lossy(field.get(..end).unwrap_or_default());
        // Whatever is in it, it is one word in a line.
        text.trim_end().escape_debug().for_each(|character| self.label.push(character));
        self
    }

    const fn with_bytes(mut self, bytes: Option<u64>) -> Self {
        self.bytes = bytes;
        self
    }

    const fn with_partitions(mut self, partitions: usize) -> Self {
        self.partitions = partitions;
        self
    }

    fn text(&self) -> String {
        let mut text = self.kind.to_owned();
        if self.partitions > 0 {
            let word = if self.partitions == 1 { "partition" } else { "partitions" };
            // A string takes everything.
            _ = write!(text, " of {} {word}", self.partitions);
        }
        if !self.label.is_empty() {
            _ = write!(text, " \"{}\"", self.label);
        }
        if let Some(bytes) = self.bytes.filter(|bytes| *bytes > 0) {
            _ = write!(text, " of {}", Size(bytes));
        }
        text
    }
}

/// What a medium holds, for people: "a GPT partition table of 2 partitions, an XFS file system \"data\" of 10 GiB". `None` if
/// nothing is recognised.
pub(crate) fn held(sample: &Sample) -> Option<String> {
    let mut found: Vec<String> = Vec::new();
    if let Some(container) = container(sample) {
        found.push(container.thing());
    }
    let mut held = file_system::all(sample);
    // The first sector of a FAT or NTFS volume ends as that of a partition table, and its code stands where the entries are.
    if !held.iter().any(|held| file_system::is_boot_sector(held.kind)) {
        held.extend(partition_table::find(sample));
    }
    found.extend(held.iter().map(Held::text));
    (!found.is_empty()).then(|| found.join(", "))
}

/// Little-endian and big-endian numbers of a sample.
fn le16(bytes: Option<&[u8]>) -> Option<u64> {
    Some(u16::from_le_bytes(bytes?.try_into().ok()?).into())
}

fn le32(bytes: Option<&[u8]>) -> Option<u64> {
    Some(u32::from_le_bytes(bytes?.try_into().ok()?).into())
}

fn le64(bytes: Option<&[u8]>) -> Option<u64> {
    Some(u64::from_le_bytes(bytes?.try_into().ok()?))
}

fn be32(bytes: Option<&[u8]>) -> Option<u64> {
    Some(u32::from_be_bytes(bytes?.try_into().ok()?).into())
}

fn be64(bytes: Option<&[u8]>) -> Option<u64> {
    Some(u64::from_be_bytes(bytes?.try_into().ok()?))
}

#[cfg(test)]
mod tests;
