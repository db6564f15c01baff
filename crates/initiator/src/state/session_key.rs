//! What tells the sessions of an initiator apart.

use std::fmt;

use iscsi_pdu::Isid;

/// What tells a session apart from the others of its initiator, also when it is opened anew.
///
/// A session that is lost and opened anew keeps its ISID; that is what the target reinstates it by
/// (RFC 7143 §6.3.5). All else begins again: its TSIH, its connections, and all that is counted of it.
/// So two readings with the same key, and the same [CID](crate::Reading::cid), are of one run of
/// counters, while two with the same ISID are of one place in the disk.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct SessionKey {
    /// The initiator's part of the session identifier (RFC 7143 §11.12.5).
    pub isid: Isid,
    /// How many times a session of that ISID was opened before: 0, and one more each time that a disk
    /// has opened it anew.
    pub reopened: u32,
}

impl SessionKey {
    /// A session that was not there before.
    pub(crate) const fn first(isid: Isid) -> Self {
        Self { isid, reopened: 0 }
    }

    /// The same session, opened anew.
    pub(crate) const fn next(self) -> Self {
        Self { reopened: self.reopened.saturating_add(1), ..self }
    }
}

impl Default for SessionKey {
    /// That of no session: an ISID of zeros.
    fn default() -> Self {
        Self::first(Isid::from_bytes([0; 6]))
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.isid.fmt(f)?;
        match self.reopened {
            0 => Ok(()),
            count => write!(f, " (opened anew {count}\u{d7})"),
        }
    }
}

/// The ISID as twelve hexadecimal digits.
#[cfg(feature = "serde")]
impl serde::Serialize for SessionKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut key = serializer.serialize_struct("SessionKey", 2)?;
        key.serialize_field("isid", &self.isid.to_string())?;
        key.serialize_field("reopened", &self.reopened)?;
        key.end()
    }
}
