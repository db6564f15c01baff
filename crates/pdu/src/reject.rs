//! Reject (RFC 7143 §11.17).

use std::fmt;

use crate::bhs::Bhs;
use crate::common_fields::FINAL;
use crate::error::DecodeError;
use crate::opcode::TargetOpcode;
use crate::serial::{CmdSn, DataSn, StatSn};

const REASON: usize = 2;

/// Reject: the target refuses a PDU (RFC 7143 §11.17). The header of that PDU is in the data segment: see
/// [`rejected_header`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Reject {
    /// The reason.
    pub reason: RejectReason,
    /// StatSN: the number that the reject consumes.
    pub stat_sn: StatSn,
    /// ExpCmdSN: the next CmdSN that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN: the last CmdSN that the target accepts.
    pub max_cmd_sn: CmdSn,
    /// DataSN or R2TSN, for rejected data and SNACKs.
    pub data_sn: DataSn,
}

/// Reasons why a target rejects a PDU (RFC 7143 §11.17.1).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct RejectReason(pub u8);

impl RejectReason {
    /// The data digest did not match.
    pub const DATA_DIGEST_ERROR: Self = Self(0x02);
    /// The SNACK cannot be served.
    pub const SNACK_REJECT: Self = Self(0x03);
    /// The PDU violates the protocol.
    pub const PROTOCOL_ERROR: Self = Self(0x04);
    /// The command is not supported.
    pub const COMMAND_NOT_SUPPORTED: Self = Self(0x05);
    /// Too many immediate commands are in flight.
    pub const IMMEDIATE_COMMAND_REJECT: Self = Self(0x06);
    /// The task is in progress.
    pub const TASK_IN_PROGRESS: Self = Self(0x07);
    /// The data acknowledgement is wrong.
    pub const INVALID_DATA_ACK: Self = Self(0x08);
    /// A field of the PDU is wrong.
    pub const INVALID_PDU_FIELD: Self = Self(0x09);
    /// The target lacks a resource; a later retry may succeed.
    pub const LONG_OPERATION_REJECT: Self = Self(0x0a);
    /// A key was negotiated again, or in the wrong stage.
    pub const NEGOTIATION_RESET: Self = Self(0x0b);
    /// The target waits for a logout.
    pub const WAITING_FOR_LOGOUT: Self = Self(0x0c);
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0x02 => "data digest error",
            0x03 => "SNACK reject",
            0x04 => "protocol error",
            0x05 => "command not supported",
            0x06 => "too many immediate commands",
            0x07 => "task in progress",
            0x08 => "invalid data acknowledgement",
            0x09 => "invalid PDU field",
            0x0a => "out of resources",
            0x0b => "negotiation reset",
            0x0c => "waiting for logout",
            other => return write!(f, "reserved reason {other:#04x}"),
        })
    }
}

impl Reject {
    /// Returns the header; its DataSegmentLength is zero until framing sets it.
    pub fn encode(&self) -> Bhs {
        let mut bhs = Bhs::with_opcode(TargetOpcode::Reject as u8, false);
        bhs.put_flags(FINAL);
        bhs.put_u8(REASON, self.reason.0);
        bhs.put_itt(None);
        bhs.put_response_numbers(self.stat_sn, self.exp_cmd_sn, self.max_cmd_sn);
        bhs.put_data_sn(self.data_sn);
        bhs
    }

    /// Reads a header.
    ///
    /// # Errors
    /// None at present; every value of every field has a meaning.
    pub fn decode(bhs: &Bhs) -> Result<Self, DecodeError> {
        Ok(Self {
            reason: RejectReason(bhs.u8_at(REASON)),
            stat_sn: bhs.stat_sn(),
            exp_cmd_sn: bhs.exp_cmd_sn(),
            max_cmd_sn: bhs.max_cmd_sn(),
            data_sn: bhs.data_sn(),
        })
    }
}

/// Returns the header of the refused PDU, from the data segment of a Reject; `None` if the header is
/// truncated.
pub fn rejected_header(data: &[u8]) -> Option<Bhs> {
    data.first_chunk().copied().map(Bhs::from_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// REJ-01: the copy of the header may be followed by more bytes, or be truncated.
    #[test]
    fn rej_01_rejected_header_is_48_bytes_or_none() {
        let data = [0x43; 52];
        assert_eq!(rejected_header(&data).map(|bhs| bhs.opcode()), Some(0x03));
        assert_eq!(rejected_header(&data[..47]), None);
    }
}
