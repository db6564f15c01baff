//! Builds the replies to the requests of a connection.

use bytes::{BufMut, Bytes, BytesMut};

use super::block_status::descriptors;
use super::refused::Refused;
use crate::cookie::Cookie;
use crate::errno::Errno;
use crate::extent::Extent;
use crate::reply::{CHUNK_LEN, ReplyHead, chunk, put_chunk};
use crate::request::Request;
use crate::text;

/// Builds replies: structured replies where the client supports them, otherwise simple ones (NBD, "Simple
/// reply message", "Structured reply chunk message").
///
/// Send each simple reply, and each chunk of a structured reply, in one piece; other replies may come between
/// chunks. The data of a read is not part of a head. It follows the head on the stream, so that a vectored
/// write can send it without a copy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Replies {
    structured: bool,
}

impl Replies {
    pub(crate) const fn new(structured: bool) -> Self {
        Self { structured }
    }

    /// Returns whether replies are structured: the reply to a read may then have several chunks of data and
    /// holes.
    pub const fn is_structured(&self) -> bool {
        self.structured
    }

    /// Returns the reply to a successful request that has no data, that is, neither a read nor a block status.
    pub fn done(&self, cookie: Cookie) -> ReplyHead {
        ReplyHead::simple(0, cookie)
    }

    /// Returns the head of the reply to a successful read. Send all data of the read after it.
    ///
    /// The reply cannot become an error later: send it only when the data is available.
    pub fn read(&self, request: &Request) -> ReplyHead {
        if self.structured {
            ReplyHead::data(true, request.cookie, request.offset, request.length)
        } else {
            ReplyHead::simple(0, request.cookie)
        }
    }

    /// Returns the head of a chunk with a part of a read's data. Send the data after it. Returns `None`
    /// without structured replies. The parts of a reply must not overlap, and must cover exactly the range of
    /// the request. With `is_done` the part is the last one of the reply.
    pub fn data(&self, cookie: Cookie, offset: u64, len: u32, is_done: bool) -> Option<ReplyHead> {
        self.structured.then(|| ReplyHead::data(is_done, cookie, offset, len))
    }

    /// Returns a chunk for a part of a read that consists of zeros, under the rules of [`data`](Self::data).
    /// If the read must not be fragmented, the part must cover all of its range.
    pub fn hole(&self, cookie: Cookie, offset: u64, len: u32, is_done: bool) -> Option<ReplyHead> {
        self.structured.then(|| ReplyHead::hole(is_done, cookie, offset, len))
    }

    /// Returns the chunk that ends a reply of several chunks; `None` without structured replies.
    pub fn end(&self, cookie: Cookie) -> Option<ReplyHead> {
        self.structured.then(|| ReplyHead::chunk(true, chunk::NONE, cookie, 0))
    }

    /// Returns a chunk with the status of a request's range in a context; `None` without structured replies,
    /// or without an extent. Send one such chunk for each selected context, the last one with `is_done`.
    ///
    /// The extents must follow each other from the offset of the request on. They may exceed its range: the
    /// rest is omitted.
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

    /// Returns the error reply to a request, with a message as readable text, which may be empty. The error
    /// invalidates the chunks that were sent before, and no chunk may follow it.
    pub fn error(&self, cookie: Cookie, errno: Errno, message: &str) -> Bytes {
        if !self.structured {
            return ReplyHead::simple(errno.to_wire(), cookie).into();
        }
        error_chunk(true, chunk::ERROR, cookie, errno, message, &[])
    }

    /// Returns the error reply to a request that failed at an offset in its range. Data of earlier chunks
    /// before the offset is valid. Returns `None` without structured replies.
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

    /// Returns the reply to a refused request.
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
    // The message has at most 4096 bytes, so the lengths fit in 32 and 16 bits.
    put_chunk(&mut bytes, is_done, kind, cookie, u32::try_from(payload).unwrap_or_default());
    bytes.put_u32(errno.to_wire());
    bytes.put_u16(u16::try_from(message.len()).unwrap_or_default());
    bytes.put_slice(message);
    bytes.put_slice(behind);
    bytes.freeze()
}
