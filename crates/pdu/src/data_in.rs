use crate::{scsi::{Lun, Status}, Bhs, CmdSn, DataSn, DecodeError, Itt, Residual, StatSn, Ttt};
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DataInStatus { pub stat_sn: StatSn, pub status: Status, pub residual: Residual }
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DataIn { pub is_final: bool, pub acknowledge: bool, pub status: Option<DataInStatus>, pub lun: Lun, pub itt: Itt, pub ttt: Option<Ttt>, pub exp_cmd_sn: CmdSn, pub max_cmd_sn: CmdSn, pub data_sn: DataSn, pub buffer_offset: u32 }
impl DataIn { pub fn decode(b: &Bhs) -> Result<Self, DecodeError> { let f = b.u8_at(1);
  let status = if f & 1 != 0 { if f & 0x80 == 0 { return Err(DecodeError::Ahs("S without F")) } Some(DataInStatus { stat_sn: StatSn::new(b.u32_at(24)), status: Status(b.u8_at(3)), residual: crate::scsi_response::residual(f & 4 != 0, f & 2 != 0, b.u32_at(44))? }) } else { None };
  Ok(Self { is_final: f & 0x80 != 0, acknowledge: f & 0x40 != 0, status, lun: Lun::from_bytes(b.array_at(8)), itt: Itt::new(b.u32_at(16)).ok_or(DecodeError::Ahs("itt"))?, ttt: Ttt::new(b.u32_at(20)), exp_cmd_sn: CmdSn::new(b.u32_at(28)), max_cmd_sn: CmdSn::new(b.u32_at(32)), data_sn: DataSn::new(b.u32_at(36)), buffer_offset: b.u32_at(40) }) } }
