use crate::{Bhs, CmdSn, DataSn, DecodeError, StatSn};
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RejectReason(pub u8);
impl RejectReason { pub const WAITING_FOR_LOGOUT: Self = Self(0x0c); }
impl std::fmt::Display for RejectReason { fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { write!(f, "{:02x}", self.0) } }
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reject { pub reason: RejectReason, pub stat_sn: StatSn, pub exp_cmd_sn: CmdSn, pub max_cmd_sn: CmdSn, pub data_sn: DataSn }
impl Reject { pub fn decode(b: &Bhs) -> Result<Self, DecodeError> { Ok(Self { reason: RejectReason(b.u8_at(2)), stat_sn: StatSn::new(b.u32_at(24)), exp_cmd_sn: CmdSn::new(b.u32_at(28)), max_cmd_sn: CmdSn::new(b.u32_at(32)), data_sn: DataSn::new(b.u32_at(36)) }) } }
pub fn rejected_header(data: &[u8]) -> Option<Bhs> { data.first_chunk::<48>().map(|b| Bhs::from_bytes(*b)) }
