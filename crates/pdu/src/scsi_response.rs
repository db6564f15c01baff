use bytes::Bytes;
use std::fmt;
use crate::{scsi::Status, Bhs, CmdSn, DataSn, DecodeError, Itt, StatSn};
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ServiceResponse(pub u8);
impl ServiceResponse { pub const COMPLETED_AT_TARGET: Self = Self(0); pub const TARGET_FAILURE: Self = Self(1); }
impl fmt::Display for ServiceResponse { fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { write!(f, "{:#x}", self.0) } }
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Residual { #[default] None, Underflow(u32), Overflow(u32) }
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScsiResponse { pub response: ServiceResponse, pub status: Status, pub residual: Residual, pub bidirectional_residual: Residual, pub status_qualifier: u16, pub itt: Itt, pub snack_tag: u32, pub stat_sn: StatSn, pub exp_cmd_sn: CmdSn, pub max_cmd_sn: CmdSn, pub exp_data_sn: DataSn }
pub(crate) fn residual(o: bool, u: bool, n: u32) -> Result<Residual, DecodeError> { match (o, u) { (true, true) => Err(DecodeError::Ahs("O and U")), (true, false) => Ok(Residual::Overflow(n)), (false, true) => Ok(Residual::Underflow(n)), _ => Ok(Residual::None) } }
impl ScsiResponse { pub fn decode(b: &Bhs) -> Result<Self, DecodeError> {
    let f = b.u8_at(1); let response = ServiceResponse(b.u8_at(2)); let ok = response.0 == 0;
    Ok(Self { response, status: Status(b.u8_at(3)), residual: if ok { residual(f & 4 != 0, f & 2 != 0, b.u32_at(44))? } else { Residual::None }, bidirectional_residual: if ok { residual(f & 16 != 0, f & 8 != 0, b.u32_at(40))? } else { Residual::None }, status_qualifier: b.u16_at(8), itt: Itt::new(b.u32_at(16)).ok_or(DecodeError::Ahs("itt"))?, snack_tag: b.u32_at(20), stat_sn: StatSn::new(b.u32_at(24)), exp_cmd_sn: CmdSn::new(b.u32_at(28)), max_cmd_sn: CmdSn::new(b.u32_at(32)), exp_data_sn: DataSn::new(b.u32_at(36)) })
} }
pub fn sense_of(data: &Bytes) -> Result<Bytes, DecodeError> { if data.is_empty() { return Ok(Bytes::new()) } let Some(l) = data.first_chunk::<2>() else { return Err(DecodeError::Ahs("s")) }; let n = u16::from_be_bytes(*l) as usize; if n + 2 > data.len() { return Err(DecodeError::Ahs("s")) } Ok(data.slice(2..2 + n)) }
