//! Rules that need no state: reserved fields and lengths (RFC 7143 §11).

use super::violation::{Breaches, demand};
use crate::opcode::Opcode;
use crate::pdu::Pdu;

/// The reserved fields of one kind of PDU.
struct Reserved {
    /// Mask of the reserved bits of byte 0.
    first: u8,
    /// Mask of the reserved bits of byte 1.
    second: u8,
    /// Bits of byte 1 that are always set.
    fixed: u8,
    /// Ranges of reserved bytes of the header: start and end.
    bytes: &'static [(usize, usize)],
}

/// Checks the reserved fields and the lengths of one PDU of the initiator.
pub(super) fn check(breaches: &mut Breaches, pdu: &Pdu, segment: u32) {
    let length = pdu.data.len();
    demand(breaches, length <= segment as usize, "KEY-13", || {
        format!("{length} bytes of data exceed the target's {segment}: {pdu:?}")
    });
    demand(breaches, pdu.pad == 0, "DIG-06", || format!("padding is not zero: {pdu:?}"));
    let opcode = pdu.opcode().filter(|opcode| opcode.is_from_initiator());
    let Some(opcode) = opcode else {
        return breaches.push(("ERR-14", format!("no operation of an initiator: {pdu:?}")));
    };
    check_reserved(breaches, pdu, &reserved(opcode));
    let bare =
        matches!(opcode, Opcode::TaskManagementRequest | Opcode::LogoutRequest | Opcode::Snack);
    let has_ahs = !pdu.ahs.is_empty();
    demand(breaches, !bare || length == 0, "ERR-02", || format!("data in {pdu:?}"));
    demand(breaches, !has_ahs || opcode == Opcode::ScsiCommand, "LAY-03", || {
        format!("additional header in {pdu:?}")
    });
}

fn check_reserved(breaches: &mut Breaches, pdu: &Pdu, reserved: &Reserved) {
    let [first, second, ..] = pdu.header;
    let clean = first & reserved.first == 0 && second & reserved.second == 0;
    demand(breaches, clean, "ERR-02", || format!("reserved bits are set in {pdu:?}"));
    demand(breaches, second & reserved.fixed == reserved.fixed, "LAY-01", || {
        format!("byte 1 lacks a bit that is always set in {pdu:?}")
    });
    for &(start, end) in reserved.bytes {
        let zero = pdu.header[start..end].iter().all(|byte| *byte == 0);
        demand(breaches, zero, "ERR-02", || {
            format!("reserved bytes {start} to {end} are not zero in {pdu:?}")
        });
    }
}

fn reserved(opcode: Opcode) -> Reserved {
    let (first, second, fixed, bytes): (u8, u8, u8, &[(usize, usize)]) = match opcode {
        Opcode::NopOut => (0x80, 0x7f, 0x80, &[(2, 4), (32, 48)]),
        Opcode::ScsiCommand => (0x80, 0x18, 0, &[(3, 4)]),
        Opcode::TaskManagementRequest => (0x80, 0, 0x80, &[(2, 4), (40, 48)]),
        Opcode::DataOut => (0xc0, 0x7f, 0, &[(2, 4), (24, 28), (32, 36), (44, 48)]),
        Opcode::TextRequest => (0x80, 0x3f, 0, &[(2, 4), (32, 48)]),
        Opcode::LoginRequest => (0x80, 0x30, 0, &[(22, 24), (32, 48)]),
        Opcode::LogoutRequest => (0x80, 0, 0x80, &[(2, 4), (8, 16), (22, 24), (32, 48)]),
        Opcode::Snack => (0xc0, 0x70, 0x80, &[(2, 4), (24, 28), (32, 40)]),
        Opcode::NopIn
        | Opcode::ScsiResponse
        | Opcode::TaskManagementResponse
        | Opcode::LoginResponse
        | Opcode::TextResponse
        | Opcode::DataIn
        | Opcode::LogoutResponse
        | Opcode::R2t
        | Opcode::AsyncMessage
        | Opcode::Reject => (0, 0, 0, &[]),
    };
    Reserved { first, second, fixed, bytes }
}
