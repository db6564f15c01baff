use crate::{Bhs, Cid, CmdSn, DecodeError, Isid, Itt, StatSn, Tsih};
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stage { SecurityNegotiation = 0, OperationalNegotiation = 1, FullFeature = 3 }
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LoginRequest { pub transit: bool, pub is_continued: bool, pub current_stage: Stage, pub next_stage: Stage, pub version_max: u8, pub version_min: u8, pub isid: Isid, pub tsih: Tsih, pub itt: Itt, pub cid: Cid, pub cmd_sn: CmdSn, pub exp_stat_sn: StatSn }
impl LoginRequest { pub fn encode(&self) -> Bhs { let mut b = Bhs::with_opcode(3, true); let nsg = if self.transit { self.next_stage as u8 } else { 0 }; b.put(1, &[(self.transit as u8) << 7 | (self.is_continued as u8) << 6 | (self.current_stage as u8) << 2 | nsg, self.version_max, self.version_min]); b.put(8, &self.isid.to_bytes()); b.put(14, &self.tsih.0.to_be_bytes()); b.put(16, &self.itt.get().to_be_bytes()); b.put(20, &self.cid.0.to_be_bytes()); b.put(24, &self.cmd_sn.get().to_be_bytes()); b.put(28, &self.exp_stat_sn.get().to_be_bytes()); b } }
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LoginStatus { pub class: u8, pub detail: u8 }
impl LoginStatus { pub const fn is_success(self) -> bool { self.class == 0 } }
impl std::fmt::Display for LoginStatus { fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { write!(f, "{:02x}{:02x}", self.class, self.detail) } }
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LoginResponse { pub transit: bool, pub is_continued: bool, pub current_stage: Stage, pub next_stage: Option<Stage>, pub version_max: u8, pub version_active: u8, pub isid: Isid, pub tsih: Tsih, pub itt: Itt, pub stat_sn: StatSn, pub exp_cmd_sn: CmdSn, pub max_cmd_sn: CmdSn, pub status: LoginStatus }
fn stage(n: u8) -> Option<Stage> { Some(match n & 3 { 0 => Stage::SecurityNegotiation, 1 => Stage::OperationalNegotiation, 3 => Stage::FullFeature, _ => return None }) }
impl LoginResponse { pub fn decode(b: &Bhs) -> Result<Self, DecodeError> { let f = b.u8_at(1); let transit = f & 0x80 != 0; Ok(Self { transit, is_continued: f & 0x40 != 0, current_stage: stage(f >> 2).unwrap_or(Stage::SecurityNegotiation), next_stage: if transit { stage(f) } else { None }, version_max: b.u8_at(2), version_active: b.u8_at(3), isid: Isid::from_bytes(b.array_at(8)), tsih: Tsih(b.u16_at(14)), itt: Itt::new(b.u32_at(16)).ok_or(DecodeError::Ahs("itt"))?, stat_sn: StatSn::new(b.u32_at(24)), exp_cmd_sn: CmdSn::new(b.u32_at(28)), max_cmd_sn: CmdSn::new(b.u32_at(32)), status: LoginStatus { class: b.u8_at(36), detail: b.u8_at(37) } }) } }
