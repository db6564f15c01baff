//! Fields that most PDUs have at the same offset (RFC 7143 §11.2.1).

use crate::tag::RESERVED_TAG;
use crate::{Bhs, CmdSn, DataSn, DecodeError, Itt, StatSn, Ttt, scsi::Lun};

/// The F bit of byte 1. RFC 7143 requires it to be 1 even in PDUs in which it has no meaning.
pub(crate) const FINAL: u8 = 0x80;
/// The C bit of byte 1 in Login and Text PDUs: the text continues in the next PDU.
pub(crate) const CONTINUE: u8 = 0x40;

/// Returns `mask` if the flag is set, otherwise 0.
pub(crate) const fn flag(is_up: bool, mask: u8) -> u8 {
    if is_up { mask } else { 0 }
}

const FLAGS: usize = 1;
const LUN: usize = 8;
const ITT: usize = 16;
const TTT: usize = 20;
/// Offset of CmdSN in PDUs of an initiator.
const CMD_SN: usize = 24;
/// Offset of StatSN in PDUs of a target.
const STAT_SN: usize = 24;
/// Offset of ExpStatSN in PDUs of an initiator.
const EXP_STAT_SN: usize = 28;
/// Offset of ExpCmdSN in PDUs of a target.
const EXP_CMD_SN: usize = 28;
const MAX_CMD_SN: usize = 32;
const DATA_SN: usize = 36;

impl Bhs {
    pub(crate) const fn flags(&self) -> u8 {
        self.u8_at(FLAGS)
    }

    pub(crate) const fn has_flag(&self, mask: u8) -> bool {
        self.flags() & mask != 0
    }

    pub(crate) fn put_flags(&mut self, flags: u8) {
        self.put(FLAGS, &[flags]);
    }

    pub(crate) fn put_u16(&mut self, at: usize, value: u16) {
        self.put(at, &value.to_be_bytes());
    }

    pub(crate) fn put_u32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_be_bytes());
    }

    pub(crate) fn lun(&self) -> Lun {
        Lun::from_bytes(self.array_at(LUN))
    }

    pub(crate) fn put_lun(&mut self, lun: Lun) {
        self.put(LUN, &lun.to_bytes());
    }

    pub(crate) const fn itt(&self) -> Option<Itt> {
        Itt::new(self.u32_at(ITT))
    }

    /// Returns the Initiator Task Tag of a PDU that belongs to a task.
    pub(crate) fn task_itt(&self, pdu: &'static str) -> Result<Itt, DecodeError> {
        self.itt().ok_or_else(|| reserved_tag(pdu, "Initiator Task Tag"))
    }

    pub(crate) fn put_itt(&mut self, itt: Option<Itt>) {
        self.put_u32(ITT, Itt::to_wire(itt));
    }

    pub(crate) const fn ttt(&self) -> Option<Ttt> {
        Ttt::new(self.u32_at(TTT))
    }

    pub(crate) fn put_ttt(&mut self, ttt: Option<Ttt>) {
        self.put_u32(TTT, Ttt::to_wire(ttt));
    }

    pub(crate) const fn cmd_sn(&self) -> CmdSn {
        CmdSn::new(self.u32_at(CMD_SN))
    }

    pub(crate) const fn exp_stat_sn(&self) -> StatSn {
        StatSn::new(self.u32_at(EXP_STAT_SN))
    }

    /// Writes CmdSN and ExpStatSN, which every numbered request has.
    pub(crate) fn put_request_numbers(&mut self, cmd_sn: CmdSn, exp_stat_sn: StatSn) {
        self.put_u32(CMD_SN, cmd_sn.get());
        self.put_exp_stat_sn(exp_stat_sn);
    }

    pub(crate) fn put_exp_stat_sn(&mut self, exp_stat_sn: StatSn) {
        self.put_u32(EXP_STAT_SN, exp_stat_sn.get());
    }

    pub(crate) const fn stat_sn(&self) -> StatSn {
        StatSn::new(self.u32_at(STAT_SN))
    }

    pub(crate) fn put_stat_sn(&mut self, stat_sn: StatSn) {
        self.put_u32(STAT_SN, stat_sn.get());
    }

    pub(crate) const fn exp_cmd_sn(&self) -> CmdSn {
        CmdSn::new(self.u32_at(EXP_CMD_SN))
    }

    pub(crate) const fn max_cmd_sn(&self) -> CmdSn {
        CmdSn::new(self.u32_at(MAX_CMD_SN))
    }

    /// Writes ExpCmdSN and MaxCmdSN, which every PDU of a target has.
    pub(crate) fn put_window(&mut self, exp_cmd_sn: CmdSn, max_cmd_sn: CmdSn) {
        self.put_u32(EXP_CMD_SN, exp_cmd_sn.get());
        self.put_u32(MAX_CMD_SN, max_cmd_sn.get());
    }

    /// Writes StatSN, ExpCmdSN and MaxCmdSN, which every response that consumes a StatSN has.
    pub(crate) fn put_response_numbers(&mut self, stat_sn: StatSn, exp: CmdSn, max: CmdSn) {
        self.put_stat_sn(stat_sn);
        self.put_window(exp, max);
    }

    pub(crate) const fn data_sn(&self) -> DataSn {
        DataSn::new(self.u32_at(DATA_SN))
    }

    pub(crate) fn put_data_sn(&mut self, data_sn: DataSn) {
        self.put_u32(DATA_SN, data_sn.get());
    }
}

/// Returns the error for a tag of 0xffffffff in a field that must have a valid tag.
pub(crate) const fn reserved_tag(pdu: &'static str, field: &'static str) -> DecodeError {
    DecodeError::Field { pdu, field, value: RESERVED_TAG as u64 }
}
