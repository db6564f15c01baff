use crate::{scsi::Lun, Bhs, CmdSn, DecodeError, Itt, StatSn, Ttt};
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TextRequest { pub immediate: bool, pub is_final: bool, pub is_continued: bool, pub lun: Lun, pub itt: Itt, pub ttt: Option<Ttt>, pub cmd_sn: CmdSn, pub exp_stat_sn: StatSn }
impl TextRequest { pub fn encode(&self) -> Bhs { let mut b = Bhs::with_opcode(4, self.immediate); b.put(1, &[(self.is_final as u8) << 7 | (self.is_continued as u8) << 6]); b.put(8, &self.lun.to_bytes()); b.put(16, &self.itt.get().to_be_bytes()); b.put(20, &Ttt::to_wire(self.ttt).to_be_bytes()); b.put(24, &self.cmd_sn.get().to_be_bytes()); b.put(28, &self.exp_stat_sn.get().to_be_bytes()); b } }
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TextResponse { pub is_final: bool, pub is_continued: bool, pub lun: Lun, pub itt: Itt, pub ttt: Option<Ttt>, pub stat_sn: StatSn, pub exp_cmd_sn: CmdSn, pub max_cmd_sn: CmdSn }
impl TextResponse { pub fn decode(b: &Bhs) -> Result<Self, DecodeError> { let f = b.u8_at(1); Ok(Self { is_final: f & 0x80 != 0, is_continued: f & 0x40 != 0, lun: Lun::from_bytes(b.array_at(8)), itt: Itt::new(b.u32_at(16)).ok_or(DecodeError::Ahs("itt"))?, ttt: Ttt::new(b.u32_at(20)), stat_sn: StatSn::new(b.u32_at(24)), exp_cmd_sn: CmdSn::new(b.u32_at(28)), max_cmd_sn: CmdSn::new(b.u32_at(32)) }) } }
