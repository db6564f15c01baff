use bytes::{BufMut, BytesMut};
use crate::{scsi::{Cdb, Lun}, Bhs, CmdSn, DecodeError, Header, Itt, StatSn};
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum TaskAttribute { Untagged = 0, #[default] Simple = 1, Ordered = 2, HeadOfQueue = 3, Aca = 4 }
#[derive(Clone, Debug)]
pub struct ScsiCommand { pub immediate: bool, pub is_final: bool, pub read: bool, pub write: bool, pub attribute: TaskAttribute, pub priority: u8, pub lun: Lun, pub itt: Itt, pub expected_data_transfer_length: u32, pub cmd_sn: CmdSn, pub exp_stat_sn: StatSn, pub cdb: Cdb, pub bidirectional_read_length: Option<u32> }
impl ScsiCommand {
    pub fn encode(&self) -> Header {
        let mut bhs = Bhs::with_opcode(1, self.immediate);
        let f = (self.is_final as u8) << 7 | (self.read as u8) << 6 | (self.write as u8) << 5 | self.attribute as u8;
        bhs.put(1, &[f, self.priority << 4]);
        bhs.put(8, &self.lun.to_bytes());
        bhs.put(16, &self.itt.get().to_be_bytes());
        bhs.put(20, &self.expected_data_transfer_length.to_be_bytes());
        bhs.put(24, &self.cmd_sn.get().to_be_bytes());
        bhs.put(28, &self.exp_stat_sn.get().to_be_bytes());
        let cdb = self.cdb.as_bytes();
        let n = cdb.len().min(16);
        bhs.put(32, &cdb[..n]);
        let mut ahs = BytesMut::new();
        if cdb.len() > 16 { ahs.put_u16((cdb.len() - 15) as u16); ahs.put_u8(1); ahs.put_u8(0); ahs.put_slice(&cdb[16..]); while ahs.len() % 4 != 0 { ahs.put_u8(0) } }
        if let Some(n) = self.bidirectional_read_length { ahs.put_u16(5); ahs.put_u8(2); ahs.put_u8(0); ahs.put_u32(n); }
        bhs.set_ahs_len(ahs.len());
        Header { bhs, ahs: ahs.freeze() }
    }
    pub fn decode(h: &Header) -> Result<Self, DecodeError> {
        let b = &h.bhs; let f = b.u8_at(1);
        Ok(Self { immediate: b.immediate(), is_final: f & 0x80 != 0, read: f & 0x40 != 0, write: f & 0x20 != 0, attribute: TaskAttribute::Simple, priority: 0, lun: Lun::from_bytes(b.array_at(8)), itt: Itt::new(b.u32_at(16)).ok_or(DecodeError::Ahs("itt"))?, expected_data_transfer_length: b.u32_at(20), cmd_sn: CmdSn::new(b.u32_at(24)), exp_stat_sn: StatSn::new(b.u32_at(28)), cdb: Cdb::new(&b.array_at::<16>(32)).map_err(|_| DecodeError::Ahs("cdb"))?, bidirectional_read_length: None })
    }
}
