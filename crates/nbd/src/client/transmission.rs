//! Sends requests, and matches replies to them.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes, BytesMut};

use super::block_status::ContextStatus;
use super::pending::{Completed, Failure, Pending};
use crate::cookie::Cookie;
use crate::errno::Errno;
use crate::error::ProtocolError;
use crate::negotiated::Negotiated;
use crate::reply::{CHUNK_LEN, CHUNK_MAGIC, ChunkHead, SIMPLE_LEN, SIMPLE_MAGIC, chunk};
use crate::request::{Command, Request, RequestHeader};
use crate::terms::{Breach, Terms};

/// Largest payload of an error chunk that is accepted, bytes: a string, its fields, and room for extensions.
const MAX_ERROR: usize = 64 * 1024;

/// The requests of one connection, and their replies, which may arrive in any order (NBD, "Transmission").
///
/// Call [`receive`](Self::receive) until it returns nothing, then read more from the connection. Read into
/// the input, or read the data of a read request directly into its buffer ([`landing`](Self::landing)).
///
/// When a connection is lost, each request in flight ([`requests`](Self::requests)) may or may not have been
/// executed.
#[derive(Debug)]
pub struct Transmission {
    terms: Terms,
    size: u64,
    structured: bool,
    contexts: Vec<u32>,
    pending: BTreeMap<Cookie, Pending>,
    next: Cookie,
    is_closing: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    Head,
    /// The head of a chunk has arrived; its payload, or the offset of its data, has not.
    Chunk(ChunkHead),
    /// The data of a read comes next, and goes directly into its buffer.
    Data {
        cookie: Cookie,
        at: usize,
        left: usize,
        is_done: bool,
    },
    Failed(ProtocolError),
}

impl Transmission {
    /// Creates the transmission that follows a handshake.
    pub fn new(negotiated: &Negotiated) -> Self {
        Self {
            terms: Terms::new(negotiated),
            size: negotiated.export.size,
            structured: negotiated.structured,
            contexts: negotiated.contexts.iter().map(|context| context.id).collect(),
            pending: BTreeMap::new(),
            next: Cookie(1),
            is_closing: false,
            state: State::Head,
        }
    }

    /// Begins a request. Send the bytes of [`Request::encode`], followed by the data of a write. For a read, a
    /// buffer is allocated.
    ///
    /// Returns an error if the request breaks the negotiated terms, or the connection is closing. Then no
    /// request has begun.
    pub fn submit(
        &mut self,
        command: Command,
        offset: u64,
        length: u32,
    ) -> Result<Request, Breach> {
        let request = self.check(command, offset, length)?;
        let is_read = matches!(command, Command::Read { .. });
        let buffer = if is_read { BytesMut::zeroed(to_usize(length)) } else { BytesMut::new() };
        self.begin(request, buffer);
        Ok(request)
    }

    /// Begins a read of as many bytes as the buffer has; the bytes in the buffer do not matter. The filled
    /// buffer is returned in [`Answer::Data`](super::Answer::Data).
    ///
    /// # Errors
    /// The errors of [`submit`](Self::submit); the buffer is dropped.
    pub fn read_into(&mut self, offset: u64, buffer: BytesMut) -> Result<Request, Breach> {
        let length = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        let request = self.check(Command::Read { dont_fragment: false }, offset, length)?;
        self.begin(request, buffer);
        Ok(request)
    }

    /// Returns the last message to the server. Send it when no request is in flight. No request can begin
    /// after this call.
    pub fn disconnect(&mut self) -> [u8; Request::LEN] {
        self.is_closing = true;
        RequestHeader::DISCONNECT.encode()
    }

    /// Returns the requests that have no reply yet, in the order in which they began.
    pub fn requests(&self) -> impl ExactSizeIterator<Item = Request> {
        self.pending.values().map(|pending| pending.request)
    }

    /// Returns the rest of a read request's buffer, if the data for it comes next on the stream; otherwise an
    /// empty slice. While the input is empty, the caller may read from the stream directly into it, and
    /// reports the number of bytes by [`landed`](Self::landed).
    pub fn landing(&mut self) -> &mut [u8] {
        let State::Data { cookie, at, left, .. } = self.state else { return &mut [] };
        match self.pending.get_mut(&cookie) {
            Some(pending) => pending.part(at, left),
            None => &mut [],
        }
    }

