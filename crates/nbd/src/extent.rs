//! Parts of an export that have one status.

/// Bytes that follow each other and have the same status in a metadata context (NBD,
/// "`NBD_REPLY_TYPE_BLOCK_STATUS`").
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Extent {
    /// In bytes; not zero.
    pub length: u64,
    /// Flags, whose meaning the context defines. Zero is always a safe thing to say.
    pub status: u32,
}

impl Extent {
    /// NBD_STATE_HOLE of `base:allocation`: nothing is allocated there.
    pub const HOLE: u32 = 1 << 0;
    /// NBD_STATE_ZERO of `base:allocation`: it reads as zeros.
    pub const ZERO: u32 = 1 << 1;
    /// The bit of `qemu:dirty-bitmap:NAME` that says that the bitmap has it marked.
    pub const DIRTY: u32 = 1 << 0;

    /// Length of a descriptor on the wire.
    pub(crate) const WIRE_LEN: usize = 8;
    /// The longest descriptor that is a multiple of every minimum block size.
    pub(crate) const MAX_DESCRIPTOR: u32 = u32::MAX - 0xffff;
}
