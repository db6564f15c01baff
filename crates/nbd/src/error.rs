//! What ends a connection.

use thiserror::Error;

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
        /// What was expected.
        message: &'static str,
        /// What stands there.
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
        /// As the client names it; empty where the name is no text.
        name: String,
        /// Why.
        error: OptionError,
    },
    /// A write has more data than would be skipped.
    #[error("a write has {0} bytes of data")]
    Payload(u32),
}
