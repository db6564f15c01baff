//! Whether the destination holds what was read from the source.
//!
//! Every chunk gets a checksum between its read and its write, so the source is read once only: it
//! may be a pipe, it may be far away, it may change. The checksum is CRC-64/NVME: made for storage,
//! an order of magnitude faster than a cryptographic hash, and no weaker here, where errors are
//! accidents. (A target that lies can lie later as well.) Only where a chunk differs is the source
//! read again, to tell the very byte.

use std::sync::Arc;

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, checksum};

use crate::end::{Destination, Source};
use crate::error::Error;

pub use crate::difference::Difference;

/// The checksum of a chunk.
pub fn sum(data: &[u8]) -> u64 {
    checksum(CrcAlgorithm::Crc64Nvme, data)
}

/// The checksums of all chunks of a copy: eight bytes for each.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Checksums {
    chunk: u64,
    sums: Vec<u64>,
}

impl Checksums {
    /// No checksums yet, for chunks of `chunk` bytes, not 0.
    pub const fn new(chunk: usize) -> Self {
        Self { chunk: chunk as u64, sums: Vec::new() }
    }

    /// Keeps the checksum of the chunk at `offset`, a multiple of the chunk length.
    pub fn put(&mut self, offset: u64, sum: u64) {
        let Ok(index) = usize::try_from(offset / self.chunk) else { return };
        if index >= self.sums.len() {
            self.sums.resize(index + 1, 0);
        }
        if let Some(place) = self.sums.get_mut(index) {
            *place = sum;
        }
    }

    /// The checksum of the chunk at `offset`.
    pub fn get(&self, offset: u64) -> Option<u64> {
        self.sums.get(usize::try_from(offset / self.chunk).ok()?).copied()
    }
}

/// A destination that compares instead of writing. In order, so that the first difference found is
/// the first there is.
#[derive(Clone, Debug)]
pub struct Comparison<S> {
    source: S,
    sums: Arc<Checksums>,
}

impl<S: Source> Comparison<S> {
    /// Compares with the checksums of what was read from `source`.
    pub fn new(source: S, sums: Checksums) -> Self {
        Self { source, sums: Arc::new(sums) }
    }

    /// Finds the byte, if the source still says what it said.
    async fn locate(&self, offset: u64, found: &[u8]) -> Difference {
        let somewhere = Difference::Within { offset, len: found.len() };
        if self.source.is_sequential() {
            return somewhere;
        }
        let Ok(expected) = self.source.read(offset, found.len()).await else { return somewhere };
        if self.sums.get(offset) != Some(sum(&expected)) {
            return somewhere;
        }
        let at = expected.iter().zip(found).position(|(expected, found)| expected != found);
        at.map_or(somewhere, |at| Difference::At(offset + at as u64))
    }
}

impl<S: Source> Destination for Comparison<S> {
    fn capacity(&self) -> Option<u64> {
        None
    }

    fn is_sequential(&self) -> bool {
        true
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<(), Error> {
        if self.sums.get(offset) == Some(sum(&data)) {
            return Ok(());
        }
        Err(Error::Mismatch { difference: self.locate(offset, &data).await })
    }

    async fn flush(&self, _length: u64) -> Result<(), Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_crc_64_nvme() {
        assert_eq!(sum(b"123456789"), 0xae8b_1486_0a79_9888);
    }

    #[test]
    fn checksums_come_in_any_order() {
        let mut sums = Checksums::new(512);
        sums.put(1024, 3);
        sums.put(0, 1);
        assert_eq!((sums.get(0), sums.get(1024), sums.get(1536)), (Some(1), Some(3), None));
    }
}
