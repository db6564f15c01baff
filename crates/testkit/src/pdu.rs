//! A PDU as bytes, with getters and setters of its fields by offset (RFC 7143 §11).

use std::fmt;

use bytes::Bytes;

use crate::opcode::Opcode;

/// The reserved tag: it means "none" wherever the standard has a tag.
pub const NO_TAG: u32 = 0xffff_ffff;

/// Length of the basic header segment.
pub const HEADER_LENGTH: usize = 48;

/// Byte 1, bit 7: F, or T of a login PDU.
pub const FINAL: u8 = 0x80;

/// Byte 1, bit 6 of login and text PDUs: the text continues in the next PDU.
pub const CONTINUE: u8 = 0x40;

/// One PDU: the 48 bytes of its header, its additional headers and its data, without digests.
#[derive(Clone, PartialEq, Eq)]
pub struct Pdu {
    /// The basic header segment. The two length fields are filled in when the PDU is framed.
    pub header: [u8; HEADER_LENGTH],
    /// Additional header segments, padded to four bytes each.
    pub ahs: Bytes,
    /// The data segment without its padding.
    pub data: Bytes,
    /// The byte that pads the data. In a received PDU it is the bitwise OR of all padding bytes.
    pub pad: u8,
}

impl Pdu {
    /// Creates an empty PDU with F set (byte 1 = 80h), which nearly all PDUs have.
    #[must_use]
    pub fn new(opcode: Opcode) -> Self {
        let mut header = [0; HEADER_LENGTH];
        header[0] = opcode as u8;
        header[1] = FINAL;
        Self { header, ahs: Bytes::new(), data: Bytes::new(), pad: 0 }
    }

    /// Returns the operation; `None` for an unassigned code.
    #[must_use]
    pub fn opcode(&self) -> Option<Opcode> {
        Opcode::of(self.header[0])
    }

    /// Returns whether the PDU has this operation code.
    #[must_use]
    pub fn is(&self, opcode: Opcode) -> bool {
        self.header[0] & 0x3f == opcode as u8
    }

    /// Returns the I bit: deliver the PDU immediately, outside the command order.
    #[must_use]
    pub const fn immediate(&self) -> bool {
        self.header[0] & 0x40 != 0
    }

    /// Returns whether a command has the task attribute SIMPLE (RFC 7143 §11.3.1).
    pub(crate) const fn has_simple_attribute(&self) -> bool {
        self.header[1] & 0x07 == 1
    }

    /// Returns whether any of the bits of `mask` is set in byte 1.
    #[must_use]
    pub const fn flag(&self, mask: u8) -> bool {
        self.header[1] & mask != 0
    }

    /// Returns the F bit, or T of a login PDU.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        self.flag(FINAL)
    }

    /// Returns the C bit of a login or text PDU.
    #[must_use]
    pub const fn continues(&self) -> bool {
        self.flag(CONTINUE)
    }

    /// Returns one byte of the header; 0 outside of it.
    #[must_use]
    pub fn u8_at(&self, at: usize) -> u8 {
        self.header.get(at).copied().unwrap_or(0)
    }

    /// Returns two bytes of the header, big-endian.
    #[must_use]
    pub fn u16_at(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.u8_at(at), self.u8_at(at + 1)])
    }

    /// Returns four bytes of the header, big-endian.
    #[must_use]
    pub fn u32_at(&self, at: usize) -> u32 {
        u32::from(self.u16_at(at)) << 16 | u32::from(self.u16_at(at + 2))
    }

    /// Returns eight bytes of the header, big-endian.
    #[must_use]
    pub fn u64_at(&self, at: usize) -> u64 {
        u64::from(self.u32_at(at)) << 32 | u64::from(self.u32_at(at + 4))
    }

    /// Overwrites bytes of the header from `at`. Bytes beyond the header are ignored.
    pub fn set(&mut self, at: usize, bytes: &[u8]) {
        for (slot, byte) in self.header.iter_mut().skip(at).zip(bytes) {
            *slot = *byte;
        }
    }

    /// Overwrites four bytes of the header, big-endian.
    pub fn set_u32(&mut self, at: usize, value: u32) {
        self.set(at, &value.to_be_bytes());
    }
}

