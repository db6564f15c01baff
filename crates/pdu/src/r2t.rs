//! Ready To Transfer (RFC 7143 §11.8).

use std::num::NonZeroU32;

use crate::common_fields::{FINAL, reserved_tag};
use crate::{Bhs, CmdSn, DecodeError, Itt, R2tSn, StatSn, TargetOpcode, Ttt, scsi::Lun};

const PDU: &str = "Ready To Transfer";

const R2T_SN: usize = 36;
const BUFFER_OFFSET: usize = 40;
const DESIRED_LENGTH: usize = 44;

/// Ready To Transfer: the target requests a range of a write's data (RFC 7143 §11.8).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct R2t {
    /// The logical unit of the command; every Data-Out of the sequence repeats it.
    pub lun: Lun,
    /// Initiator task tag of the write.
    pub itt: Itt,
    /// Target transfer tag of this R2T; every Data-Out of the sequence repeats it (RFC 7143 §11.7.4).
    pub ttt: Ttt,
    /// The StatSN of the *next* status; an R2T consumes none (RFC 7143 §11.8.2).
    pub stat_sn: StatSn,
    /// ExpCmdSN: the next CmdSN that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN: the last CmdSN that the target accepts.
    pub max_cmd_sn: CmdSn,
    /// R2TSN: the number of this R2T in its task, from 0 (RFC 7143 §11.8.3).
    pub r2t_sn: R2tSn,
    /// Offset of the range in the write's data, bytes (RFC 7143 §11.8.4).
    pub buffer_offset: u32,
    /// The length of the range, bytes: 1 to MaxBurstLength (RFC 7143 §11.8.4).
    pub desired_data_transfer_length: NonZeroU32,
}

impl R2t {
    /// Returns the header as it is sent; an R2T has no data segment.
    pub fn encode(&self) -> Bhs {
        let mut bhs = Bhs::with_opcode(TargetOpcode::R2t as u8, false);
        bhs.put_flags(FINAL);
        bhs.put_lun(self.lun);
        bhs.put_itt(Some(self.itt));
        bhs.put_ttt(Some(self.ttt));
        bhs.put_stat_sn(self.stat_sn);
        bhs.put_window(self.exp_cmd_sn, self.max_cmd_sn);
        bhs.put_u32(R2T_SN, self.r2t_sn.get());
        bhs.put_u32(BUFFER_OFFSET, self.buffer_offset);
        bhs.put_u32(DESIRED_LENGTH, self.desired_data_transfer_length.get());
        bhs
    }

    /// Reads a header whose opcode is R2T.
    ///
    /// # Errors
    /// [`DecodeError::Field`] for a reserved tag, and for a length of zero, which the standard forbids.
    pub fn decode(bhs: &Bhs) -> Result<Self, DecodeError> {
        Ok(Self {
            lun: bhs.lun(),
            itt: bhs.task_itt(PDU)?,
            ttt: bhs.ttt().ok_or(reserved_tag(PDU, "Target Transfer Tag"))?,
            stat_sn: bhs.stat_sn(),
            exp_cmd_sn: bhs.exp_cmd_sn(),
            max_cmd_sn: bhs.max_cmd_sn(),
            r2t_sn: R2tSn::new(bhs.u32_at(R2T_SN)),
            buffer_offset: bhs.u32_at(BUFFER_OFFSET),
            desired_data_transfer_length: desired_length(bhs)?,
        })
    }
}

fn desired_length(bhs: &Bhs) -> Result<NonZeroU32, DecodeError> {
    let none = DecodeError::Field { pdu: PDU, field: "Desired Data Transfer Length", value: 0 };
    NonZeroU32::new(bhs.u32_at(DESIRED_LENGTH)).ok_or(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bhs() -> Bhs {
        let mut bhs = Bhs::with_opcode(0x31, false);
        bhs.put_u32(DESIRED_LENGTH, 1);
        bhs
    }

    #[test]
    fn zero_is_a_valid_tag() {
        let r2t = R2t::decode(&bhs()).unwrap();
        assert_eq!((r2t.itt.get(), r2t.ttt.get()), (0, 0));
    }

    #[test]
    fn reserved_tags_and_empty_ranges_are_errors() {
        for (at, value, field) in [
            (16, u32::MAX, "Initiator Task Tag"),
            (20, u32::MAX, "Target Transfer Tag"),
            (DESIRED_LENGTH, 0, "Desired Data Transfer Length"),
        ] {
            let mut bhs = bhs();
            bhs.put_u32(at, value);
            let error = DecodeError::Field { pdu: PDU, field, value: value.into() };
            assert_eq!(R2t::decode(&bhs), Err(error));
        }
    }
}
