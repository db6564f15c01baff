//! Encodes the requests of a client in transmission.

use bytes::{Buf, BufMut};

use crate::cookie::Cookie;
use crate::error::ProtocolError;

/// NBD_REQUEST_MAGIC.
const MAGIC: u32 = 0x2560_9513;

/// The types of requests (NBD, "Request types").
pub(crate) mod kind {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISC: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const CACHE: u16 = 5;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
}

/// The flags of requests (NBD, "Command flags").
pub(crate) mod flag {
    pub(crate) const FUA: u16 = 1 << 0;
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    pub(crate) const DF: u16 = 1 << 2;
    pub(crate) const REQ_ONE: u16 = 1 << 3;
    pub(crate) const FAST_ZERO: u16 = 1 << 4;
}

/// A request with its range (NBD, "Request message").
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Request {
    /// Id of the request in its replies.
    pub cookie: Cookie,
    /// Operation on the range.
    pub command: Command,
    /// Offset of the range, in bytes.
    pub offset: u64,
    /// Length of the range, in bytes.
    pub length: u32,
}

/// The operation of a request (NBD, "Request types").
///
/// `fua` (force unit access): the server replies only when the written data is on permanent storage.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Command {
    /// Reads the data of the range.
    Read {
        /// Whether all data must arrive in one chunk.
        dont_fragment: bool,
    },
    /// Writes the data that follows the request to the range.
    Write {
        /// Whether the data must be on permanent storage before the reply.
        fua: bool,
    },
    /// Flushes: the reply means that all writes that were answered before are on permanent storage. The range
    /// of the request has length zero.
    Flush,
    /// Discards the data of the range.
    Trim {
        /// Whether the trim must be on permanent storage before the reply.
        fua: bool,
    },
    /// Announces that the range will be read soon.
    Cache,
    /// Writes zeros to the range.
    WriteZeroes {
        /// Whether the zeros must be on permanent storage before the reply.
        fua: bool,
        /// Whether the range must stay allocated.
        no_hole: bool,
        /// Whether the request fails immediately with
        /// [`Errno::NotSupported`](crate::Errno::NotSupported) unless it is faster than a write.
        fast: bool,
    },
    /// Reports the status of the range in each selected metadata context.
    BlockStatus {
        /// Whether one extent for each context is enough.
        one: bool,
    },
}

const fn flag_if(is_set: bool, flag: u16) -> u16 {
    if is_set { flag } else { 0 }
}

impl Command {
    const fn to_wire(self) -> (u16, u16) {
        match self {
            Self::Read { dont_fragment } => (kind::READ, flag_if(dont_fragment, flag::DF)),
            Self::Write { fua } => (kind::WRITE, flag_if(fua, flag::FUA)),
            Self::Flush => (kind::FLUSH, 0),
            Self::Trim { fua } => (kind::TRIM, flag_if(fua, flag::FUA)),
            Self::Cache => (kind::CACHE, 0),
            Self::WriteZeroes { fua, no_hole, fast } => (
                kind::WRITE_ZEROES,
                flag_if(fua, flag::FUA)
                    | flag_if(no_hole, flag::NO_HOLE)
                    | flag_if(fast, flag::FAST_ZERO),
            ),
            Self::BlockStatus { one } => (kind::BLOCK_STATUS, flag_if(one, flag::REQ_ONE)),
        }
    }
}

impl Request {
    /// Length of a request without the data of a write, bytes.
    pub const LEN: usize = 28;

    /// Encodes the request; the data of a write follows it.
    pub fn encode(&self) -> [u8; Self::LEN] {
        self.header().encode()
    }

    pub(crate) const fn header(&self) -> RequestHeader {
        let (kind, flags) = self.command.to_wire();
        let Self { cookie, offset, length, .. } = *self;
        RequestHeader { flags, kind, cookie, offset, length }
    }
}

/// The fields of a request, as they are on the wire and without a check.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RequestHeader {
    pub(crate) flags: u16,
    pub(crate) kind: u16,
    pub(crate) cookie: Cookie,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

impl RequestHeader {
    /// The request that ends a connection (NBD, "Terminating the transmission phase").
    pub(crate) const DISCONNECT: Self =
        Self { flags: 0, kind: kind::DISC, cookie: Cookie(0), offset: 0, length: 0 };

    pub(crate) fn encode(&self) -> [u8; Request::LEN] {
        let mut bytes = [0; Request::LEN];
        let mut rest = &mut bytes[..];
        rest.put_u32(MAGIC);
        rest.put_u16(self.flags);
        rest.put_u16(self.kind);
        rest.put_u64(self.cookie.0);
        rest.put_u64(self.offset);
        rest.put_u32(self.length);
        bytes
    }

    pub(crate) fn decode(bytes: [u8; Request::LEN]) -> Result<Self, ProtocolError> {
        let mut bytes = &bytes[..];
        let magic = bytes.get_u32();
        if magic != MAGIC {
            return Err(ProtocolError::Magic { message: "request", value: magic.into() });
        }
        Ok(Self {
            flags: bytes.get_u16(),
            kind: bytes.get_u16(),
            cookie: Cookie(bytes.get_u64()),
            offset: bytes.get_u64(),
            length: bytes.get_u32(),
        })
    }
}
