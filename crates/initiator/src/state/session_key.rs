//! Defines the keys that distinguish the sessions of an initiator.

use std::fmt;

use iscsi_pdu::Isid;

/// Identifies a session among all sessions of its initiator, before and after a reconnect.
///
/// A session that is lost and reconnected keeps its ISID, by which the target reinstates it (RFC 7143
/// §6.3.5). Its TSIH, its connections and its counters start again. So only readings with the same key and
/// the same [CID](crate::Reading::cid) can be compared. Two keys with the same ISID are the same session of
/// the disk before and after a reconnect.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct SessionKey {
    /// The initiator's part of the session identifier (RFC 7143 §11.12.5).
    pub isid: Isid,
    /// Number of reconnects of this ISID: 0 at first, and one more each time that a disk has
    /// reconnected the session.
    pub reopened: u32,
}

impl SessionKey {
    /// Returns the key of a new session.
    pub(crate) const fn first(isid: Isid) -> Self {
        Self { isid, reopened: 0 }
    }

    /// Returns the key of the session after a reconnect.
    pub(crate) const fn next(self) -> Self {
        Self { reopened: self.reopened.saturating_add(1), ..self }
    }
}

impl Default for SessionKey {
    /// Returns an ISID of zeros, which is the key of no session.
    fn default() -> Self {
        Self::first(Isid::from_bytes([0; 6]))
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.isid.fmt(f)?;
        match self.reopened {
            0 => Ok(()),
            count => write!(f, " (reconnected {count}\u{d7})"),
        }
    }
}

/// Serializes the ISID as twelve hexadecimal digits.
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
