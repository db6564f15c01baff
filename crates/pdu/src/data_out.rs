use crate::{scsi::Lun, Bhs, DataSn, Itt, StatSn, Ttt};
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DataOut { pub is_final: bool, pub lun: Lun, pub itt: Itt, pub ttt: Option<Ttt>, pub exp_stat_sn: StatSn, pub data_sn: DataSn, pub buffer_offset: u32 }
impl DataOut { pub fn encode(&self) -> Bhs { let mut b = Bhs::with_opcode(5, false); b.put(1, &[(self.is_final as u8) << 7]); b.put(8, &self.lun.to_bytes()); b.put(16, &self.itt.get().to_be_bytes()); b.put(20, &Ttt::to_wire(self.ttt).to_be_bytes()); b.put(28, &self.exp_stat_sn.get().to_be_bytes()); b.put(36, &self.data_sn.get().to_be_bytes()); b.put(40, &self.buffer_offset.to_be_bytes()); b } }
