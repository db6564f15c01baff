//! Encodes and decodes the replies of a server in transmission.

use bytes::{Buf, BufMut, Bytes};

use crate::cookie::Cookie;

/// NBD_SIMPLE_REPLY_MAGIC.
pub(crate) const SIMPLE_MAGIC: u32 = 0x6744_6698;
/// NBD_STRUCTURED_REPLY_MAGIC.
pub(crate) const CHUNK_MAGIC: u32 = 0x668e_33ef;
/// Length of a simple reply without data, bytes.
pub(crate) const SIMPLE_LEN: usize = 16;
/// Length of a chunk without its payload, bytes.
pub(crate) const CHUNK_LEN: usize = 20;
/// NBD_REPLY_FLAG_DONE: no chunk of the reply follows.
pub(crate) const DONE: u16 = 1 << 0;

/// The types of chunks (NBD, "Structured reply types").
pub(crate) mod chunk {
    pub(crate) const NONE: u16 = 0;
    pub(crate) const OFFSET_DATA: u16 = 1;
    pub(crate) const OFFSET_HOLE: u16 = 2;
    pub(crate) const BLOCK_STATUS: u16 = 5;
    pub(crate) const ERROR: u16 = (1 << 15) + 1;
    pub(crate) const ERROR_OFFSET: u16 = (1 << 15) + 2;
    /// The bit that is set in the types of all error chunks.
    pub(crate) const IS_ERROR: u16 = 1 << 15;
}

/// The first bytes of a reply; its data follows.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ReplyHead {
    bytes: [u8; Self::MAX_LEN],
    len: usize,
}

impl ReplyHead {
    const MAX_LEN: usize = 32;

    pub(crate) fn simple(error: u32, cookie: Cookie) -> Self {
        Self::build(SIMPLE_LEN, |mut rest| {
            rest.put_u32(SIMPLE_MAGIC);
            rest.put_u32(error);
            rest.put_u64(cookie.0);
        })
    }

    /// Creates the head of a chunk with a payload of `len` bytes.
    pub(crate) fn chunk(is_done: bool, kind: u16, cookie: Cookie, len: u32) -> Self {
        Self::build(CHUNK_LEN, |mut rest| put_chunk(&mut rest, is_done, kind, cookie, len))
    }

    pub(crate) fn data(is_done: bool, cookie: Cookie, offset: u64, len: u32) -> Self {
        Self::build(CHUNK_LEN + 8, |mut rest| {
            put_chunk(&mut rest, is_done, chunk::OFFSET_DATA, cookie, len.saturating_add(8));
            rest.put_u64(offset);
        })
    }

    pub(crate) fn hole(is_done: bool, cookie: Cookie, offset: u64, len: u32) -> Self {
        Self::build(CHUNK_LEN + 12, |mut rest| {
            put_chunk(&mut rest, is_done, chunk::OFFSET_HOLE, cookie, 12);
            rest.put_u64(offset);
            rest.put_u32(len);
        })
    }

    fn build(len: usize, put: impl FnOnce(&mut [u8])) -> Self {
        let mut bytes = [0; Self::MAX_LEN];
        put(&mut bytes);
        Self { bytes, len }
    }
}

impl AsRef<[u8]> for ReplyHead {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl From<ReplyHead> for Bytes {
    fn from(head: ReplyHead) -> Self {
        Self::copy_from_slice(head.as_ref())
    }
}

pub(crate) fn put_chunk(
    bytes: &mut impl BufMut,
    is_done: bool,
    kind: u16,
    cookie: Cookie,
    len: u32,
) {
    bytes.put_u32(CHUNK_MAGIC);
    bytes.put_u16(if is_done { DONE } else { 0 });
    bytes.put_u16(kind);
    bytes.put_u64(cookie.0);
    bytes.put_u32(len);
}

/// The head of a chunk, as a client decodes it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ChunkHead {
    pub(crate) is_done: bool,
    pub(crate) kind: u16,
    pub(crate) cookie: Cookie,
    pub(crate) len: u32,
}

impl ChunkHead {
    /// Decodes a head from the bytes after its magic number, all of which must be present.
    pub(crate) fn take(bytes: &mut impl Buf) -> Self {
        Self {
            is_done: bytes.get_u16() & DONE != 0,
            kind: bytes.get_u16(),
            cookie: Cookie(bytes.get_u64()),
            len: bytes.get_u32(),
        }
    }
}
