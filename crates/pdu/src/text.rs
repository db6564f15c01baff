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

/// Key=value pairs from the initiator in full feature phase (RFC 7143 §11.10); the text is the data
/// segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TextRequest {
    /// I: consumes no CmdSN.
    pub immediate: bool,
    /// F: the initiator has nothing more to send.
    pub is_final: bool,
    /// C: the text goes on in the next request.
    pub is_continued: bool,
    /// Copied from the response that this continues, zero otherwise.
    pub lun: Lun,
    /// The initiator task tag: one for all requests of an exchange.
    pub itt: Itt,
    /// Copied from the response that this continues.
    pub ttt: Option<Ttt>,
    /// CmdSN; used up unless immediate.
    pub cmd_sn: CmdSn,
    /// The next StatSN expected on the connection.
    pub exp_stat_sn: StatSn,
}

impl TextRequest {
    /// The header; its DataSegmentLength is zero until framing sets it.
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

/// Key=value pairs from the target in full feature phase (RFC 7143 §11.11).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TextResponse {
    /// F: the exchange is complete.
    pub is_final: bool,
    /// C: the text goes on in the next response.
    pub is_continued: bool,
    /// To be copied into the request that continues.
    pub lun: Lun,
    /// The tag of the requests.
    pub itt: Itt,
    /// To be copied into the request that continues; absent if no further request is due.
    pub ttt: Option<Ttt>,
    /// The number that the response uses up.
    pub stat_sn: StatSn,
    /// The next CmdSN the target expects.
    pub exp_cmd_sn: CmdSn,
    /// The last CmdSN the target accepts.
    pub max_cmd_sn: CmdSn,
}

impl TextResponse {
    /// The header; its DataSegmentLength is zero until framing sets it.
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
