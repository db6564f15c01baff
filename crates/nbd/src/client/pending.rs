//! Tracks requests in flight, and completes them.

use bytes::{Buf, Bytes, BytesMut};
use thiserror::Error;

use super::block_status::ContextStatus;
use super::coverage::{Coverage, CoverageError};
use crate::cookie::Cookie;
use crate::errno::Errno;
use crate::error::ProtocolError;
use crate::reply::chunk;
use crate::request::{Command, Request};
use crate::text;

/// A request whose reply is complete.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Completed {
    /// The request.
    pub request: Request,
    /// The result of the request, or its failure.
    pub outcome: Result<Answer, Failure>,
}

/// The result of a successful request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    /// The request is executed; it has no data to return.
    Done,
    /// The buffer of a read, filled.
    Data(BytesMut),
    /// The statuses of the range, one for each negotiated context, in no particular order.
    BlockStatus(Vec<ContextStatus>),
}

/// The failure of a request, with the server's reason.
#[derive(Clone, Debug, Eq, PartialEq, Error)]
#[error("{errno}{}{message}", if message.is_empty() { "" } else { ": " })]
pub struct Failure {
    /// The first error that the server reported.
    pub errno: Errno,
    /// Offset of the failure in bytes from the start of the export, if the server reports it.
    pub offset: Option<u64>,
    /// The message of the server; often empty.
    pub message: String,
}

/// A request in flight.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) request: Request,
    /// The buffer of a read, as long as its range.
    buffer: BytesMut,
    landed: Coverage,
    status: Vec<ContextStatus>,
    failure: Option<Failure>,
    has_chunks: bool,
}

impl Pending {
    pub(crate) fn new(request: Request, buffer: BytesMut) -> Self {
        Self {
            request,
            buffer,
            landed: Coverage::default(),
            status: Vec::new(),
            failure: None,
            has_chunks: false,
        }
    }

    pub(crate) const fn is_read(&self) -> bool {
        matches!(self.request.command, Command::Read { .. })
    }

    pub(crate) const fn is_block_status(&self) -> bool {
        matches!(self.request.command, Command::BlockStatus { .. })
    }

    /// Returns whether a part of the reply has arrived.
    pub(crate) const fn has_chunks(&self) -> bool {
        self.has_chunks
    }

    pub(crate) const fn record_chunk(&mut self) {
        self.has_chunks = true;
    }

    pub(crate) fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    /// Returns the position in the buffer of `len` bytes at an offset of the export, and marks these bytes as
    /// received.
    pub(crate) fn place(&mut self, offset: u64, len: usize) -> Result<usize, ProtocolError> {
        let cookie = self.request.cookie;
        let outside = ProtocolError::OutsideRequest { cookie, offset };
        let at = offset.checked_sub(self.request.offset).and_then(|at| usize::try_from(at).ok());
        let range = at.and_then(|at| Some(at..at.checked_add(len)?));
        let Some(range) = range.filter(|range| range.end <= self.buffer.len()) else {
            return Err(outside);
        };
        let start = range.start;
        self.landed.add(range).map_err(|error| match error {
            CoverageError::Overlap => ProtocolError::Overlap { cookie, offset },
            CoverageError::Fragments => ProtocolError::Fragments(cookie),
        })?;
        Ok(start)
    }

    /// Returns a part of the buffer.
    pub(crate) fn part(&mut self, at: usize, len: usize) -> &mut [u8] {
        self.buffer.get_mut(at..).and_then(|rest| rest.get_mut(..len)).unwrap_or_default()
    }

    /// Stores the status in a context. A second status in the same context is an error.
    pub(crate) fn add_status(&mut self, status: ContextStatus) -> Result<(), ProtocolError> {
        if self.status.iter().any(|known| known.context == status.context) {
            let cookie = self.request.cookie;
            return Err(ProtocolError::Context { cookie, id: status.context });
        }
        self.status.push(status);
        Ok(())
    }

    /// Returns whether a reply that ends here reports no error, and yet lacks data of a read or the status in
    /// a context. `contexts` is the number of negotiated contexts.
    pub(crate) fn is_missing(&self, contexts: usize) -> bool {
        self.failure.is_none()
            && (self.is_read() && !self.landed.is_complete(self.buffer.len())
                || self.is_block_status() && self.status.len() < contexts)
    }

    /// Returns the result of the request, whose reply is complete.
    pub(crate) fn complete(self) -> Completed {
        let answer = match self.request.command {
            Command::Read { .. } => Answer::Data(self.buffer),
            Command::BlockStatus { .. } => Answer::BlockStatus(self.status),
            Command::Write { .. }
            | Command::Flush
            | Command::Trim { .. }
            | Command::Cache
            | Command::WriteZeroes { .. } => Answer::Done,
        };
        let outcome = self.failure.map_or(Ok(answer), Err);
        Completed { request: self.request, outcome }
    }
}

impl Failure {
    /// Decodes the payload of an error chunk of any type.
    pub(crate) fn decode(
        cookie: Cookie,
        kind: u16,
        payload: &Bytes,
    ) -> Result<Self, ProtocolError> {
        let malformed = || ProtocolError::Chunk { cookie, kind };
        let mut payload = payload.clone();
        let errno = Errno::from_wire(payload.try_get_u32().map_err(|_| malformed())?);
        let len = usize::from(payload.try_get_u16().map_err(|_| malformed())?);
        if len > payload.len() {
            return Err(malformed());
        }
        let message = text::message(&payload.split_to(len));
        let offset = match kind {
            chunk::ERROR_OFFSET => Some(payload.try_get_u64().map_err(|_| malformed())?),
            _ => None,
        };
        Ok(Self { errno, offset, message })
    }
}
