//! Asynchronous Message (RFC 7143 §11.9).

use crate::bhs::Bhs;
use crate::common_fields::FINAL;
use crate::error::DecodeError;
use crate::opcode::TargetOpcode;
use crate::scsi::Lun;
use crate::serial::{CmdSn, StatSn};
use crate::tag::Cid;

const EVENT: usize = 36;
const VENDOR_CODE: usize = 37;
/// Offsets of Parameter1 to Parameter3.
const PARAMETERS: [usize; 3] = [38, 40, 42];

/// Asynchronous Message: a report that the target sends without a request (RFC 7143 §11.9).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AsyncMessage {
    /// The logical unit, for events that concern one.
    pub lun: Lun,
    /// StatSN: the number that the message consumes.
    pub stat_sn: StatSn,
    /// ExpCmdSN: the next CmdSN that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN: the last CmdSN that the target accepts.
    pub max_cmd_sn: CmdSn,
    /// The event.
    pub event: AsyncEvent,
}

/// Events that a target reports (RFC 7143 §11.9.1).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AsyncEvent {
    /// A SCSI event; its sense data is in the data segment: see [`sense_of`](crate::sense_of).
    ScsiAsyncEvent,
    /// The target requests a logout of this connection.
    LogoutRequest {
        /// Seconds within which the target expects the logout.
        time: u16,
    },
    /// The target will drop a connection.
    ConnectionDropped {
        /// CID: the connection that is dropped.
        cid: Cid,
        /// Seconds to wait before a reconnect.
        time2wait: u16,
        /// Seconds after `time2wait` in which the target keeps the tasks.
        time2retain: u16,
    },
    /// The target will drop all connections of the session.
    SessionDropped {
        /// Seconds to wait before a reconnect.
        time2wait: u16,
        /// Seconds after `time2wait` in which the target keeps the tasks.
        time2retain: u16,
    },
    /// The target requests a negotiation of parameters.
    NegotiationRequest {
        /// Seconds within which the target expects the negotiation.
        time: u16,
    },
    /// All tasks of the logical unit were ended, and the target waits for an acknowledgement.
    TaskTermination,
    /// A vendor-specific event.
    Vendor {
        /// AsyncEvent, 248 to 255.
        event: u8,
        /// AsyncVCode.
        code: u8,
    },
    /// An event that no standard defines.
    Other(u8),
}

impl AsyncMessage {
    /// Returns the header; its DataSegmentLength is zero until framing sets it.
    pub fn encode(&self) -> Bhs {
        let mut bhs = Bhs::with_opcode(TargetOpcode::AsyncMessage as u8, false);
        bhs.put_flags(FINAL);
        bhs.put_lun(self.lun);
        bhs.put_itt(None);
        bhs.put_response_numbers(self.stat_sn, self.exp_cmd_sn, self.max_cmd_sn);
        self.event.encode(&mut bhs);
        bhs
    }

    /// Reads a header.
    ///
    /// # Errors
    /// None at present; every value of every field has a meaning.
    pub fn decode(bhs: &Bhs) -> Result<Self, DecodeError> {
        Ok(Self {
            lun: bhs.lun(),
            stat_sn: bhs.stat_sn(),
            exp_cmd_sn: bhs.exp_cmd_sn(),
            max_cmd_sn: bhs.max_cmd_sn(),
            event: AsyncEvent::decode(bhs),
        })
    }
}

impl AsyncEvent {
    fn encode(self, bhs: &mut Bhs) {
        let mut put = |event: u8, code: u8, parameters: [u16; 3]| {
            bhs.put(EVENT, &[event, code]);
            for (at, parameter) in PARAMETERS.into_iter().zip(parameters) {
                bhs.put_u16(at, parameter);
            }
        };
        match self {
            Self::ScsiAsyncEvent => put(0, 0, [0; 3]),
            Self::LogoutRequest { time } => put(1, 0, [0, 0, time]),
            Self::ConnectionDropped { cid, time2wait, time2retain } => {
                put(2, 0, [cid.0, time2wait, time2retain]);
            }
            Self::SessionDropped { time2wait, time2retain } => {
                put(3, 0, [0, time2wait, time2retain]);
            }
            Self::NegotiationRequest { time } => put(4, 0, [0, 0, time]),
            Self::TaskTermination => put(5, 0, [0; 3]),
            Self::Vendor { event, code } => put(event, code, [0; 3]),
            Self::Other(event) => put(event, 0, [0; 3]),
        }
    }

    fn decode(bhs: &Bhs) -> Self {
        let [parameter1, parameter2, parameter3] = PARAMETERS.map(|at| bhs.u16_at(at));
        let (time2wait, time2retain) = (parameter2, parameter3);
        match bhs.u8_at(EVENT) {
            0 => Self::ScsiAsyncEvent,
            1 => Self::LogoutRequest { time: parameter3 },
            2 => Self::ConnectionDropped { cid: Cid(parameter1), time2wait, time2retain },
            3 => Self::SessionDropped { time2wait, time2retain },
            4 => Self::NegotiationRequest { time: parameter3 },
            5 => Self::TaskTermination,
            event @ 248.. => Self::Vendor { event, code: bhs.u8_at(VENDOR_CODE) },
            event => Self::Other(event),
        }
    }
}
