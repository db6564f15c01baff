//! Task Management Function Request and Response (RFC 7143 §11.5-11.6, RFC 7144).

use std::fmt;

use crate::bhs::Bhs;
use crate::common_fields::FINAL;
use crate::error::DecodeError;
use crate::opcode::{InitiatorOpcode, TargetOpcode};
use crate::scsi::Lun;
use crate::serial::{CmdSn, DataSn, StatSn};
use crate::tag::Itt;

const REQUEST: &str = "Task Management Function Request";
const RESPONSE: &str = "Task Management Function Response";

/// Mask of the function, which shares byte 1 with the F bit.
const FUNCTION: u8 = 0x7f;
const REFERENCED_TASK_TAG: usize = 20;
const REF_CMD_SN: usize = 32;
const RESPONSE_CODE: usize = 2;
const ADDITIONAL: usize = 8;

/// Task Management Function Request: aborts tasks, resets units, and more (RFC 7143 §11.5).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TaskManagementRequest {
    /// I: consumes no CmdSN.
    pub immediate: bool,
    /// The function.
    pub function: TaskFunction,
    /// The logical unit, for functions that concern one; zero otherwise.
    pub lun: Lun,
    /// Initiator task tag of this request.
    pub itt: Itt,
    /// The tag of the task to abort, reassign or query.
    pub referenced_task_tag: Option<Itt>,
    /// CmdSN: consumed unless the request is immediate.
    pub cmd_sn: CmdSn,
    /// ExpStatSN: the next StatSN that the initiator expects on the connection.
    pub exp_stat_sn: StatSn,
    /// RefCmdSN: for ABORT TASK the CmdSN of the task, so that the target can count this CmdSN as
    /// received even if the command was lost; zero otherwise.
    pub ref_cmd_sn: CmdSn,
    /// ExpDataSN: for TASK REASSIGN the next DataSN or R2TSN that the initiator expects; zero otherwise.
    pub exp_data_sn: DataSn,
}

/// The task management functions (RFC 7143 §11.5.1; from `QueryTask` on RFC 7144).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the standard's own")]
pub enum TaskFunction {
    AbortTask = 1,
    AbortTaskSet = 2,
    ClearAca = 3,
    ClearTaskSet = 4,
    LogicalUnitReset = 5,
    TargetWarmReset = 6,
    TargetColdReset = 7,
    TaskReassign = 8,
    QueryTask = 9,
    QueryTaskSet = 10,
    ItNexusReset = 11,
    QueryAsynchronousEvent = 12,
}

impl TaskFunction {
    const fn from_wire(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::AbortTask,
            2 => Self::AbortTaskSet,
            3 => Self::ClearAca,
            4 => Self::ClearTaskSet,
            5 => Self::LogicalUnitReset,
            6 => Self::TargetWarmReset,
            7 => Self::TargetColdReset,
            8 => Self::TaskReassign,
            9 => Self::QueryTask,
            10 => Self::QueryTaskSet,
            11 => Self::ItNexusReset,
            12 => Self::QueryAsynchronousEvent,
            _ => return None,
        })
    }
}

impl TaskManagementRequest {
    /// Returns the header.
    pub fn encode(&self) -> Bhs {
        let opcode = InitiatorOpcode::TaskManagementRequest as u8;
        let mut bhs = Bhs::with_opcode(opcode, self.immediate);
        bhs.put_flags(FINAL | self.function as u8);
        bhs.put_lun(self.lun);
        bhs.put_itt(Some(self.itt));
        bhs.put_u32(REFERENCED_TASK_TAG, Itt::to_wire(self.referenced_task_tag));
        bhs.put_request_numbers(self.cmd_sn, self.exp_stat_sn);
        bhs.put_u32(REF_CMD_SN, self.ref_cmd_sn.get());
        bhs.put_data_sn(self.exp_data_sn);
        bhs
    }

    /// Reads a header.
    ///
    /// # Errors
    /// When the Initiator Task Tag is the reserved one, or the function is unknown.
    pub fn decode(bhs: &Bhs) -> Result<Self, DecodeError> {
        let code = bhs.flags() & FUNCTION;
        let unknown = || DecodeError::Field { pdu: REQUEST, field: "Function", value: code.into() };
        Ok(Self {
            immediate: bhs.immediate(),
            function: TaskFunction::from_wire(code).ok_or_else(unknown)?,
            lun: bhs.lun(),
            itt: bhs.task_itt(REQUEST)?,
            referenced_task_tag: Itt::new(bhs.u32_at(REFERENCED_TASK_TAG)),
            cmd_sn: bhs.cmd_sn(),
            exp_stat_sn: bhs.exp_stat_sn(),
            ref_cmd_sn: CmdSn::new(bhs.u32_at(REF_CMD_SN)),
            exp_data_sn: bhs.data_sn(),
        })
    }
}

