//! Offsets and lengths of a PDU's parts in the stream (RFC 7143 §11.2).

use crate::bhs::Bhs;
use crate::digest::Digest;

/// The lengths of all parts of a PDU, bytes: BHS, AHS, header digest, data, padding, data digest.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct FrameLayout {
    /// Length of all Additional Header Segments.
    pub ahs_len: usize,
    /// Length of the header digest; 0 if none is in force.
    pub header_digest_len: usize,
    /// Length of the data segment.
    pub data_len: usize,
    /// Bytes that fill the data segment up to a multiple of four.
    pub padding_len: usize,
    /// Length of the data digest; 0 if none is in force or there are no data.
    pub data_digest_len: usize,
}

/// Returns the number of bytes that fill a length up to a multiple of four: 0 to 3.
pub const fn padding_of(len: usize) -> usize {
    len.wrapping_neg() % 4
}

impl FrameLayout {
    /// Returns the layout that a header announces. The peer chooses these lengths: check them before you
    /// allocate memory for them.
    pub const fn of(bhs: &Bhs, header_digest: Digest, data_digest: Digest) -> Self {
        let data_len = bhs.data_len();
        Self {
            ahs_len: bhs.ahs_len(),
            header_digest_len: header_digest.len(),
            data_len,
            padding_len: padding_of(data_len),
            data_digest_len: if data_len == 0 { 0 } else { data_digest.len() },
        }
    }

    /// Returns the offset of the data segment.
    pub const fn data_offset(&self) -> usize {
        Bhs::LEN + self.ahs_len + self.header_digest_len
    }

    /// Returns the length of the trailer after the data: padding and data digest.
    pub const fn trailer_len(&self) -> usize {
        self.padding_len + self.data_digest_len
    }

    /// Returns the length of the whole PDU.
    pub const fn total_len(&self) -> usize {
        self.data_offset() + self.data_len + self.trailer_len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_completes_a_word() {
        assert_eq!([0, 1, 2, 3, 4, 5].map(padding_of), [0, 3, 2, 1, 0, 3]);
        assert_eq!(padding_of(usize::MAX), 1);
    }

    #[test]
    fn dig_03_dig_04_lay_04_layout() {
        let mut bhs = Bhs::with_opcode(1, false);
        bhs.set_ahs_len(8);
        bhs.set_data_len(5);
        let layout = FrameLayout::of(&bhs, Digest::Crc32c, Digest::Crc32c);
        assert_eq!((layout.data_offset(), layout.padding_len), (60, 3));
        assert_eq!((layout.trailer_len(), layout.total_len()), (7, 72));
        bhs.set_data_len(0);
        let layout = FrameLayout::of(&bhs, Digest::None, Digest::Crc32c);
        assert_eq!((layout.total_len(), layout.data_digest_len), (56, 0));
    }
}
