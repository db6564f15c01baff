//! SCSI Data-Out (RFC 7143 §11.7).

use crate::common_fields::{FINAL, flag};
use crate::{Bhs, DataSn, DecodeError, InitiatorOpcode, Itt, StatSn, Ttt, scsi::Lun};

const PDU: &str = "SCSI Data-Out";

const BUFFER_OFFSET: usize = 40;

/// SCSI Data-Out: a part of a write's data (RFC 7143 §11.7).
///
/// A Data-Out is not a command and has no CmdSN.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DataOut {
    /// F: the last PDU of its sequence, which carries the data of one R2T or the unsolicited data (RFC 7143
    /// §11.7.1).
    pub is_final: bool,
    /// The LUN of the R2T to which this PDU belongs. In unsolicited data the LUN of the command, or zero (RFC
    /// 7143 §11.7.4).
    pub lun: Lun,
    /// Initiator task tag of the write.
    pub itt: Itt,
    /// The tag of the R2T to which this PDU belongs; `None` in unsolicited data.
    pub ttt: Option<Ttt>,
    /// ExpStatSN: the next StatSN that the initiator expects on the connection.
    pub exp_stat_sn: StatSn,
    /// DataSN: the PDU's number in its sequence, from 0 (RFC 7143 §11.7.5).
    pub data_sn: DataSn,
    /// Offset of the data segment in the write's data, bytes (RFC 7143 §11.7.6).
    pub buffer_offset: u32,
}

impl DataOut {
    /// Returns the header as it is sent, without the length of the data segment.
    pub fn encode(&self) -> Bhs {
        let mut bhs = Bhs::with_opcode(InitiatorOpcode::DataOut as u8, false);
        bhs.put_flags(flag(self.is_final, FINAL));
        bhs.put_lun(self.lun);
        bhs.put_itt(Some(self.itt));
        bhs.put_ttt(self.ttt);
        bhs.put_exp_stat_sn(self.exp_stat_sn);
        bhs.put_data_sn(self.data_sn);
        bhs.put_u32(BUFFER_OFFSET, self.buffer_offset);
        bhs
    }

    /// Reads a header whose opcode is Data-Out.
    ///
    /// # Errors
    /// [`DecodeError::Field`] for a reserved Initiator Task Tag.
    pub fn decode(bhs: &Bhs) -> Result<Self, DecodeError> {
        Ok(Self {
            is_final: bhs.has_flag(FINAL),
            lun: bhs.lun(),
            itt: bhs.task_itt(PDU)?,
            ttt: bhs.ttt(),
            exp_stat_sn: bhs.exp_stat_sn(),
            data_sn: bhs.data_sn(),
            buffer_offset: bhs.u32_at(BUFFER_OFFSET),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_final_bit_of_byte_1_is_used() {
        let mut bhs = Bhs::with_opcode(0x05, false);
        for (byte, is_final) in [(0x80, true), (0xff, true), (0x00, false), (0x7f, false)] {
            bhs.put_flags(byte);
            assert_eq!(DataOut::decode(&bhs).map(|data| data.is_final), Ok(is_final));
        }
    }
}
