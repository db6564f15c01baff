//! Errors that end a connection.

use thiserror::Error;

use crate::cookie::Cookie;
use crate::option::OptionError;

/// A protocol error of the other side, after which the connection cannot continue.
///
/// The stream cannot be resynchronised: close the connection.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A message does not begin with the number that such a message must have.
    #[error("a {message} begins with {value:#x}")]
    Magic {
        /// The expected message.
        message: &'static str,
        /// The value that was found.
        value: u64,
    },
    /// A client's flags have bits that the server did not offer.
    #[error("the client's flags ({0:#x}) have bits that were not offered")]
    ClientFlags(u32),
    /// The client sends more options than the server accepts in one handshake.
    #[error("the client has sent more than {0} options")]
    Options(u32),
    /// The client sends more after NBD_OPT_STARTTLS before the reply. It would be read as if it had been encrypted.
    #[error("clear text follows the request to start TLS")]
    ClearText,
    /// The server refuses the export that the client requests by NBD_OPT_EXPORT_NAME. This option has no
    /// error reply.
    #[error("export {name:?}: {error}")]
    Export {
        /// Name that the client sent; empty if it is not text.
        name: String,
        /// The reason.
        error: OptionError,
    },
    /// A write is refused, and has too much data to be skipped.
    #[error("a write has {0} bytes of data")]
    Payload(u32),
    /// An answer to an option is malformed, or not allowed at this point of the handshake.
    #[error("an answer to option {option}: {problem}")]
    Answer {
        /// The option's number.
        option: u32,
        /// The defect, as a phrase.
        problem: &'static str,
    },
    /// A reply belongs to no request in flight.
    #[error("a reply to no request ({0:?})")]
    UnknownCookie(Cookie),
    /// A reply is structured although simple replies were negotiated, or simple although it must be
    /// structured.
    #[error("the reply to a request ({0:?}) is of the other kind than was negotiated")]
    ReplyKind(Cookie),
    /// A chunk of a reply is malformed, or its kind does not fit the request.
    #[error("a chunk of kind {kind:#x} in the reply to a request ({cookie:?})")]
    Chunk {
        /// The request.
        cookie: Cookie,
        /// The kind of the chunk.
        kind: u16,
    },
    /// A chunk in the reply to a read lies outside the range of the request.
    #[error("data at {offset}, beyond the request ({cookie:?})")]
    OutsideRequest {
        /// The request.
        cookie: Cookie,
        /// Start of the chunk, in bytes from the start of the export.
        offset: u64,
    },
    /// A chunk in the reply to a read has bytes that an earlier chunk had already.
    #[error("data at {offset} for the second time ({cookie:?})")]
    Overlap {
        /// The request.
        cookie: Cookie,
        /// Start of the chunk, in bytes from the start of the export.
        offset: u64,
    },
    /// The reply to a read has more separate pieces than the client can track.
    #[error("the reply to a read ({0:?}) is of too many pieces")]
    Fragments(Cookie),
    /// A block status is of a context that was not negotiated, or of one that was reported before.
    #[error("a block status of context {id}, which is not expected ({cookie:?})")]
    Context {
        /// The request.
        cookie: Cookie,
        /// The context's id.
        id: u32,
    },
    /// A reply ends without all of its data, and reports no error.
    #[error("the reply to a request ({0:?}) is not complete")]
    Missing(Cookie),
}
