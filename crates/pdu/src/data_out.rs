//! SCSI Data-Out (RFC 7143 §11.7).

use crate::common_fields::{FINAL, flag};
use crate::{Bhs, DataSn, DecodeError, InitiatorOpcode, Itt, StatSn, Ttt, scsi::Lun};

const PDU: &str = "SCSI Data-Out";

const BUFFER_OFFSET: usize = 40;

/// SCSI Data-Out: a piece of a write's data (RFC 7143 §11.7).
///
/// It is no command and has no CmdSN.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DataOut {
    /// F: the last PDU of its sequence, which is the answer to one R2T or the unsolicited data
    /// (RFC 7143 §11.7.1).
    pub is_final: bool,
    /// The LUN of the R2T that is answered; in unsolicited data the LUN of the command, which may
    /// repeat it or leave it zero (RFC 7143 §11.7.4).
    pub lun: Lun,
    /// The write.
    pub itt: Itt,
    /// The tag of the R2T that is answered; `None` in unsolicited data.
    pub ttt: Option<Ttt>,
    /// The next StatSN the initiator expects on this connection.
    pub exp_stat_sn: StatSn,
    /// Counts the PDUs of the sequence from 0 (RFC 7143 §11.7.5).
    pub data_sn: DataSn,
    /// Where the data segment belongs in the write's data, bytes (RFC 7143 §11.7.6).
    pub buffer_offset: u32,
}

impl DataOut {
    /// The header as it goes on the wire, without the length of the data segment.
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

    /// Reads a header whose opcode says it is a Data-Out.
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
