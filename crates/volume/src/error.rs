//! What can go wrong with a volume.

use std::io;

use iscsi_block_device::DeviceError;
use thiserror::Error as ThisError;

use crate::refusal::SuperblockError;

/// Reasons why there is no volume. The text is the fact alone; [`advice`](Self::advice) says what can be done.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// A chunk that is none.
    #[error("a chunk of {0} bytes is none")]
    Chunk(u64),
    /// One member, or too many.
    #[error("a volume has 2 to 64 members, not {0}")]
    MemberCount(usize),
    /// A member has no room for a chunk.
    #[error("a member with room for {room} bytes does not hold a chunk of {chunk}")]
    NoRoom {
        /// Bytes there are.
        room: u64,
        /// Bytes of a chunk.
        chunk: u64,
    },
    /// More bytes than can be counted.
    #[error("the members together hold more than 2^64 bytes")]
    TooLarge,
    /// A chunk is not a number of blocks.
    #[error(
        "{member} has blocks of {block_size} bytes, and a chunk of {chunk} is no whole number of them"
    )]
    BlockSize {
        /// Which member.
        member: String,
        /// Bytes of its blocks.
        block_size: u32,
        /// Bytes of a chunk.
        chunk: u64,
    },
    /// The data do not begin where a block does.
    #[error(
        "{member} has blocks of {block_size} bytes, and none begins at byte {data_offset}, where the data do"
    )]
    DataOffset {
        /// Which member.
        member: String,
        /// Bytes of its blocks.
        block_size: u32,
        /// Where the data begin.
        data_offset: u64,
    },
    /// A member ends before its data do.
    #[error("{member} has {capacity} bytes, and the volume needs {needed} of it")]
    TooSmall {
        /// Which member.
        member: String,
        /// Bytes it has.
        capacity: u64,
        /// Bytes it must have.
        needed: u64,
    },
    /// The description cannot be understood.
    #[error("the description of the volume: {0}")]
    Description(String),
    /// A unit cannot be opened, or failed.
    #[error("{member}: {cause}")]
    Unit {
        /// Which member.
        member: String,
        /// The reason.
        cause: DeviceError,
    },
    /// A unit by which nothing is known again.
    #[error(
        "{member} has neither a designator (VPD page 83) nor a serial number (VPD page 80), so nothing would tell whether it is the same the next time"
    )]
    Nameless {
        /// Which member.
        member: String,
    },
    /// Another unit is there.
    #[error("{member} is the unit {found} there, and the description says {expected}")]
    OtherUnit {
        /// Which member.
        member: String,
        /// The name of the unit that is there.
        found: String,
        /// The name in the description.
        expected: String,
    },
    /// The unit of another member is there.
    #[error("the URL of {member} leads to {found}, the unit of member {other}")]
    WrongOrder {
        /// Which member.
        member: String,
        /// The name of the unit that is there.
        found: String,
        /// The number of the member that it is.
        other: usize,
    },
    /// Two members are one unit.
    #[error("members {one} and {other} are the same unit, {name}")]
    SameUnit {
        /// The number of the one.
        one: usize,
        /// The number of the other.
        other: usize,
        /// The name of both.
        name: String,
    },
    /// A unit has another capacity than it had.
    #[error(
        "{member} has {found} bytes, and had {expected} when the volume was made; a volume does not grow"
    )]
    Resized {
        /// Which member.
        member: String,
        /// Bytes it has.
        found: u64,
        /// Bytes it had.
        expected: u64,
    },
    /// The members of an md array cannot hold the same number of chunks.
    #[error(
        "{member} has room for {found} bytes of data and member 0 for {expected}; md lays unequal members out in zones, which a volume does not have"
    )]
    Unequal {
        /// Which member.
        member: String,
        /// Bytes it has room for.
        found: u64,
        /// Bytes that member 0 has room for.
        expected: u64,
    },
    /// A member does not have the superblock of this volume.
    #[error("{member}: {cause}")]
    Superblock {
        /// Which member.
        member: String,
        /// The reason.
        cause: SuperblockError,
    },
    /// The system gives no random bytes.
    #[error("the system gives no random bytes for the name of the volume: {0}")]
    Entropy(io::Error),
}
