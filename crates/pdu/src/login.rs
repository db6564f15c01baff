//! Login Request and Login Response (RFC 7143 §11.12-11.13).

use std::fmt;

use crate::bhs::Bhs;
use crate::common_fields::{CONTINUE, flag};
use crate::error::DecodeError;
use crate::opcode::{InitiatorOpcode, TargetOpcode};
use crate::serial::{CmdSn, StatSn};
use crate::tag::{Cid, Isid, Itt, Tsih};

/// The only protocol version (RFC 7143 §11.12.4).
pub const LOGIN_VERSION: u8 = 0;

const REQUEST: &str = "Login Request";
const RESPONSE: &str = "Login Response";

const TRANSIT: u8 = 0x80;

const VERSIONS: usize = 2;
const ISID: usize = 8;
const TSIH: usize = 14;
const CID: usize = 20;
const STATUS: usize = 36;

/// A stage of the login phase (RFC 7143 §11.12.3).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the standard's own")]
pub enum Stage {
    SecurityNegotiation = 0,
    OperationalNegotiation = 1,
    FullFeature = 3,
}

impl Stage {
    /// Returns CSG from the flags of a PDU.
    fn current(pdu: &'static str, flags: u8) -> Result<Self, DecodeError> {
        Self::from_wire(flags >> 2).ok_or_else(|| contradiction(pdu, "CSG", flags))
    }

    /// Returns NSG from the flags of a PDU.
    fn next(pdu: &'static str, flags: u8) -> Result<Self, DecodeError> {
        Self::from_wire(flags).ok_or_else(|| contradiction(pdu, "NSG", flags))
    }

    /// Returns the stage with a two-bit code; `None` for 2, which is reserved.
    const fn from_wire(code: u8) -> Option<Self> {
        Some(match code & 3 {
            0 => Self::SecurityNegotiation,
            1 => Self::OperationalNegotiation,
            3 => Self::FullFeature,
            _ => return None,
        })
    }
}

/// Login Request: a step of the login by the initiator (RFC 7143 §11.12). Its text is the data segment. The
/// request is always immediate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LoginRequest {
    /// T: the initiator is ready for the next stage.
    pub transit: bool,
    /// C: the text continues in the next request.
    pub is_continued: bool,
    /// CSG: the stage to which this request belongs.
    pub current_stage: Stage,
    /// NSG: the proposed next stage; sent only with T.
    pub next_stage: Stage,
    /// The highest version that the initiator supports: 0.
    pub version_max: u8,
    /// The lowest version that the initiator supports: 0.
    pub version_min: u8,
    /// The initiator's part of the session identifier.
    pub isid: Isid,
    /// TSIH: the session; zero for a new one.
    pub tsih: Tsih,
    /// Initiator task tag, which all requests of a login share.
    pub itt: Itt,
    /// CID: the connection within the session.
    pub cid: Cid,
    /// CmdSN of the first command after the login.
    pub cmd_sn: CmdSn,
    /// ExpStatSN: the next StatSN that the initiator expects on the connection.
    pub exp_stat_sn: StatSn,
}

const fn flags(transit: bool, is_continued: bool, current: Stage, next: u8) -> u8 {
    flag(transit, TRANSIT | next) | flag(is_continued, CONTINUE) | (current as u8) << 2
}

/// Returns the error for flags that exclude each other, or for an invalid stage.
fn contradiction(pdu: &'static str, field: &'static str, flags: u8) -> DecodeError {
    DecodeError::Field { pdu, field, value: flags.into() }
}

impl LoginRequest {
    /// Returns the header; its DataSegmentLength is zero until framing sets it.
    pub fn encode(&self) -> Bhs {
        let mut bhs = Bhs::with_opcode(InitiatorOpcode::LoginRequest as u8, true);
        let next = self.next_stage as u8;
        bhs.put_flags(flags(self.transit, self.is_continued, self.current_stage, next));
        bhs.put(VERSIONS, &[self.version_max, self.version_min]);
        bhs.put(ISID, &self.isid.to_bytes());
        bhs.put_u16(TSIH, self.tsih.0);
        bhs.put_itt(Some(self.itt));
        bhs.put_u16(CID, self.cid.0);
        bhs.put_request_numbers(self.cmd_sn, self.exp_stat_sn);
        bhs
    }

