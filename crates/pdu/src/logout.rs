use crate::{Bhs, Cid, CmdSn, DecodeError, Itt, StatSn};
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogoutReason { CloseSession = 0, CloseConnection = 1, RemoveConnectionForRecovery = 2 }
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogoutRequest { pub immediate: bool, pub reason: LogoutReason, pub itt: Itt, pub cid: Cid, pub cmd_sn: CmdSn, pub exp_stat_sn: StatSn }
impl LogoutRequest { pub fn encode(&self) -> Bhs { let mut b = Bhs::with_opcode(6, self.immediate); b.put(1, &[0x80 | self.reason as u8]); b.put(16, &self.itt.get().to_be_bytes()); b.put(20, &self.cid.0.to_be_bytes()); b.put(24, &self.cmd_sn.get().to_be_bytes()); b.put(28, &self.exp_stat_sn.get().to_be_bytes()); b } pub fn decode(b: &Bhs) -> Result<Self, DecodeError> { Ok(Self { immediate: true, reason: LogoutReason::CloseSession, itt: Itt::new(b.u32_at(16)).ok_or(DecodeError::Ahs("itt"))?, cid: Cid(b.u16_at(20)), cmd_sn: CmdSn::new(b.u32_at(24)), exp_stat_sn: StatSn::new(b.u32_at(28)) }) } }
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LogoutCode(pub u8);
impl LogoutCode { pub const SUCCESS: Self = Self(0); }
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogoutResponse { pub response: LogoutCode, pub itt: Itt, pub stat_sn: StatSn, pub exp_cmd_sn: CmdSn, pub max_cmd_sn: CmdSn, pub time2wait: u16, pub time2retain: u16 }
impl LogoutResponse { pub fn decode(b: &Bhs) -> Result<Self, DecodeError> { Ok(Self { response: LogoutCode(b.u8_at(2)), itt: Itt::new(b.u32_at(16)).ok_or(DecodeError::Ahs("itt"))?, stat_sn: StatSn::new(b.u32_at(24)), exp_cmd_sn: CmdSn::new(b.u32_at(28)), max_cmd_sn: CmdSn::new(b.u32_at(32)), time2wait: b.u16_at(40), time2retain: b.u16_at(42) }) } }
