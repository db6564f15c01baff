//! What ends a connection.

use thiserror::Error;

use crate::cookie::Cookie;
use crate::option::OptionError;

/// Something of the other side after which the connection cannot go on.
///
/// The stream has no point at which it could be taken up again: close it.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A message does not begin as it must.
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
    /// A client goes on with options without an end.
    #[error("the client has sent more than {0} options")]
    Options(u32),
    /// A client asks by NBD_OPT_EXPORT_NAME, which knows no refusal, for an export that it does not
    /// get.
    #[error("export {name:?}: {error}")]
    Export {
        /// The name that the client sent; empty where it is no text.
        name: String,
        /// The reason.
        error: OptionError,
    },
    /// A write has more data than would be skipped.
    #[error("a write has {0} bytes of data")]
    Payload(u32),
    /// An answer to an option cannot be understood, or may not come now.
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
    /// A structured reply where simple ones were negotiated, or a simple one that must be structured.
    #[error("the reply to a request ({0:?}) is of the other kind than was negotiated")]
    ReplyKind(Cookie),
    /// A chunk is malformed, or of a kind that does not belong to its request.
    #[error("a chunk of kind {kind:#x} in the reply to a request ({cookie:?})")]
    Chunk {
        /// The request.
        cookie: Cookie,
        /// The kind of the chunk.
        kind: u16,
    },
    /// A chunk of a read goes beyond the range of the request.
    #[error("data at {offset}, beyond the request ({cookie:?})")]
    OutsideRequest {
        /// The request.
        cookie: Cookie,
        /// Where the chunk begins, in bytes from the start of the export.
        offset: u64,
    },
    /// A chunk of a read brings what another has brought.
    #[error("data at {offset} for the second time ({cookie:?})")]
    Overlap {
        /// The request.
        cookie: Cookie,
        /// Where the chunk begins, in bytes from the start of the export.
        offset: u64,
    },
    /// A read comes in more pieces than are followed.
    #[error("the reply to a read ({0:?}) is of too many pieces")]
    Fragments(Cookie),
    /// A block status is of a context that was not negotiated, or comes twice.
    #[error("a block status of context {id}, which is not expected ({cookie:?})")]
    Context {
        /// The request.
        cookie: Cookie,
        /// The context's id.
        id: u32,
    },
    /// A reply ends without all of its data, and without an error.
    #[error("the reply to a request ({0:?}) is not complete")]
    Missing(Cookie),
}
