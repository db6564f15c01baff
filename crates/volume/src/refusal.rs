//! Why a superblock is not taken for that of a volume.

use thiserror::Error as ThisError;

/// Reasons why a member has no superblock of a volume.
#[derive(Clone, Debug, Eq, PartialEq, ThisError)]
#[non_exhaustive]
pub enum SuperblockError {
    /// There is none.
    #[error("there is no md superblock of version 1.2 on it")]
    Missing,
    /// The superblock is damaged.
    #[error(
        "its md superblock has the checksum {found:08x} in place of {expected:08x}, so it is damaged"
    )]
    Checksum {
        /// The checksum in the superblock.
        found: u32,
        /// The checksum of its bytes.
        expected: u32,
    },
    /// Something about it is of a kind that a volume does not have.
    #[error("its md superblock has {what} {found}, which a volume does not have")]
    Unsupported {
        /// Which field.
        what: &'static str,
        /// The value in the superblock.
        found: u64,
    },
    /// The superblock belongs to another array, or to another member.
    #[error("its md superblock has {what} {found}, and the volume has {expected}")]
    Mismatch {
        /// Which field.
        what: &'static str,
        /// The value in the superblock.
        found: String,
        /// The value that belongs there.
        expected: String,
    },
}
