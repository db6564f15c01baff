//! Logout (RFC 7143 §11.14, §11.15).

use std::fmt;

use crate::common_fields::FINAL;
use crate::{Bhs, Cid, CmdSn, DecodeError, InitiatorOpcode, Itt, StatSn, TargetOpcode};

const REQUEST: &str = "Logout Request";
const RESPONSE: &str = "Logout Response";

/// Mask of the reason, which shares byte 1 with the F bit.
const REASON: u8 = 0x7f;
const CID: usize = 20;
const CODE: usize = 2;
const TIME2WAIT: usize = 40;
const TIME2RETAIN: usize = 42;

/// Kinds of logout (RFC 7143 §11.14.1).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum LogoutReason {
    /// Closes the session with all its connections and tasks.
    CloseSession = 0,
    /// Closes one connection with its tasks.
    CloseConnection = 1,
    /// Closes one connection whose tasks move to another one; error recovery level 2 only.
    RemoveConnectionForRecovery = 2,
}

impl LogoutReason {
    fn decode(bhs: &Bhs) -> Result<Self, DecodeError> {
        Ok(match bhs.flags() & REASON {
            0 => Self::CloseSession,
            1 => Self::CloseConnection,
            2 => Self::RemoveConnectionForRecovery,
            code => {
                let value = code.into();
                return Err(DecodeError::Field { pdu: REQUEST, field: "Reason Code", value });
            }
        })
    }
}

/// Logout Request: closes a connection or a session in order (RFC 7143 §11.14).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LogoutRequest {
    /// I: the request is delivered immediately, outside the order of commands.
    pub immediate: bool,
    /// The kind of logout.
    pub reason: LogoutReason,
    /// Initiator task tag of this request.
    pub itt: Itt,
    /// CID: the connection to close. Reserved, and zero when sent, for [`LogoutReason::CloseSession`].
    pub cid: Cid,
    /// CmdSN: the number of this request, or of the next one if this request is immediate.
    pub cmd_sn: CmdSn,
    /// ExpStatSN: the next StatSN that the initiator expects on the connection.
    pub exp_stat_sn: StatSn,
}

impl LogoutRequest {
    /// Returns the header as it is sent; a Logout Request has no data segment.
    pub fn encode(&self) -> Bhs {
        let mut bhs = Bhs::with_opcode(InitiatorOpcode::LogoutRequest as u8, self.immediate);
        bhs.put_flags(FINAL | self.reason as u8);
        bhs.put_itt(Some(self.itt));
        bhs.put_u16(CID, cid_of(self.reason, self.cid).0);
        bhs.put_request_numbers(self.cmd_sn, self.exp_stat_sn);
        bhs
    }

    /// Reads a header whose opcode is Logout Request.
    ///
    /// # Errors
    /// [`DecodeError::Field`] for a reserved Initiator Task Tag or reason.
    pub fn decode(bhs: &Bhs) -> Result<Self, DecodeError> {
        let reason = LogoutReason::decode(bhs)?;
        Ok(Self {
            immediate: bhs.immediate(),
            reason,
            itt: bhs.task_itt(REQUEST)?,
            cid: cid_of(reason, Cid(bhs.u16_at(CID))),
            cmd_sn: bhs.cmd_sn(),
            exp_stat_sn: bhs.exp_stat_sn(),
        })
    }
}

/// Returns the CID if the reason uses it, otherwise zero.
fn cid_of(reason: LogoutReason, cid: Cid) -> Cid {
    if reason == LogoutReason::CloseSession { Cid::default() } else { cid }
}

/// Results of a logout (RFC 7143 §11.15.1).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct LogoutCode(
    /// The code as it is sent; values without a constant here are reserved.
    pub u8,
);

impl LogoutCode {
    /// The connection or the session is closed.
    pub const SUCCESS: Self = Self(0);
    /// The target has no connection with this CID.
    pub const CID_NOT_FOUND: Self = Self(1);
    /// The target cannot recover connections (error recovery level below 2).
    pub const RECOVERY_NOT_SUPPORTED: Self = Self(2);
    /// The target could not clean up.
    pub const CLEANUP_FAILED: Self = Self(3);
}

