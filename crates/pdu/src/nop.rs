//! NOP-Out and NOP-In: pings in both directions (RFC 7143 §11.18, §11.19).

use crate::common_fields::FINAL;
use crate::{Bhs, CmdSn, DecodeError, InitiatorOpcode, Itt, StatSn, TargetOpcode, Ttt, scsi::Lun};

const NOP_OUT: &str = "NOP-Out";
const NOP_IN: &str = "NOP-In";

/// NOP-Out: a ping, the response to a ping, or an acknowledgement (RFC 7143 §11.18).
///
/// | `itt` | `ttt` | Meaning |
/// |---|---|---|
/// | some | `None` | a ping: the target responds and returns the data |
/// | `None` | some | the response to the target's ping with that tag |
/// | `None` | `None` | only ExpStatSN has a meaning; there is no response |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NopOut {
    /// I: the PDU is delivered immediately, outside the order of commands. Without an `itt` the bit
    /// must be set (RFC 7143 §11.18.1).
    pub immediate: bool,
    /// The LUN of the target's ping, in a response to it; otherwise zero.
    pub lun: Lun,
    /// Initiator task tag of a ping of the initiator.
    pub itt: Option<Itt>,
    /// Target transfer tag of the target's ping, in a response to it.
    pub ttt: Option<Ttt>,
    /// CmdSN: the number of this request, or of the next one if this request is immediate.
    pub cmd_sn: CmdSn,
    /// ExpStatSN: the next StatSN that the initiator expects on the connection.
    pub exp_stat_sn: StatSn,
}

impl NopOut {
    /// Returns the header as it is sent, without the length of the data segment.
    pub fn encode(&self) -> Bhs {
        let mut bhs = Bhs::with_opcode(InitiatorOpcode::NopOut as u8, self.immediate);
        bhs.put_flags(FINAL);
        bhs.put_lun(self.lun);
        bhs.put_itt(self.itt);
        bhs.put_ttt(self.ttt);
        bhs.put_request_numbers(self.cmd_sn, self.exp_stat_sn);
        bhs
    }

    /// Reads a header whose opcode is NOP-Out.
    ///
    /// # Errors
    /// [`DecodeError::Field`] when both tags are valid: the PDU would be both a ping and a response.
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

/// NOP-In: the response to a ping, a ping of the target, or a report of its sequence numbers (RFC 7143
/// §11.19).
///
/// | `itt` | `ttt` | Meaning |
/// |---|---|---|
/// | some | `None` | the response to the initiator's ping; consumes a StatSN |
/// | `None` | some | a ping: the response has its tag and its LUN |
/// | `None` | `None` | only the sequence numbers have a meaning; no response is due |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NopIn {
    /// The LUN that the response to a ping of the target must have.
    pub lun: Lun,
    /// Initiator task tag of the ping to which this is the response.
    pub itt: Option<Itt>,
    /// Target transfer tag of a ping of the target.
    pub ttt: Option<Ttt>,
    /// StatSN: the number of this status; without an `itt` the number of the *next* status (RFC 7143
    /// §11.19.2).
    pub stat_sn: StatSn,
    /// ExpCmdSN: the next CmdSN that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN: the last CmdSN that the target accepts.
    pub max_cmd_sn: CmdSn,
}

impl NopIn {
    /// Returns the header as it is sent, without the length of the data segment.
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

    /// Reads a header whose opcode is NOP-In.
    ///
    /// # Errors
    /// [`DecodeError::Field`] when both tags are valid: the PDU would be both a ping and a response.
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

    /// NOP-05: a NOP-Out or NOP-In with two valid tags is an error.
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
