//! NOP-Out and NOP-In: pings in both directions (RFC 7143 §11.18, §11.19).

use crate::common_fields::FINAL;
use crate::{Bhs, CmdSn, DecodeError, InitiatorOpcode, Itt, StatSn, TargetOpcode, Ttt, scsi::Lun};

const NOP_OUT: &str = "NOP-Out";
const NOP_IN: &str = "NOP-In";

/// NOP-Out: a ping, the answer to one, or an acknowledgement (RFC 7143 §11.18).
///
/// | `itt` | `ttt` | Meaning |
/// |---|---|---|
/// | some | `None` | a ping: the target answers and returns the data |
/// | `None` | some | the answer to the target's ping of that tag |
/// | `None` | `None` | only ExpStatSN counts; no answer comes |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NopOut {
    /// I: outside the order of commands. Without an `itt` it must be set (RFC 7143 §11.18.1).
    pub immediate: bool,
    /// The LUN of the ping that is answered; otherwise zero.
    pub lun: Lun,
    /// The tag of a ping of our own.
    pub itt: Option<Itt>,
    /// The tag of the target's ping that is answered.
    pub ttt: Option<Ttt>,
    /// The number of this request, or of the next one if it is immediate.
    pub cmd_sn: CmdSn,
    /// The next StatSN the initiator expects on this connection.
    pub exp_stat_sn: StatSn,
}

impl NopOut {
    /// The header as it goes on the wire, without the length of the data segment.
    pub fn encode(&self) -> Bhs {
        let mut bhs = Bhs::with_opcode(InitiatorOpcode::NopOut as u8, self.immediate);
        bhs.put_flags(FINAL);
        bhs.put_lun(self.lun);
        bhs.put_itt(self.itt);
        bhs.put_ttt(self.ttt);
        bhs.put_request_numbers(self.cmd_sn, self.exp_stat_sn);
        bhs
    }

    /// Reads a header whose opcode says it is a NOP-Out.
    ///
    /// # Errors
    /// [`DecodeError::Field`] when both tags are valid: it would be a ping and an answer.
    pub fn decode(bhs: &Bhs) -> Result<Self, DecodeError> {
        let (itt, ttt) = one_tag_at_most(NOP_OUT, bhs)?;
        Ok(Self {
            immediate: bhs.immediate(),
            lun: bhs.lun(),
            itt,
            ttt,
            cmd_sn: bhs.cmd_sn(),
            exp_stat_sn: bhs.exp_stat_sn(),
        })
    }
}

/// NOP-In: the answer to a ping, a ping of the target, or a report of its sequence numbers (RFC
/// 7143 §11.19).
///
/// | `itt` | `ttt` | Meaning |
/// |---|---|---|
/// | some | `None` | the answer to our ping; uses up a StatSN |
/// | `None` | some | a ping: answer it with the tag and the LUN |
/// | `None` | `None` | only the numbers count; no answer is due |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NopIn {
    /// To be repeated in the answer to a ping of the target.
    pub lun: Lun,
    /// The tag of the ping that is answered.
    pub itt: Option<Itt>,
    /// The tag of a ping of the target.
    pub ttt: Option<Ttt>,
    /// The number of this status; without an `itt` the number of the *next* one
    /// (RFC 7143 §11.19.2).
    pub stat_sn: StatSn,
    /// The next CmdSN the target expects.
    pub exp_cmd_sn: CmdSn,
    /// The last CmdSN the target has room for.
    pub max_cmd_sn: CmdSn,
}

impl NopIn {
    /// The header as it goes on the wire, without the length of the data segment.
    pub fn encode(&self) -> Bhs {
        let mut bhs = Bhs::with_opcode(TargetOpcode::NopIn as u8, false);
        bhs.put_flags(FINAL);
        bhs.put_lun(self.lun);
        bhs.put_itt(self.itt);
        bhs.put_ttt(self.ttt);
        bhs.put_stat_sn(self.stat_sn);
        bhs.put_window(self.exp_cmd_sn, self.max_cmd_sn);
        bhs
    }

    /// Reads a header whose opcode says it is a NOP-In.
    ///
    /// # Errors
    /// [`DecodeError::Field`] when both tags are valid: it would be a ping and an answer.
    pub fn decode(bhs: &Bhs) -> Result<Self, DecodeError> {
        let (itt, ttt) = one_tag_at_most(NOP_IN, bhs)?;
        Ok(Self {
            lun: bhs.lun(),
            itt,
            ttt,
            stat_sn: bhs.stat_sn(),
            exp_cmd_sn: bhs.exp_cmd_sn(),
            max_cmd_sn: bhs.max_cmd_sn(),
        })
    }
}

fn one_tag_at_most(
    pdu: &'static str,
    bhs: &Bhs,
) -> Result<(Option<Itt>, Option<Ttt>), DecodeError> {
    match (bhs.itt(), bhs.ttt()) {
        (Some(_), Some(ttt)) => {
            let value = ttt.get().into();
            Err(DecodeError::Field { pdu, field: "Target Transfer Tag", value })
        }
        tags => Ok(tags),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bhs(itt: u32, ttt: u32) -> Bhs {
        let mut bhs = Bhs::with_opcode(0, false);
        bhs.put_itt(Itt::new(itt));
        bhs.put_ttt(Ttt::new(ttt));
        bhs
    }

    /// NOP-05: a NOP with two valid tags has no meaning.
    #[test]
    fn nop_05_two_tags_are_an_error() {
        let error = |pdu| DecodeError::Field { pdu, field: "Target Transfer Tag", value: 5 };
        assert_eq!(NopIn::decode(&bhs(0, 5)), Err(error(NOP_IN)));
        assert_eq!(NopOut::decode(&bhs(0, 5)), Err(error(NOP_OUT)));
    }

    #[test]
    fn the_other_three_forms_are_told_apart() {
        let tags = |bhs| NopIn::decode(&bhs).map(|nop| (nop.itt, nop.ttt));
        assert_eq!(tags(bhs(u32::MAX, u32::MAX)), Ok((None, None)));
        assert_eq!(tags(bhs(u32::MAX, 0)), Ok((None, Ttt::new(0))));
        assert_eq!(tags(bhs(7, u32::MAX)), Ok((Itt::new(7), None)));
    }
}
