use std::num::NonZeroU32;
use crate::{scsi::Lun, Bhs, CmdSn, DecodeError, Itt, R2tSn, StatSn, Ttt};
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct R2t { pub lun: Lun, pub itt: Itt, pub ttt: Ttt, pub stat_sn: StatSn, pub exp_cmd_sn: CmdSn, pub max_cmd_sn: CmdSn, pub r2t_sn: R2tSn, pub buffer_offset: u32, pub desired_data_transfer_length: NonZeroU32 }
impl R2t { pub fn decode(b: &Bhs) -> Result<Self, DecodeError> { Ok(Self { lun: Lun::from_bytes(b.array_at(8)), itt: Itt::new(b.u32_at(16)).ok_or(DecodeError::Ahs("itt"))?, ttt: Ttt::new(b.u32_at(20)).ok_or(DecodeError::Ahs("ttt"))?, stat_sn: StatSn::new(b.u32_at(24)), exp_cmd_sn: CmdSn::new(b.u32_at(28)), max_cmd_sn: CmdSn::new(b.u32_at(32)), r2t_sn: R2tSn::new(b.u32_at(36)), buffer_offset: b.u32_at(40), desired_data_transfer_length: NonZeroU32::new(b.u32_at(44)).ok_or(DecodeError::Ahs("ddtl"))? }) } }
