//! Requests, cut from the stream and checked against what was negotiated.

use bytes::{Buf, Bytes, BytesMut};

use super::handshake::Negotiated;
use super::refused::Refused;
use super::replies::Replies;
use crate::block_sizes::BlockSizes;
use crate::errno::Errno;
use crate::error::ProtocolError;
use crate::request::{Command, Request, RequestHeader, flag, kind};
use crate::transmission_flags::TransmissionFlags;

/// The longest write whose data are skipped when it is refused; after a longer one the connection
/// ends.
const MAX_SKIPPED: u32 = 1 << 27;

/// The requests of one connection (NBD, "Transmission").
///
/// Call [`receive`](Self::receive) until it yields nothing, then read at least a byte more;
/// [`expected`](Self::expected) says how many complete what comes next. Whoever reserves that much
/// and reads no further has the data of a write in memory of their own, without a copy.
#[derive(Debug)]
pub struct Transmission {
    size: u64,
    flags: TransmissionFlags,
    block_sizes: BlockSizes,
    structured: bool,
    has_contexts: bool,
    state: State,
}

/// What a client wants.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TransmissionEvent {
    /// A request other than a write.
    Request(Request),
    /// A write, with its data.
    Write(Request, Bytes),
    /// A request that may not be, to be answered by [`Replies::refuse`].
    Refused(Refused),
    /// The end: answer what is under way, and close.
    Disconnect,
}

/// What comes next on the stream, and how many bytes complete it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Expected {
    /// A request.
    Request(usize),
    /// The data of a write, which are given out in one piece.
    Payload(usize),
    /// The data of a write that is refused; they need not be in the input at once.
    Skipped(usize),
}

impl Expected {
    /// The number of bytes.
    pub const fn len(self) -> usize {
        match self {
            Self::Request(len) | Self::Payload(len) | Self::Skipped(len) => len,
        }
    }

    /// Whether nothing is missing.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }
}

#[derive(Debug)]
enum State {
    Request,
    Payload(Request, usize),
    Skip(Refused, usize),
    Failed(ProtocolError),
    Ended,
}