    /// Counts bytes that the caller has read into [`landing`](Self::landing).
    pub fn landed(&mut self, count: usize) {
        if let State::Data { at, left, .. } = &mut self.state {
            let count = count.min(*left);
            *at += count;
            *left -= count;
        }
    }

    /// Returns the space that the input should have for the next message, in bytes; the message may be
    /// shorter. A block status needs up to 8 MiB. While data of a read comes next, this is the rest of that
    /// data, which need not be in the input as a whole.
    pub fn wanted(&self) -> usize {
        match &self.state {
            State::Head | State::Failed(_) => CHUNK_LEN,
            State::Chunk(head) => awaited(head),
            State::Data { left, .. } => *left,
        }
    }

    /// Consumes the input up to the end of a reply. Returns `None` when it needs more input.
    ///
    /// Returns an error if the server breaks the protocol. Then the requests in flight get no reply.
    pub fn receive(&mut self, input: &mut BytesMut) -> Result<Option<Completed>, ProtocolError> {
        let completed = self.advance(input);
        if let Err(error) = &completed {
            self.state = State::Failed(error.clone());
        }
        completed
    }

    fn advance(&mut self, input: &mut BytesMut) -> Result<Option<Completed>, ProtocolError> {
        loop {
            let completed = match &mut self.state {
                State::Head => {
                    let Some(&magic) = input.first_chunk() else { return Ok(None) };
                    match u32::from_be_bytes(magic) {
                        SIMPLE_MAGIC if input.len() >= SIMPLE_LEN => {
                            self.simple(input.split_to(SIMPLE_LEN))?
                        }
                        CHUNK_MAGIC if input.len() >= CHUNK_LEN => {
                            input.advance(magic.len());
                            let head = ChunkHead::take(input);
                            self.chunk_head(&head)?;
                            self.state = State::Chunk(head);
                            None
                        }
                        SIMPLE_MAGIC | CHUNK_MAGIC => return Ok(None),
                        magic => {
                            let value = magic.into();
                            return Err(ProtocolError::Magic { message: "reply", value });
                        }
                    }
                }
                State::Chunk(head) => {
                    let len = awaited(head);
                    if input.len() < len {
                        return Ok(None);
                    }
                    let head = *head;
                    self.state = State::Head;
                    self.chunk(head, input.split_to(len).freeze())?
                }
                State::Data { cookie, at, left, is_done } => {
                    let now = input.len().min(*left);
                    if let Some(pending) = self.pending.get_mut(cookie) {
                        input.copy_to_slice(pending.part(*at, now));
                    }
                    *at += now;
                    *left -= now;
                    if *left > 0 {
                        return Ok(None);
                    }
                    let (cookie, is_done) = (*cookie, *is_done);
                    self.state = State::Head;
                    if is_done { self.complete(cookie)? } else { None }
                }
                State::Failed(error) => return Err(error.clone()),
            };
            if completed.is_some() {
                return Ok(completed);
            }
        }
    }

    fn check(&self, command: Command, offset: u64, length: u32) -> Result<Request, Breach> {
        if self.is_closing {
            return Err(Breach::new(Errno::Shutdown, "the connection is closing"));
        }
        // The offset and length of a flush are reserved, and must be 0.
        let (offset, length) = if command == Command::Flush { (0, 0) } else { (offset, length) };
        let request = Request { cookie: self.next, command, offset, length };
        self.terms.check(&request.header())?;
        Ok(request)
    }

    fn begin(&mut self, request: Request, buffer: BytesMut) {
        self.next = Cookie(self.next.0.wrapping_add(1));
        self.pending.insert(request.cookie, Pending::new(request, buffer));
    }

    fn pending(&mut self, cookie: Cookie) -> Result<&mut Pending, ProtocolError> {
        self.pending.get_mut(&cookie).ok_or(ProtocolError::UnknownCookie(cookie))
    }

