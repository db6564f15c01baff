//! Opcodes (RFC 7143 §11.2.1.2).

/// Operation codes of an initiator.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the standard's own")]
pub enum InitiatorOpcode {
    NopOut = 0x00,
    ScsiCommand = 0x01,
    TaskManagementRequest = 0x02,
    LoginRequest = 0x03,
    TextRequest = 0x04,
    DataOut = 0x05,
    LogoutRequest = 0x06,
    SnackRequest = 0x10,
}

/// Operation codes of a target.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the standard's own")]
pub enum TargetOpcode {
    NopIn = 0x20,
    ScsiResponse = 0x21,
    TaskManagementResponse = 0x22,
    LoginResponse = 0x23,
    TextResponse = 0x24,
    DataIn = 0x25,
    LogoutResponse = 0x26,
    R2t = 0x31,
    AsyncMessage = 0x32,
    Reject = 0x3f,
}

impl InitiatorOpcode {
    /// Returns the opcode in the low six bits of byte 0, if an initiator may send it.
    pub const fn from_wire(byte: u8) -> Option<Self> {
        Some(match byte & 0x3f {
            0x00 => Self::NopOut,
            0x01 => Self::ScsiCommand,
            0x02 => Self::TaskManagementRequest,
            0x03 => Self::LoginRequest,
            0x04 => Self::TextRequest,
            0x05 => Self::DataOut,
            0x06 => Self::LogoutRequest,
            0x10 => Self::SnackRequest,
            _ => return None,
        })
    }
}

impl TargetOpcode {
    /// Returns the opcode in the low six bits of byte 0, if a target may send it.
    pub const fn from_wire(byte: u8) -> Option<Self> {
        Some(match byte & 0x3f {
            0x20 => Self::NopIn,
            0x21 => Self::ScsiResponse,
            0x22 => Self::TaskManagementResponse,
            0x23 => Self::LoginResponse,
            0x24 => Self::TextResponse,
            0x25 => Self::DataIn,
            0x26 => Self::LogoutResponse,
            0x31 => Self::R2t,
            0x32 => Self::AsyncMessage,
            0x3f => Self::Reject,
            _ => return None,
        })
    }

    /// Returns the name of the PDU in RFC 7143 §11.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NopIn => "NOP-In",
            Self::ScsiResponse => "SCSI Response",
            Self::TaskManagementResponse => "Task Management Function Response",
            Self::LoginResponse => "Login Response",
            Self::TextResponse => "Text Response",
            Self::DataIn => "SCSI Data-In",
            Self::LogoutResponse => "Logout Response",
            Self::R2t => "Ready To Transfer",
            Self::AsyncMessage => "Asynchronous Message",
            Self::Reject => "Reject",
        }
    }
}
