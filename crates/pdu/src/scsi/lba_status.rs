//! GET LBA STATUS parameter data: the provisioning status of blocks (SBC-3).

use super::{
    FormatError,
    fields::{Fields, to_usize},
};

/// Parameter data of GET LBA STATUS (SBC-3).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct LbaStatus {
    /// Consecutive runs of blocks, from the requested address on. They need not reach the end of the medium:
    /// send the command again from the end of the last run.
    pub extents: Vec<LbaExtent>,
}

/// A run of blocks with the same status.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct LbaExtent {
    /// The first block.
    pub lba: u64,
    /// The number of blocks.
    pub blocks: u32,
    /// The provisioning status of the blocks.
    pub status: ProvisioningStatus,
}

/// The provisioning status of a block on a thinly provisioned unit (SBC-3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProvisioningStatus {
    /// Mapped, or the device cannot determine it: the block may hold data.
    Mapped,
    /// Deallocated: without data, and without reserved space.
    Deallocated,
    /// Anchored: without data, but with reserved space.
    Anchored,
    /// A reserved code, 3 to 15; treat the block as mapped.
    Other(u8),
}

impl ProvisioningStatus {
    const fn from_nibble(nibble: u8) -> Self {
        match nibble & 0x0f {
            0 => Self::Mapped,
            1 => Self::Deallocated,
            2 => Self::Anchored,
            other => Self::Other(other),
        }
    }

    /// Returns whether the block certainly holds no data. LBPRZ in [`ReadCapacity16`](super::ReadCapacity16)
    /// reports what a read of such a block returns.
    pub const fn is_unmapped(self) -> bool {
        matches!(self, Self::Deallocated | Self::Anchored)
    }
}

impl LbaStatus {
    /// Reads the parameter data; a truncated descriptor is omitted.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooShort`] below eight bytes.
    pub fn decode(data: &[u8]) -> Result<Self, FormatError> {
        let fields = Fields::new(data, "GET LBA STATUS data", 8)?;
        // PARAMETER DATA LENGTH counts from byte 4 on.
        let end = to_usize(fields.u32(0)).saturating_add(4);
        let (descriptors, _) = fields.cut(end).tail(8).as_chunks();
        Ok(Self { extents: descriptors.iter().map(LbaExtent::decode).collect() })
    }
}

impl LbaExtent {
    fn decode(descriptor: &[u8; 16]) -> Self {
        let [a, b, c, d, e, f, g, h, m, n, o, p, status, ..] = *descriptor;
        Self {
            lba: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            blocks: u32::from_be_bytes([m, n, o, p]),
            status: ProvisioningStatus::from_nibble(status),
        }
    }
}
