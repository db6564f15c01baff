//! Framing: conversion of a byte stream to PDUs and back, with digests (RFC 7143 §11.2.3, §13.1).
//!
//! ```text
//! 48 bytes   4 × n bytes  4 bytes         DSL bytes  0-3    4 bytes
//! [header]   [AHS]        [header digest] [data]     [pad]  [data digest]
//! ```

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

use crate::convert::len32;
use crate::crc32c::digest;
use crate::pdu::{HEADER_LENGTH, Pdu};

/// The digests that are in force on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Framing {
    /// CRC32C over header and additional headers.
    pub header_digest: bool,
    /// CRC32C over data and padding.
    pub data_digest: bool,
}

/// Reasons why a stream of PDUs cannot be read further.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameError {
    /// The header digest is wrong. The start of the next PDU is unknown.
    HeaderDigest,
    /// The data digest is wrong. The PDU was removed from the stream and is enclosed.
    DataDigest(Box<Pdu>),
    /// The data segment is longer than the limit for this stream; its length in bytes is enclosed.
    TooLong(usize),
}

impl fmt::Display for FrameError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HeaderDigest => write!(out, "wrong header digest"),
            Self::DataDigest(pdu) => write!(out, "wrong data digest of {pdu:?}"),
            Self::TooLong(length) => write!(out, "a data segment of {length} bytes"),
        }
    }
}

impl std::error::Error for FrameError {}

/// Offsets of the parts of one PDU.
#[derive(Clone, Copy)]
struct Layout {
    ahs_end: usize,
    data_start: usize,
    data_end: usize,
    padded_end: usize,
    end: usize,
}

impl Framing {
    /// No digests, as during login.
    pub const PLAIN: Self = Self { header_digest: false, data_digest: false };

    /// Removes the first PDU from `stream` and returns it; returns `None` while the PDU is incomplete.
    ///
    /// # Errors
    ///
    /// [`FrameError`]: a digest is wrong, or the data segment is over `limit` bytes.
    pub fn take(self, stream: &mut BytesMut, limit: usize) -> Result<Option<Pdu>, FrameError> {
        let Some(layout) = self.layout(stream) else { return Ok(None) };
        let length = layout.data_end - layout.data_start;
        if length > limit {
            return Err(FrameError::TooLong(length));
        }
        if stream.len() < layout.data_start {
            return Ok(None);
        }
        self.check_header(stream, layout)?;
        if stream.len() < layout.end {
            return Ok(None);
        }
        self.cut(stream.split_to(layout.end).freeze(), layout).map(Some)
    }

    /// Appends `pdu` to `stream`, with its length fields, padding and digests.
    pub fn put(self, pdu: &Pdu, stream: &mut BytesMut) {
        stream.reserve(HEADER_LENGTH + pdu.ahs.len() + pdu.data.len() + 12);
        self.put_headers(pdu, stream);
        stream.put_slice(&pdu.data);
        self.put_trailer(pdu, stream);
    }

    /// Appends everything before the data of `pdu`: headers and header digest.
    pub(crate) fn put_headers(self, pdu: &Pdu, stream: &mut BytesMut) {
        let header = sized_header(pdu);
        stream.put_slice(&header);
        stream.put_slice(&pdu.ahs);
        if self.header_digest {
            stream.put_slice(&digest(&[&header, &pdu.ahs]));
        }
    }

    /// Appends everything after the data of `pdu`: padding and data digest.
    pub(crate) fn put_trailer(self, pdu: &Pdu, stream: &mut BytesMut) {
        let padding = [pdu.pad; 3];
        let padding = &padding[..pad(pdu.data.len())];
        stream.put_slice(padding);
        if self.data_digest && !pdu.data.is_empty() {
            stream.put_slice(&digest(&[&pdu.data, padding]));
        }
    }

    fn layout(self, stream: &[u8]) -> Option<Layout> {
        let &[words, a, b, c] = stream.get(4..8)? else { return None };
        if stream.len() < HEADER_LENGTH {
            return None;
        }
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let ahs_end = HEADER_LENGTH + usize::from(words) * 4;
        let data_start = ahs_end + if self.header_digest { 4 } else { 0 };
        let data_end = data_start + length;
        let padded_end = data_end + pad(length);
        let end = padded_end + if self.data_digest && length > 0 { 4 } else { 0 };
        Some(Layout { ahs_end, data_start, data_end, padded_end, end })
    }

    fn check_header(self, stream: &[u8], layout: Layout) -> Result<(), FrameError> {
        let sound = !self.header_digest
            || digest(&[&stream[..layout.ahs_end]]) == stream[layout.ahs_end..layout.data_start];
        if sound { Ok(()) } else { Err(FrameError::HeaderDigest) }
    }

    fn cut(self, frame: Bytes, layout: Layout) -> Result<Pdu, FrameError> {
        let mut header = [0; HEADER_LENGTH];
        header.copy_from_slice(&frame[..HEADER_LENGTH]);
        let pad = frame[layout.data_end..layout.padded_end].iter().fold(0, |all, byte| all | byte);
        let pdu = Pdu {
            header,
            ahs: frame.slice(HEADER_LENGTH..layout.ahs_end),
            data: frame.slice(layout.data_start..layout.data_end),
            pad,
        };
        let covered = &frame[layout.data_start..layout.padded_end];
        if covered.is_empty()
            || !self.data_digest
            || digest(&[covered]) == frame[layout.padded_end..]
        {
            Ok(pdu)
        } else {
            Err(FrameError::DataDigest(Box::new(pdu)))
        }
    }
}

/// Returns the number of bytes that pad `length` to a multiple of four.
pub(crate) const fn pad(length: usize) -> usize {
    length.wrapping_neg() & 3
}

fn sized_header(pdu: &Pdu) -> [u8; HEADER_LENGTH] {
    let mut header = pdu.header;
    let [_, a, b, c] = len32(pdu.data.len()).to_be_bytes();
    let words = u8::try_from(pdu.ahs.len() / 4).unwrap_or(u8::MAX);
    header[4..8].copy_from_slice(&[words, a, b, c]);
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opcode::Opcode;

    fn sample(length: usize) -> Pdu {
        let mut pdu = Pdu::new(Opcode::DataOut);
        pdu.data = Bytes::from(vec![0x5a; length]);
        pdu.ahs = Bytes::from_static(&[0, 1, 2, 0, 9, 9, 9, 9]);
        pdu
    }

    #[test]
    fn every_mix_of_digests_survives_a_round_trip_in_single_bytes() {
        for (header_digest, data_digest) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            let framing = Framing { header_digest, data_digest };
            for length in 0..9 {
                let mut sent = BytesMut::new();
                framing.put(&sample(length), &mut sent);
                let mut stream = BytesMut::new();
                let last = sent.len() - 1;
                for (at, byte) in sent.iter().enumerate() {
                    stream.put_u8(*byte);
                    let got = framing.take(&mut stream, 100).unwrap();
                    assert_eq!(got.is_some(), at == last);
                    if let Some(pdu) = got {
                        assert_eq!(pdu.data, sample(length).data);
                        assert_eq!(pdu.ahs, sample(length).ahs);
                    }
                }
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_found() {
        let framing = Framing { header_digest: true, data_digest: true };
        let mut sent = BytesMut::new();
        framing.put(&sample(5), &mut sent);
        let mut header = sent.clone();
        header[17] ^= 1;
        assert_eq!(framing.take(&mut header, 100), Err(FrameError::HeaderDigest));
        let last = sent.len() - 6;
        sent[last] ^= 1;
        assert!(matches!(framing.take(&mut sent, 100), Err(FrameError::DataDigest(_))));
    }
}