    /// Reads a header. Without T the next stage is read as the current one.
    ///
    /// # Errors
    /// When the Initiator Task Tag is the reserved one, a stage is 2, or T and C are both set.
    pub fn decode(bhs: &Bhs) -> Result<Self, DecodeError> {
        let flags = bhs.flags();
        let (transit, is_continued) = (bhs.has_flag(TRANSIT), bhs.has_flag(CONTINUE));
        if transit && is_continued {
            return Err(contradiction(REQUEST, "T with C", flags));
        }
        let current_stage = Stage::current(REQUEST, flags)?;
        Ok(Self {
            transit,
            is_continued,
            current_stage,
            next_stage: if transit { Stage::next(REQUEST, flags)? } else { current_stage },
            version_max: bhs.u8_at(VERSIONS),
            version_min: bhs.u8_at(VERSIONS + 1),
            isid: Isid::from_bytes(bhs.array_at(ISID)),
            tsih: Tsih(bhs.u16_at(TSIH)),
            itt: bhs.task_itt(REQUEST)?,
            cid: Cid(bhs.u16_at(CID)),
            cmd_sn: bhs.cmd_sn(),
            exp_stat_sn: bhs.exp_stat_sn(),
        })
    }
}

/// Login Response: a step of the login by the target (RFC 7143 §11.13). Its text is the data segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LoginResponse {
    /// T: the target agrees to the next stage.
    pub transit: bool,
    /// C: the text continues in the next response.
    pub is_continued: bool,
    /// CSG: the stage to which this response belongs; has no meaning in a failure.
    pub current_stage: Stage,
    /// NSG: the next stage; present with T.
    pub next_stage: Option<Stage>,
    /// The highest version that the target supports.
    pub version_max: u8,
    /// The version that both sides use after this response.
    pub version_active: u8,
    /// The initiator's part of the session identifier.
    pub isid: Isid,
    /// TSIH: the session; assigned in the last response.
    pub tsih: Tsih,
    /// Initiator task tag of the requests.
    pub itt: Itt,
    /// StatSN: the number that the response consumes; has no meaning in a failure.
    pub stat_sn: StatSn,
    /// ExpCmdSN: the next CmdSN that the target expects; has no meaning in a failure.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN: the last CmdSN that the target accepts; has no meaning in a failure.
    pub max_cmd_sn: CmdSn,
    /// The status of the login.
    pub status: LoginStatus,
}

impl LoginResponse {
    /// Returns the header; its DataSegmentLength is zero until framing sets it.
    pub fn encode(&self) -> Bhs {
        let mut bhs = Bhs::with_opcode(TargetOpcode::LoginResponse as u8, false);
        let next = self.next_stage.map_or(0, |stage| stage as u8);
        bhs.put_flags(flags(self.transit, self.is_continued, self.current_stage, next));
        bhs.put(VERSIONS, &[self.version_max, self.version_active]);
        bhs.put(ISID, &self.isid.to_bytes());
        bhs.put_u16(TSIH, self.tsih.0);
        bhs.put_itt(Some(self.itt));
        bhs.put_response_numbers(self.stat_sn, self.exp_cmd_sn, self.max_cmd_sn);
        bhs.put(STATUS, &[self.status.class, self.status.detail]);
        bhs
    }

    /// Reads a header. In a failure the stages are not checked: CSG is read as SecurityNegotiation, and NSG
    /// as none.
    ///
    /// # Errors
    /// When the Initiator Task Tag is the reserved one. In a success also when a stage is 2, or T and C are
    /// both set.
    pub fn decode(bhs: &Bhs) -> Result<Self, DecodeError> {
        let status = LoginStatus { class: bhs.u8_at(STATUS), detail: bhs.u8_at(STATUS + 1) };
        let flags = bhs.flags();
        let success = status.is_success();
        let transit = success && bhs.has_flag(TRANSIT);
        let is_continued = success && bhs.has_flag(CONTINUE);
        if transit && is_continued {
            return Err(contradiction(RESPONSE, "T with C", flags));
        }
        let current_stage =
            if success { Stage::current(RESPONSE, flags)? } else { Stage::SecurityNegotiation };
        Ok(Self {
            transit,
            is_continued,
            current_stage,
            next_stage: if transit { Some(Stage::next(RESPONSE, flags)?) } else { None },
            version_max: bhs.u8_at(VERSIONS),
            version_active: bhs.u8_at(VERSIONS + 1),
            isid: Isid::from_bytes(bhs.array_at(ISID)),
            tsih: Tsih(bhs.u16_at(TSIH)),
            itt: bhs.task_itt(RESPONSE)?,
            stat_sn: bhs.stat_sn(),
            exp_cmd_sn: bhs.exp_cmd_sn(),
            max_cmd_sn: bhs.max_cmd_sn(),
            status,
        })
    }
}

/// The status of a login: Status-Class and Status-Detail (RFC 7143 §11.13.5).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct LoginStatus {
    /// 0 success, 1 redirection, 2 the initiator's error, 3 the target's error.
    pub class: u8,
    /// The detail; its meaning depends on the class.
    pub detail: u8,
}

