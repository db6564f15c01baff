//! Digests: CRC32C over headers and data segments (RFC 7143 §11.2.3, §13.1).

use std::fmt;

use crc_fast::CrcAlgorithm;

/// The digest in force for headers or for data. Header digest and data digest are negotiated separately
/// (RFC 7143 §13.1).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Digest {
    /// No digest.
    #[default]
    None,
    /// CRC32C: four bytes.
    Crc32c,
}

impl Digest {
    /// Returns the length of the digest, bytes.
    pub const fn len(self) -> usize {
        match self {
            Self::None => 0,
            Self::Crc32c => 4,
        }
    }

    /// Returns whether there is no digest.
    pub const fn is_empty(self) -> bool {
        matches!(self, Self::None)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Crc32c => "CRC32C",
        })
    }
}

/// A CRC32C in progress, over pieces that need not be contiguous.
///
/// A header digest covers BHS and AHS; a data digest covers the data segment with its padding.
#[derive(Clone, Debug)]
pub struct Crc32c(crc_fast::Digest);

impl Crc32c {
    /// Creates the checksum of an empty input.
    pub fn new() -> Self {
        Self(crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest as it is sent. A digest is the only field with the least significant byte
    /// first.
    pub fn finish(self) -> [u8; 4] {
        let [a, b, c, d, ..] = self.0.finalize().to_le_bytes();
        [a, b, c, d]
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the CRC32C of bytes, as it is sent.
pub fn crc32c(bytes: &[u8]) -> [u8; 4] {
    let mut crc = Crc32c::new();
    crc.update(bytes);
    crc.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DIG-V, DIG-05, LAY-20: the examples of RFC 7143 appendix A.4 have the digests that the appendix states.
    #[test]
    fn dig_v_examples_of_the_standard() {
        let rising: Vec<u8> = (0..32).collect();
        let falling: Vec<u8> = (0..32).rev().collect();
        let read_10 = [
            &[0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..],
            &[0x14, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0x14, 0, 0, 0, 0x18],
            &[0x28, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0],
        ]
        .concat();
        for (bytes, digest) in [
            (&[0; 32][..], [0xaa, 0x36, 0x91, 0x8a]),
            (&[0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
            (&rising, [0x4e, 0x79, 0xdd, 0x46]),
            (&falling, [0x5c, 0xdb, 0x3f, 0x11]),
            (&read_10, [0x56, 0x3a, 0x96, 0xd9]),
        ] {
            assert_eq!(crc32c(bytes), digest);
            let mut crc = Crc32c::default();
            bytes.chunks(5).for_each(|piece| crc.update(piece));
            assert_eq!(crc.finish(), digest);
        }
    }
}
