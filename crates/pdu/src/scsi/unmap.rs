//! UNMAP parameter list: the blocks to deallocate (SBC-3).

use super::FormatError;
use bytes::{BufMut, Bytes, BytesMut};
use std::ops::Range;

/// The parameter list of UNMAP: extents to deallocate (SBC-3).
///
/// ```
/// use iscsi_pdu::scsi::{Cdb, UnmapList};
///
/// let mut list = UnmapList::new();
/// list.push(2048, 1024)?;
/// let cdb = Cdb::unmap(list.parameter_list_length());
/// assert_eq!(list.encode().len(), 24);
/// # assert_eq!(cdb.as_bytes()[8], 24);
/// # Ok::<(), iscsi_pdu::scsi::FormatError>(())
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct UnmapList {
    /// Invariant: at most [`Self::MAX_EXTENTS`].
    extents: Vec<(u64, u32)>,
}

impl UnmapList {
    /// The most extents that the 16-bit lengths of the format allow. A device may allow fewer: see
    /// [`BlockLimits`](super::vpd::BlockLimits).
    pub const MAX_EXTENTS: usize = 4095;

    const HEADER_LEN: u16 = 8;
    const EXTENT_LEN: u16 = 16;

    /// Creates an empty list, with which UNMAP does nothing.
    pub const fn new() -> Self {
        Self { extents: Vec::new() }
    }

    /// Adds `blocks` blocks from `lba` on.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooLong`] if there are [`MAX_EXTENTS`](Self::MAX_EXTENTS) already.
    pub fn push(&mut self, lba: u64, blocks: u32) -> Result<(), FormatError> {
        if self.extents.len() >= Self::MAX_EXTENTS {
            let len = self.extents.len() + 1;
            let format = "UNMAP parameter list";
            return Err(FormatError::TooLong { format, len, limit: Self::MAX_EXTENTS });
        }
        self.extents.push((lba, blocks));
        Ok(())
    }

    /// Returns the number of extents.
    pub const fn len(&self) -> usize {
        self.extents.len()
    }

    /// Returns whether there is no extent.
    pub const fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Returns the length of the encoded list, bytes, for [`Cdb::unmap`](super::Cdb::unmap).
    pub fn parameter_list_length(&self) -> u16 {
        Self::HEADER_LEN + self.descriptors_length()
    }

    /// Returns the list as it is sent.
    pub fn encode(&self) -> Bytes {
        let mut list = BytesMut::with_capacity(usize::from(self.parameter_list_length()));
        // UNMAP DATA LENGTH does not count its own two bytes.
        list.put_u16(self.parameter_list_length() - 2);
        list.put_u16(self.descriptors_length());
        list.put_u32(0);
        for &(lba, blocks) in &self.extents {
            list.put_u64(lba);
            list.put_u32(blocks);
            list.put_u32(0);
        }
        list.freeze()
    }

    /// Returns the blocks of an encoded list, if the list has one extent.
    pub fn only_extent(list: &[u8]) -> Option<Range<u64>> {
        let [_, _, _, _, _, _, _, _, a, b, c, d, e, f, g, h, i, j, k, l, ..] = *list else {
            return None;
        };
        let is_only = list.len() == usize::from(Self::HEADER_LEN + Self::EXTENT_LEN);
        let lba = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        let blocks = u32::from_be_bytes([i, j, k, l]);
        is_only.then_some(lba..lba.saturating_add(blocks.into()))
    }

    fn descriptors_length(&self) -> u16 {
        let count = u16::try_from(self.extents.len()).unwrap_or_default();
        count * Self::EXTENT_LEN
    }
}
