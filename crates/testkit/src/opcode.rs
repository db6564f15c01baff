//! The operation codes, of both directions (RFC 7143 §11.2.1.2).

/// Operation codes of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// A ping of the initiator, or its response to a ping of the target (§11.18).
    NopOut = 0x00,
    /// A SCSI command (§11.3).
    ScsiCommand = 0x01,
    /// A task management request (§11.5).
    TaskManagementRequest = 0x02,
    /// A login request (§11.12).
    LoginRequest = 0x03,
    /// A text request (§11.10).
    TextRequest = 0x04,
    /// Write data (§11.7).
    DataOut = 0x05,
    /// A logout request (§11.14).
    LogoutRequest = 0x06,
    /// A request to send PDUs again, or an acknowledgement of data (§11.16).
    Snack = 0x10,
    /// A ping of the target, or its response to a ping of the initiator (§11.19).
    NopIn = 0x20,
    /// The status of a SCSI command (§11.4).
    ScsiResponse = 0x21,
    /// The result of a task management request (§11.6).
    TaskManagementResponse = 0x22,
    /// A login response (§11.13).
    LoginResponse = 0x23,
    /// A text response (§11.11).
    TextResponse = 0x24,
    /// Read data (§11.7).
    DataIn = 0x25,
    /// A logout response (§11.15).
    LogoutResponse = 0x26,
    /// A request for write data (§11.8).
    R2t = 0x31,
    /// An event at the target (§11.9).
    AsyncMessage = 0x32,
    /// A refusal of a PDU (§11.17).
    Reject = 0x3f,
}

/// Every operation code in the standard.
const ALL: [Opcode; 18] = [
    Opcode::NopOut,
    Opcode::ScsiCommand,
    Opcode::TaskManagementRequest,
    Opcode::LoginRequest,
    Opcode::TextRequest,
    Opcode::DataOut,
    Opcode::LogoutRequest,
    Opcode::Snack,
    Opcode::NopIn,
    Opcode::ScsiResponse,
    Opcode::TaskManagementResponse,
    Opcode::LoginResponse,
    Opcode::TextResponse,
    Opcode::DataIn,
    Opcode::LogoutResponse,
    Opcode::R2t,
    Opcode::AsyncMessage,
    Opcode::Reject,
];

impl Opcode {
    /// Returns the operation code in the low six bits of a header's first byte; `None` for an unassigned
    /// code.
    #[must_use]
    pub fn of(first_byte: u8) -> Option<Self> {
        ALL.into_iter().find(|opcode| *opcode as u8 == first_byte & 0x3f)
    }

    /// Returns whether the initiator sends this PDU.
    #[must_use]
    pub const fn is_from_initiator(self) -> bool {
        (self as u8) < 0x20
    }
}