type Refusal = (Errno, &'static str);

impl Transmission {
    /// Transmission after a handshake.
    pub const fn new(negotiated: &Negotiated) -> Self {
        let export = &negotiated.export;
        Self {
            size: export.size,
            flags: export.flags,
            block_sizes: export.block_sizes,
            structured: negotiated.structured,
            has_contexts: !negotiated.contexts.is_empty(),
            state: State::Request,
        }
    }

    /// What the replies to the requests look like.
    pub const fn replies(&self) -> Replies {
        Replies::new(self.structured)
    }

    /// What comes next, counted from the beginning of the input.
    pub const fn expected(&self) -> Expected {
        match self.state {
            State::Payload(_, len) => Expected::Payload(len),
            State::Skip(_, left) => Expected::Skipped(left),
            State::Request | State::Failed(_) | State::Ended => Expected::Request(Request::LEN),
        }
    }

    /// Takes the next request from the input; `None` when more input is needed, or after the end.
    ///
    /// # Errors
    /// When the stream is no stream of requests, or a write too long to be skipped.
    pub fn receive(
        &mut self,
        input: &mut BytesMut,
    ) -> Result<Option<TransmissionEvent>, ProtocolError> {
        loop {
            match &mut self.state {
                State::Request => {
                    let Some(&header) = input.first_chunk() else { return Ok(None) };
                    input.advance(Request::LEN);
                    if let Some(event) = self.header(header)? {
                        return Ok(Some(event));
                    }
                }
                State::Payload(request, len) => {
                    if input.len() < *len {
                        return Ok(None);
                    }
                    let event = TransmissionEvent::Write(*request, input.split_to(*len).freeze());
                    self.state = State::Request;
                    return Ok(Some(event));
                }
                State::Skip(refused, left) => {
                    let now = input.len().min(*left);
                    input.advance(now);
                    *left -= now;
                    if *left > 0 {
                        return Ok(None);
                    }
                    let event = TransmissionEvent::Refused(*refused);
                    self.state = State::Request;
                    return Ok(Some(event));
                }
                State::Failed(error) => return Err(error.clone()),
                State::Ended => return Ok(None),
            }
        }
    }

    fn header(
        &mut self,
        header: [u8; Request::LEN],
    ) -> Result<Option<TransmissionEvent>, ProtocolError> {
        let header = match RequestHeader::decode(header) {
            Ok(header) => header,
            Err(error) => return self.fail(error),
        };
        if header.kind == kind::DISC {
            self.state = State::Ended;
            return Ok(Some(TransmissionEvent::Disconnect));
        }
        let len = usize::try_from(header.length).unwrap_or(usize::MAX);
        let RequestHeader { cookie, offset, length, .. } = header;
        match self.check(&header) {
            Ok(command @ Command::Write { .. }) => {
                self.state = State::Payload(Request { cookie, command, offset, length }, len);
                Ok(None)
            }
            Ok(command) => {
                let request = Request { cookie, command, offset, length };
                Ok(Some(TransmissionEvent::Request(request)))
            }
            Err(_) if header.kind == kind::WRITE && length > MAX_SKIPPED => {
                self.fail(ProtocolError::Payload(length))
            }
            Err((errno, reason)) => {
                let refused = Refused { cookie, errno, reason };
                if header.kind == kind::WRITE {
                    // A client that has not sent all of a request yet need not know its reply.
                    self.state = State::Skip(refused, len);
                    return Ok(None);
                }
                Ok(Some(TransmissionEvent::Refused(refused)))
            }
        }
    }

    /// The command of a request, if it may be.
    fn check(&self, header: &RequestHeader) -> Result<Command, Refusal> {
        let command = self.command(header)?;
        match command {
            Command::Flush => {}
            Command::Write { .. } => {
                self.check_writable()?;
                self.check_range(header, Errno::NoSpace)?;
                self.check_payload(header)?;
            }
            Command::WriteZeroes { .. } => {
                self.check_writable()?;
                self.check_range(header, Errno::NoSpace)?;
            }
            Command::Trim { .. } => {
                self.check_writable()?;
                self.check_range(header, Errno::Invalid)?;
            }
            Command::Read { .. } => {
                self.check_range(header, Errno::Invalid)?;
                self.check_payload(header)?;
            }
            Command::Cache => self.check_range(header, Errno::Invalid)?,
            Command::BlockStatus { .. } => {
                self.check_range(header, Errno::Invalid)?;
                if !self.has_contexts {
                    return Err((Errno::Invalid, "no metadata context was selected"));
                }
            }
        }
        Ok(command)
    }

    /// The command that kind and flags make.
    fn command(&self, header: &RequestHeader) -> Result<Command, Refusal> {
        let has = |flag| header.flags & flag != 0;
        let fua = has(flag::FUA);
        let (needed, allowed, command) = match header.kind {
            kind::READ => {
                let command = Command::Read { dont_fragment: has(flag::DF) };
                (TransmissionFlags::NONE, flag::DF, command)
            }
            kind::WRITE => (TransmissionFlags::NONE, 0, Command::Write { fua }),
            kind::FLUSH => (TransmissionFlags::FLUSH, 0, Command::Flush),
            kind::TRIM => (TransmissionFlags::TRIM, 0, Command::Trim { fua }),
            kind::CACHE => (TransmissionFlags::CACHE, 0, Command::Cache),
            kind::WRITE_ZEROES => {
                let (no_hole, fast) = (has(flag::NO_HOLE), has(flag::FAST_ZERO));
                let command = Command::WriteZeroes { fua, no_hole, fast };
                (TransmissionFlags::WRITE_ZEROES, flag::NO_HOLE | flag::FAST_ZERO, command)
            }
            kind::BLOCK_STATUS => {
                let command = Command::BlockStatus { one: has(flag::REQ_ONE) };
                (TransmissionFlags::NONE, flag::REQ_ONE, command)
            }
            _ => return Err((Errno::Invalid, "the request is unknown")),
        };
        if !self.flags.contains(needed) {
            return Err((Errno::Invalid, "the request was not offered"));
        }
        // Clients set FUA on requests that write nothing, too, where it means nothing.
        if header.flags & !(allowed | flag::FUA) != 0 {
            return Err((Errno::Invalid, "a flag does not belong to the request"));
        }
        let offered = |flag, feature| !has(flag) || self.flags.contains(feature);
        if !offered(flag::FUA, TransmissionFlags::FUA)
            || !offered(flag::DF, TransmissionFlags::DONT_FRAGMENT)
            || !offered(flag::FAST_ZERO, TransmissionFlags::FAST_ZERO)
        {
            return Err((Errno::Invalid, "a flag of the request was not offered"));
        }
        Ok(command)
    }

    const fn check_writable(&self) -> Result<(), Refusal> {
        if self.flags.contains(TransmissionFlags::READ_ONLY) {
            return Err((Errno::Permission, "the export is read-only"));
        }
        Ok(())
    }

    fn check_range(&self, header: &RequestHeader, beyond: Errno) -> Result<(), Refusal> {
        if header.length == 0 {
            return Err((Errno::Invalid, "the range is empty"));
        }
        let end = header.offset.checked_add(header.length.into());
        if end.is_none_or(|end| end > self.size) {
            return Err((beyond, "the range goes beyond the end of the export"));
        }
        let minimum = self.block_sizes.minimum;
        let is_whole = header.offset.is_multiple_of(minimum.into());
        if !is_whole || !header.length.is_multiple_of(minimum) {
            return Err((Errno::Invalid, "the range is not of whole blocks"));
        }
        Ok(())
    }

    fn check_payload(&self, header: &RequestHeader) -> Result<(), Refusal> {
        if header.length > self.block_sizes.max_payload() {
            return Err((Errno::Invalid, "the range is longer than a request may be"));
        }
        Ok(())
    }

    fn fail<T>(&mut self, error: ProtocolError) -> Result<T, ProtocolError> {
        self.state = State::Failed(error.clone());
        Err(error)
    }
}
