//! The data that writes put into the unit: bytes that identify the write and their place.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

use crate::rng::mix;

/// Size in bytes of a grain, the smallest piece of data that the oracle tracks. All offsets and lengths of
/// requests are multiples of it.
pub const GRAIN: usize = 64;

/// The content of a grain that was never written, or was written with zeros.
pub(super) const ZEROS: u64 = 0;

/// A write in flight.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(super) number: usize,
    pub(super) grains: Range<usize>,
    pub(super) content: u64,
}

impl Write {
    /// Returns the grains that the write covers.
    pub(crate) fn grains(&self) -> Range<usize> {
        self.grains.clone()
    }

    /// Returns the bytes to be written.
    pub(crate) fn data(&self) -> Bytes {
        let mut data = BytesMut::with_capacity(self.grains.len() * GRAIN);
        self.grains.clone().for_each(|grain| put(&mut data, self.content, grain));
        data.freeze()
    }
}

/// Appends the bytes of a grain.
fn put(data: &mut BytesMut, content: u64, grain: usize) {
    data.put_u64(content);
    (1..GRAIN as u64 / 8).for_each(|word| data.put_u64(filling(content, grain, word)));
}

/// Returns a word of a grain; not the first word, which is the content. It depends on the content and the
/// grain.
const fn filling(content: u64, grain: usize, word: u64) -> u64 {
    if content == ZEROS { 0 } else { mix(content ^ mix(grain as u64 ^ (word << 32))) }
}

/// Returns the content of a grain, which identifies the write.
pub(super) fn content_of(bytes: &[u8; GRAIN], grain: usize) -> Result<u64, String> {
    let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_be_bytes(*word));
    let content = words.next().unwrap_or_default();
    let is_whole = (1..).zip(words).all(|(at, word)| word == filling(content, grain, at));
    if is_whole { Ok(content) } else { Err(format!("the bytes are those of no write: {bytes:x?}")) }
}