    fn complete(&mut self, cookie: Cookie) -> Result<Option<Completed>, ProtocolError> {
        let contexts = self.contexts.len();
        if self.pending(cookie)?.is_missing(contexts) {
            // The request stays in flight, because it is unknown whether it was executed.
            return Err(ProtocolError::Missing(cookie));
        }
        Ok(self.pending.remove(&cookie).map(Pending::complete))
    }

    /// Processes a simple reply; the data of a read follows it (NBD, "Simple reply message").
    fn simple(&mut self, mut reply: BytesMut) -> Result<Option<Completed>, ProtocolError> {
        reply.advance(4);
        let error = reply.get_u32();
        let cookie = Cookie(reply.get_u64());
        let structured = self.structured;
        let pending = self.pending(cookie)?;
        if pending.has_chunks() {
            return Err(ProtocolError::ReplyKind(cookie));
        }
        if error != 0 {
            let errno = Errno::from_wire(error);
            pending.fail(Failure { errno, offset: None, message: String::new() });
        } else if pending.is_block_status() || pending.is_read() && structured {
            return Err(ProtocolError::ReplyKind(cookie));
        } else if pending.is_read() {
            let Request { offset, length, .. } = pending.request;
            let left = to_usize(length);
            let at = pending.place(offset, left)?;
            self.state = State::Data { cookie, at, left, is_done: true };
            return Ok(None);
        }
        self.complete(cookie)
    }

    /// Checks the head of a chunk, so that an invalid chunk is refused before its payload arrives.
    fn chunk_head(&mut self, head: &ChunkHead) -> Result<(), ProtocolError> {
        let ChunkHead { cookie, kind, is_done, .. } = *head;
        let structured = self.structured;
        let len = to_usize(head.len);
        let pending = self.pending(cookie)?;
        if !structured {
            return Err(ProtocolError::ReplyKind(cookie));
        }
        pending.record_chunk();
        let is_good = match kind {
            chunk::NONE => len == 0 && is_done,
            chunk::OFFSET_DATA => pending.is_read() && len > 8,
            chunk::OFFSET_HOLE => pending.is_read() && len == 12,
            chunk::BLOCK_STATUS => pending.is_block_status() && len <= ContextStatus::MAX_LEN,
            _ => kind & chunk::IS_ERROR != 0 && len <= MAX_ERROR,
        };
        if is_good { Ok(()) } else { Err(ProtocolError::Chunk { cookie, kind }) }
    }

    /// Processes a chunk with its payload, or with the offset of its data (NBD, "Structured reply types").
    fn chunk(
        &mut self,
        head: ChunkHead,
        mut payload: Bytes,
    ) -> Result<Option<Completed>, ProtocolError> {
        let ChunkHead { cookie, kind, is_done, .. } = head;
        let size = self.size;
        match kind {
            chunk::NONE => {}
            chunk::OFFSET_DATA => {
                let left = to_usize(head.len).saturating_sub(8);
                let at = self.pending(cookie)?.place(payload.get_u64(), left)?;
                self.state = State::Data { cookie, at, left, is_done };
                return Ok(None);
            }
            chunk::OFFSET_HOLE => {
                let (offset, len) = (payload.get_u64(), to_usize(payload.get_u32()));
                if len == 0 {
                    return Err(ProtocolError::Chunk { cookie, kind });
                }
                let pending = self.pending(cookie)?;
                let at = pending.place(offset, len)?;
                pending.part(at, len).fill(0);
            }
            chunk::BLOCK_STATUS => {
                let request = self.pending(cookie)?.request;
                let status = ContextStatus::decode(&request, size, &payload)
                    .ok_or(ProtocolError::Chunk { cookie, kind })?;
                if !self.contexts.contains(&status.context) {
                    return Err(ProtocolError::Context { cookie, id: status.context });
                }
                self.pending(cookie)?.add_status(status)?;
            }
            _ => {
                let failure = Failure::decode(cookie, kind, &payload)?;
                self.pending(cookie)?.fail(failure);
            }
        }
        if is_done { self.complete(cookie) } else { Ok(None) }
    }
}

/// Returns how many bytes of a chunk's payload must be in the input before it is processed.
fn awaited(head: &ChunkHead) -> usize {
    if head.kind == chunk::OFFSET_DATA { 8 } else { to_usize(head.len) }
}

fn to_usize(len: u32) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
