//! Decodes requests from the stream, and checks them against the negotiated terms.

use bytes::{Buf, Bytes, BytesMut};

use super::refused::Refused;
use super::replies::Replies;
use crate::error::ProtocolError;
use crate::negotiated::Negotiated;
use crate::request::{Command, Request, RequestHeader, kind};
use crate::terms::{Breach, Terms};

/// Largest refused write whose data is skipped, bytes; a longer one ends the connection.
const MAX_SKIPPED: u32 = 1 << 27;

/// The requests of one connection (NBD, "Transmission").
///
/// Call [`receive`](Self::receive) until it returns nothing, then read at least one more byte;
/// [`expected`](Self::expected) returns the number of bytes that complete the next message. If the caller
/// reserves that number and reads no further, the data of a write is returned in its own memory, without a
/// copy. If the caller reads more, the data shares the memory of everything that was read with it, and keeps
/// all of that memory allocated.
#[derive(Debug)]
pub struct Transmission {
    terms: Terms,
    structured: bool,
    state: State,
}

/// Requests of a client.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TransmissionEvent {
    /// A request other than a write.
    Request(Request),
    /// A write, with its data.
    Write(Request, Bytes),
    /// A request that breaks the negotiated terms; respond with [`Replies::refuse`].
    Refused(Refused),
    /// The client ends the connection: reply to the requests in flight, and close the connection.
    Disconnect,
}

/// Kinds of the next message on the stream, each with the number of bytes that complete the message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Expected {
    /// A request.
    Request(usize),
    /// The data of a write, which is returned in one piece.
    Payload(usize),
    /// The data of a refused write, which is skipped; it need not be in the input as a whole.
    Skipped(usize),
}

impl Expected {
    /// Returns the number of bytes that complete the message.
    pub const fn len(self) -> usize {
        match self {
            Self::Request(len) | Self::Payload(len) | Self::Skipped(len) => len,
        }
    }

    /// Returns whether no byte of the message is missing.
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

impl Transmission {
    /// Creates the transmission that follows a handshake.
    pub const fn new(negotiated: &Negotiated) -> Self {
        Self {
            terms: Terms::new(negotiated),
            structured: negotiated.structured,
            state: State::Request,
        }
    }

    /// Returns the builder of replies to these requests.
    pub const fn replies(&self) -> Replies {
        Replies::new(self.structured)
    }

    /// Returns the kind of the next message, and the number of bytes from the beginning of the input that
    /// complete it.
    pub const fn expected(&self) -> Expected {
        match self.state {
            State::Payload(_, len) => Expected::Payload(len),
            State::Skip(_, left) => Expected::Skipped(left),
            State::Request | State::Failed(_) | State::Ended => Expected::Request(Request::LEN),
        }
    }

    /// Removes the next request from the input. Returns `None` when it needs more input, or after the end.
    ///
    /// Returns an error if the stream does not consist of requests, or a refused write is too long to be
    /// skipped.
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
        match self.terms.check(&header) {
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
            Err(Breach { errno, reason }) => {
                let refused = Refused { cookie, errno, reason };
                if header.kind == kind::WRITE {
                    // The refusal is returned only after the data of the write, because the client need not expect a
                    // reply before it has sent all of its data.
                    self.state = State::Skip(refused, len);
                    return Ok(None);
                }
                Ok(Some(TransmissionEvent::Refused(refused)))
            }
        }
    }

    fn fail<T>(&mut self, error: ProtocolError) -> Result<T, ProtocolError> {
        self.state = State::Failed(error.clone());
        Err(error)
    }
}
