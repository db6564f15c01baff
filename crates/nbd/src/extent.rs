//! Describes parts of an export with a single status.

/// Consecutive bytes with the same status in a metadata context (NBD, "`NBD_REPLY_TYPE_BLOCK_STATUS`").
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Extent {
    /// Length in bytes, not zero.
    pub length: u64,
    /// Flags, whose meaning the context defines. Zero is always safe to report.
    pub status: u32,
}

impl Extent {
    /// NBD_STATE_HOLE of `base:allocation`: no storage is allocated for the extent.
    pub const HOLE: u32 = 1 << 0;
    /// NBD_STATE_ZERO of `base:allocation`: the extent reads as zeros.
    pub const ZERO: u32 = 1 << 1;
    /// The bit of `qemu:dirty-bitmap:NAME`: the bitmap marks the extent as dirty.
    pub const DIRTY: u32 = 1 << 0;

    /// Length of a descriptor on the wire.
    pub(crate) const WIRE_LEN: usize = 8;
    /// Largest length of a descriptor that is a multiple of every minimum block size.
    pub(crate) const MAX_DESCRIPTOR: u32 = u32::MAX - 0xffff;
}
