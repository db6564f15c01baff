//! Tags and identifiers: task tags, CID, TSIH, ISID (RFC 7143 §11.2.1.8, §11.12).

use std::fmt;

/// The value that means "no tag" in ITT, TTT and Referenced Task Tag fields.
pub(crate) const RESERVED_TAG: u32 = 0xffff_ffff;

macro_rules! task_tag {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $name(u32);

        impl $name {
            /// Creates a tag; `None` for the reserved value 0xffffffff. Zero is a legal tag.
            pub const fn new(value: u32) -> Option<Self> {
                if value == RESERVED_TAG { None } else { Some(Self(value)) }
            }

            /// Returns the value of the tag in a PDU; never 0xffffffff.
            pub const fn get(self) -> u32 {
                self.0
            }

            /// Returns the value in a PDU of a tag that may be absent.
            pub const fn to_wire(tag: Option<Self>) -> u32 {
                match tag {
                    Some(tag) => tag.0,
                    None => RESERVED_TAG,
                }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#010x})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#010x}", self.0)
            }
        }
    };
}

task_tag! {
    /// Initiator Task Tag: identifies a task in a session (RFC 7143 §11.2.1.8).
    Itt
}
task_tag! {
    /// Target Transfer Tag: identifies an R2T, a ping or a text exchange of the target.
    Ttt
}

/// Connection ID: chosen by the initiator, unique in a session (RFC 7143 §11.12.7).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Cid(pub u16);

impl fmt::Display for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Target Session Identifying Handle; zero requests a new session (RFC 7143 §11.12.6).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Tsih(pub u16);

impl Tsih {
    /// The TSIH of a session that does not exist yet.
    pub const NEW_SESSION: Self = Self(0);
}

/// Initiator Session ID: with the initiator's name, the identity of its SCSI port
/// (RFC 7143 §11.12.5).
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct Isid([u8; 6]);

impl Isid {
    /// Creates an ISID of type "random" (T = 10b): 24 random bits and a qualifier that distinguishes the
    /// sessions of one initiator.
    pub const fn random(random: [u8; 3], qualifier: u16) -> Self {
        let q = qualifier.to_be_bytes();
        Self([0x80, random[0], random[1], random[2], q[0], q[1]])
    }

    /// Creates an ISID from its six bytes in a PDU.
    pub const fn from_bytes(bytes: [u8; 6]) -> Self {
        Self(bytes)
    }

    /// Returns the six bytes in a PDU.
    pub const fn to_bytes(self) -> [u8; 6] {
        self.0
    }
}

impl fmt::Debug for Isid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Isid({self})")
    }
}

impl fmt::Display for Isid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::{Isid, Itt, Ttt};

    #[test]
    fn reserved_tag_is_unrepresentable() {
        assert_eq!(Itt::new(u32::MAX), None);
        assert_eq!(Ttt::new(0).map(Ttt::get), Some(0));
        assert_eq!(Ttt::to_wire(None), u32::MAX);
    }

    /// ISI-01: a random ISID has T = 10b, so byte 0 is 0x80 and never 0x40.
    #[test]
    fn isi_01_random_isid_has_type_10() {
        let isid = Isid::random([0xff, 0xff, 0xff], 7);
        assert_eq!(isid.to_bytes(), [0x80, 0xff, 0xff, 0xff, 0, 7]);
    }

    /// ISI-04: whatever the random value, the ISID does not contain an OUI or an enterprise number, and the
    /// qualifier is big-endian.
    #[test]
    fn isi_04_no_foreign_number_is_claimed() {
        for random in [[0; 3], [0xff; 3], [0x40, 0x80, 0xc0]] {
            for qualifier in [0, 1, 0x0102, u16::MAX] {
                let bytes = Isid::random(random, qualifier).to_bytes();
                assert_eq!((bytes[0], &bytes[1..4]), (0x80, &random[..]));
                assert_eq!(bytes[4..], [(qualifier >> 8) as u8, (qualifier & 0xff) as u8]);
            }
        }
    }
}
