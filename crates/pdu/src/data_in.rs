//! SCSI Data-In (RFC 7143 §11.7).

use crate::bhs::Bhs;
use crate::common_fields::{FINAL, flag};
use crate::error::DecodeError;
use crate::opcode::TargetOpcode;
use crate::scsi::{Lun, Status};
use crate::scsi_response::Residual;
use crate::serial::{CmdSn, DataSn, StatSn};
use crate::tag::{Itt, Ttt};

const PDU: &str = "SCSI Data-In";

const ACKNOWLEDGE: u8 = 0x40;
const OVERFLOW: u8 = 0x04;
const UNDERFLOW: u8 = 0x02;
const STATUS: u8 = 0x01;

const STATUS_CODE: usize = 3;
const BUFFER_OFFSET: usize = 40;
const RESIDUAL_COUNT: usize = 44;

/// Data from the target (RFC 7143 §11.7); the last PDU may also carry the status of its command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DataIn {
    /// F: the last PDU of its sequence; not necessarily the last one of the task.
    pub is_final: bool,
    /// A: the target requests a DataACK; has no meaning at ErrorRecoveryLevel 0.
    pub acknowledge: bool,
    /// S: the status of the command, if this PDU ends the command.
    pub status: Option<DataInStatus>,
    /// LUN for a DataACK; reserved otherwise.
    pub lun: Lun,
    /// Initiator task tag of the command.
    pub itt: Itt,
    /// Target transfer tag for a DataACK; `None` otherwise.
    pub ttt: Option<Ttt>,
    /// ExpCmdSN: the next CmdSN that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN: the last CmdSN that the target accepts.
    pub max_cmd_sn: CmdSn,
    /// DataSN: the PDU's number in its task, from zero; Data-Ins and R2Ts share one counter.
    pub data_sn: DataSn,
    /// Offset of the data in the transfer, bytes.
    pub buffer_offset: u32,
}

/// The status of a command, in a Data-In with the S bit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DataInStatus {
    /// StatSN: the number that the status consumes.
    pub stat_sn: StatSn,
    /// The SCSI status.
    pub status: Status,
    /// The bytes that were left over or missing in the transfer.
    pub residual: Residual,
}

impl DataIn {
    /// Returns the header; its DataSegmentLength is zero until framing sets it.
    pub fn encode(&self) -> Bhs {
        let mut bhs = Bhs::with_opcode(TargetOpcode::DataIn as u8, false);
        let mut flags = flag(self.is_final, FINAL) | flag(self.acknowledge, ACKNOWLEDGE);
        bhs.put_lun(self.lun);
        bhs.put_itt(Some(self.itt));
        bhs.put_ttt(self.ttt);
        bhs.put_window(self.exp_cmd_sn, self.max_cmd_sn);
        bhs.put_data_sn(self.data_sn);
        bhs.put_u32(BUFFER_OFFSET, self.buffer_offset);
        if let Some(end) = &self.status {
            flags |= STATUS | end.residual.flags(OVERFLOW, UNDERFLOW);
            bhs.put_u8(STATUS_CODE, end.status.0);
            bhs.put_stat_sn(end.stat_sn);
            bhs.put_u32(RESIDUAL_COUNT, end.residual.count());
        }
        bhs.put_flags(flags);
        bhs
    }

    /// Reads a header. Without S, the fields for status, residual and StatSN are ignored.
    ///
    /// # Errors
    /// When the Initiator Task Tag is the reserved one, S is set without F, or O and U are both set.
    pub fn decode(bhs: &Bhs) -> Result<Self, DecodeError> {
        let status = if bhs.has_flag(STATUS) { Some(DataInStatus::decode(bhs)?) } else { None };
        Ok(Self {
            is_final: bhs.has_flag(FINAL),
            acknowledge: bhs.has_flag(ACKNOWLEDGE),
            status,
            lun: bhs.lun(),
            itt: bhs.task_itt(PDU)?,
            ttt: bhs.ttt(),
            exp_cmd_sn: bhs.exp_cmd_sn(),
            max_cmd_sn: bhs.max_cmd_sn(),
            data_sn: bhs.data_sn(),
            buffer_offset: bhs.u32_at(BUFFER_OFFSET),
        })
    }
}

impl DataInStatus {
    fn decode(bhs: &Bhs) -> Result<Self, DecodeError> {
        if !bhs.has_flag(FINAL) {
            let value = bhs.flags().into();
            return Err(DecodeError::Field { pdu: PDU, field: "S without F", value });
        }
        Ok(Self {
            stat_sn: bhs.stat_sn(),
            status: Status(bhs.u8_at(STATUS_CODE)),
            residual: Residual::decode(bhs, PDU, OVERFLOW, UNDERFLOW, RESIDUAL_COUNT)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(flags: u8) -> Result<DataIn, DecodeError> {
        let mut bhs = Bhs::with_opcode(0x25, false);
        bhs.put_flags(flags);
        bhs.put_u8(STATUS_CODE, 0x08);
        bhs.put_u32(RESIDUAL_COUNT, 9);
        DataIn::decode(&bhs)
    }

    #[test]
    fn rd_01_status_ends_the_data() {
        let status =
            |residual| DataInStatus { stat_sn: StatSn::new(0), status: Status::BUSY, residual };
        let end = |flags| decode(flags).unwrap().status;
        assert_eq!(end(0x81), Some(status(Residual::None)));
        assert_eq!(end(0x83), Some(status(Residual::Underflow(9))));
        assert_eq!(end(0x85), Some(status(Residual::Overflow(9))));
        for contradiction in [0x01, 0x87] {
            assert!(decode(contradiction).is_err(), "{contradiction:#x}");
        }
    }

    #[test]
    fn rd_02_without_s_the_status_is_not_read() {
        for flags in [0x00, 0x80, 0x86] {
            assert_eq!(decode(flags).unwrap().status, None, "{flags:#x}");
        }
    }

    #[test]
    fn lay_07_final_and_acknowledge() {
        let flags = |flags| decode(flags).map(|data| (data.is_final, data.acknowledge));
        assert_eq!([flags(0x80), flags(0x40)], [Ok((true, false)), Ok((false, true))]);
    }
}
