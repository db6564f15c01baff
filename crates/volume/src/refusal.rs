//! Reasons to refuse a superblock.

use thiserror::Error as ThisError;

/// Reasons why the superblock of a member is not one of a volume.
#[derive(Clone, Debug, Eq, PartialEq, ThisError)]
#[non_exhaustive]
pub enum SuperblockError {
    /// The member has no md superblock of version 1.2.
    #[error("there is no md superblock of version 1.2 on it")]
    Missing,
    /// The superblock is damaged: its checksum is wrong.
    #[error(
        "its md superblock has the checksum {found:08x} in place of {expected:08x}, so it is damaged"
    )]
    Checksum {
        /// The checksum in the superblock.
        found: u32,
        /// The checksum that is computed from the bytes of the superblock.
        expected: u32,
    },
    /// A field of the superblock has a value that a volume does not support.
    #[error("its md superblock has {what} {found}, which a volume does not have")]
    Unsupported {
        /// Name of the field, as a part of the message.
        what: &'static str,
        /// The value in the superblock.
        found: u64,
    },
    /// The superblock belongs to another array, or to another member.
    #[error("its md superblock has {what} {found}, and the volume has {expected}")]
    Mismatch {
        /// Name of the field, as a part of the message.
        what: &'static str,
        /// The value in the superblock.
        found: String,
        /// The value that the superblock of this member should have.
        expected: String,
    },
}
