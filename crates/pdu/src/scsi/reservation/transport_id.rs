//! TransportID: the initiator port of a nexus (SPC-4 §7.6.4).

use crate::Isid;
use crate::scsi::fields::{Fields, text_of};
use std::fmt;

/// The initiator port of a nexus (SPC-4 §7.6.4).
///
/// Its text has the form that administrators use: an iSCSI name, followed by `,i,0x` and the ISID if the
/// target reports it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum TransportId {
    /// iSCSI: the name of the initiator, and the ISID of its session in twelve digits if the unit reports
    /// it (SPC-4 §7.6.4.6).
    Iscsi {
        /// The initiator's name; bytes outside printable ASCII are written as, for example, `\x81`.
        name: String,
        /// The ISID, in the hexadecimal digits of the data; `None` if the whole initiator is meant.
        isid: Option<String>,
    },
    /// Another transport, or bytes that cannot be decoded.
    Other {
        /// PROTOCOL IDENTIFIER, 0 to 15.
        protocol: u8,
        /// All bytes of the TransportID.
        bytes: Vec<u8>,
    },
}

/// PROTOCOL IDENTIFIER of iSCSI.
const ISCSI: u8 = 0x5;
/// FORMAT CODE of a name with an ISID, in the high bits of byte 0.
const WITH_ISID: u8 = 0b01;
/// The separator of name and ISID.
const SEPARATOR: &str = ",i,0x";

impl TransportId {
    /// Returns the ISID of the session, if the unit reports it and it has at most twelve digits.
    pub fn isid(&self) -> Option<Isid> {
        let Self::Iscsi { isid: Some(digits), .. } = self else { return None };
        let [0, 0, isid @ ..] = u64::from_str_radix(digits, 16).ok()?.to_be_bytes() else {
            return None;
        };
        Some(Isid::from_bytes(isid))
    }

    /// Reads a complete TransportID. If it cannot be decoded, its bytes are kept.
    pub(super) fn decode(bytes: &[u8]) -> Self {
        let first = bytes.first().copied().unwrap_or_default();
        let other = Self::Other { protocol: first & 0x0f, bytes: bytes.to_vec() };
        let Ok(fields) = Fields::new(bytes, "TransportID", 4) else { return other };
        let text = fields.range(4, usize::from(fields.u16(2)));
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        if first & 0x0f != ISCSI || text.is_empty() {
            return other;
        }
        let text = text_of(text);
        match text.split_once(SEPARATOR) {
            Some((name, isid)) if first >> 6 == WITH_ISID => {
                Self::Iscsi { name: name.to_owned(), isid: Some(isid.to_owned()) }
            }
            _ => Self::Iscsi { name: text, isid: None },
        }
    }
}

impl fmt::Display for TransportId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iscsi { name, isid: Some(isid) } => write!(f, "{name}{SEPARATOR}{isid}"),
            Self::Iscsi { name, isid: None } => f.write_str(name),
            Self::Other { protocol, bytes } => {
                write!(f, "protocol {protocol}: ")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}
