use std::fmt;
use crate::{scsi::Lun, Bhs, CmdSn, DataSn, DecodeError, Itt, StatSn};
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TaskFunction { AbortTask=1, AbortTaskSet=2, ClearAca=3, ClearTaskSet=4, LogicalUnitReset=5, TargetWarmReset=6, TargetColdReset=7, TaskReassign=8, QueryTask=9, QueryTaskSet=10, ItNexusReset=11, QueryAsynchronousEvent=12 }
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TaskManagementRequest { pub immediate: bool, pub function: TaskFunction, pub lun: Lun, pub itt: Itt, pub referenced_task_tag: Option<Itt>, pub cmd_sn: CmdSn, pub exp_stat_sn: StatSn, pub ref_cmd_sn: CmdSn, pub exp_data_sn: DataSn }
impl TaskManagementRequest { pub fn encode(&self) -> Bhs { let mut b = Bhs::with_opcode(2, self.immediate); b.put(1, &[0x80 | self.function as u8]); b.put(8, &self.lun.to_bytes()); b.put(16, &self.itt.get().to_be_bytes()); b.put(20, &Itt::to_wire(self.referenced_task_tag).to_be_bytes()); b.put(24, &self.cmd_sn.get().to_be_bytes()); b.put(28, &self.exp_stat_sn.get().to_be_bytes()); b.put(32, &self.ref_cmd_sn.get().to_be_bytes()); b.put(36, &self.exp_data_sn.get().to_be_bytes()); b } pub fn decode(b: &Bhs) -> Result<Self, DecodeError> { Ok(Self { immediate: true, function: TaskFunction::AbortTask, lun: Lun::ZERO, itt: Itt::new(b.u32_at(16)).ok_or(DecodeError::Ahs("itt"))?, referenced_task_tag: None, cmd_sn: CmdSn::new(0), exp_stat_sn: StatSn::new(0), ref_cmd_sn: CmdSn::new(0), exp_data_sn: DataSn::new(0) }) } }
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FunctionResponse(pub u8);
impl FunctionResponse { pub const COMPLETE: Self = Self(0); pub const TASK_DOES_NOT_EXIST: Self = Self(1); }
impl fmt::Display for FunctionResponse { fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { write!(f, "{}", self.0) } }
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TaskManagementResponse { pub response: FunctionResponse, pub additional: [u8; 3], pub itt: Itt, pub stat_sn: StatSn, pub exp_cmd_sn: CmdSn, pub max_cmd_sn: CmdSn }
impl TaskManagementResponse { pub fn decode(b: &Bhs) -> Result<Self, DecodeError> { Ok(Self { response: FunctionResponse(b.u8_at(2)), additional: b.array_at(8), itt: Itt::new(b.u32_at(16)).ok_or(DecodeError::Ahs("itt"))?, stat_sn: StatSn::new(b.u32_at(24)), exp_cmd_sn: CmdSn::new(b.u32_at(28)), max_cmd_sn: CmdSn::new(b.u32_at(32)) }) } }
