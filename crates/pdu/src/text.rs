//! Text Request and Text Response (RFC 7143 §11.10-11.11).

use crate::bhs::Bhs;
use crate::common_fields::{CONTINUE, FINAL, flag};
use crate::error::DecodeError;
use crate::opcode::{InitiatorOpcode, TargetOpcode};
use crate::scsi::Lun;
use crate::serial::{CmdSn, StatSn};
use crate::tag::{Itt, Ttt};

const REQUEST: &str = "Text Request";
const RESPONSE: &str = "Text Response";

const fn flags(is_final: bool, is_continued: bool) -> u8 {
    flag(is_final, FINAL) | flag(is_continued, CONTINUE)
}

/// Text Request: key=value pairs from the initiator in full feature phase (RFC 7143 §11.10). The text is the
/// data segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TextRequest {
    /// I: consumes no CmdSN.
    pub immediate: bool,
    /// F: the initiator has nothing more to send.
    pub is_final: bool,
    /// C: the text continues in the next request.
    pub is_continued: bool,
    /// LUN, copied from the response that this request continues; zero otherwise.
    pub lun: Lun,
    /// Initiator task tag, which all requests of an exchange share.
    pub itt: Itt,
    /// Target transfer tag, copied from the response that this request continues.
    pub ttt: Option<Ttt>,
    /// CmdSN: consumed unless the request is immediate.
    pub cmd_sn: CmdSn,
    /// ExpStatSN: the next StatSN that the initiator expects on the connection.
    pub exp_stat_sn: StatSn,
}

impl TextRequest {
    /// Returns the header; its DataSegmentLength is zero until framing sets it.
    pub fn encode(&self) -> Bhs {
        let mut bhs = Bhs::with_opcode(InitiatorOpcode::TextRequest as u8, self.immediate);
        bhs.put_flags(flags(self.is_final, self.is_continued));
        bhs.put_lun(self.lun);
        bhs.put_itt(Some(self.itt));
        bhs.put_ttt(self.ttt);
        bhs.put_request_numbers(self.cmd_sn, self.exp_stat_sn);
        bhs
    }

    /// Reads a header.
    ///
    /// # Errors
    /// When the Initiator Task Tag is the reserved one.
    pub fn decode(bhs: &Bhs) -> Result<Self, DecodeError> {
        Ok(Self {
            immediate: bhs.immediate(),
            is_final: bhs.has_flag(FINAL),
            is_continued: bhs.has_flag(CONTINUE),
            lun: bhs.lun(),
            itt: bhs.task_itt(REQUEST)?,
            ttt: bhs.ttt(),
            cmd_sn: bhs.cmd_sn(),
            exp_stat_sn: bhs.exp_stat_sn(),
        })
    }
}

/// Text Response: key=value pairs from the target in full feature phase (RFC 7143 §11.11).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TextResponse {
    /// F: the exchange is complete.
    pub is_final: bool,
    /// C: the text continues in the next response.
    pub is_continued: bool,
    /// LUN, which the next request must copy.
    pub lun: Lun,
    /// Initiator task tag of the requests.
    pub itt: Itt,
    /// Target transfer tag, which the next request must copy; absent if no further request is due.
    pub ttt: Option<Ttt>,
    /// StatSN: the number that the response consumes.
    pub stat_sn: StatSn,
    /// ExpCmdSN: the next CmdSN that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN: the last CmdSN that the target accepts.
    pub max_cmd_sn: CmdSn,
}

impl TextResponse {
    /// Returns the header; its DataSegmentLength is zero until framing sets it.
    pub fn encode(&self) -> Bhs {
        let mut bhs = Bhs::with_opcode(TargetOpcode::TextResponse as u8, false);
        bhs.put_flags(flags(self.is_final, self.is_continued));
        bhs.put_lun(self.lun);
        bhs.put_itt(Some(self.itt));
        bhs.put_ttt(self.ttt);
        bhs.put_response_numbers(self.stat_sn, self.exp_cmd_sn, self.max_cmd_sn);
        bhs
    }

    /// Reads a header.
    ///
    /// # Errors
    /// When the Initiator Task Tag is the reserved one.
    pub fn decode(bhs: &Bhs) -> Result<Self, DecodeError> {
        Ok(Self {
            is_final: bhs.has_flag(FINAL),
            is_continued: bhs.has_flag(CONTINUE),
            lun: bhs.lun(),
            itt: bhs.task_itt(RESPONSE)?,
            ttt: bhs.ttt(),
            stat_sn: bhs.stat_sn(),
            exp_cmd_sn: bhs.exp_cmd_sn(),
            max_cmd_sn: bhs.max_cmd_sn(),
        })
    }
}