/// Task Management Function Response (RFC 7143 §11.6).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TaskManagementResponse {
    /// The result of the function.
    pub response: FunctionResponse,
    /// Additional Response Information (RFC 7144).
    pub additional: [u8; 3],
    /// Initiator task tag of the request.
    pub itt: Itt,
    /// StatSN: the number that the response consumes.
    pub stat_sn: StatSn,
    /// ExpCmdSN: the next CmdSN that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN: the last CmdSN that the target accepts.
    pub max_cmd_sn: CmdSn,
}

/// The response code of a task management function (RFC 7143 §11.6.1).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct FunctionResponse(pub u8);

impl FunctionResponse {
    /// The function is complete.
    pub const COMPLETE: Self = Self(0);
    /// The referenced task does not exist.
    pub const TASK_DOES_NOT_EXIST: Self = Self(1);
    /// The logical unit does not exist.
    pub const LUN_DOES_NOT_EXIST: Self = Self(2);
    /// The task's connection is still in use.
    pub const TASK_STILL_ALLEGIANT: Self = Self(3);
    /// Tasks cannot be reassigned.
    pub const REASSIGNMENT_NOT_SUPPORTED: Self = Self(4);
    /// The target does not support the function.
    pub const FUNCTION_NOT_SUPPORTED: Self = Self(5);
    /// The initiator may not request the function.
    pub const AUTHORIZATION_FAILED: Self = Self(6);
    /// The result of the query is yes (RFC 7144).
    pub const SUCCEEDED: Self = Self(7);
    /// The target rejected the function.
    pub const REJECTED: Self = Self(255);
}

impl fmt::Display for FunctionResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0 => "function complete",
            1 => "task does not exist",
            2 => "LUN does not exist",
            3 => "task still allegiant",
            4 => "task allegiance reassignment not supported",
            5 => "task management function not supported",
            6 => "function authorization failed",
            7 => "function succeeded",
            255 => "function rejected",
            other => return write!(f, "reserved response {other:#04x}"),
        })
    }
}

impl TaskManagementResponse {
    /// Returns the header.
    pub fn encode(&self) -> Bhs {
        let mut bhs = Bhs::with_opcode(TargetOpcode::TaskManagementResponse as u8, false);
        bhs.put_flags(FINAL);
        bhs.put_u8(RESPONSE_CODE, self.response.0);
        bhs.put(ADDITIONAL, &self.additional);
        bhs.put_itt(Some(self.itt));
        bhs.put_response_numbers(self.stat_sn, self.exp_cmd_sn, self.max_cmd_sn);
        bhs
    }

    /// Reads a header.
    ///
    /// # Errors
    /// When the Initiator Task Tag is the reserved one.
    pub fn decode(bhs: &Bhs) -> Result<Self, DecodeError> {
        Ok(Self {
            response: FunctionResponse(bhs.u8_at(RESPONSE_CODE)),
            additional: bhs.array_at(ADDITIONAL),
            itt: bhs.task_itt(RESPONSE)?,
            stat_sn: bhs.stat_sn(),
            exp_cmd_sn: bhs.exp_cmd_sn(),
            max_cmd_sn: bhs.max_cmd_sn(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PL2-04: the functions of RFC 7144 are encoded like those of RFC 7143.
    #[test]
    fn lay_13_function_codes() {
        let mut bhs = Bhs::with_opcode(0x02, true);
        let mut decode = |code| {
            bhs.put_flags(FINAL | code);
            TaskManagementRequest::decode(&bhs)
        };
        for code in 1..=12 {
            assert_eq!(decode(code).map(|request| request.function as u8), Ok(code));
        }
        for value in [0, 13, 0x7f] {
            let error = DecodeError::Field { pdu: REQUEST, field: "Function", value: value.into() };
            assert_eq!(decode(value), Err(error));
        }
    }

    #[test]
    fn reserved_responses_reach_the_caller() {
        let mut bhs = Bhs::with_opcode(0x22, false);
        bhs.put_u8(RESPONSE_CODE, 0x42);
        let response = TaskManagementResponse::decode(&bhs).unwrap().response;
        assert_eq!(response.to_string(), "reserved response 0x42");
    }
}
