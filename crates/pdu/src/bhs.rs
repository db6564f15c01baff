//! The Basic Header Segment: the 48 bytes that begin every PDU (RFC 7143 §11.2.1).

#![allow(
    clippy::indexing_slicing,
    reason = "offsets are constants of the layout, and never beyond its 48 bytes"
)]

use std::fmt;

use bytes::Bytes;

/// The largest value of the 24-bit DataSegmentLength field.
pub const MAX_DATA_SEGMENT_LENGTH: usize = 0x00ff_ffff;

/// The Basic Header Segment: the 48 bytes that begin every PDU.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct Bhs([u8; Self::LEN]);

impl Bhs {
    /// Length of the segment, bytes.
    pub const LEN: usize = 48;

    /// Creates a header from the bytes as they were received, without any check.
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the header as they are sent.
    pub const fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// Returns the opcode: the low six bits of byte 0.
    pub const fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }

    /// Returns the I bit: deliver the PDU immediately, outside the order of commands.
    pub const fn immediate(&self) -> bool {
        self.0[0] & 0x40 != 0
    }

    /// Returns TotalAHSLength in bytes: 0 to 1020, a multiple of four.
    pub const fn ahs_len(&self) -> usize {
        self.0[4] as usize * 4
    }

    /// Returns DataSegmentLength in bytes, without padding or digest.
    pub const fn data_len(&self) -> usize {
        u32::from_be_bytes([0, self.0[5], self.0[6], self.0[7]]) as usize
    }

    /// Sets DataSegmentLength.
    ///
    /// Invariant: `len` is at most [`MAX_DATA_SEGMENT_LENGTH`]; only its low 24 bits are stored.
    pub const fn set_data_len(&mut self, len: usize) {
        debug_assert!(len <= MAX_DATA_SEGMENT_LENGTH);
        let bytes = (len as u64).to_be_bytes();
        self.0[5] = bytes[5];
        self.0[6] = bytes[6];
        self.0[7] = bytes[7];
    }

    pub(crate) const fn set_ahs_len(&mut self, len: usize) {
        debug_assert!(len <= 1020 && len.is_multiple_of(4));
        self.0[4] = (len as u64 / 4).to_be_bytes()[7];
    }

    /// Creates a header of zeros except for byte 0.
    pub(crate) const fn with_opcode(opcode: u8, immediate: bool) -> Self {
        let mut bytes = [0; Self::LEN];
        bytes[0] = opcode | if immediate { 0x40 } else { 0 };
        Self(bytes)
    }

    pub(crate) const fn u8_at(&self, at: usize) -> u8 {
        self.0[at]
    }

    pub(crate) const fn u16_at(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }

    pub(crate) const fn u32_at(&self, at: usize) -> u32 {
        u32::from_be_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) const fn put_u8(&mut self, at: usize, value: u8) {
        self.0[at] = value;
    }

    pub(crate) fn array_at<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut array = [0; N];
        array.copy_from_slice(&self.0[at..at + N]);
        array
    }
}

impl fmt::Debug for Bhs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bhs(")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// A Basic Header Segment with the Additional Header Segments that follow it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Header {
    /// The first 48 bytes; TotalAHSLength agrees with `ahs`.
    pub bhs: Bhs,
    /// All additional header segments as they are sent, padding included; usually empty.
    pub ahs: Bytes,
}

impl From<Bhs> for Header {
    fn from(bhs: Bhs) -> Self {
        Self { bhs, ahs: Bytes::new() }
    }
}
