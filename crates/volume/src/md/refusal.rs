//! Why a superblock is not taken for that of a volume.

use thiserror::Error as ThisError;

/// What stands on a member is no superblock of a volume.
#[derive(Clone, Debug, Eq, PartialEq, ThisError)]
#[non_exhaustive]
pub enum SuperblockError {
    /// There is none.
    #[error("there is no md superblock of version 1.2 on it")]
    Missing,
    /// It was damaged.
    #[error(
        "its md superblock has the checksum {found:08x} in place of {expected:08x}, so it is damaged"
    )]
    Checksum {
        /// What it says.
        found: u32,
        /// What its bytes give.
        expected: u32,
    },
    /// Something about it is of a kind that a volume does not have.
    #[error("its md superblock has {what} {found}, which a volume does not have")]
    Unsupported {
        /// Which field.
        what: &'static str,
        /// What it says.
        found: u64,
    },
    /// It is that of another array, or of another member.
    #[error("its md superblock has {what} {found}, and the volume has {expected}")]
    Mismatch {
        /// Which field.
        what: &'static str,
        /// What it says.
        found: String,
        /// What it should say.
        expected: String,
    },
}
