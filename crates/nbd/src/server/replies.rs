//! What the requests of a connection are answered with.

use bytes::{BufMut, Bytes, BytesMut};

use super::block_status::descriptors;
use super::refused::Refused;
use crate::cookie::Cookie;
use crate::errno::Errno;
use crate::extent::Extent;
use crate::reply::{CHUNK_LEN, ReplyHead, chunk, put_chunk};
use crate::request::Request;
use crate::text;

/// Builds replies: simple ones, or structured ones where the client knows them (NBD, "Simple reply
/// message", "Structured reply chunk message").
///
/// A reply is sent in one piece, and so is each chunk of a structured one; between them may be
/// others. Data are not part of a head: they follow it on the stream, so that a vectored write sends
/// them from where they are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Replies {
    structured: bool,
}

impl Replies {
    pub(crate) const fn new(structured: bool) -> Self {
        Self { structured }
    }

    /// Whether replies are structured: a read may have several chunks, with holes among them.
    pub const fn is_structured(&self) -> bool {
        self.structured
    }

    /// The success of a request other than a read or one for block status.
    pub fn done(&self, cookie: Cookie) -> ReplyHead {
        ReplyHead::simple(0, cookie)
    }

    /// The success of a read; all of its data follow.
    ///
    /// Nothing can take it back: send it when the data are there.
    pub fn read(&self, request: &Request) -> ReplyHead {
        if self.structured {
            ReplyHead::data(true, request.cookie, request.offset, request.length)
        } else {
            ReplyHead::simple(0, request.cookie)
        }
    }

    /// A part of a read's data, which follow; `None` without structured replies. The parts of a
    /// reply do not overlap and lie in the range of the request, which together they cover.
    /// With `is_done` nothing of the reply comes after it.
    pub fn data(&self, cookie: Cookie, offset: u64, len: u32, is_done: bool) -> Option<ReplyHead> {
        self.structured.then(|| ReplyHead::data(is_done, cookie, offset, len))
    }

    /// A part of a read that is zeros, as [`data`](Self::data). Not for a read that may not be
    /// fragmented, unless it is the only part.
    pub fn hole(&self, cookie: Cookie, offset: u64, len: u32, is_done: bool) -> Option<ReplyHead> {
        self.structured.then(|| ReplyHead::hole(is_done, cookie, offset, len))
    }

    /// The end of a reply of several chunks; `None` without structured replies.
    pub fn end(&self, cookie: Cookie) -> Option<ReplyHead> {
        self.structured.then(|| ReplyHead::chunk(true, chunk::NONE, cookie, 0))
    }

    /// The status of a request's range in a context; `None` without structured replies, and without
    /// an extent. There is one such chunk for each selected context, and the last `is_done`.
    ///
    /// The extents follow each other from the offset of the request on, and may go further than was
    /// asked: what the request does not want is left out.
    pub fn block_status(
        &self,
        request: &Request,
        context: u32,
        extents: impl IntoIterator<Item = Extent>,
        is_done: bool,
    ) -> Option<Bytes> {
        if !self.structured {
            return None;
        }
        let descriptors = descriptors(request, extents);
        if descriptors.is_empty() {
            return None;
        }
        let payload = 4 + descriptors.len() * Extent::WIRE_LEN;
        let mut bytes = BytesMut::with_capacity(CHUNK_LEN + payload);
        let len = u32::try_from(payload).ok()?;
        put_chunk(&mut bytes, is_done, chunk::BLOCK_STATUS, request.cookie, len);
        bytes.put_u32(context);
        for (length, status) in descriptors {
            bytes.put_u32(length);
            bytes.put_u32(status);
        }
        Some(bytes.freeze())
    }

    /// The failure of a request, with a message for people, which may be empty. Chunks that were
    /// sent before it mean nothing any more, and none comes after it.
    pub fn error(&self, cookie: Cookie, errno: Errno, message: &str) -> Bytes {
        if !self.structured {
            return ReplyHead::simple(errno.to_wire(), cookie).into();
        }
        error_chunk(true, chunk::ERROR, cookie, errno, message, &[])
    }

    /// The failure of a request at an offset in its range; what chunks brought before the offset is
    /// good. `None` without structured replies.
    pub fn error_at(
        &self,
        cookie: Cookie,
        errno: Errno,
        offset: u64,
        message: &str,
        is_done: bool,
    ) -> Option<Bytes> {
        let offset = offset.to_be_bytes();
        self.structured
            .then(|| error_chunk(is_done, chunk::ERROR_OFFSET, cookie, errno, message, &offset))
    }

    /// The answer to a request that may not be.
    pub fn refuse(&self, refused: &Refused) -> Bytes {
        self.error(refused.cookie, refused.errno, refused.reason)
    }
}

fn error_chunk(
    is_done: bool,
    kind: u16,
    cookie: Cookie,
    errno: Errno,
    message: &str,
    behind: &[u8],
) -> Bytes {
    let message = text::limited(message).as_bytes();
    let payload = 6 + message.len() + behind.len();
    let mut bytes = BytesMut::with_capacity(CHUNK_LEN + payload);
    // A string has 4096 bytes at most.
    put_chunk(&mut bytes, is_done, kind, cookie, u32::try_from(payload).unwrap_or_default());
    bytes.put_u32(errno.to_wire());
    bytes.put_u16(u16::try_from(message.len()).unwrap_or_default());
    bytes.put_slice(message);
    bytes.put_slice(behind);
    bytes.freeze()
}
