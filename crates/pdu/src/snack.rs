//! SNACK Request: requests lost PDUs again, or acknowledges data (RFC 7143 §11.16).

use crate::common_fields::FINAL;
use crate::{Bhs, DecodeError, InitiatorOpcode, Itt, StatSn, scsi::Lun};

const PDU: &str = "SNACK Request";

const KIND: u8 = 0x0f;
const TAG: usize = 20;
const BEG_RUN: usize = 40;
const RUN_LENGTH: usize = 44;

/// Kinds of SNACK (RFC 7143 §11.16.1).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum SnackKind {
    /// Requests Data-In or R2T PDUs of a task, as they were sent the first time.
    DataOrR2t = 0,
    /// Requests status PDUs of the connection.
    Status = 1,
    /// Requests no PDU: acknowledges the data before `beg_run`.
    DataAck = 2,
    /// Requests Data-In PDUs of a task, which the target may split differently.
    RData = 3,
}

impl SnackKind {
    fn decode(bhs: &Bhs) -> Result<Self, DecodeError> {
        Ok(match bhs.flags() & KIND {
            0 => Self::DataOrR2t,
            1 => Self::Status,
            2 => Self::DataAck,
            3 => Self::RData,
            code => {
                return Err(DecodeError::Field { pdu: PDU, field: "Type", value: code.into() });
            }
        })
    }
}

/// SNACK Request, used above error recovery level 0 only (RFC 7143 §11.16).
///
/// It has no CmdSN. The comment of each field says for which kinds the field is reserved.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SnackRequest {
    /// The kind of SNACK.
    pub kind: SnackKind,
    /// The LUN of the Data-In that is acknowledged; [`SnackKind::DataAck`] only, otherwise zero.
    pub lun: Lun,
    /// Initiator task tag; `None` for [`SnackKind::Status`] and [`SnackKind::DataAck`].
    pub itt: Option<Itt>,
    /// The Target Transfer Tag of the Data-In for [`SnackKind::DataAck`], a separate tag for
    /// [`SnackKind::RData`], otherwise 0xffffffff (RFC 7143 §11.16.3).
    pub tag: u32,
    /// ExpStatSN: the next StatSN that the initiator expects on the connection.
    pub exp_stat_sn: StatSn,
    /// The DataSN, R2TSN or StatSN of the first requested PDU. For [`SnackKind::DataAck`] the DataSN of the
    /// first PDU that did *not* arrive; for [`SnackKind::RData`] 0 (RFC 7143 §11.16.4).
    pub beg_run: u32,
    /// The number of requested PDUs; 0 requests all that were not acknowledged (RFC 7143 §11.16.5).
    pub run_length: u32,
}

impl SnackRequest {
    /// Returns the header as it is sent; a SNACK Request has no data segment.
    pub fn encode(&self) -> Bhs {
        let mut bhs = Bhs::with_opcode(InitiatorOpcode::SnackRequest as u8, false);
        bhs.put_flags(FINAL | self.kind as u8);
        bhs.put_lun(self.lun);
        bhs.put_itt(self.itt);
        bhs.put_u32(TAG, self.tag);
        bhs.put_exp_stat_sn(self.exp_stat_sn);
        bhs.put_u32(BEG_RUN, self.beg_run);
        bhs.put_u32(RUN_LENGTH, self.run_length);
        bhs
    }

    /// Reads a header whose opcode is SNACK Request.
    ///
    /// # Errors
    /// [`DecodeError::Field`] for a reserved type.
    pub fn decode(bhs: &Bhs) -> Result<Self, DecodeError> {
        Ok(Self {
            kind: SnackKind::decode(bhs)?,
            lun: bhs.lun(),
            itt: bhs.itt(),
            tag: bhs.u32_at(TAG),
            exp_stat_sn: bhs.exp_stat_sn(),
            beg_run: bhs.u32_at(BEG_RUN),
            run_length: bhs.u32_at(RUN_LENGTH),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_is_the_low_half_of_byte_1() {
        let mut bhs = Bhs::with_opcode(0x10, false);
        for (byte, kind) in [(0x83, SnackKind::RData), (0xf2, SnackKind::DataAck)] {
            bhs.put_flags(byte);
            assert_eq!(SnackRequest::decode(&bhs).map(|snack| snack.kind), Ok(kind));
        }
        bhs.put_flags(0x84);
        let error = DecodeError::Field { pdu: PDU, field: "Type", value: 4 };
        assert_eq!(SnackRequest::decode(&bhs), Err(error));
    }
}
