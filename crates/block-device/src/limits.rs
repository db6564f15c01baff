//! Abilities of a device, and which requests suit it.

/// Abilities of a [`Device`](crate::Device), and which requests suit it. Fields may be added: to create one,
/// start from the [default](Self::default) and set fields.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct DeviceLimits {
    /// Block size, in bytes, at least 1, not always a power of two. A write that does not begin and end at a
    /// multiple of the block size also reads.
    pub block_size: u32,
    /// Alignment of the cheapest requests, in bytes: the size of a physical block, a multiple of the block
    /// size.
    pub preferred_alignment: u64,
    /// Length of a request that suits the device, in bytes, at least 1.
    pub preferred_transfer: usize,
    /// Maximum number of bytes of one request to the device; longer requests are split.
    pub max_transfer: usize,
    /// Unit in which [`Device::discard`](crate::Device::discard) deallocates, in bytes; `None` if discard is not supported.
    pub discard_granularity: Option<u64>,
    /// Whether [`Device::write_zeroes`](crate::Device::write_zeroes) costs less than writing zeros as data.
    pub has_fast_zeroes: bool,
    /// Whether every write is refused.
    pub is_read_only: bool,
    /// Whether writes return before they are on the medium, so that [`Device::flush`](crate::Device::flush)
    /// is needed.
    pub has_volatile_cache: bool,
}

impl Default for DeviceLimits {
    /// Describes a device that takes requests at any byte, of 1 MiB by preference, and has no optional
    /// ability.
    fn default() -> Self {
        Self {
            block_size: 1,
            preferred_alignment: 1,
            preferred_transfer: 1 << 20,
            max_transfer: usize::MAX,
            discard_granularity: None,
            has_fast_zeroes: false,
            is_read_only: false,
            has_volatile_cache: false,
        }
    }
}