impl fmt::Display for LogoutCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match *self {
            Self::SUCCESS => "closed successfully",
            Self::CID_NOT_FOUND => "CID not found",
            Self::RECOVERY_NOT_SUPPORTED => "connection recovery is not supported",
            Self::CLEANUP_FAILED => "cleanup failed",
            Self(code) => return write!(f, "logout response {code:#04x}"),
        })
    }
}

/// Logout Response (RFC 7143 §11.15).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LogoutResponse {
    /// The result.
    pub response: LogoutCode,
    /// Initiator task tag of the request.
    pub itt: Itt,
    /// StatSN: the number that the response consumes.
    pub stat_sn: StatSn,
    /// ExpCmdSN: the next CmdSN that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN: the last CmdSN that the target accepts.
    pub max_cmd_sn: CmdSn,
    /// Time2Wait: least time before a reconnect, seconds (RFC 7143 §11.15.3).
    pub time2wait: u16,
    /// Time2Retain: how long after Time2Wait the target keeps the tasks, seconds; 0 means that they are gone
    /// (RFC 7143 §11.15.4).
    pub time2retain: u16,
}

impl LogoutResponse {
    /// Returns the header as it is sent; a Logout Response has no data segment.
    pub fn encode(&self) -> Bhs {
        let mut bhs = Bhs::with_opcode(TargetOpcode::LogoutResponse as u8, false);
        bhs.put_flags(FINAL);
        bhs.put(CODE, &[self.response.0]);
        bhs.put_itt(Some(self.itt));
        bhs.put_stat_sn(self.stat_sn);
        bhs.put_window(self.exp_cmd_sn, self.max_cmd_sn);
        bhs.put_u16(TIME2WAIT, self.time2wait);
        bhs.put_u16(TIME2RETAIN, self.time2retain);
        bhs
    }

    /// Reads a header whose opcode is Logout Response.
    ///
    /// # Errors
    /// [`DecodeError::Field`] for a reserved Initiator Task Tag. A reserved response code is not an error,
    /// because the logout has ended anyway.
    pub fn decode(bhs: &Bhs) -> Result<Self, DecodeError> {
        Ok(Self {
            response: LogoutCode(bhs.u8_at(CODE)),
            itt: bhs.task_itt(RESPONSE)?,
            stat_sn: bhs.stat_sn(),
            exp_cmd_sn: bhs.exp_cmd_sn(),
            max_cmd_sn: bhs.max_cmd_sn(),
            time2wait: bhs.u16_at(TIME2WAIT),
            time2retain: bhs.u16_at(TIME2RETAIN),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LGO-02: F is set, and the CID is zero when the whole session is closed.
    #[test]
    fn lgo_02_cid_stands_only_where_it_has_a_meaning() {
        let request = |reason| {
            let (cid, cmd_sn, exp_stat_sn) = (Cid(7), CmdSn::new(1), StatSn::new(2));
            let itt = Itt::new(3).unwrap();
            LogoutRequest { immediate: true, reason, itt, cid, cmd_sn, exp_stat_sn }.encode()
        };
        let session = request(LogoutReason::CloseSession);
        assert_eq!((session.u8_at(0), session.flags(), session.u16_at(CID)), (0x46, 0x80, 0));
        let connection = request(LogoutReason::CloseConnection);
        assert_eq!((connection.flags(), connection.u16_at(CID)), (0x81, 7));
    }

    #[test]
    fn reserved_reason_is_an_error() {
        let mut bhs = Bhs::with_opcode(6, false);
        bhs.put_flags(0x83);
        let error = DecodeError::Field { pdu: REQUEST, field: "Reason Code", value: 3 };
        assert_eq!(LogoutRequest::decode(&bhs), Err(error));
    }
}
