//! Defines the transmission flags of an export.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// Properties of an export and features that clients may use (NBD, "Transmission flags").
///
/// Unknown bits are kept.
#[derive(Clone, Copy, Default, Eq, Hash, PartialEq)]
pub struct TransmissionFlags(u16);

impl TransmissionFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// NBD_FLAG_HAS_FLAGS: always set by a server.
    pub const HAS_FLAGS: Self = Self(1 << 0);
    /// NBD_FLAG_READ_ONLY: writes are refused.
    pub const READ_ONLY: Self = Self(1 << 1);
    /// NBD_FLAG_SEND_FLUSH: flushes are supported.
    pub const FLUSH: Self = Self(1 << 2);
    /// NBD_FLAG_SEND_FUA: the flag FUA of commands is supported.
    pub const FUA: Self = Self(1 << 3);
    /// NBD_FLAG_ROTATIONAL: seeks cost time.
    pub const ROTATIONAL: Self = Self(1 << 4);
    /// NBD_FLAG_SEND_TRIM: trims are supported.
    pub const TRIM: Self = Self(1 << 5);
    /// NBD_FLAG_SEND_WRITE_ZEROES: writes of zeros are supported, with the flag NO_HOLE of that command.
    pub const WRITE_ZEROES: Self = Self(1 << 6);
    /// NBD_FLAG_SEND_DF: a read may require its data in a single chunk; only with structured replies.
    pub const DONT_FRAGMENT: Self = Self(1 << 7);
    /// NBD_FLAG_CAN_MULTI_CONN: a flush on one connection covers the writes of all connections.
    pub const MULTI_CONN: Self = Self(1 << 8);
    /// NBD_FLAG_SEND_CACHE: the cache command is supported.
    pub const CACHE: Self = Self(1 << 10);
    /// NBD_FLAG_SEND_FAST_ZERO: fast writes of zeros may be requested; only with [`Self::WRITE_ZEROES`].
    pub const FAST_ZERO: Self = Self(1 << 11);

    const NAMES: [(Self, &str); 11] = [
        (Self::HAS_FLAGS, "HAS_FLAGS"),
        (Self::READ_ONLY, "READ_ONLY"),
        (Self::FLUSH, "SEND_FLUSH"),
        (Self::FUA, "SEND_FUA"),
        (Self::ROTATIONAL, "ROTATIONAL"),
        (Self::TRIM, "SEND_TRIM"),
        (Self::WRITE_ZEROES, "SEND_WRITE_ZEROES"),
        (Self::DONT_FRAGMENT, "SEND_DF"),
        (Self::MULTI_CONN, "CAN_MULTI_CONN"),
        (Self::CACHE, "SEND_CACHE"),
        (Self::FAST_ZERO, "SEND_FAST_ZERO"),
    ];

    /// Returns the bits on the wire.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Creates the flags from their bits.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Returns whether all of `flags` are set.
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Returns these flags without `flags`.
    #[must_use]
    pub const fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }

    /// Adds `flags` if the condition holds.
    #[must_use]
    pub const fn with_if(self, condition: bool, flags: Self) -> Self {
        if condition { Self(self.0 | flags.0) } else { self }
    }
}

/// Prints the protocol's names of the flags that are set, and unknown bits as a number.
impl fmt::Debug for TransmissionFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = *self;
        let mut separator = "";
        for (flag, name) in Self::NAMES {
            if self.contains(flag) {
                write!(f, "{separator}{name}")?;
                separator = " | ";
                rest = rest.without(flag);
            }
        }
        if rest != Self::NONE || separator.is_empty() {
            write!(f, "{separator}{:#x}", rest.0)?;
        }
        Ok(())
    }
}

impl BitOr for TransmissionFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for TransmissionFlags {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_shown_by_name() {
        let flags = TransmissionFlags::from_bits(1 << 0 | 1 << 7 | 1 << 9);
        assert_eq!(format!("{flags:?}"), "HAS_FLAGS | SEND_DF | 0x200");
        assert_eq!(format!("{:?}", TransmissionFlags::NONE), "0x0");
        assert_eq!(format!("{:?}", TransmissionFlags::FAST_ZERO), "SEND_FAST_ZERO");
    }
}
