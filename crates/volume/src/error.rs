//! Errors of volumes.

use std::io;

use iscsi_block_device::DeviceError;
use thiserror::Error as ThisError;

use crate::refusal::SuperblockError;

/// Reasons why a volume cannot be created or opened. The text is the fact alone; [`advice`](Self::advice)
/// says what can be done.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The chunk size is not a power of two from 64 KiB to 4 MiB.
    #[error("a chunk of {0} bytes is none")]
    Chunk(u64),
    /// The number of members is not 2 to 64, or not the number in the description of the volume.
    #[error("a volume has 2 to 64 members, not {0}")]
    MemberCount(usize),
    /// The members have room for less than one chunk.
    #[error("a member with room for {room} bytes does not hold a chunk of {chunk}")]
    NoRoom {
        /// Room for data on each member, in bytes.
        room: u64,
        /// Chunk size, in bytes.
        chunk: u64,
    },
    /// The members together have more bytes than a 64-bit number can count.
    #[error("the members together hold more than 2^64 bytes")]
    TooLarge,
    /// The chunk size is not a multiple of the block size of a member.
    #[error(
        "{member} has blocks of {block_size} bytes, and a chunk of {chunk} is no whole number of them"
    )]
    BlockSize {
        /// The member.
        member: String,
        /// Block size of the member, in bytes.
        block_size: u32,
        /// Chunk size, in bytes.
        chunk: u64,
    },
    /// The data of a member do not begin at the start of one of its blocks.
    #[error(
        "{member} has blocks of {block_size} bytes, and none begins at byte {data_offset}, where the data do"
    )]
    DataOffset {
        /// The member.
        member: String,
        /// Block size of the member, in bytes.
        block_size: u32,
        /// Offset of the data on the member, in bytes.
        data_offset: u64,
    },
    /// A member is shorter than the volume requires.
    #[error("{member} has {capacity} bytes, and the volume needs {needed} of it")]
    TooSmall {
        /// The member.
        member: String,
        /// Capacity of the member, in bytes.
        capacity: u64,
        /// Bytes that the volume needs on the member.
        needed: u64,
    },
    /// The description of the volume is malformed.
    #[error("the description of the volume: {0}")]
    Description(String),
    /// A unit cannot be opened, or a request to it failed.
    #[error("{member}: {cause}")]
    Unit {
        /// The member.
        member: String,
        /// The reason.
        cause: DeviceError,
    },
    /// A unit reports neither a designator nor a serial number, so a later run could not recognize it.
    #[error(
        "{member} has neither a designator (VPD page 83) nor a serial number (VPD page 80), so nothing would tell whether it is the same the next time"
    )]
    Nameless {
        /// The member.
        member: String,
    },
    /// The URL of a member leads to another unit than the description names.
    #[error("{member} is the unit {found} there, and the description says {expected}")]
    OtherUnit {
        /// The member.
        member: String,
        /// Name of the unit that the URL leads to.
        found: String,
        /// Name in the description.
        expected: String,
    },
    /// The URL of a member leads to the unit of another member.
    #[error("the URL of {member} leads to {found}, the unit of member {other}")]
    WrongOrder {
        /// The member.
        member: String,
        /// Name of the unit that the URL leads to.
        found: String,
        /// Number of the member that has this unit.
        other: usize,
    },
    /// Two members are the same unit.
    #[error("members {one} and {other} are the same unit, {name}")]
    SameUnit {
        /// Number of the first member.
        one: usize,
        /// Number of the second member.
        other: usize,
        /// Name of the unit.
        name: String,
    },
    /// The capacity of a unit has changed since the volume was created.
    #[error(
        "{member} has {found} bytes, and had {expected} when the volume was made; a volume does not grow"
    )]
    Resized {
        /// The member.
        member: String,
        /// Capacity of the unit, in bytes.
        found: u64,
        /// Capacity in the description, in bytes.
        expected: u64,
    },
    /// The members have room for different amounts of data, which a volume with md superblocks does not
    /// support.
    #[error(
        "{member} has room for {found} bytes of data and member 0 for {expected}; md lays unequal members out in zones, which a volume does not have"
    )]
    Unequal {
        /// The member.
        member: String,
        /// Room for data on the member, in bytes.
        found: u64,
        /// Room for data on member 0, in bytes.
        expected: u64,
    },
    /// The superblock of a member is missing or damaged, or is not the one of this volume.
    #[error("{member}: {cause}")]
    Superblock {
        /// The member.
        member: String,
        /// The reason.
        cause: SuperblockError,
    },
    /// The operating system returned no random bytes for the name of the volume.
    #[error("the system gives no random bytes for the name of the volume: {0}")]
    Entropy(io::Error),
}
