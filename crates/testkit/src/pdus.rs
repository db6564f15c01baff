//! Short constructors of the target's PDUs, with defaults, so that a test reads like a trace.
//!
//! [`Script::send`](crate::script::Script::send) sets `StatSN`, `ExpCmdSN` and `MaxCmdSN` if the test does
//! not set them. All other fields are zero, or the reserved value if they are tags.

use bytes::Bytes;

use crate::convert::len32;
use crate::opcode::Opcode;
use crate::pdu::{CONTINUE, FINAL, NO_TAG, Pdu};
use crate::scsi::Sense;
use crate::text::Pairs;

/// A PDU that a test is building.
#[derive(Clone, Debug)]
pub struct Template {
    pdu: Pdu,
    stat_sn: bool,
    exp_cmd_sn: bool,
    max_cmd_sn: bool,
}

/// The numbers that a template takes if the test does not set them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// StatSN: the next one of the connection.
    pub stat_sn: u32,
    /// ExpCmdSN: the next `CmdSN` that the target expects.
    pub exp_cmd_sn: u32,
    /// MaxCmdSN: the last `CmdSN` that the target accepts.
    pub max_cmd_sn: u32,
}

impl From<Pdu> for Template {
    /// Creates a template of a PDU that is sent unchanged.
    fn from(pdu: Pdu) -> Self {
        Self { pdu, stat_sn: true, exp_cmd_sn: true, max_cmd_sn: true }
    }
}

