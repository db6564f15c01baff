//! Encodes options of the handshake, and the replies to options.

use bytes::{BufMut, BytesMut};
use thiserror::Error;

/// `NBDMAGIC`, the first bytes that a server sends.
pub(crate) const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`: the number before the flags of a server, and before each option of a client.
pub(crate) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// The number before each reply to an option.
pub(crate) const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// NBD_FLAG_FIXED_NEWSTYLE and NBD_FLAG_C_FIXED_NEWSTYLE.
pub(crate) const FIXED_NEWSTYLE: u16 = 1 << 0;
/// NBD_FLAG_NO_ZEROES and NBD_FLAG_C_NO_ZEROES.
pub(crate) const NO_ZEROES: u16 = 1 << 1;

/// Length of an option without its data, bytes.
pub(crate) const OPTION_LEN: usize = 16;
/// Length of an option reply without its data, bytes.
pub(crate) const REPLY_LEN: usize = 20;
/// Number of zeros after the reply to NBD_OPT_EXPORT_NAME.
pub(crate) const ZEROES: usize = 124;

/// The options (NBD, "Option types").
pub(crate) mod code {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
}

/// The option replies that are not errors (NBD, "Option reply types").
pub(crate) mod answer {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    /// The bit that is set in the types of all error replies.
    pub(crate) const IS_ERROR: u32 = 1 << 31;
}

/// Types of information on an export (NBD, "`NBD_REP_INFO`").
pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DESCRIPTION: u16 = 2;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// Reasons why a server refuses an option (NBD, "Option reply types").
#[derive(Clone, Copy, Debug, Eq, Error, Hash, PartialEq)]
pub enum OptionError {
    /// The server does not support an option of the handshake (NBD_REP_ERR_UNSUP).
    #[error("the server does not know the option")]
    Unsupported = 1,
    /// The server is configured not to allow the option to this client (NBD_REP_ERR_POLICY).
    #[error("the server's policy forbids the option")]
    Policy = 2,
    /// The option is malformed, or not allowed at this point of the handshake (NBD_REP_ERR_INVALID).
    #[error("the option is malformed, or may not come now")]
    Invalid = 3,
    /// The platform that the server runs on does not support the option (NBD_REP_ERR_PLATFORM).
    #[error("the server's platform does not support the option")]
    Platform = 4,
    /// The server requires TLS before it accepts the option (NBD_REP_ERR_TLS_REQD).
    #[error("the server wants TLS first")]
    TlsRequired = 5,
    /// The server has no export of that name (NBD_REP_ERR_UNKNOWN).
    #[error("the server has no such export")]
    Unknown = 6,
    /// The server is shutting down (NBD_REP_ERR_SHUTDOWN).
    #[error("the server is shutting down")]
    Shutdown = 7,
    /// The server requires certain block sizes, and the client has not requested them
    /// (NBD_REP_ERR_BLOCK_SIZE_REQD).
    #[error("the server wants its block sizes to be asked for")]
    BlockSizeRequired = 8,
    /// The option or the answer to it is too long for the server (NBD_REP_ERR_TOO_BIG).
    #[error("the option or its answer is too long")]
    TooBig = 9,
}

impl OptionError {
    /// Returns the type of the error reply on the wire.
    pub const fn to_wire(self) -> u32 {
        answer::IS_ERROR | self as u32
    }

    /// Returns the error for the type of an error reply. An unlisted type becomes
    /// [`OptionError::Unsupported`].
    pub(crate) const fn from_wire(value: u32) -> Self {
        match value & !answer::IS_ERROR {
            2 => Self::Policy,
            3 => Self::Invalid,
            4 => Self::Platform,
            5 => Self::TlsRequired,
            6 => Self::Unknown,
            7 => Self::Shutdown,
            8 => Self::BlockSizeRequired,
            9 => Self::TooBig,
            _ => Self::Unsupported,
        }
    }
}

/// Appends a reply to an option.
pub(crate) fn put_answer(output: &mut BytesMut, option: u32, kind: u32, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    output.put_u64(REPLY_MAGIC);
    output.put_u32(option);
    output.put_u32(kind);
    // A string has at most 4096 bytes, and a reply at most two strings, so the length fits in 32 bits.
    output.put_u32(u32::try_from(len).unwrap_or_default());
    parts.iter().for_each(|part| output.put_slice(part));
}

/// Appends an option.
pub(crate) fn put_option(output: &mut BytesMut, code: u32, data: &[u8]) {
    output.put_u64(OPTION_MAGIC);
    output.put_u32(code);
    output.put_u32(u32::try_from(data.len()).unwrap_or_default());
    output.put_slice(data);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_comes_back_and_unknown_ones_are_unsupported() {
        for value in 1..=9 {
            let wire = answer::IS_ERROR | value;
            assert_eq!(OptionError::from_wire(wire).to_wire(), wire);
        }
        assert_eq!(OptionError::from_wire(answer::IS_ERROR | 77), OptionError::Unsupported);
    }
}
