//! The error values of replies.

use thiserror::Error;

/// Reasons why a request fails (NBD, "Error values").
#[derive(Clone, Copy, Debug, Eq, Error, Hash, PartialEq)]
pub enum Errno {
    /// NBD_EPERM: a write to an export that is read-only.
    #[error("operation not permitted")]
    Permission = 1,
    /// NBD_EIO.
    #[error("input/output error")]
    Io = 5,
    /// NBD_ENOMEM.
    #[error("out of memory")]
    NoMemory = 12,
    /// NBD_EINVAL: a request that the server does not know, or that breaks what was negotiated.
    #[error("invalid argument")]
    Invalid = 22,
    /// NBD_ENOSPC: a write beyond the end, or to a medium that is full.
    #[error("no space left on device")]
    NoSpace = 28,
    /// NBD_EOVERFLOW: a read that is too long for one chunk.
    #[error("value too large")]
    Overflow = 75,
    /// NBD_ENOTSUP: zeros that cannot be written faster than data.
    #[error("operation not supported")]
    NotSupported = 95,
    /// NBD_ESHUTDOWN: a client that receives it disconnects.
    #[error("the server is shutting down")]
    Shutdown = 108,
}

impl Errno {
    /// Returns the value on the wire.
    pub const fn to_wire(self) -> u32 {
        self as u32
    }

    /// Returns the error for a value other than zero. An unlisted value becomes [`Errno::Invalid`], as the
    /// protocol requires of clients.
    pub const fn from_wire(value: u32) -> Self {
        match value {
            1 => Self::Permission,
            5 => Self::Io,
            12 => Self::NoMemory,
            28 => Self::NoSpace,
            75 => Self::Overflow,
            95 => Self::NotSupported,
            108 => Self::Shutdown,
            _ => Self::Invalid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_comes_back_and_unknown_ones_are_invalid() {
        for value in [1, 5, 12, 22, 28, 75, 95, 108] {
            assert_eq!(Errno::from_wire(value).to_wire(), value);
        }
        assert_eq!(Errno::from_wire(110), Errno::Invalid);
    }
}
