use crate::{scsi::Lun, Bhs, CmdSn, DecodeError, Itt, StatSn, Ttt};
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NopOut { pub immediate: bool, pub lun: Lun, pub itt: Option<Itt>, pub ttt: Option<Ttt>, pub cmd_sn: CmdSn, pub exp_stat_sn: StatSn }
impl NopOut { pub fn encode(&self) -> Bhs { let mut b = Bhs::with_opcode(0, self.immediate); b.put(1, &[0x80]); b.put(8, &self.lun.to_bytes()); b.put(16, &Itt::to_wire(self.itt).to_be_bytes()); b.put(20, &Ttt::to_wire(self.ttt).to_be_bytes()); b.put(24, &self.cmd_sn.get().to_be_bytes()); b.put(28, &self.exp_stat_sn.get().to_be_bytes()); b } }
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NopIn { pub lun: Lun, pub itt: Option<Itt>, pub ttt: Option<Ttt>, pub stat_sn: StatSn, pub exp_cmd_sn: CmdSn, pub max_cmd_sn: CmdSn }
impl NopIn { pub fn decode(b: &Bhs) -> Result<Self, DecodeError> { Ok(Self { lun: Lun::from_bytes(b.array_at(8)), itt: Itt::new(b.u32_at(16)), ttt: Ttt::new(b.u32_at(20)), stat_sn: StatSn::new(b.u32_at(24)), exp_cmd_sn: CmdSn::new(b.u32_at(28)), max_cmd_sn: CmdSn::new(b.u32_at(32)) }) } }
