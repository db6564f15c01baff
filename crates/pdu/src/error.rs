//! Errors of bytes from the peer that are not a PDU.

use thiserror::Error;

/// Violations of the PDU format of RFC 7143 §11 that must not be ignored.
///
/// Reserved fields are ignored on receipt and never lead to an error.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The opcode is not one of RFC 7143 §11.2.1.2, or belongs to the other direction.
    #[error("opcode {0:#04x} is not a PDU of this direction")]
    Opcode(u8),
    /// A field holds a reserved or contradictory value.
    #[error("{pdu}: {field} ({value:#x}) is not allowed")]
    Field {
        /// The PDU's name in RFC 7143 §11.
        pdu: &'static str,
        /// The field's name in RFC 7143 §11.
        field: &'static str,
        /// The value that was found.
        value: u64,
    },
    /// An additional header segment is cut short or has an impossible length.
    #[error("additional header segment: {0}")]
    Ahs(&'static str),
}
