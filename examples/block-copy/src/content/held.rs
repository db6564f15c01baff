//! Describes a format that was found on a medium.

use std::fmt::Write as _;

use iscsi_tuner::Size;

/// A format that was found on a medium, with its details.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Held {
    kind: &'static str,
    /// The label that a user gave the file system; empty if it has none.
    label: String,
    bytes: Option<u64>,
    partitions: usize,
}

impl Held {
    pub(super) const fn new(kind: &'static str) -> Self {
        Self { kind, label: String::new(), bytes: None, partitions: 0 }
    }

    /// Sets the label from a field of fixed size, which is padded with zeros or spaces.
    pub(super) fn with_label(mut self, field: Option<&[u8]>) -> Self {
        let field = field.unwrap_or_default();
        let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
        let text = String::from_utf8_lossy(field.get(..end).unwrap_or_default());
        // The field may hold any characters. Escaped, the label stays within the line.
        text.trim_end().escape_debug().for_each(|character| self.label.push(character));
        self
    }

    pub(super) const fn with_bytes(mut self, bytes: Option<u64>) -> Self {
        self.bytes = bytes;
        self
    }

    pub(super) const fn with_partitions(mut self, partitions: usize) -> Self {
        self.partitions = partitions;
        self
    }

    pub(super) const fn kind(&self) -> &'static str {
        self.kind
    }

    pub(super) const fn has_partitions(&self) -> bool {
        self.partitions > 0
    }

    /// Returns the format as readable text: "an XFS file system \"data\" of 10 GiB".
    pub(super) fn text(&self) -> String {
        let mut text = self.kind.to_owned();
        if self.partitions > 0 {
            let word = if self.partitions == 1 { "partition" } else { "partitions" };
            // Writing to a string cannot fail.
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

/// Reads a little-endian number; `None` if its bytes are not in the sample.
pub(super) fn le16(bytes: Option<&[u8]>) -> Option<u64> {
    Some(u16::from_le_bytes(bytes?.try_into().ok()?).into())
}

pub(super) fn le32(bytes: Option<&[u8]>) -> Option<u64> {
    Some(u32::from_le_bytes(bytes?.try_into().ok()?).into())
}

pub(super) fn le64(bytes: Option<&[u8]>) -> Option<u64> {
    Some(u64::from_le_bytes(bytes?.try_into().ok()?))
}

pub(super) fn be32(bytes: Option<&[u8]>) -> Option<u64> {
    Some(u32::from_be_bytes(bytes?.try_into().ok()?).into())
}

pub(super) fn be64(bytes: Option<&[u8]>) -> Option<u64> {
    Some(u64::from_be_bytes(bytes?.try_into().ok()?))
}