impl LoginStatus {
    /// The class of a login that continues, or is complete.
    pub const CLASS_SUCCESS: u8 = 0;
    /// The class of a login that is redirected.
    pub const CLASS_REDIRECTION: u8 = 1;
    /// The class of a login that fails because of an error of the initiator.
    pub const CLASS_INITIATOR_ERROR: u8 = 2;
    /// The class of a login that fails because of an error of the target.
    pub const CLASS_TARGET_ERROR: u8 = 3;

    /// The target has moved permanently.
    pub const TARGET_MOVED_PERMANENTLY: Self = Self { class: 1, detail: 2 };
    /// An error of the initiator, without a reason.
    pub const INITIATOR_ERROR: Self = Self { class: 2, detail: 0 };
    /// The initiator could not authenticate itself.
    pub const AUTHENTICATION_FAILURE: Self = Self { class: 2, detail: 1 };
    /// The initiator may not use the target.
    pub const AUTHORIZATION_FAILURE: Self = Self { class: 2, detail: 2 };
    /// The target does not exist.
    pub const TARGET_NOT_FOUND: Self = Self { class: 2, detail: 3 };
    /// The target was removed.
    pub const TARGET_REMOVED: Self = Self { class: 2, detail: 4 };

    /// Returns whether the status is a success: the login continues or is complete.
    pub const fn is_success(self) -> bool {
        self.class == Self::CLASS_SUCCESS
    }

    const fn words(self) -> &'static str {
        match (self.class, self.detail) {
            (0, _) => "success",
            (1, 1) => "target moved temporarily",
            (1, 2) => "target moved permanently",
            (1, _) => "redirection",
            (2, 0) => "initiator error",
            (2, 1) => "authentication failure",
            (2, 2) => "authorization failure",
            (2, 3) => "target not found",
            (2, 4) => "target removed",
            (2, 5) => "unsupported version",
            (2, 6) => "too many connections",
            (2, 7) => "missing parameter",
            (2, 8) => "cannot include in session",
            (2, 9) => "session type not supported",
            (2, 0x0a) => "session does not exist",
            (2, 0x0b) => "invalid request during login",
            (2, _) => "initiator error of unknown detail",
            (3, 0) => "target error",
            (3, 1) => "service unavailable",
            (3, 2) => "out of resources",
            (3, _) => "target error of unknown detail",
            _ => "unknown status class",
        }
    }
}

impl fmt::Display for LoginStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:02x}{:02x})", self.words(), self.class, self.detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(flags: u8, class: u8) -> Result<LoginResponse, DecodeError> {
        let mut bhs = Bhs::with_opcode(0x23, false);
        bhs.put_flags(flags);
        bhs.put_u8(STATUS, class);
        LoginResponse::decode(&bhs)
    }

    #[test]
    fn lay_10_flags_and_stages() {
        let full = response(0x87, 0).unwrap();
        assert_eq!(full.current_stage, Stage::OperationalNegotiation);
        assert_eq!(full.next_stage, Some(Stage::FullFeature));
        let stay = response(0x03, 0).unwrap();
        assert_eq!((stay.current_stage, stay.next_stage), (Stage::SecurityNegotiation, None));
        assert!(response(0x40, 0).unwrap().is_continued);
    }

    #[test]
    fn log_07_reserved_stages_and_log_08_transit_with_continue() {
        for flags in [0x08, 0x82, 0xc7] {
            assert!(response(flags, 0).is_err(), "{flags:#x}");
            assert!(response(flags, 2).is_ok(), "a failure is read leniently");
        }
    }

    #[test]
    fn log_07_log_08_the_same_holds_for_requests() {
        for (flags, field) in [(0x08, "CSG"), (0x82, "NSG"), (0xc7, "T with C")] {
            let mut bhs = Bhs::with_opcode(0x03, true);
            bhs.put_flags(flags);
            assert_eq!(LoginRequest::decode(&bhs), Err(contradiction(REQUEST, field, flags)));
        }
    }

    #[test]
    fn lay_01_request_goes_out_as_0x43() {
        let request = LoginRequest {
            transit: true,
            is_continued: false,
            current_stage: Stage::OperationalNegotiation,
            next_stage: Stage::FullFeature,
            version_max: 0,
            version_min: 0,
            isid: Isid::random([1, 2, 3], 4),
            tsih: Tsih::NEW_SESSION,
            itt: Itt::new(0).unwrap(),
            cid: Cid(0),
            cmd_sn: CmdSn::new(1),
            exp_stat_sn: StatSn::new(0),
        };
        assert_eq!(request.encode().as_bytes()[..2], [0x43, 0x87]);
        let stay = LoginRequest { transit: false, ..request };
        assert_eq!(stay.encode().as_bytes()[1], 0x04);
    }
}