/// Setters of four bytes at an offset.
macro_rules! words {
    ($($(#[$doc:meta])* $name:ident: $at:expr;)*) => {
        impl Template {
            $($(#[$doc])* #[must_use] pub fn $name(self, value: u32) -> Self {
                self.word($at, value)
            })*
        }
    };
}

words! {
    /// Sets the initiator task tag.
    itt: 16;
    /// Sets the target transfer tag.
    ttt: 20;
    /// Sets `DataSN`.
    data_sn: 36;
    /// Sets `R2TSN`.
    r2t_sn: 36;
    /// Sets `ExpDataSN`.
    exp_data_sn: 36;
    /// Sets the buffer offset in bytes.
    buffer_offset: 40;
    /// Sets the desired data transfer length in bytes.
    desired_length: 44;
    /// Sets the residual count in bytes. [`Template::underflow`] and [`Template::overflow`] set the flags.
    residual: 44;
}

impl Template {
    /// Creates a PDU of any kind, with F set.
    #[must_use]
    pub fn new(opcode: Opcode) -> Self {
        Self { pdu: Pdu::new(opcode), stat_sn: false, exp_cmd_sn: false, max_cmd_sn: false }
    }

    /// Returns the PDU. Numbers that the test did not set are taken from `numbers`.
    #[must_use]
    pub fn build(mut self, numbers: Numbers) -> Pdu {
        let open = |set: bool, at, value| (!set).then_some((at, value));
        let fills = [
            open(self.stat_sn || !self.shows_stat_sn(), 24, numbers.stat_sn),
            open(self.exp_cmd_sn, 28, numbers.exp_cmd_sn),
            open(self.max_cmd_sn, 32, numbers.max_cmd_sn),
        ];
        for (at, value) in fills.into_iter().flatten() {
            self.pdu.set_u32(at, value);
        }
        self.pdu
    }

    /// Returns whether the PDU has a `StatSN`; the field is reserved in Data-In without status (RFC 7143
    /// §11.7).
    fn shows_stat_sn(&self) -> bool {
        !self.pdu.is(Opcode::DataIn) || self.pdu.has_status()
    }

    /// Sets `StatSN`; without this call the PDU has the next `StatSN` of the connection.
    #[must_use]
    pub fn stat_sn(self, value: u32) -> Self {
        self.word(24, value)
    }

    /// Sets `ExpCmdSN`; without this call the PDU has the correct value.
    #[must_use]
    pub fn exp_cmd_sn(self, value: u32) -> Self {
        self.word(28, value)
    }

    /// Sets `MaxCmdSN`; without this call the PDU has the correct value.
    #[must_use]
    pub fn max_cmd_sn(self, value: u32) -> Self {
        self.word(32, value)
    }

    /// Sets any four bytes of the header.
    #[must_use]
    pub fn word(mut self, at: usize, value: u32) -> Self {
        self.stat_sn |= at == 24;
        self.exp_cmd_sn |= at == 28;
        self.max_cmd_sn |= at == 32;
        self.pdu.set_u32(at, value);
        self
    }

    /// Sets any byte of the header.
    #[must_use]
    pub fn byte(mut self, at: usize, value: u8) -> Self {
        self.pdu.set(at, &[value]);
        self
    }

    /// Sets the eight bytes of the LUN field.
    #[must_use]
    pub fn lun(mut self, lun: u64) -> Self {
        self.pdu.set(8, &lun.to_be_bytes());
        self
    }

    /// Sets or clears bits of byte 1.
    #[must_use]
    pub fn flag(mut self, mask: u8, set: bool) -> Self {
        self.pdu.header[1] =
            if set { self.pdu.header[1] | mask } else { self.pdu.header[1] & !mask };
        self
    }

    /// Sets or clears the F bit, or T of a login PDU.
    #[must_use]
    pub fn last(self, last: bool) -> Self {
        self.flag(FINAL, last)
    }

    /// Sets the C bit of a login or text PDU, and clears F.
    #[must_use]
    pub fn continued(self) -> Self {
        self.flag(CONTINUE, true).flag(FINAL, false)
    }

    /// Sets the A bit of Data-In.
    #[must_use]
    pub fn acknowledge(self) -> Self {
        self.flag(0x40, true)
    }

    /// Sets the response code of a response, or the reason of a Reject.
    #[must_use]
    pub fn response(self, code: u8) -> Self {
        self.byte(2, code)
    }

    /// Sets the SCSI status, and in a Data-In also the S bit.
    #[must_use]
    pub fn status(self, status: u8) -> Self {
        let in_data = self.pdu.is(Opcode::DataIn);
        self.byte(3, status).flag(0x01, in_data)
    }

    /// Sets the residual count of an underflow (U): the number of bytes that were not needed.
    #[must_use]
    pub fn underflow(self, bytes: u32) -> Self {
        self.flag(0x02, true).residual(bytes)
    }

    /// Sets the residual count of an overflow (O): the number of bytes that did not fit.
    #[must_use]
    pub fn overflow(self, bytes: u32) -> Self {
        self.flag(0x04, true).residual(bytes)
    }

    /// Sets the data segment.
    #[must_use]
    pub fn data(mut self, data: impl Into<Bytes>) -> Self {
        self.pdu.data = data.into();
        self
    }

    /// Sets the byte that pads the data segment.
    #[must_use]
    pub fn pad(mut self, pad: u8) -> Self {
        self.pdu.pad = pad;
        self
    }

    /// Sets the data segment to key=value text.
    #[must_use]
    pub fn text(self, pairs: &[(&str, &str)]) -> Self {
        self.data(pairs.iter().copied().collect::<Pairs>().join())
    }

    /// Sets CHECK CONDITION with sense data.
    #[must_use]
    pub fn sense(self, sense: Sense) -> Self {
        self.status(crate::scsi::status::CHECK_CONDITION).data(sense.segment())
    }

    /// Sets current and next stage of a login response.
    #[must_use]
    pub fn stages(self, current: u8, next: u8) -> Self {
        let cleared = self.flag(0x0f, false);
        cleared.flag(current << 2 & 0x0c | next & 3, true)
    }

    /// Sets the ISID of a login response: the low six bytes of `isid`.
    #[must_use]
    pub fn isid(mut self, isid: u64) -> Self {
        self.pdu.set(8, &isid.to_be_bytes()[2..]);
        self
    }

    /// Sets the TSIH of a login response.
    #[must_use]
    pub fn tsih(mut self, tsih: u16) -> Self {
        self.pdu.set(14, &tsih.to_be_bytes());
        self
    }

    /// Sets Status-Class and Status-Detail of a login response.
    #[must_use]
    pub fn login_status(self, class: u8, detail: u8) -> Self {
        self.byte(36, class).byte(37, detail)
    }

    /// Sets the event code of an asynchronous message.
    #[must_use]
    pub fn event(self, code: u8) -> Self {
        self.byte(36, code)
    }

    /// Sets the three parameters of an asynchronous message.
    #[must_use]
    pub fn parameters(mut self, values: [u16; 3]) -> Self {
        for (at, value) in [38, 40, 42].into_iter().zip(values) {
            self.pdu.set(at, &value.to_be_bytes());
        }
        self
    }

    /// Sets Time2Wait and Time2Retain of a logout response, in seconds.
    #[must_use]
    pub fn times(mut self, wait: u16, retain: u16) -> Self {
        self.pdu.set(40, &wait.to_be_bytes());
        self.pdu.set(42, &retain.to_be_bytes());
        self
    }
}

/// Creates a Ready To Transfer.
#[must_use]
pub fn r2t() -> Template {
    Template::new(Opcode::R2t)
}

/// Creates a Data-In with F and without status.
#[must_use]
pub fn data_in() -> Template {
    Template::new(Opcode::DataIn).ttt(NO_TAG)
}

/// Creates a SCSI response: completed, GOOD.
#[must_use]
pub fn scsi_response() -> Template {
    Template::new(Opcode::ScsiResponse)
}

/// Creates a NOP-In that neither requests a response nor is a response.
#[must_use]
pub fn nop_in() -> Template {
    Template::new(Opcode::NopIn).itt(NO_TAG).ttt(NO_TAG)
}

/// Creates a login response: T=1, operational to full feature, success.
#[must_use]
pub fn login_response() -> Template {
    Template::new(Opcode::LoginResponse).stages(1, 3)
}

/// Creates a final text response.
#[must_use]
pub fn text_response() -> Template {
    Template::new(Opcode::TextResponse).ttt(NO_TAG)
}

/// Creates a task management response: function complete.
#[must_use]
pub fn task_management_response() -> Template {
    Template::new(Opcode::TaskManagementResponse)
}

/// Creates a logout response: closed successfully.
#[must_use]
pub fn logout_response() -> Template {
    Template::new(Opcode::LogoutResponse)
}

/// Creates an asynchronous message: event 0.
#[must_use]
pub fn async_message() -> Template {
    Template::new(Opcode::AsyncMessage).itt(NO_TAG)
}

/// Creates a Reject of `pdu`; its data segment is the header of `pdu`.
#[must_use]
pub fn reject(pdu: &Pdu) -> Template {
    let mut header = pdu.header.to_vec();
    header[5..8].copy_from_slice(&len32(pdu.data.len()).to_be_bytes()[1..]);
    Template::new(Opcode::Reject).itt(NO_TAG).data(header)
}