/// Getters of header fields: meaning, name, width, offset.
macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident: $read:ident($at:expr) -> $type:ty;)*) => {
        impl Pdu {
            $($(#[$doc])* #[must_use] pub fn $name(&self) -> $type { self.$read($at) })*
        }
    };
}

fields! {
    /// The LUN field: all eight bytes (SAM-5 §4.7).
    lun: u64_at(8) -> u64;
    /// Initiator task tag.
    itt: u32_at(16) -> u32;
    /// Target transfer tag; in a SCSI response the SNACK tag.
    ttt: u32_at(20) -> u32;
    /// Expected data transfer length of a SCSI command, in bytes.
    edtl: u32_at(20) -> u32;
    /// Referenced task tag of a task management request.
    referenced_tag: u32_at(20) -> u32;
    /// `CmdSN` of a request.
    cmd_sn: u32_at(24) -> u32;
    /// `StatSN` of a response.
    stat_sn: u32_at(24) -> u32;
    /// `ExpStatSN` of a request.
    exp_stat_sn: u32_at(28) -> u32;
    /// `ExpCmdSN` of a response.
    exp_cmd_sn: u32_at(28) -> u32;
    /// `MaxCmdSN` of a response.
    max_cmd_sn: u32_at(32) -> u32;
    /// `RefCmdSN` of a task management request.
    ref_cmd_sn: u32_at(32) -> u32;
    /// `DataSN`; `R2TSN` of an R2T.
    data_sn: u32_at(36) -> u32;
    /// `ExpDataSN` of a SCSI response or a task management request.
    exp_data_sn: u32_at(36) -> u32;
    /// Buffer offset of Data-In, Data-Out and R2T, in bytes.
    buffer_offset: u32_at(40) -> u32;
    /// Desired data transfer length of an R2T, in bytes.
    desired_length: u32_at(44) -> u32;
    /// Residual count of Data-In and SCSI response, in bytes.
    residual: u32_at(44) -> u32;
    /// Response code of SCSI, task management and logout responses.
    response: u8_at(2) -> u8;
    /// Reason of a Reject.
    reason: u8_at(2) -> u8;
    /// SCSI status.
    status: u8_at(3) -> u8;
    /// Session identifier handle of a login PDU.
    tsih: u16_at(14) -> u16;
    /// Connection identifier of a login or logout request.
    cid: u16_at(20) -> u16;
    /// Status-Class (high byte) and Status-Detail (low byte) of a login response.
    login_status: u16_at(36) -> u16;
    /// First `DataSN`, `R2TSN` or `StatSN` that a SNACK requests.
    begin_run: u32_at(40) -> u32;
    /// The number of PDUs that a SNACK requests.
    run_length: u32_at(44) -> u32;
    /// Event code of an asynchronous message.
    event: u8_at(36) -> u8;
}

impl Pdu {
    /// Returns the ISID of a login PDU, in the low six bytes.
    #[must_use]
    pub fn isid(&self) -> u64 {
        self.u64_at(8) >> 16
    }

    /// Returns the current stage of a login PDU: 0 security, 1 operational, 3 full feature.
    #[must_use]
    pub const fn csg(&self) -> u8 {
        self.header[1] >> 2 & 3
    }

    /// Returns the next stage of a login PDU, meaningful with T.
    #[must_use]
    pub const fn nsg(&self) -> u8 {
        self.header[1] & 3
    }

    /// Returns the function of a task management request, the reason of a logout, or the type of a SNACK.
    #[must_use]
    pub const fn function(&self) -> u8 {
        self.header[1] & 0x7f
    }

    /// Returns the command descriptor block; the bytes after the first 16 are in the additional header.
    #[must_use]
    pub fn cdb(&self) -> [u8; 16] {
        let mut cdb = [0; 16];
        cdb.copy_from_slice(&self.header[32..]);
        cdb
    }

    /// Returns R of a SCSI command: read data are expected.
    #[must_use]
    pub const fn reads(&self) -> bool {
        self.flag(0x40)
    }

    /// Returns W of a SCSI command: write data are expected.
    #[must_use]
    pub const fn writes(&self) -> bool {
        self.flag(0x20)
    }

    /// Returns whether this PDU of the target consumes a `StatSN` (RFC 7143 §4.2.2.2).
    #[must_use]
    pub fn uses_stat_sn(&self) -> bool {
        match self.opcode() {
            Some(Opcode::R2t) | None => false,
            Some(Opcode::NopIn) => self.itt() != NO_TAG,
            Some(Opcode::DataIn) => self.has_status(),
            Some(opcode) => !opcode.is_from_initiator(),
        }
    }

    /// Returns S of a Data-In: whether the PDU carries the status of the command.
    #[must_use]
    pub const fn has_status(&self) -> bool {
        self.flag(0x01)
    }
}

impl fmt::Debug for Pdu {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.opcode() {
            Some(opcode) => write!(out, "{opcode:?}")?,
            None => write!(out, "opcode {:02x}", self.header[0] & 0x3f)?,
        }
        write!(out, " [")?;
        for (at, word) in self.header.chunks_exact(4).enumerate() {
            let gap = if at == 0 { "" } else { " " };
            write!(out, "{gap}{:02x}{:02x}{:02x}{:02x}", word[0], word[1], word[2], word[3])?;
        }
        write!(out, "] ahs {} data {}", self.ahs.len(), self.data.len())
    }
}
